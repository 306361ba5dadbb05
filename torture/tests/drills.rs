//! Runs one round of two failover drills: what must lose nothing loses nothing, and a loss that is provoked is noticed.

#[path = "../../tests/support/common/limit.rs"]
mod limit;

use std::process::{Command, Output};

/// Runs the program; `timeout` ends it if it hangs.
fn drills(arguments: &[&str]) -> Output {
    let out = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", "300", env!("CARGO_BIN_EXE_drills")])
        .args(arguments)
        .arg("--out")
        .arg(out.path());
    command.output().expect("the drill runs")
}

fn text(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr].map(|s| String::from_utf8_lossy(s));
    streams.join("\n")
}

/// The number before a text.
fn number(text: &str, before: &str) -> u64 {
    let (head, _) = text.split_once(before).expect("a count");
    let word = head.rsplit(' ').next().expect("a word");
    word.parse().expect("a number")
}

/// One round in which the standby hears nothing for the last second of its primary.
fn silent_round(drill: &str, fences: &str) -> (Output, String) {
    let output = drills(&[
        "run",
        "--fences",
        fences,
        "--only",
        drill,
        "--rounds",
        "1",
        "--link",
        "silent",
        "--silence",
        "1000",
    ]);
    let text = text(&output);
    println!("{text}");
    (output, text)
}

/// As [`silent_round`], with locks that the new primary has forgotten. A busy machine may grant none while the link is silent: then
/// there is nothing to forget, and there is another round.
fn round_with_a_loss(kind: &str, fences: &str) -> (Output, String) {
    let mut round = silent_round(kind, fences);
    for _ in 0..4 {
        if !round.0.status.success() || number(&round.1, " of ") > 0 {
            break;
        }
        round = silent_round(kind, fences);
    }
    round
}

#[test]
fn a_synchronous_standby_forgets_nothing() {
    let (output, text) = silent_round("postgres-sync", "counter");
    assert!(output.status.success(), "{text}");
    assert_eq!(number(&text, " of "), 0, "{text}");
    assert!(number(&text, " held locks forgotten") > 0, "{text}");
    assert_eq!(number(&text, " fences repeated"), 0, "{text}");
    assert!(text.contains("two holders 0 times"), "{text}");
}

/// A replica that heard nothing cannot know the last locks. A drill that finds no loss here would find none anywhere.
#[test]
fn a_loss_that_is_provoked_is_noticed() {
    let (output, text) = round_with_a_loss("sentinel", "counter");
    assert!(output.status.success(), "{text}");
    assert!(number(&text, " of ") > 0, "{text}");
    assert!(number(&text, " fences repeated") > 0, "{text}");
    assert!(!text.contains("two holders 0 times"), "{text}");
}

/// The same loss: locks are forgotten and held twice, and no fence is given twice.
#[test]
fn fences_of_a_clock_grow_over_a_loss() {
    let (output, text) = round_with_a_loss("sentinel", "clock");
    assert!(output.status.success(), "{text}");
    assert!(number(&text, " of ") > 0, "{text}");
    assert_eq!(number(&text, " fences repeated"), 0, "{text}");
}

const NOTICED: &str = "the live locks show a caller that counts on [\"contended-0\"]";

/// One caller takes its locks as a client of the TypeScript library does. It warns of nothing; the live locks show it.
#[test]
fn a_client_of_another_library_that_counts_is_noticed() {
    let (output, text) = silent_round("sentinel", "mixed");
    assert!(output.status.success(), "{text}");
    assert!(text.contains(NOTICED), "{text}");
}

/// One client of ours that counts is warned of the keys that it takes, too.
#[test]
fn a_client_that_counts_among_others_is_noticed() {
    let (output, text) = silent_round("postgres-async", "mixed");
    assert!(output.status.success(), "{text}");
    assert!(number(&text, " keys") > 0, "{text}");
    assert!(text.contains(NOTICED), "{text}");
}

#[test]
fn a_word_that_is_no_option_is_refused_with_what_there_is() {
    for (arguments, told) in [
        (&["run", "--only", "mysql"][..], "postgres-sync"),
        (&["run", "--rounds", "0"], "above 0"),
        (&["run", "--link", "loud"], "as-it-is or silent"),
        (&["run", "--fences", "sun"], "counter, clock, mixed"),
        (&["run", "--speed", "9"], "no option"),
        (&["run", "--rounds"], "needs a value"),
        (&[], "usage"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_drills"))
            .args(arguments)
            .output()
            .expect("the program");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output);
        assert!(said.contains(told), "{arguments:?}: {said}");
    }
}
