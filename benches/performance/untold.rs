//! What it costs to tell waiters when there are none: the library's own cycle, against the same with a release that tells no waiter.
//!
//! Both are the recorded bytes, sent without the library. The release that tells no waiter is made from ours on the server, by taking
//! out the lines that tell.

use std::path::Path;
use std::sync::Arc;

use super::callers::{Caller, TTL};
use super::paired::interleave;
use super::pin::Place;
use super::protocol::Protocol;
use super::servers::{Store, Stores};
use super::session::Recording;
use super::stats::{Figure, ratio};
use super::{Bench, pgraw, redisraw};

const PRELUDE: &str = include_str!("../../src/stores/redis/lua/prelude.lua");
const RELEASE: &str = include_str!("../../src/stores/redis/lua/release.lua");

pub fn report(bench: &mut Bench, stores: &Stores) {
    let text = format!(
        "What it costs to tell waiters when there are none: the cycle of the floor, against the same with a release that tells no waiter (the \
         script without its `PUBLISH`, the function without its try for the waiters' lock and its `pg_notify`), {} rounds of {} cycles in \
         turn. The last column compares two of the same and shows what the method cannot tell apart.",
        bench.plan.paired_rounds, bench.plan.paired_cycles
    );
    bench.page.prose(&text);
    let mut rows = Vec::new();
    for (store, protocol) in [
        (&stores.redis, Protocol::Redis),
        (&stores.postgres_tmpfs, Protocol::Postgres),
    ] {
        let measured = bench.at(Place::Together, store, || rounds(bench, store, protocol));
        let Some([told, untold, again]) = bench.tried(store.name, measured) else {
            continue;
        };
        let cost = ratio(&told, &untold);
        rows.push(vec![
            store.name.to_owned(),
            Figure::of(&told).show(),
            Figure::of(&untold).show(),
            cost.show3(),
            ratio(&told, &again).show3(),
        ]);
        bench.target_shown(
            &format!("{}: cycle ÷ the same that tells no waiter, p50", store.name),
            "≤ 1.02",
            cost.show3(),
            cost.median <= 1.02,
        );
    }
    bench.page.table(
        &[
            "store",
            "cycle µs",
            "telling no waiter µs",
            "÷",
            "same ÷ same",
        ],
        &rows,
    );
}

/// The median cycles of each round, in microseconds: as it is, without the lines that tell, and once more as it is, which shows how
/// far two of the same are apart.
fn rounds(bench: &Bench, store: &Store, protocol: Protocol) -> Result<[Vec<f64>; 3], String> {
    let socket = &store.path;
    let ours = Recording::make(protocol, socket, store.port, TTL)?;
    let (from, to) = match protocol {
        Protocol::Redis => mute_script(socket)?,
        Protocol::Postgres => mute_function(socket)?,
    };
    let mute = Arc::new(ours.with_release(from.as_bytes(), to.as_bytes())?);
    let ours = Arc::new(ours);
    let mut callers: Vec<Box<dyn Caller>> = Vec::new();
    for (n, recording) in [&ours, &mute, &ours].into_iter().enumerate() {
        callers.push(Box::new(recording.open(socket, 900 + n)?));
    }
    let plan = &bench.plan;
    interleave(&mut callers, plan.paired_rounds, plan.paired_cycles)?
        .try_into()
        .map_err(|_| "three callers gave another number of figures".to_owned())
}

/// Loads the release script without its publish; answers the digests of ours and of that.
fn mute_script(socket: &Path) -> Result<(String, String), String> {
    let mute = without(RELEASE, |line| line.contains("'PUBLISH'"))?;
    let mut session = redisraw::RedisSession::open(socket)?;
    let mut load = |text: &str| session.load(&format!("{PRELUDE}{text}"));
    Ok((load(RELEASE)?, load(&mute)?))
}

/// Creates the release function without its notification, under a name as long; answers both names.
fn mute_function(socket: &Path) -> Result<(String, String), String> {
    let mut session = pgraw::PostgresSession::open(socket)?;
    let rows = session.simple(
        "SELECT p.proname, pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
         WHERE n.nspname = 'public' AND p.prosrc LIKE '%pg_notify(%'",
    )?;
    let [row] = &rows[..] else {
        return Err(format!("{} functions notify, and not one", rows.len()));
    };
    let (Some(Some(name)), Some(Some(text))) = (row.first(), row.get(1)) else {
        return Err("a function without a name or a text".to_owned());
    };
    let other = name.replacen("release", "silence", 1);
    if other == *name {
        return Err(format!("{name} is not the release"));
    }
    // The whole condition around it: from its IF to its END IF.
    let lines: Vec<&str> = text.lines().collect();
    let told = lines
        .iter()
        .position(|l| l.contains("pg_notify("))
        .ok_or("no line that notifies")?;
    let first = lines[..told]
        .iter()
        .rposition(|l| l.trim_start().starts_with("IF "))
        .ok_or("no IF before the line that notifies")?;
    let last = told
        + lines[told..]
            .iter()
            .position(|l| l.trim() == "END IF;")
            .ok_or("no END IF after the line that notifies")?;
    if last - first > 3 || !lines[first].contains("advisory") {
        return Err(format!(
            "these lines are not the notification: {:?}",
            &lines[first..=last]
        ));
    }
    let mute = [&lines[..first], &lines[last + 1..]].concat().join("\n");
    session.simple(&mute.replacen(name.as_str(), &other, 1))?;
    Ok((name.clone(), other))
}

/// A text without the one line that fits.
fn without(text: &str, fits: impl Fn(&str) -> bool) -> Result<String, String> {
    let (out, kept): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| fits(line));
    if out.len() != 1 {
        return Err(format!("{} lines tell, and not one: {out:?}", out.len()));
    }
    Ok(kept.join("\n"))
}
