//! One contender as a process of its own, driven by lines on its input. The peers speak the same:
//!
//! ```text
//! ready <version>                                at the start
//! cycles <callers> <ms>                          ok <cycles> <ns> <p50 ns> <p99 ns>
//! contend <callers> <hold µs> <ms> <wait>        ok <grants> <ns> <handoffs> <p50 ns> <p99 ns> <fewest> <most> <gave up>
//! handoff <callers> <hold µs> <ms> <wait>        the same, by callers that come back only after another's grant
//! burst <callers> <hold µs> <wait>               ok <ns until drained> <gave up>
//! wait <callers> <wait>                          ok, while all of them wait for a lock that is held
//! ```
//!
//! A handoff is a grant to another caller than the one before; its time runs from the moment the release is begun to the moment
//! the grant is known. Whatever goes wrong is answered with `error <text>`.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use super::callers::{Caller, Contender, Wait, at_once, key};
use super::memory;
use super::stats::{at, sorted};

const ONE_KEY: &str = "bench-contended";

pub fn run(kind: &str, url: &str) {
    let mut worker = match Contender::new(kind, url) {
        Ok(contender) => Worker {
            contender,
            crowd: (0, Vec::new()),
        },
        Err(e) => return println!("error {}", e.replace('\n', " ")),
    };
    println!("ready {}", env!("CARGO_PKG_VERSION"));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match worker.answer(&words) {
            Ok(answer) => println!("ok {answer}"),
            Err(e) => println!("error {}", e.replace('\n', " ")),
        }
        let _ = std::io::stdout().flush();
    }
    // Waiters may still wait.
    std::process::exit(0);
}

struct Worker {
    contender: Contender,
    /// The last one and how many callers it is for, so that every round finds its connections made.
    crowd: (usize, Vec<Box<dyn Caller>>),
}

impl Worker {
    fn answer(&mut self, words: &[&str]) -> Result<String, String> {
        let number = |i: usize| -> Result<u64, String> {
            let word = words.get(i).ok_or("too few words")?;
            word.parse().map_err(|_| format!("not a number: {word}"))
        };
        let wait = |i: usize| Wait::parse(words.get(i).copied().unwrap_or_default());
        match words.first().copied() {
            Some("cycles") => {
                let callers = number(1)? as usize;
                if self.crowd.0 != callers {
                    self.crowd = (callers, self.contender.crowd(callers)?);
                }
                cycles(&mut self.crowd.1, Duration::from_millis(number(2)?))
            }
            Some(how @ ("contend" | "handoff")) => {
                let rivals = self
                    .contender
                    .rivals(number(1)? as usize, ONE_KEY, wait(4)?)?;
                contend(
                    rivals,
                    Duration::from_micros(number(2)?),
                    Duration::from_millis(number(3)?),
                    how == "handoff",
                )
            }
            Some("burst") => {
                let rivals = self
                    .contender
                    .rivals(number(1)? as usize, ONE_KEY, wait(3)?)?;
                burst(rivals, Duration::from_micros(number(2)?))
            }
            Some("wait") => self.wait(number(1)? as usize, wait(2)?),
            Some("hold") => memory::hold(
                &self.contender,
                number(1)? as usize,
                words.get(2) == Some(&"beating"),
            ),
            _ => Err(format!("no such request: {words:?}")),
        }
    }

    /// Takes the lock and has others wait for it, until this process is ended.
    fn wait(&self, callers: usize, wait: Wait) -> Result<String, String> {
        let mut all = self
            .contender
            .waiters(callers + 1, &key(99_999_999), wait)?;
        let mut holder = all.pop().ok_or("no caller")?;
        if !holder.acquire()? {
            return Err("the holder was not granted its lock".to_owned());
        }
        std::mem::forget(holder);
        for mut waiter in all {
            std::thread::spawn(move || waiter.acquire());
        }
        Ok(String::new())
    }
}

fn nanos(d: Duration) -> f64 {
    d.as_nanos() as f64
}

