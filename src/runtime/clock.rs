//! The clocks: one that runs during suspend, which leases are counted on, and the wall clock, which is only shown. It uses `cancel`
//! and `wake`.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::runtime::cancel::Bell;
use crate::runtime::wake::Wake;

/// What leases and waits for locks are counted on. Tests replace it.
///
/// Leases run during suspend, waits do not: on the system's clocks they are different times. Calls of a store are always bounded
/// in real time, so a clock that is not real says how its times and those of a call relate.
pub(crate) trait Clock: Send + Sync + fmt::Debug {
    /// The time since some fixed point. It never steps and goes on while the machine is suspended.
    fn now(&self) -> Duration;

    /// How long a thread that waits for `until` may sleep before it looks again; `None` if only being woken helps.
    fn looks_again_in(&self, until: Duration) -> Option<Duration>;

    /// Wakes `sleeper` whenever the clock was moved by hand.
    fn subscribe(&self, sleeper: Weak<dyn Wake>);

    /// The time as waits count it.
    fn wait_now(&self) -> Instant {
        Instant::now()
    }

    /// A time of waits, as the real time that is as far away.
    fn to_real(&self, wait_time: Instant) -> Instant {
        wait_time
    }

    /// A real time, as the time of waits that is as far away.
    fn to_wait(&self, real_time: Instant) -> Instant {
        real_time
    }

    /// Sleeps on `bell` until it is woken, or until this time of waits.
    fn sleep(&self, bell: &Arc<Bell>, until: Instant) {
        bell.sleep_until(Some(until));
    }
}

/// A thread's sleep does not run during suspend while leases do: a sleeper looks again at least this often, so that after a
/// resume a loss is reported within it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The boot-time clock of the system.
#[derive(Debug)]
pub(crate) struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Duration {
        boot_time()
    }

    fn looks_again_in(&self, until: Duration) -> Option<Duration> {
        Some(until.saturating_sub(boot_time()).min(LOOK_AGAIN))
    }

    fn subscribe(&self, _sleeper: Weak<dyn Wake>) {}
}

/// Time since boot, suspend included. macOS counts suspend in its monotonic clock already.
pub(crate) fn boot_time() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let id = ClockId::CLOCK_MONOTONIC;
    match clock_gettime(id) {
        Ok(t) => Duration::new(
            u64::try_from(t.tv_sec()).unwrap_or(0),
            u32::try_from(t.tv_nsec()).unwrap_or(0),
        ),
        // The call fails only for a clock the kernel does not know, and this one is older than everything we run on.
        Err(e) => unreachable!("the system has no boot-time clock: {e}"),
    }
}

/// Time since boot as the machine counts it, in milliseconds: the same number in every time namespace. A process in one of
/// its own sees its clock moved by `offset`, which [`boot_offset`] tells.
#[cfg(feature = "sqlite")]
pub(crate) fn machine_boot_ms(offset: BootOffset) -> i64 {
    let nanos = i64::try_from(boot_time().as_nanos()).unwrap_or(i64::MAX);
    nanos.saturating_sub(offset.0).div_euclid(1_000_000)
}

/// By how many nanoseconds this process sees the boot-time clock ahead of the machine's.
#[cfg(feature = "sqlite")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct BootOffset(i64);

/// How far the time namespace of this process moves the boot-time clock.
#[cfg(all(feature = "sqlite", any(target_os = "linux", target_os = "android")))]
pub(crate) fn boot_offset() -> std::io::Result<BootOffset> {
    let text = match std::fs::read_to_string("/proc/self/timens_offsets") {
        Ok(text) => text,
        // A kernel without time namespaces; or no /proc of this process, and then nothing is known.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            std::fs::metadata("/proc/self/ns")?;
            return Ok(BootOffset(0));
        }
        Err(e) => return Err(e),
    };
    // The file tells about the namespace of future children.
    let link = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}"));
    if link("time")? != link("time_for_children")? {
        return Err(std::io::Error::other(
            "the process has left its time namespace for its children only",
        ));
    }
    offset_of(&text).map(BootOffset).ok_or_else(|| {
        std::io::Error::other("/proc/self/timens_offsets has no line for the boot-time clock")
    })
}

/// How far the time namespace of this process moves the boot-time clock: there are none here.
#[cfg(all(
    feature = "sqlite",
    not(any(target_os = "linux", target_os = "android"))
))]
pub(crate) fn boot_offset() -> std::io::Result<BootOffset> {
    Ok(BootOffset(0))
}

/// The line `boottime SECONDS NANOSECONDS`.
#[cfg(all(feature = "sqlite", any(target_os = "linux", target_os = "android")))]
fn offset_of(text: &str) -> Option<i64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        // Old kernels write the clock's number.
        words.next().filter(|w| *w == "boottime" || *w == "7")?;
        let seconds: i64 = words.next()?.parse().ok()?;
        let nanos: i64 = words.next()?.parse().ok()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
    })
}

/// Which boot of the machine this is, as far as this process is told: containers mount a file of their own over it.
#[cfg(feature = "sqlite")]
pub(crate) fn boot_id() -> std::io::Result<String> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned());
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    return asked_boot_id();
}

/// The kernel's own name for this boot. One made of the time of the boot would not do: that moves with the wall clock, and two
/// processes that differ by a second would each think that the other's locks are dead.
#[cfg(all(
    feature = "sqlite",
    not(any(target_os = "linux", target_os = "android"))
))]
fn asked_boot_id() -> std::io::Result<String> {
    let (program, name) = if cfg!(target_vendor = "apple") {
        ("/usr/sbin/sysctl", "kern.bootsessionuuid")
    } else {
        ("/sbin/sysctl", "kern.boot_id")
    };
    let answer = std::process::Command::new(program)
        .args(["-n", name])
        .output()?;
    let id = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    if answer.status.success() && !id.is_empty() {
        Ok(id)
    } else {
        Err(std::io::Error::other(format!("sysctl knows no {name}")))
    }
}

/// Unix milliseconds. Shown; never what a lease is counted on.
pub(crate) fn wall_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}
