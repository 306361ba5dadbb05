//! Tries to break the promises of syncguard: workers in Rust, C and Go on a real store, while faults happen as a seed has planned
//! them. What the workers believed is judged promise by promise. `make torture` runs it; docs/reliability.md has its figures.

mod clock;
mod figures;
mod gate;
mod judge;
mod languages;
mod outputs;
mod page;
mod plan;
mod publish;
mod random;
mod record;
mod round;
mod store;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use judge::{Before, Verdict};
use plan::Plan;
use round::Arena;
use store::Kind;
use worker::Orders;
use worker::broken::Break;

const USAGE: &str = "usage: torture run [--store redis|postgres|sqlite|all] [--seconds N] [--seed N] [--out DIR]
                    [--rust-only] [--calm] [--broken NAME]
       torture plan --store NAME --seed N [--seconds N]
       torture page DIR PAGE

`run` writes the figures of each store to DIR, and `page` writes what all runs in DIR have shown to PAGE.

A run is a sequence of rounds. Round n has the seed SEED + n, so that one round can be repeated alone. A broken client or store
is run until what it breaks is found.";

/// How long a round is: long enough for faults to meet, short enough for its records to fit in memory.
const ROUND_SECONDS: u64 = 30;
/// A round in which a broken client is to be found.
const BROKEN_ROUND_SECONDS: u64 = 8;

struct Options {
    stores: Vec<Kind>,
    seconds: u64,
    seed: u64,
    out: PathBuf,
    rust_only: bool,
    calm: bool,
    broken: Option<Break>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut options = Self {
            stores: Kind::ALL.to_vec(),
            seconds: 60,
            seed: time.map_or(1, |time| time.as_secs()),
            out: PathBuf::from("target/torture"),
            rust_only: false,
            calm: false,
            broken: None,
        };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let mut value = || rest.next().ok_or(format!("{name} needs a value"));
            let number = |text: &String| {
                let parsed = text.parse::<u64>();
                parsed.map_err(|_| format!("{name} needs a number, not {text:?}"))
            };
            match name.as_str() {
                "--store" => options.stores = stores(value()?)?,
                "--seconds" => options.seconds = number(value()?)?.max(1),
                "--seed" => options.seed = number(value()?)?,
                "--out" => options.out = value()?.into(),
                "--rust-only" => options.rust_only = true,
                "--calm" => options.calm = true,
                "--broken" => options.broken = Some(Break::parse(value()?)?),
                _ => return Err(format!("{name:?} is no option")),
            }
        }
        Ok(options)
    }
}

fn stores(name: &str) -> Result<Vec<Kind>, String> {
    if name == "all" {
        return Ok(Kind::ALL.to_vec());
    }
    let found = Kind::ALL.into_iter().find(|kind| kind.name() == name);
    let found = found.map(|kind| vec![kind]);
    found.ok_or(format!(
        "there is no store {name:?}; there is redis, postgres, sqlite and all"
    ))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = arguments.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let done = match command.as_str() {
        "run" => Options::parse(rest).map(|options| run(&options)),
        "plan" => Options::parse(rest).map(|options| {
            for kind in &options.stores {
                print!("{}", Plan::new(*kind, options.seed, options.seconds * 1000));
            }
            true
        }),
        "worker" => {
            worker::run(Orders::parse(rest).expect("a worker's arguments"));
            Ok(true)
        }
        "page" => match rest {
            [figures, page] => page::write(Path::new(figures), Path::new(page)).map(|()| true),
            _ => Err(USAGE.to_owned()),
        },
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

/// Whether every promise was kept on every store.
fn run(options: &Options) -> bool {
    std::fs::create_dir_all(&options.out).expect("a folder for the figures");
    let mut kept = true;
    for kind in &options.stores {
        kept &= run_on(*kind, options);
    }
    kept
}

fn run_on(kind: Kind, options: &Options) -> bool {
    let memory = Path::new("/dev/shm");
    let place = match memory.is_dir() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    };
    let dir = tempfile::Builder::new()
        .prefix("sg-torture-")
        .tempdir_in(place);
    let dir = dir.expect("a folder in memory");
    println!(
        "{}, seed {}, {} s{}",
        kind.name(),
        options.seed,
        options.seconds,
        if store::by_clock() {
            ", fences=clock"
        } else {
            ""
        }
    );
    let arena = Arena::new(
        kind,
        dir.path(),
        options.broken,
        options.rust_only,
        options.calm,
    );
    let mut before = Before::default();
    let mut verdict = Verdict::new();
    let (begun, mut stalled) = (clock::now(), 0);
    let mut left = options.seconds;
    let mut seed = options.seed;
    while left > 0 {
        let round = options
            .broken
            .map_or(ROUND_SECONDS, |_| BROKEN_ROUND_SECONDS);
        // Not a short one at the end.
        let seconds = if left < 2 * round { left } else { round };
        let evidence = arena.round(seed, seconds * 1000);
        stalled += evidence
            .stalls
            .iter()
            .map(|(from, to)| to - from)
            .sum::<i64>();
        let known = verdict.violations();
        judge::judge(&evidence, &mut before, &mut verdict);
        if verdict.violations() > known {
            println!("violations in the round with seed {seed} ({seconds} s)");
            figures::keep_evidence(&options.out, kind, seed, &dir, &evidence, &verdict);
        }
        clear(dir.path());
        left -= seconds;
        figures::keep(
            &options.out,
            kind,
            options,
            options.seconds - left,
            &verdict,
        );
        let found = |how: Break| !verdict.findings[how.promise() - 1].violations.is_empty();
        if options.broken.is_some_and(found) {
            let took = clock::now() - begun - stalled;
            println!("found after {} s", took / (1000 * clock::MS));
            break;
        }
        seed += 1;
    }
    figures::print(&verdict);
    verdict.violations() == 0
}

/// Makes space for the next round.
fn clear(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if ["log-", "output-", "ids-"]
            .iter()
            .any(|begin| name.starts_with(begin))
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
