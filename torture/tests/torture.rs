//! Runs the torture for seconds: every promise is kept on every store, and what is broken is found.

#[path = "../../tests/support/common/limit.rs"]
mod limit;

use std::collections::{BTreeSet, HashSet};
use std::process::{Command, Output};
use std::sync::Mutex;

/// The names of everything that can be broken, and the promise that it breaks. The last begin first: they take the longest to find.
const BROKEN: [(&str, u32); 14] = [
    ("open-gate", 3),
    ("child-releases", 12),
    ("told-twice", 10),
    ("tells-secrets", 13),
    ("forgets-fences", 2),
    ("no-durability", 2),
    ("early", 7),
    ("late", 7),
    ("slow", 4),
    ("releases-others", 9),
    ("deaf-to-cancel", 5),
    ("no-undo", 8),
    ("leaky", 11),
    ("deaf-to-loss", 6),
];
/// How many are run at once: more would wait for a processor.
const AT_ONCE: usize = 6;

/// Runs the program; `timeout` ends it if it hangs.
fn torture(arguments: &[&str]) -> Output {
    torture_with(arguments, &[])
}

fn torture_with(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let out = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", "300", env!("CARGO_BIN_EXE_torture")])
        .args(arguments)
        .arg("--out")
        .arg(out.path())
        .env("CARGO", env!("CARGO"))
        .envs(variables.iter().copied());
    if std::path::Path::new("/dev/shm").is_dir() {
        command.env("TMPDIR", "/dev/shm");
    }
    let output = command.output().expect("the torture runs");
    // What a sound client did wrong may not happen again: its evidence is kept.
    if !output.status.success() && !arguments.contains(&"--broken") {
        println!("kept: {}", out.keep().display());
    }
    output
}

fn text(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr].map(|s| String::from_utf8_lossy(s));
    streams.join("\n")
}

/// How many violations of a promise were found, and how much was counted.
fn violations(text: &str, promise: u32) -> Option<u64> {
    let begin = format!("({promise}) ");
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with(&begin))?;
    line.rsplit("; ").next()?.split(' ').next()?.parse().ok()
}

/// The broken ones are run after the stores, not beside them: they take what processors there are.
static ONE: Mutex<()> = Mutex::new(());

/// The number before the words that say what is counted of a promise.
fn count(text: &str, promise: usize) -> u64 {
    let begin = format!("({promise}) ");
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(&begin));
    let counted = line.and_then(|line| line.rsplit_once(": ")?.1.split(' ').next());
    counted.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The faults that a run tells of, and those of a plan.
fn faults(text: &str, plan: &str) -> (HashSet<String>, HashSet<String>) {
    let told = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("faults: "));
    let told = told.unwrap_or_default().split(", ");
    let happened = told.filter_map(|fault| fault.split(' ').next());
    let planned = plan.lines().filter_map(|line| line.split_once(" ms  "));
    let planned = planned.filter_map(|(_, fault)| fault.split(' ').next());
    (
        happened.map(str::to_owned).collect(),
        planned.map(str::to_owned).collect(),
    )
}

/// What did nothing has shown nothing: every promise is tried, and every fault of the store happens. A machine that is busy may
/// leave something out of twelve seconds; then there are twelve more, with another plan.
fn keeps_its_promises(store: &str) {
    let long = plan(store, "600", "1");
    let (_, mut unseen) = faults("", &long);
    let mut untried: BTreeSet<usize> = (1..=13).collect();
    for _ in 0..3 {
        let output = torture(&["run", "--store", store, "--seconds", "12"]);
        let text = text(&output);
        println!("{text}");
        assert!(output.status.success(), "{text}");
        for promise in 1..=13 {
            assert_eq!(violations(&text, promise), Some(0), "{promise}: {text}");
        }
        untried.retain(|promise| count(&text, *promise) == 0);
        let (happened, _) = faults(&text, "");
        unseen.retain(|fault| !happened.contains(fault));
        if untried.is_empty() && unseen.is_empty() {
            return;
        }
    }
    panic!("{store}: promises {untried:?} were not tried, and {unseen:?} did not happen");
}

