//! `ls`, `show`, `watch`, `fence` and `release`: what people see of locks, and what they can mend.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use syncguard::{Backend, Call, Client, HolderText, ListOptions, LockError, LockInfoDebug};

use crate::args::{KeyArgs, ListArgs, ReleaseArgs, WatchArgs};
use crate::exit::{ABSENT, BROKEN_PIPE, Failure, USAGE};

/// How many entries one trip examines: a server serves others in between.
const EXAMINED: u32 = 500;

pub fn ls(client: &Client, args: &ListArgs, as_json: bool) -> Result<u8, Failure> {
    let locks = all(client, &args.prefix)?;
    let mut out = std::io::stdout().lock();
    if as_json {
        for lock in locks.values() {
            writeln!(out, "{}", value(lock))?;
        }
    } else {
        out.write_all(table(&locks).as_bytes())?;
    }
    out.flush()?;
    Ok(0)
}

pub fn show(client: &Client, args: &KeyArgs, as_json: bool) -> Result<u8, Failure> {
    let Some(lock) = client.get_by_key_raw(args.key.as_str())? else {
        return Err(absent());
    };
    let mut out = std::io::stdout().lock();
    if as_json {
        writeln!(out, "{}", value(&lock))?;
        return Ok(0);
    }
    let (age, left) = times(&lock);
    writeln!(out, "key     {}", shown(&lock.key))?;
    writeln!(out, "holder  {}", lock.holder.as_deref().unwrap_or("-"))?;
    writeln!(out, "fence   {}", lock.info.fence)?;
    writeln!(out, "age     {}", words(age))?;
    writeln!(out, "left    {}", words(left))?;
    Ok(0)
}

pub fn fence(client: &Client, args: &KeyArgs, as_json: bool) -> Result<u8, Failure> {
    let Some(lock) = client.get_by_key(args.key.as_str())? else {
        return Err(absent());
    };
    let mut out = std::io::stdout().lock();
    if as_json {
        writeln!(out, "{}", json!({ "fence": lock.fence.get() }))?;
    } else {
        writeln!(out, "{}", lock.fence)?;
    }
    Ok(0)
}

pub fn release(client: &Client, args: &ReleaseArgs, as_json: bool) -> Result<u8, Failure> {
    let Some(lock) = client.get_by_key_raw(args.key.as_str())? else {
        return Err(absent());
    };
    if let Some(wanted) = args.fence
        && wanted != lock.info.fence.get()
    {
        return Err(Failure::new(
            ABSENT,
            format!(
                "the lock has another holder by now, with the fence {}",
                lock.info.fence
            ),
        ));
    }
    let (age, _) = times(&lock);
    let from = format!(
        "{} (fence {}, for {})",
        lock.holder
            .as_deref()
            .unwrap_or("a holder that says nothing of itself"),
        lock.info.fence,
        words(age)
    );
    if std::io::stdin().is_terminal() && !confirmed(&shown(&lock.key), &from)? {
        return Err(Failure::new(USAGE, "nothing was released"));
    }
    // By the id of the holder that was shown: if another one has the lock by now, it keeps it.
    let outcome = Backend::release(client, &lock.lock_id, &Call::new())?;
    if !outcome.is_released() {
        return Err(Failure::new(
            ABSENT,
            "the holder released the lock by itself, or lost it",
        ));
    }
    let mut out = std::io::stdout().lock();
    if as_json {
        writeln!(out, "{}", json!({ "released": true, "lock": value(&lock) }))?;
    } else {
        writeln!(out, "released; it was held by {from}")?;
    }
    Ok(0)
}

fn confirmed(key: &str, from: &str) -> Result<bool, Failure> {
    let mut err = std::io::stderr().lock();
    write!(
        err,
        "Take the lock {key} away from {from}? It may still work. [y/N] "
    )?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Redraws a table on a terminal; elsewhere writes a line for every change. Ends by a signal, or when its reader is gone. A store that
/// does not answer for a while is waited for.
pub fn watch(client: &Client, args: &WatchArgs, as_json: bool) -> Result<u8, Failure> {
    let every = args.every.max(Duration::from_millis(50));
    let redraws = std::io::stdout().is_terminal() && !as_json;
    let mut seen: BTreeMap<String, LockInfoDebug> = BTreeMap::new();
    let (mut drawn, mut trouble) = (0, None);
    loop {
        let now = match all(client, &args.prefix) {
            Ok(now) => {
                trouble = None;
                Some(now)
            }
            Err(error) if error.code().is_transient() => {
                if trouble.is_none() && !redraws {
                    let _ = writeln!(std::io::stderr(), "syncguard: {error}; looking again");
                }
                trouble = Some(error.to_string());
                None
            }
            Err(error) => return Err(error.into()),
        };
        let mut out = std::io::stdout().lock();
        if redraws {
            let text = screen(now.as_ref().unwrap_or(&seen), trouble.as_deref());
            if drawn > 0 {
                write!(out, "\x1b[{drawn}A")?;
            }
            write!(out, "\r\x1b[J{text}")?;
            drawn = text.lines().count();
        } else if let Some(now) = &now {
            for (key, lock) in now {
                if seen.get(key).map(|old| old.lock_id) != Some(lock.lock_id) {
                    tell(&mut out, "held", lock, as_json)?;
                }
            }
            for (_, lock) in seen.iter().filter(|(key, _)| !now.contains_key(*key)) {
                tell(&mut out, "free", lock, as_json)?;
            }
        }
        out.flush()?;
        drop(out);
        seen = now.unwrap_or(seen);
        wait_for_reader(every)?;
    }
}

/// Waits, and ends early if nothing reads what this program writes.
fn wait_for_reader(time: Duration) -> Result<(), Failure> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let out = std::io::stdout();
        let mut fds = [PollFd::new(out.as_fd(), PollFlags::empty())];
        let ms = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
        let answered = poll(&mut fds, PollTimeout::from(ms));
        if answered.is_ok_and(|n| n > 0) {
            let gone = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
            if fds[0].revents().is_some_and(|e| e.intersects(gone)) {
                return Err(Failure::silent(BROKEN_PIPE));
            }
        }
    }
}

