//! `run`: waits for the lock, runs the command under it, and ends the command before the lock can have another holder.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use syncguard::{Call, CancelToken, Client, ErrorCode, Guard, LockOptions};

use crate::args::{RunArgs, StoreArgs, Wait};
use crate::child::Child;
use crate::exit::{self, Failure, LOST, SOFTWARE, USAGE};
use crate::locks;
use crate::signals::Signals;
use crate::store;
use crate::supervisor;
use crate::terminal::Terminal;

/// The grace is no longer than this unless the caller says so.
const LONGEST_DEFAULT_GRACE: Duration = Duration::from_secs(10);
/// How long before the end of the lease the kernel is told to kill, at the most.
const KILL_MARGIN: Duration = Duration::from_millis(500);
/// Between two runs of a command under `--forever`: one that fails at once must not spin.
const BETWEEN_RUNS: Duration = Duration::from_secs(1);
/// How often to look whether a group without its leader is empty, where the system does not tell.
const GROUP_LOOK: Duration = Duration::from_millis(20);

/// How long a look at the holder may take, of which a person at a terminal is told.
const LONGEST_LOOK: Duration = Duration::from_millis(300);

/// The bytes of a text that can be stored beside a lock.
const LONGEST_HOLDER: usize = 200;

pub fn run(store: &StoreArgs, args: &RunArgs) -> Result<u8, Failure> {
    let grace = grace(args)?;
    let client = store::open(store)?;
    let mut signals = Signals::take()
        .map_err(|e| Failure::new(SOFTWARE, format!("cannot take over the signals: {e}")))?;
    loop {
        let waker = signals.waker()?;
        let options = LockOptions::new()
            .ttl(args.ttl)
            .holder(holder(args))
            .on_lost(move |_| drop((&waker).write(b"x")));
        let options = match args.max_hold {
            Some(max) => options.max_hold(max),
            None => options,
        };
        let guard = match lock(&client, args, options, &mut signals)? {
            Waited::Held(guard) => guard,
            Waited::Ended(signal) => return Ok(128 + signal as u8),
        };
        let done = under_lock(&guard, args, grace, &mut signals);
        let code = finish(&guard, done)?;
        if !args.forever || code.ends {
            return Ok(code.status);
        }
        say(&format!(
            "the command ended with {}; waiting for the lock again",
            code.status
        ));
        let again = Instant::now() + BETWEEN_RUNS;
        while let Some(left) = again.checked_duration_since(Instant::now()) {
            signals.wait(left);
            let requests = signals.requests();
            if let Some(signal) = requests.end {
                return Ok(128 + signal as u8);
            }
            if requests.stop {
                signals.stop_self(Terminal::open().is_there());
            }
        }
    }
}

fn grace(args: &RunArgs) -> Result<Duration, Failure> {
    match args.grace {
        None => Ok(LONGEST_DEFAULT_GRACE.min(args.ttl / 3)),
        Some(grace) if grace > args.ttl / 2 => Err(Failure::new(
            USAGE,
            "the grace is more than half of the ttl: a renewal that is a little late would end the command",
        )),
        Some(grace) => Ok(grace),
    }
}

/// What is stored beside the lock: host, pid and command, unless the caller says something else.
fn holder(args: &RunArgs) -> String {
    if let Some(text) = &args.holder {
        return text.clone();
    }
    let host = nix::unistd::gethostname().unwrap_or_default();
    let program = args.command.first().map(Path::new);
    let name = program.and_then(Path::file_name).unwrap_or_default();
    let text = format!(
        "{}/{}/{}",
        host.to_string_lossy(),
        std::process::id(),
        name.to_string_lossy()
    );
    // A name that cannot be shown, or is long, is no reason not to run.
    let mut plain = String::new();
    for c in text.chars() {
        let c = if locks::is_printable(c) { c } else { '?' };
        if plain.len() + c.len_utf8() > LONGEST_HOLDER {
            break;
        }
        plain.push(c);
    }
    plain
}

/// How a wait for the lock ended.
enum Waited {
    Held(Guard),
    Ended(Signal),
}

