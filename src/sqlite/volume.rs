//! What the file lies on.

use std::path::Path;

/// What an operator should know about the file system of the lock file.
pub(super) fn warning(path: &Path) -> Option<String> {
    remote(path).map(|kind| {
        format!(
            "the lock file lies on {kind}, which other machines may share: SQLite's locks do not hold between machines; put it on \
             a local disk"
        )
    })
}

#[cfg(target_os = "linux")]
fn remote(path: &Path) -> Option<&'static str> {
    use nix::sys::statfs::{FsType, statfs};

    /// From the kernel's `magic.h` and the file systems' own sources.
    const REMOTE: [(i64, &str); 9] = [
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x0102_1997, "9p"),
        (0x5346_414f, "AFS"),
        (0x00c3_6400, "Ceph"),
        (0x0bd0_0bd0, "Lustre"),
        (0x6573_5546, "FUSE"),
    ];
    let FsType(kind) = statfs(path).ok()?.filesystem_type();
    // The width of the type differs between architectures.
    #[allow(clippy::unnecessary_cast)]
    let kind = kind as i64 & 0xffff_ffff;
    REMOTE
        .iter()
        .find(|(magic, _)| *magic == kind)
        .map(|(_, name)| *name)
}

#[cfg(not(target_os = "linux"))]
fn remote(_: &Path) -> Option<&'static str> {
    None
}
