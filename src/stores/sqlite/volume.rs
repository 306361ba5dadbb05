//! What the file lies on.

use std::path::Path;

/// What an operator should know about the file system of the lock file.
pub(super) fn warning(path: &Path) -> Option<String> {
    let (kind, remote) = kind(path)?;
    Some(if remote {
        format!(
            "the lock file lies on {kind}, which other machines may share: SQLite's locks do not hold between machines; put it on \
             a local disk"
        )
    } else {
        format!(
            "the lock file lies on {kind}, in memory: a reboot or an unmount loses the fence counters, and fences would be given \
             twice; put it on a local disk"
        )
    })
}

/// The name of a file system that is unfit, and whether it is a remote one.
#[cfg(target_os = "linux")]
fn kind(path: &Path) -> Option<(&'static str, bool)> {
    use nix::sys::statfs::{FsType, statfs};

    /// From the kernel's `magic.h` and the file systems' own sources.
    const UNFIT: [(i64, &str, bool); 11] = [
        (0x6969, "NFS", true),
        (0x517b, "SMB", true),
        (0xff53_4d42, "CIFS", true),
        (0xfe53_4d42, "SMB2", true),
        (0x0102_1997, "9p", true),
        (0x5346_414f, "AFS", true),
        (0x00c3_6400, "Ceph", true),
        (0x0bd0_0bd0, "Lustre", true),
        (0x6573_5546, "FUSE", true),
        (0x0102_1994, "tmpfs", false),
        (0x8584_58f6, "ramfs", false),
    ];
    let FsType(kind) = statfs(path).ok()?.filesystem_type();
    // The width of the type differs between architectures.
    #[allow(clippy::unnecessary_cast)]
    let kind = kind as i64 & 0xffff_ffff;
    UNFIT
        .iter()
        .find(|(magic, ..)| *magic == kind)
        .map(|(_, name, remote)| (*name, *remote))
}

#[cfg(not(target_os = "linux"))]
fn kind(_: &Path) -> Option<(&'static str, bool)> {
    None
}
