/* Lets every sync of a file to the disk fail while the file that SYNC_FAILS names exists. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fails(void)
{
    const char *path = getenv("SYNC_FAILS");
    return path && access(path, F_OK) == 0;
}

int fdatasync(int fd)
{
    if (fails()) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    if (fails()) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_fsync, fd);
}
