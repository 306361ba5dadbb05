//! What it costs to tell waiters when there are none: the library's own cycle, against the same with a release that tells nobody.
//!
//! Both are the recorded bytes, sent without the library. The release that tells nobody is made from ours on the server, by taking
//! out the lines that tell.

use std::path::Path;
use std::sync::Arc;

use syncguard::ClientOptions;

use super::callers::{Caller, TTL};
use super::paired::interleave;
use super::pgraw;
use super::redis_call;
use super::session::{Protocol, Recording};

const PRELUDE: &str = include_str!("../../src/redis/lua/prelude.lua");
const RELEASE: &str = include_str!("../../src/redis/lua/release.lua");

/// The median cycles of each round, in microseconds: as it is, without the lines that tell, and once more as it is, which shows how
/// far two of the same are apart.
pub fn rounds(
    protocol: Protocol,
    socket: &Path,
    port: u16,
    rounds: usize,
    cycles: usize,
) -> Result<[Vec<f64>; 3], String> {
    let ours = Recording::make(protocol, socket, port, TTL, &ClientOptions::new())?;
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
    interleave(&mut callers, rounds, cycles)?
        .try_into()
        .map_err(|_| "three callers gave another number of figures".to_owned())
}

/// Loads the release script without its publish; answers the digests of ours and of that.
fn mute_script(socket: &Path) -> Result<(String, String), String> {
    let mute = without(RELEASE, |line| line.contains("'PUBLISH'"))?;
    let load = |text: &str| -> Result<String, String> {
        let reply = redis_call(socket, &["SCRIPT", "LOAD", &format!("{PRELUDE}{text}")])?;
        match reply.split("\r\n").nth(1) {
            Some(digest) if digest.len() == 40 => Ok(digest.to_owned()),
            _ => Err(format!("SCRIPT LOAD: {reply}")),
        }
    };
    Ok((load(RELEASE)?, load(&mute)?))
}

/// Creates the release function without its notification, under a name as long; answers both names.
fn mute_function(socket: &Path) -> Result<(String, String), String> {
    let mut session = pgraw::Session::open(socket)?;
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