fn lock(
    client: &Client,
    args: &RunArgs,
    options: LockOptions,
    signals: &mut Signals,
) -> Result<Waited, Failure> {
    let key = args.key.as_str();
    if args.try_once {
        return match client.try_lock_with(key, &options)? {
            Some(guard) => Ok(Waited::Held(guard)),
            None => Err(conflict(args, "another holder")),
        };
    }
    let limit = match args.wait {
        _ if args.forever => None,
        Wait::Forever => None,
        Wait::AtMost(time) => Some(time),
    };
    let cancel = CancelToken::new();
    let options = match limit {
        Some(time) => options.acquire_timeout(time),
        None => options.wait_forever(),
    }
    .cancel(&cancel);
    let done = AtomicBool::new(false);
    let waker = signals.waker()?;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let answer = client.lock_with(key, &options);
            done.store(true, Ordering::Release);
            let _ = (&waker).write(b"x");
            answer
        });
        let mut ended = None;
        let mut line = WaitLine::new(client, key, limit);
        while !done.load(Ordering::Acquire) {
            signals.wait(line.draw());
            let requests = signals.requests();
            if let Some(signal) = requests.end {
                ended = Some(signal);
                cancel.cancel();
            }
            if requests.stop {
                line.clear();
                signals.stop_self(Terminal::open().is_there());
            }
        }
        line.clear();
        let answer = waiting
            .join()
            .map_err(|_| Failure::new(SOFTWARE, "the wait panicked"))?;
        match (answer, ended) {
            (Err(_), Some(signal)) => Ok(Waited::Ended(signal)),
            (Ok(guard), Some(signal)) => {
                drop(guard);
                Ok(Waited::Ended(signal))
            }
            (Ok(guard), None) => Ok(Waited::Held(guard)),
            (Err(error), None) if error.code() == ErrorCode::AcquisitionTimeout => {
                let holder = error.holder_text().unwrap_or("another holder");
                Err(conflict(args, &locks::shown(holder)))
            }
            (Err(error), None) => Err(error.into()),
        }
    })
}

fn conflict(args: &RunArgs, holder: &str) -> Failure {
    match args.quiet {
        true => Failure::silent(args.conflict_exit_code),
        false => Failure::new(
            args.conflict_exit_code,
            format!("the lock is held by {holder}"),
        ),
    }
}

/// What a person at a terminal sees while the program waits.
struct WaitLine<'a> {
    client: &'a Client,
    key: &'a str,
    limit: Option<Duration>,
    begun: Instant,
    on_terminal: bool,
    drawn: bool,
}

impl<'a> WaitLine<'a> {
    fn new(client: &'a Client, key: &'a str, limit: Option<Duration>) -> Self {
        Self {
            client,
            key,
            limit,
            begun: Instant::now(),
            on_terminal: std::io::stderr().is_terminal(),
            drawn: false,
        }
    }

    /// Draws the line if the wait is long enough to be noticed, and says when to do so again.
    fn draw(&mut self) -> Duration {
        if !self.on_terminal {
            return Duration::from_secs(60);
        }
        let waited = self.begun.elapsed();
        if waited < Duration::from_millis(300) {
            return Duration::from_millis(301).saturating_sub(waited);
        }
        // Signals wait meanwhile.
        let call = Call::new().within(LONGEST_LOOK);
        if let Ok(Some(lock)) = self.client.get_by_key_raw_with(self.key, &call) {
            let holder = lock.holder.as_deref().unwrap_or("another holder");
            let left = match self.limit {
                Some(limit) => format!(
                    ", at most {} more",
                    locks::words(limit.saturating_sub(waited))
                ),
                None => String::new(),
            };
            let held = locks::age(&lock);
            let mut err = std::io::stderr().lock();
            let _ = write!(
                err,
                "\r\x1b[Kwaiting for {}: held by {holder} for {}{left}",
                locks::shown(self.key),
                locks::words(held)
            );
            let _ = err.flush();
            self.drawn = true;
        }
        Duration::from_secs(1)
    }

