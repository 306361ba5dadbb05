//! Many locks, many waiters, many clients: what they cost, and whether a server that is killed in the middle costs one of them.
//! `make load` runs it; docs/load.md has its figures.

mod child;
mod page;
#[path = "../publish.rs"]
#[allow(dead_code)]
mod publish;
#[path = "../../../tests/support/common"]
mod servers {
    #![allow(dead_code)]
    pub mod ports;
    pub mod postgres;
    pub mod redis;
}
mod store;
mod usage;

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use serde_json::Value;
use store::{Kind, Store};

const USAGE: &str = "usage: load run [--store redis|postgres|sqlite] [--count N] [--seconds S] [--page FILE]

Holds N locks with a lease of S seconds for S seconds, has N callers wait for one key, and opens N / 10 clients in processes of twenty. The server is killed
and comes back in the middle of each. The exit status is 1 if a lock was lost, a call failed, or a limit is passed: 1024 bytes for a
lock that renews, from 10000 locks on; half of the lease left at the least; as many threads as the pool has connections, and a few.";

/// How long the server is away.
const AWAY: Duration = Duration::from_secs(2);
/// What a lock that renews may cost, once there are so many that what they share does not count.
const BYTES: u64 = 1_024;
const MANY: usize = 10_000;
/// The pool's connections, each with a thread that renews, and what a process has beside.
const THREADS: u64 = 16 + 12;
/// How many clients a process has.
const PER_PROCESS: usize = 20;

struct Options {
    kinds: Vec<Kind>,
    count: usize,
    time: Duration,
    page: Option<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            kinds: Kind::ALL.to_vec(),
            count: 10_000,
            time: Duration::from_secs(60),
            page: None,
        };
        let mut rest = words.iter();
        while let Some(name) = rest.next() {
            let value = rest.next().ok_or(format!("{name} needs a value"))?;
            let number = || {
                let parsed = value.parse::<u32>().ok().filter(|n| *n > 0);
                parsed.ok_or(format!("{name} needs a number above 0, not {value:?}"))
            };
            match *name {
                "--store" if *value == "all" => {}
                "--store" => options.kinds = vec![Kind::parse(value)?],
                "--count" => options.count = number()? as usize,
                "--seconds" => options.time = Duration::from_secs(number()?.into()),
                "--page" => options.page = Some((*value).to_owned()),
                _ => return Err(format!("{name:?} is no option\n{USAGE}")),
            }
        }
        Ok(options)
    }
}

/// One row of the page: what was done on which store, and the figures.
struct Row {
    kind: Kind,
    what: String,
    figures: Value,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["child", ref rest @ ..] => child::run(rest),
        ["run", ref rest @ ..] => Options::parse(rest).and_then(|options| run(&options)),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let mut rows = Vec::new();
    for &kind in &options.kinds {
        for part in [renewing, waiting, clients] {
            let row = part(kind, options)?;
            println!("{}, {}: {}", kind.name(), row.what, row.figures);
            rows.push(row);
        }
    }
    if let Some(page) = &options.page {
        page::write(page.as_ref(), options, &rows)?;
    }
    let wrong: Vec<String> = rows.iter().flat_map(|row| wrongs(row, options)).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n")),
    }
}

/// What is wrong with the figures of a row.
fn wrongs(row: &Row, options: &Options) -> Vec<String> {
    let number = |name: &str| row.figures[name].as_u64().unwrap_or(0);
    let mut wrong = Vec::new();
    if ["lost", "failed", "not released"]
        .map(number)
        .iter()
        .sum::<u64>()
        > 0
    {
        let why = row.figures["why"].as_array().into_iter().flatten();
        let why: Vec<_> = why.filter_map(Value::as_str).collect();
        wrong.push(format!("lost locks or failed calls: {}", why.join("; ")));
    }
    let bytes = number("bytes per lock, renewing");
    if options.count >= MANY && bytes > BYTES {
        wrong.push(format!("{bytes} bytes per lock that renews, over {BYTES}"));
    }
    let half = options.time.as_secs_f64() / 2.0;
    if let Some(least) = row.figures["least left of a lease, s"].as_f64()
        && least < half
    {
        wrong.push(format!("{least:.1} s left of a lease, under {half:.1}"));
    }
    let threads = number("threads");
    if threads > THREADS {
        wrong.push(format!("{threads} threads, over {THREADS}"));
    }
    let place = format!("{}, {}", row.kind.name(), row.what);
    wrong
        .into_iter()
        .map(|what| format!("{place}: {what}"))
        .collect()
}

/// A process at work, and what it prints.
struct Working {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Working {
    /// Starts a process and waits until it says that its work has begun.
    fn start(what: &str, store: &Store, count: usize, time: Duration) -> Result<Self, String> {
        Self::spawn(what, store, count, time)?.begun()
    }

