//! The processes that hold, wait and cycle. Each prints one line of figures at its end.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use syncguard::{Client, ClientOptions, FailedRelease, Guard, LockError, LockOptions};

use crate::usage;

/// How many threads take and release them.
const TAKERS: usize = 16;
/// How often all guards are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How many failures are told in full.
const TOLD: usize = 5;
/// How long a client waits for a lock: for the time in which the server is away, and then for the end of a lease.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// The lease of locks that change hands. Of one that is released while the server is away, the next holder waits for its end.
const BRIEF: Duration = Duration::from_secs(5);
/// How long a client waits from one cycle to the next. A thousand that never pause are a measurement of the processor.
const PAUSE: Duration = Duration::from_secs(1);

pub fn run(words: &[&str]) -> Result<(), String> {
    let [what, url, count, ms] = words else {
        return Err("a child needs four words".to_owned());
    };
    let count = count.parse::<usize>().map_err(|e| e.to_string())?;
    let time = Duration::from_millis(ms.parse().map_err(|_| "no time".to_owned())?);
    let figures = match *what {
        "renewing" => renewing(url, count, time)?,
        "waiting" => waiting(url, count)?,
        "clients" => clients(url, count, time)?,
        _ => return Err(format!("{what:?} is no work")),
    };
    println!("{figures}");
    Ok(())
}

/// Says that the work has begun.
fn ready() {
    println!("ready");
}

/// Calls that failed: how many, and why the first of them did.
#[derive(Default)]
struct Failures {
    count: AtomicU64,
    told: Mutex<Vec<String>>,
}

impl Failures {
    fn note(&self, what: &str, why: impl Display) {
        self.count.fetch_add(1, SeqCst);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < TOLD {
            told.push(format!("{what}: {why}"));
        }
    }

    fn count(&self) -> u64 {
        self.count.load(SeqCst)
    }

    fn told(&self) -> Vec<String> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.clone()
    }
}

fn take_all(client: &Client, count: usize, ttl: Duration) -> Result<Vec<Guard>, String> {
    let options = LockOptions::new().ttl(ttl);
    let take = |first: usize| {
        let keys = (first..count).step_by(TAKERS);
        keys.map(|i| client.lock_with(format!("load-{i}"), &options))
            .collect::<Result<Vec<_>, _>>()
    };
    std::thread::scope(|scope| {
        let takers: Vec<_> = (0..TAKERS).map(|t| scope.spawn(move || take(t))).collect();
        let mut guards = Vec::with_capacity(count);
        for taker in takers {
            let some = taker.join().map_err(|_| "a taker panicked".to_owned())?;
            guards.extend(some.map_err(|e| e.to_string())?);
        }
        Ok(guards)
    })
}

/// Holds locks whose lease is `time`, for as long: each is renewed three times.
fn renewing(url: &str, count: usize, time: Duration) -> Result<Value, String> {
    let client = Client::open(url).map_err(|e| e.to_string())?;
    drop(client.lock("load-first").map_err(|e| e.to_string())?);
    let before = usage::resident();
    let guards = take_all(&client, count, time)?;
    let held = usage::resident().saturating_sub(before);
    ready();
    let end = Instant::now() + time;
    let (mut least, mut threads, mut sockets, mut renewals) = (time, 0, 0, 0_u64);
    let mut expires: Vec<i64> = guards.iter().map(Guard::expires_at_ms).collect();
    while Instant::now() < end {
        std::thread::sleep(LOOK);
        threads = threads.max(usage::threads());
        sockets = sockets.max(usage::sockets());
        for (guard, before) in guards.iter().zip(&mut expires) {
            least = least.min(guard.remaining());
            let now = guard.expires_at_ms();
            renewals += u64::from(now > *before);
            *before = now;
        }
    }
    let lost = guards.iter().filter(|guard| guard.is_lost()).count();
    let bytes = usage::resident().saturating_sub(before);
    let kept = release_all(guards);
    Ok(json!({
        "lost": lost, "not released": kept.count(), "why": kept.told(), "renewals": renewals,
        "least left of a lease, s": least.as_secs_f64(),
        "bytes per lock, held": held / count as u64, "bytes per lock, renewing": bytes / count as u64,
        "threads": threads, "connections": sockets,
    }))
}

/// Answers which were not there any more, or could not be released.
fn release_all(guards: Vec<Guard>) -> Failures {
    let (guards, kept) = (&guards, Failures::default());
    let release = |first: usize| {
        for guard in guards.iter().skip(first).step_by(TAKERS) {
            match guard.release() {
                Ok(outcome) if outcome.is_released() => {}
                Ok(outcome) => kept.note("release", format_args!("{outcome:?}")),
                Err(error) => kept.note("release", error),
            }
        }
    };
    std::thread::scope(|scope| {
        for taker in 0..TAKERS {
            let release = &release;
            scope.spawn(move || release(taker));
        }
    });
    kept
}