    fn clear(&self) {
        if self.drawn {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// How a command under a lock ended.
struct Done {
    status: u8,
    /// Why this program ended it, if it did.
    cause: Option<Cause>,
    /// A signal or a person at the terminal asked this program to end, or the command cannot be run at all.
    ends: bool,
}

/// Why this program ended a command.
#[derive(Clone, Copy, PartialEq)]
enum Cause {
    NotRenewed,
    LongestTime,
    Lost,
}

/// Until when a command may go on: as long as the lease, and `--max-hold`, allow.
struct Terms<'a> {
    guard: &'a Guard,
    begun: Duration,
    max_hold: Option<Duration>,
    grace: Duration,
    margin: Duration,
    /// When SIGTERM was sent, and why.
    told: Option<(Duration, Cause)>,
}

impl<'a> Terms<'a> {
    fn new(guard: &'a Guard, args: &RunArgs, grace: Duration) -> Self {
        Self {
            guard,
            begun: supervisor::now(),
            max_hold: args.max_hold,
            grace,
            margin: KILL_MARGIN.min(args.ttl / 10),
            told: None,
        }
    }

    /// Whether the lock is held for long enough that the command may run.
    fn hold(&self) -> bool {
        self.guard.remaining() > self.margin
    }

    /// How long until SIGTERM, and what it is sent for.
    fn until_term(&self) -> (Duration, Cause) {
        let lease = self.guard.remaining().saturating_sub(self.grace);
        let held = supervisor::now().saturating_sub(self.begun);
        match self.max_hold.map(|max| max.saturating_sub(held)) {
            Some(left) if left < lease => (left, Cause::LongestTime),
            _ => (lease, Cause::NotRenewed),
        }
    }

    /// How long until SIGKILL. Behind SIGTERM it is the grace at the most.
    fn until_kill(&self) -> Duration {
        let lease = self.guard.remaining().saturating_sub(self.margin);
        match self.told {
            Some((at, _)) => lease.min((at + self.grace).saturating_sub(supervisor::now())),
            None => lease,
        }
    }

    /// How long the second process lets the command live, if this one does not kill it.
    fn allowed(&self) -> Duration {
        self.guard.remaining().saturating_sub(self.margin / 2)
    }

    fn cause(&self) -> Option<Cause> {
        self.told.map(|(_, cause)| cause)
    }
}

fn under_lock(
    guard: &Guard,
    args: &RunArgs,
    grace: Duration,
    signals: &mut Signals,
) -> Result<Done, Failure> {
    let mut terms = Terms::new(guard, args, grace);
    if !terms.hold() {
        // This program was stopped after the grant.
        return Ok(Done {
            status: LOST,
            cause: Some(Cause::Lost),
            ends: false,
        });
    }
    let fence = guard.fence().to_string();
    let mut child = Child::start(&args.command, &args.key, &fence, terms.allowed())?;
    let mut ends = false;
    let ended = loop {
        for signal in signals.arrived() {
            match signal {
                Signal::SIGTSTP => child.ask_to_stop(signals, || terms.hold()),
                signal => {
                    ends = true;
                    // One that was stopped goes on to see the signal; without the lock it never does.
                    child.signal(match terms.hold() {
                        true => signal,
                        false => Signal::SIGKILL,
                    });
                }
            }
        }
        if let Some(by) = child.look() {
            child.was_stopped(by, signals, || terms.hold());
            continue;
        }
        if let Some(ended) = child.ended() {
            break ended;
        }
        child.allow(terms.allowed());
        let (until_term, cause) = terms.until_term();
        if terms.told.is_none() && until_term.is_zero() {
            let cause = if terms.hold() { cause } else { Cause::Lost };
            terms.told = Some((supervisor::now(), cause));
            say(match cause {
                Cause::NotRenewed => "the lock cannot be renewed; ending the command",
                Cause::LongestTime => "the lock was held for its longest time; ending the command",
                Cause::Lost => "the lock was lost; killing the command",
            });
            if cause != Cause::Lost {
                child.signal(Signal::SIGTERM);
            }
        }
        let until_kill = terms.until_kill();
        if until_kill.is_zero() {
            child.signal(Signal::SIGKILL);
        }
        let mut next = match terms.told {
            _ if until_kill.is_zero() => GROUP_LOOK,
            Some(_) => until_kill,
            None => until_term,
        };
        if child.leader_ended() {
            next = next.min(GROUP_LOOK);
        }
        signals.wait(next.max(Duration::from_millis(1)));
    };
    child.take_terminal_back();
    Ok(Done {
        status: ended.status,
        cause: terms
            .cause()
            .or_else(|| guard.is_lost().then_some(Cause::Lost)),
        ends: ends || ended.interrupted || child.never_ran(),
    })
}

/// Releases the lock, which no process of the command uses any more.
fn finish(guard: &Guard, done: Result<Done, Failure>) -> Result<Done, Failure> {
    let released = guard.release();
    let mut done = done?;
    let status = done.status;
    let is_released = matches!(&released, Ok(outcome) if outcome.is_released());
    let ended = match (released, done.cause) {
        (Ok(_), None) if is_released => return Ok(done),
        (Ok(_), Some(Cause::LongestTime)) if is_released => {
            "the lock was held for its longest time".to_owned()
        }
        (Ok(_), Some(_)) if is_released => {
            "the lock was not renewed in time, and was released".to_owned()
        }
        // The command has ended under the lock: its code is the answer, and the lock ends with its ttl.
        (Err(error), None) if error.code() != ErrorCode::Lost => {
            say(&format!(
                "the lock was not released and ends with its ttl: {error} ({})",
                exit::code_of(error.code())
            ));
            return Ok(done);
        }
        _ => match guard.loss() {
            Some(reason) => reason.to_string(),
            None => "the lock was lost".to_owned(),
        },
    };
    say(&format!("{ended}; the command ended with {status}"));
    done.status = LOST;
    Ok(done)
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "syncguard: {text}");
}
