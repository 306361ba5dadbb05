//! Failover drills: a primary is killed under load, another server takes over, and what it has forgotten is counted. `make drills`
//! runs it; docs/failover.md has its figures.

#[path = "../clock.rs"]
#[allow(dead_code)]
mod clock;
mod count;
mod load;
mod notice;
mod page;
#[path = "../publish.rs"]
mod publish;
#[path = "../../../tests/support/common"]
mod servers {
    #![allow(dead_code)]
    pub mod ports;
    pub mod postgres;
    pub mod proxy;
    pub mod redis;
    pub mod topologies;
}
mod reference;
mod topology;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use count::Counts;
use load::Fences;
use reference::Reference;
use syncguard::Client;
use topology::{Kind, Link};

const USAGE: &str = "usage: drills run [--rounds N] [--only NAME] [--link as-it-is|silent] [--silence MS]
                  [--fences counter|clock|mixed] [--out DIR]
       drills page DIR PAGE

NAME is sentinel, sentinel-min-replicas, cluster, postgres-async or postgres-sync. Every second round silences the link to the
replica for MS milliseconds before the kill, unless --link says which rounds there are. With clock, all callers have fences=clock; with
mixed, one of them counts, as a client of the TypeScript library does. The exit status is 1 if
postgres-sync lost a lock, repeated a fence or had two holders at once, if a fence was repeated with clock, or if the live locks did not show
the caller that counts with mixed.";

/// How long the load runs before a kill, or before its link falls silent, and after the first grant of the new primary.
const LOAD: Duration = Duration::from_millis(1_000);

struct Options {
    kinds: Vec<Kind>,
    rounds: usize,
    link: Option<Link>,
    silence: Duration,
    fences: Fences,
    out: PathBuf,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            kinds: Kind::ALL.to_vec(),
            rounds: 24,
            link: None,
            silence: Duration::from_secs(5),
            fences: Fences::Counter,
            out: PathBuf::from("target/drills"),
        };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let value = rest.next().ok_or(format!("{name} needs a value"))?;
            let number = || {
                let parsed = value.parse::<u32>().ok().filter(|n| *n > 0);
                parsed.ok_or(format!("{name} needs a number above 0, not {value:?}"))
            };
            match name.as_str() {
                "--only" => options.kinds = vec![Kind::parse(value)?],
                "--rounds" => options.rounds = number()? as usize,
                "--silence" => options.silence = Duration::from_millis(number()?.into()),
                "--fences" => options.fences = Fences::parse(value)?,
                "--link" => options.link = Some(Link::parse(value)?),
                "--out" => options.out = value.into(),
                _ => return Err(format!("{name:?} is no option\n{USAGE}")),
            }
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["run", ..] => Options::parse(&arguments[1..]).map(|options| run(&options)),
        ["page", figures, page] => page::write(Path::new(figures), Path::new(page)).map(|()| true),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// Whether what must lose nothing lost nothing.
fn run(options: &Options) -> bool {
    std::fs::create_dir_all(&options.out).expect("a folder for the figures");
    let mut kept = true;
    for kind in &options.kinds {
        let mut rounds = Vec::new();
        for n in 0..options.rounds {
            let link = options.link.unwrap_or(match n % 2 {
                0 => Link::AsItIs,
                _ => Link::Silent,
            });
            let (counts, noticed) = round(*kind, link, options.silence, options.fences);
            println!("{} {}, {}: {counts}", kind.name(), n + 1, link.name());
            if kind.loses_nothing() && !counts.lost_nothing() {
                println!("  this must lose nothing");
                kept = false;
            }
            if !noticed {
                println!(
                    "  the caller that counts was not noticed, or another one was taken for it"
                );
                kept = false;
            }
            if options.fences == Fences::Clock && counts.repeated > 0 {
                println!("  fences of a clock must not repeat");
                kept = false;
            }
            rounds.push((link, counts));
            page::keep(&options.out, *kind, options, &rounds);
        }
    }
    kept
}

/// One failover under load: what was lost, and whether a caller that counts among others was noticed.
fn round(kind: Kind, link: Link, silence: Duration, fences: Fences) -> (Counts, bool) {
    let mut topology = topology::start(kind, link);
    let (sockets, prefix) = (topology.sockets(), topology.prefix());
    let load = load::Load::start(
        &topology.url(),
        &topology.options(),
        &sockets,
        prefix,
        fences,
    );
    load.wait_for_grants(LOAD);
    topology.hasten_failover();
    if link == Link::Silent {
        topology.silence();
        std::thread::sleep(silence);
    }
    topology.kill_primary();
    let killed = clock::now();
    topology.promote();
    load.wait_for_grants_after(killed, LOAD);
    let warned = load.warned();
    let grants = load.stop();
    let options = fences.set_on(topology.options(), 1);
    let counts = count::count(&topology.url(), &options, grants, killed);
    let noticed = fences != Fences::Mixed || {
        if sockets.is_empty() {
            println!("  the caller that counts was warned of {warned} keys");
        }
        let client = |caller| {
            let options = fences.set_on(topology.options(), caller);
            Client::open_with(&topology.url(), &options).expect("a good URL")
        };
        let (counting, mut theirs) = (client(0), Reference::new(&sockets, prefix));
        notice::is_noticed(&client(1), |name, ttl| match sockets.is_empty() {
            true => load::acquire(&counting, &load::key(name), ttl),
            false => theirs.acquire(&load::key(name), ttl),
        })
    };
    (counts, noticed)
}