/// Callers that wait for one key, each on a thread, and pass it on.
fn waiting(url: &str, count: usize) -> Result<Value, String> {
    let client = Client::open(url).map_err(|e| e.to_string())?;
    let ttl = BRIEF;
    let held = client.lock_with("load-one", &LockOptions::new().ttl(ttl));
    let held = held.map_err(|e| e.to_string())?;
    let before = usage::resident();
    let [begun, granted] = <[Arc<AtomicU64>; 2]>::default();
    let failed = Arc::new(Failures::default());
    let mut waiters = Vec::with_capacity(count);
    for _ in 0..count {
        let client = client.clone();
        let (begun, granted, failed) = (begun.clone(), granted.clone(), failed.clone());
        let waiter = move || {
            begun.fetch_add(1, SeqCst);
            let options = LockOptions::new()
                .ttl(ttl)
                .acquire_timeout(Duration::from_secs(300));
            match client.lock_with("load-one", &options) {
                Ok(_guard) => {
                    granted.fetch_add(1, SeqCst);
                }
                Err(error) => failed.note("lock", error),
            }
        };
        let thread = Builder::new().stack_size(128 * 1024).spawn(waiter);
        waiters.push(thread.map_err(|e| e.to_string())?);
    }
    while begun.load(SeqCst) < count as u64 {
        std::thread::sleep(LOOK);
    }
    // All are in line, or on their way there.
    std::thread::sleep(Duration::from_secs(1));
    let bytes = usage::resident().saturating_sub(before);
    ready();
    let from = Instant::now();
    drop(held);
    let mut sockets = 0;
    while waiters.iter().any(|w| !w.is_finished()) {
        sockets = sockets.max(usage::sockets());
        std::thread::sleep(LOOK);
    }
    Ok(json!({
        "granted": granted.load(SeqCst), "failed": failed.count(), "why": failed.told(),
        "all granted after, s": from.elapsed().as_secs_f64(),
        "bytes per waiter and its thread": bytes / count as u64, "connections": sockets,
    }))
}

/// Clients of one process: each keeps a lock that it renews, and takes others in turn. The work begins when each has its own.
fn clients(url: &str, count: usize, time: Duration) -> Result<Value, String> {
    let [begun, cycles, lost] = <[AtomicU64; 3]>::default();
    let (failed, over) = (Failures::default(), AtomicBool::new(false));
    let unanswered = Arc::new(AtomicU64::new(0));
    let patient = LockOptions::new().acquire_timeout(LONGEST_WAIT);
    let keep = |n: usize| {
        let count = Arc::clone(&unanswered);
        let note = move |_: &FailedRelease| {
            count.fetch_add(1, SeqCst);
        };
        let client = Client::open_with(url, &ClientOptions::new().on_release_error(note))?;
        let own = format!("load-{}-{n}", std::process::id());
        let kept = client.lock_with(own, &patient.clone().ttl(Duration::from_secs(9)))?;
        Ok::<_, LockError>((client, kept))
    };
    let work = |n: usize| {
        let kept = keep(n);
        begun.fetch_add(1, SeqCst);
        let (client, kept) = match kept {
            Ok(kept) => kept,
            Err(error) => return failed.note("the first lock", error),
        };
        while !over.load(SeqCst) {
            let key = format!("load-{}", (cycles.load(SeqCst) + n as u64) % 500);
            match client.lock_with(key, &patient.clone().ttl(BRIEF)) {
                Ok(_guard) => {
                    cycles.fetch_add(1, SeqCst);
                }
                Err(error) => failed.note("lock", error),
            }
            std::thread::sleep(PAUSE);
        }
        lost.fetch_add(u64::from(kept.is_lost()), SeqCst);
    };
    let most = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..count).map(|n| scope.spawn(move || work(n))).collect();
        while begun.load(SeqCst) < count as u64 {
            std::thread::sleep(LOOK);
        }
        ready();
        let end = Instant::now() + time;
        let mut most = 0;
        while callers.iter().any(|c| !c.is_finished()) {
            most = most.max(usage::sockets());
            over.store(Instant::now() >= end, SeqCst);
            std::thread::sleep(LOOK);
        }
        for caller in callers {
            if caller.join().is_err() {
                failed.note("a client", "it panicked");
            }
        }
        most
    });
    Ok(json!({
        "cycles": cycles.load(SeqCst), "failed": failed.count(), "why": failed.told(), "lost": lost.load(SeqCst),
        "connections": most, "releases without an answer": unanswered.load(SeqCst),
    }))
}
