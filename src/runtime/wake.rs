//! Waking a thread that waits: the trait, and a descriptor that becomes readable. It uses nothing else of the crate.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Something that can be woken from any thread, any number of times, without blocking.
pub(crate) trait Wake: Send + Sync {
    fn wake(&self);
}

/// A descriptor that is readable from the first [`wake`](Wake::wake) on, until it is [cleared](WakeFd::clear).
#[derive(Debug)]
pub(crate) struct WakeFd(imp::Fd);

#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use nix::sys::eventfd::{EfdFlags, EventFd};
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};

    #[derive(Debug)]
    pub(super) struct Fd(EventFd);

    impl Fd {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(EventFd::from_value_and_flags(
                0,
                EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
            )?))
        }

        pub(super) fn raise(&self) {
            // It can fail only when the counter is full, and then the descriptor is readable already.
            let _ = self.0.write(1);
        }

        pub(super) fn clear(&self) {
            let _ = self.0.read();
        }

        pub(super) fn fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    use std::io::{self, Read, Write};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;

    #[derive(Debug)]
    pub(super) struct Fd {
        reader: UnixStream,
        writer: UnixStream,
    }

    impl Fd {
        pub(super) fn new() -> io::Result<Self> {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            writer.set_nonblocking(true)?;
            Ok(Self { reader, writer })
        }

        pub(super) fn raise(&self) {
            // A full pipe is readable already.
            let _ = (&self.writer).write(&[1]);
        }

        pub(super) fn clear(&self) {
            let mut sink = [0; 64];
            while matches!((&self.reader).read(&mut sink), Ok(n) if n > 0) {}
        }

        pub(super) fn fd(&self) -> BorrowedFd<'_> {
            self.reader.as_fd()
        }
    }
}

impl WakeFd {
    pub(crate) fn new() -> io::Result<Self> {
        imp::Fd::new().map(Self)
    }

    pub(crate) fn clear(&self) {
        self.0.clear();
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}

impl Wake for WakeFd {
    fn wake(&self) {
        self.0.raise();
    }
}