/// The table as far as it fits on the terminal: a line that wraps could not be drawn over.
fn screen(locks: &BTreeMap<String, LockInfoDebug>, trouble: Option<&str>) -> String {
    let size = terminal_size::terminal_size();
    let (columns, lines) = size.map_or((80, 24), |(w, h)| (usize::from(w.0), usize::from(h.0)));
    let all = table(locks);
    let count = all.lines().count();
    let fitting = lines
        .saturating_sub(2 + usize::from(trouble.is_some()))
        .max(1);
    let mut rows: Vec<String> = all.lines().take(fitting).map(str::to_owned).collect();
    if count > fitting {
        rows.push(format!("… {} more", count - fitting));
    }
    rows.extend(trouble.map(|text| format!("not up to date: {text}")));
    rows.iter().map(|row| cut(row, columns) + "\n").collect()
}

/// As much of a row as surely fits: a character beyond ASCII can be two columns wide.
fn cut(row: &str, columns: usize) -> String {
    let mut left = columns.saturating_sub(1);
    let fits = |c: &char| {
        let width = if c.is_ascii() { 1 } else { 2 };
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    row.chars().take_while(fits).collect()
}

fn tell(
    out: &mut impl Write,
    what: &str,
    lock: &LockInfoDebug,
    as_json: bool,
) -> Result<(), Failure> {
    if as_json {
        writeln!(out, "{}", json!({ "change": what, "lock": value(lock) }))?;
    } else {
        let holder = lock.holder.as_deref().unwrap_or("-");
        writeln!(
            out,
            "{what} {} {holder} {}",
            shown(&lock.key),
            lock.info.fence
        )?;
    }
    Ok(())
}

/// All live locks under a prefix, by key.
fn all(client: &Client, prefix: &str) -> Result<BTreeMap<String, LockInfoDebug>, LockError> {
    let mut options = ListOptions::new().prefix(prefix).examine(EXAMINED);
    let mut locks = BTreeMap::new();
    loop {
        let page = client.list_raw(&options)?;
        locks.extend(page.locks.into_iter().map(|lock| (lock.key.clone(), lock)));
        match page.next {
            Some(next) => options = options.after(next),
            None => return Ok(locks),
        }
    }
}

fn absent() -> Failure {
    Failure::new(ABSENT, "the lock is not held")
}

fn value(lock: &LockInfoDebug) -> Value {
    json!({
        "key": lock.key,
        "holder": lock.holder,
        "fence": lock.info.fence.get(),
        "acquired_at_ms": lock.info.acquired_at_ms,
        "expires_at_ms": lock.info.expires_at_ms,
    })
}

fn table(locks: &BTreeMap<String, LockInfoDebug>) -> String {
    let mut rows = vec![["KEY", "HOLDER", "FENCE", "AGE", "LEFT"].map(str::to_owned)];
    for lock in locks.values() {
        let (age, left) = times(lock);
        rows.push([
            shown(&lock.key),
            lock.holder.clone().unwrap_or_else(|| "-".to_owned()),
            lock.info.fence.get().to_string(),
            words(age),
            words(left),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// How old the grant is and how long its lease runs, as far as this machine's clock agrees with the store's.
fn times(lock: &LockInfoDebug) -> (Duration, Duration) {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let now = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    let ms = |from: i64, to: i64| {
        Duration::from_millis(u64::try_from(to.saturating_sub(from)).unwrap_or(0))
    };
    (
        ms(lock.info.acquired_at_ms, now),
        ms(now, lock.info.expires_at_ms),
    )
}

/// How long ago the lock was granted.
pub fn age(lock: &LockInfoDebug) -> Duration {
    times(lock).0
}

/// A text as a terminal may show it: what could hide or reorder other characters is escaped.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match is_printable(c) {
            true => out.push(c),
            false => out.extend(c.escape_unicode()),
        }
    }
    out
}

/// By the rule for texts of holders.
pub fn is_printable(c: char) -> bool {
    match c.is_ascii() {
        true => matches!(c, ' '..='~'),
        false => HolderText::new(c.encode_utf8(&mut [0; 4]) as &str).is_ok(),
    }
}

pub fn words(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        s @ ..60 => format!("{s} s"),
        s @ ..3600 => format!("{} min {} s", s / 60, s % 60),
        s @ ..86400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        s => format!("{} d {} h", s / 86400, s % 86400 / 3600),
    }
}