fn cycles(crowd: &mut [Box<dyn Caller>], time: Duration) -> Result<String, String> {
    let together = Barrier::new(crowd.len());
    let times = Mutex::new(Vec::new());
    let work = |caller: &mut Box<dyn Caller>| -> Result<(Instant, Instant), String> {
        let mut own = Vec::with_capacity(1 << 14);
        together.wait();
        let begun = Instant::now();
        let mut last = begun;
        while last - begun < time {
            if !caller.acquire()? {
                return Err("a lock that no other caller wants was taken".to_owned());
            }
            caller.release()?;
            let now = Instant::now();
            own.extend(std::iter::repeat_n(nanos(now - last), caller.locks()));
            last = now;
        }
        if let Ok(mut times) = times.lock() {
            times.append(&mut own);
        }
        Ok((begun, last))
    };
    let spans: Vec<(Instant, Instant)> = match crowd {
        [one] => vec![work(one)?],
        many => at_once(many, |_, caller| work(caller))?,
    };
    let first = spans.iter().map(|s| s.0).min().ok_or("no callers")?;
    let last = spans.iter().map(|s| s.1).max().ok_or("no callers")?;
    let times = sorted(times.into_inner().map_err(|_| "a caller panicked")?);
    Ok(format!(
        "{} {} {} {}",
        times.len(),
        nanos(last - first),
        at(&times, 0.5),
        at(&times, 0.99)
    ))
}

/// Which caller released last, and when: written by the holder alone, read by the next.
struct Handoffs {
    begun: Instant,
    released_at: AtomicU64,
    by: AtomicU64,
}

fn contend(
    rivals: Vec<Box<dyn Caller>>,
    hold: Duration,
    time: Duration,
    polite: bool,
) -> Result<String, String> {
    let together = Barrier::new(rivals.len());
    let shared = Handoffs {
        begun: Instant::now(),
        released_at: AtomicU64::new(0),
        by: AtomicU64::new(u64::MAX),
    };
    let over = AtomicBool::new(false);
    let total = AtomicU64::new(0);
    let work = |me: usize, mut caller: Box<dyn Caller>| -> Result<(u64, u64, Vec<f64>), String> {
        let now = || shared.begun.elapsed().as_nanos() as u64;
        let (mut grants, mut gave_up, mut handoffs) = (0, 0, Vec::new());
        together.wait();
        let end = Instant::now() + time;
        while Instant::now() < end && !over.load(Ordering::Relaxed) {
            if !caller.acquire()? {
                gave_up += 1;
                continue;
            }
            if Instant::now() >= end {
                caller.release()?;
                break;
            }
            let granted = now();
            let (at, by) = (
                shared.released_at.load(Ordering::SeqCst),
                shared.by.load(Ordering::SeqCst),
            );
            if by != u64::MAX && by != me as u64 {
                handoffs.push(granted.saturating_sub(at) as f64);
            }
            grants += 1;
            let mine = total.fetch_add(1, Ordering::SeqCst) + 1;
            std::thread::sleep(hold);
            shared.by.store(me as u64, Ordering::SeqCst);
            shared.released_at.store(now(), Ordering::SeqCst);
            caller.release()?;
            // A caller that comes back at once would mostly find the lock still free.
            while polite && total.load(Ordering::SeqCst) == mine && Instant::now() < end {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        // Callers that still wait would only wait for their next try.
        over.store(true, Ordering::Relaxed);
        Ok((grants, gave_up, handoffs))
    };
    let begun = Instant::now();
    let all = at_once(rivals, work)?;
    // A caller that was granted the lock after the end is not counted, and neither is that time.
    let elapsed = begun.elapsed().min(time);
    let grants: u64 = all.iter().map(|a| a.0).sum();
    let gave_up: u64 = all.iter().map(|a| a.1).sum();
    let fewest = all.iter().map(|a| a.0).min().unwrap_or(0);
    let most = all.iter().map(|a| a.0).max().unwrap_or(0);
    let handoffs = sorted(all.into_iter().flat_map(|a| a.2).collect());
    Ok(format!(
        "{grants} {} {} {} {} {fewest} {most} {gave_up}",
        nanos(elapsed),
        handoffs.len(),
        at(&handoffs, 0.5),
        at(&handoffs, 0.99),
    ))
}

fn burst(rivals: Vec<Box<dyn Caller>>, hold: Duration) -> Result<String, String> {
    let together = Barrier::new(rivals.len());
    let work = |_, mut caller: Box<dyn Caller>| -> Result<(Instant, Instant, u64), String> {
        together.wait();
        let begun = Instant::now();
        let mut gave_up = 0;
        while !caller.acquire()? {
            gave_up += 1;
        }
        std::thread::sleep(hold);
        caller.release()?;
        Ok((begun, Instant::now(), gave_up))
    };
    let all = at_once(rivals, work)?;
    let first = all.iter().map(|a| a.0).min().ok_or("no callers")?;
    let last = all.iter().map(|a| a.1).max().ok_or("no callers")?;
    let gave_up: u64 = all.iter().map(|a| a.2).sum();
    Ok(format!("{} {gave_up}", nanos(last - first)))
}