#[test]
fn every_store_keeps_the_promises() {
    let _one = ONE.lock();
    std::thread::scope(|scope| {
        for store in ["redis", "postgres", "sqlite"] {
            scope.spawn(move || keeps_its_promises(store));
        }
    });
}

/// A short round in which all fences come from the clocks of the stores.
#[test]
fn fences_of_a_clock_keep_the_promises() {
    let _one = ONE.lock();
    std::thread::scope(|scope| {
        for store in ["redis", "postgres", "sqlite"] {
            scope.spawn(move || {
                let clock = [("SYNCGUARD_TORTURE_FENCES", "clock")];
                let output = torture_with(&["run", "--store", store, "--seconds", "6"], &clock);
                let text = text(&output);
                println!("{text}");
                assert!(output.status.success(), "{text}");
                for promise in 1..=13 {
                    assert_eq!(violations(&text, promise), Some(0), "{promise}: {text}");
                }
                assert!(text.contains("fences=clock"), "{text}");
                assert!(!text.contains("believe at once: 0 beliefs"), "{text}");
            });
        }
    });
}

/// Looks for what is broken; what is wrong with the answer, if anything is.
fn find(name: &str, promise: u32) -> Result<(), String> {
    let output = torture(&[
        "run",
        "--store",
        "redis",
        "--rust-only",
        "--seconds",
        "60",
        "--broken",
        name,
    ]);
    let text = text(&output);
    let found = violations(&text, promise).unwrap_or(0);
    let after = text
        .lines()
        .find_map(|line| line.strip_prefix("found after "))
        .and_then(|rest| rest.strip_suffix(" s")?.parse::<u64>().ok());
    println!("{name}: {found} violations of promise {promise}, after {after:?} s");
    // The time in which the machine did not run is no part of it.
    let in_time = after.is_some_and(|seconds| seconds <= 60);
    if output.status.code() == Some(1) && found > 0 && in_time {
        return Ok(());
    }
    Err(format!("{name}, promise {promise}:\n{text}"))
}

/// The control: on the same busy machine, nothing is found wrong with a client that is sound.
fn find_nothing() -> Result<(), String> {
    let output = torture(&["run", "--store", "redis", "--rust-only", "--seconds", "8"]);
    let text = text(&output);
    let sound = (1..=13).all(|promise| violations(&text, promise) == Some(0));
    if output.status.success() && sound && count(&text, 1) > 0 {
        return Ok(());
    }
    Err(format!("a sound client:\n{text}"))
}

/// Each within a minute, by the promise that it breaks.
#[test]
fn what_is_broken_is_found_and_what_is_sound_is_not() {
    let _one = ONE.lock();
    let todo = Mutex::new(BROKEN.map(Some).to_vec());
    // In the middle of them.
    todo.lock()
        .expect("the list")
        .insert(BROKEN.len() / 2, None);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(next) = { todo.lock().expect("the list").pop() } {
                    let answer = match next {
                        Some((name, promise)) => find(name, promise),
                        None => find_nothing(),
                    };
                    if let Err(why) = answer {
                        wrong.lock().expect("the list").push(why);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("the list");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn plan(store: &str, seconds: &str, seed: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_torture"))
        .args(["plan", "--store", store, "--seconds", seconds])
        .args(["--seed", seed])
        .output()
        .expect("a plan");
    text(&output)
}

#[test]
fn a_seed_repeats_its_plan() {
    let plan = |seed| plan("all", "30", seed);
    assert_eq!(plan("5"), plan("5"));
    assert_ne!(plan("5"), plan("6"));
}

#[test]
fn a_word_that_is_no_option_is_refused_with_what_there_is() {
    for (arguments, told) in [
        (
            &["run", "--store", "mysql"][..],
            "redis, postgres, sqlite and all",
        ),
        (&["run", "--seconds", "soon"], "needs a number"),
        (&["run", "--broken", "nothing"], "deaf-to-loss"),
        (&["run", "--speed"], "no option"),
        (&[], "usage"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_torture"))
            .args(arguments)
            .output()
            .expect("the program");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            text(&output).contains(told),
            "{arguments:?}: {}",
            text(&output)
        );
    }
}
