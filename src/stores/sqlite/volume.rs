//! Which file system the lock file is on, and whether locks are safe there. It uses nothing else of the crate.

use std::path::Path;

/// What an operator should know about the file system of the lock file.
pub(super) fn warning(path: &Path) -> Option<String> {
    let UnfitVolume { kind, remote, .. } = unfit_volume(path)?;
    Some(if *remote {
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

/// A kind of file system on which locks or fences are not safe.
struct UnfitVolume {
    /// From the kernel's `magic.h` and the file systems' own sources.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    magic: i64,
    kind: &'static str,
    /// Whether other machines may share it.
    remote: bool,
}

#[cfg(target_os = "linux")]
fn unfit_volume(path: &Path) -> Option<&'static UnfitVolume> {
    use nix::sys::statfs::{FsType, statfs};

    const fn volume(magic: i64, kind: &'static str, remote: bool) -> UnfitVolume {
        UnfitVolume {
            magic,
            kind,
            remote,
        }
    }
    static UNFIT: [UnfitVolume; 11] = [
        volume(0x6969, "NFS", true),
        volume(0x517b, "SMB", true),
        volume(0xff53_4d42, "CIFS", true),
        volume(0xfe53_4d42, "SMB2", true),
        volume(0x0102_1997, "9p", true),
        volume(0x5346_414f, "AFS", true),
        volume(0x00c3_6400, "Ceph", true),
        volume(0x0bd0_0bd0, "Lustre", true),
        volume(0x6573_5546, "FUSE", true),
        volume(0x0102_1994, "tmpfs", false),
        volume(0x8584_58f6, "ramfs", false),
    ];
    let FsType(kind) = statfs(path).ok()?.filesystem_type();
    // The width of the type differs between architectures.
    #[allow(clippy::unnecessary_cast)]
    let kind = kind as i64 & 0xffff_ffff;
    UNFIT.iter().find(|unfit| unfit.magic == kind)
}

#[cfg(not(target_os = "linux"))]
fn unfit_volume(_: &Path) -> Option<&'static UnfitVolume> {
    None
}