    fn spawn(what: &str, store: &Store, count: usize, time: Duration) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut process = Command::new(program)
            .args(["child", what, &store.url(), &count.to_string()])
            .arg(time.as_millis().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let out = process.stdout.take().ok_or("no output")?;
        let lines = BufReader::new(out).lines();
        Ok(Self { process, lines })
    }

    /// Waits until it says that its work has begun.
    fn begun(mut self) -> Result<Self, String> {
        match self.line()?.as_str() {
            "ready" => Ok(self),
            other => Err(format!("a process said {other:?}")),
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let line = self.lines.next().ok_or("a process ended before its time")?;
        line.map_err(|e| e.to_string())
    }

    fn figures(mut self) -> Result<Value, String> {
        let line = self.line()?;
        self.process.wait().map_err(|e| e.to_string())?;
        serde_json::from_str(&line).map_err(|e| format!("{e}: {line:?}"))
    }
}

/// A process that is left ends with its store.
impl Drop for Working {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn renewing(kind: Kind, options: &Options) -> Result<Row, String> {
    let mut store = Store::start(kind, 100);
    let working = Working::start("renewing", &store, options.count, options.time)?;
    let before = store.processor_ms();
    std::thread::sleep(options.time / 2);
    let used = store.processor_ms().saturating_sub(before);
    store.be_away(AWAY);
    let mut figures = working.figures()?;
    let per_second = used as f64 / (options.time / 2).as_secs_f64();
    figures["server, ms of processor per s"] = per_second.round().into();
    Ok(Row {
        kind,
        what: format!(
            "{} locks that renew",
            publish::grouped(options.count as u64)
        ),
        figures,
    })
}

fn waiting(kind: Kind, options: &Options) -> Result<Row, String> {
    let mut store = Store::start(kind, 100);
    let working = Working::start("waiting", &store, options.count, Duration::ZERO)?;
    store.be_away(AWAY);
    Ok(Row {
        kind,
        what: format!("{} waiters", publish::grouped(options.count as u64)),
        figures: working.figures()?,
    })
}

fn clients(kind: Kind, options: &Options) -> Result<Row, String> {
    let clients = (options.count / 10).min(kind.most_clients());
    let processes = clients.div_ceil(PER_PROCESS);
    // A client has two connections and one that listens.
    let mut store = Store::start(kind, 4 * clients + 20);
    let time = options.time / 3;
    let all = (0..processes)
        .map(|_| Working::spawn("clients", &store, PER_PROCESS, time))
        .collect::<Result<Vec<_>, _>>()?;
    let all = all
        .into_iter()
        .map(Working::begun)
        .collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(time / 3);
    store.be_away(AWAY);
    let (mut sums, mut why) = (serde_json::Map::new(), Vec::new());
    for working in all {
        let figures = working.figures()?;
        for (name, figure) in figures.as_object().into_iter().flatten() {
            if let Some(texts) = figure.as_array() {
                why.extend(texts.iter().cloned());
                continue;
            }
            let before = sums.get(name).and_then(Value::as_u64).unwrap_or(0);
            sums.insert(name.clone(), (before + figure.as_u64().unwrap_or(0)).into());
        }
    }
    sums.insert("why".to_owned(), why.into());
    Ok(Row {
        kind,
        what: format!(
            "{} clients in {processes} processes",
            processes * PER_PROCESS
        ),
        figures: sums.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_past_a_limit_are_wrong() {
        let wrong = |count: usize, figures: Value| {
            let words = ["--count".to_owned(), count.to_string()];
            let words = words.each_ref().map(String::as_str);
            let row = Row {
                kind: Kind::Redis,
                what: "locks".to_owned(),
                figures,
            };
            wrongs(&row, &Options::parse(&words).expect("options")).len()
        };
        let sound = json!({
            "lost": 0, "failed": 0, "not released": 0, "bytes per lock, renewing": 1_024,
            "least left of a lease, s": 30.0, "threads": THREADS,
        });
        assert_eq!(wrong(MANY, sound.clone()), 0);
        for (name, value) in [
            ("lost", json!(1)),
            ("failed", json!(1)),
            ("not released", json!(1)),
            ("bytes per lock, renewing", json!(1_025)),
            ("least left of a lease, s", json!(29.9)),
            ("threads", json!(THREADS + 1)),
        ] {
            let mut figures = sound.clone();
            figures[name] = value;
            assert_eq!(wrong(MANY, figures), 1, "{name}");
        }
        // Few locks share what a client costs.
        let mut few = sound;
        few["bytes per lock, renewing"] = json!(9_000);
        assert_eq!(wrong(200, few), 0);
    }
}
