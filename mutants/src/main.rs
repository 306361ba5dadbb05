//! Plants the bugs of `list`, one at a time, in a copy of the work tree, and runs the tests that must notice.
//!
//! `ONLY=text` plants those whose place, bug or file has the text. The name of a page as the only argument has what became of each
//! written there; bugs that were not planted keep their line. The exit status is 1 if a bug is missed, or if an entry cannot be
//! planted or compiled. A test that fails without a bug notices nothing: every set of tests runs without one first.

mod copy;
mod list;
mod page;
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Instant;

use list::{Mutant, PLACES};
use tests::Outcome;

/// What became of a bug.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Caught,
    Missed,
    NotCompiled,
    /// The tests did not end in time. They do without the bug, but no test says what is wrong, so nothing is caught.
    LimitReached,
    /// The old text is not in its file, or more than once.
    Stale,
    /// The tests fail without the bug too, or there are none.
    Unsound,
}

impl Fate {
    const ALL: [Self; 6] = [
        Self::Caught,
        Self::LimitReached,
        Self::Missed,
        Self::NotCompiled,
        Self::Stale,
        Self::Unsound,
    ];

    fn name(&self) -> &'static str {
        match self {
            Self::Caught => "caught",
            Self::Missed => "missed",
            Self::NotCompiled => "not compiled",
            Self::LimitReached => "limit reached",
            Self::Stale => "no longer applies",
            Self::Unsound => "fails without it",
        }
    }

    fn is_noticed(&self) -> bool {
        matches!(self, Self::Caught)
    }
}

fn main() -> ExitCode {
    let only = std::env::var("ONLY").unwrap_or_default();
    let chosen: Vec<&Mutant> = list::all()
        .filter(|m| [m.place, m.bug, m.file].iter().any(|t| t.contains(&only)))
        .collect();
    if chosen.is_empty() {
        eprintln!("no place, bug or file has the text {only:?}");
        return ExitCode::FAILURE;
    }
    copy::refresh();
    let unsound = fail_without_a_bug(&chosen);
    let mut fates = Vec::new();
    for (i, mutant) in chosen.iter().enumerate() {
        let begun = Instant::now();
        let (fate, why) = if unsound.contains(&(mutant.program, mutant.tests)) {
            (Fate::Unsound, String::new())
        } else {
            plant(mutant)
        };
        println!(
            "{:>3}/{} {:17} {}: {} ({} s){}",
            i + 1,
            chosen.len(),
            fate.name(),
            mutant.place,
            mutant.bug,
            begun.elapsed().as_secs(),
            why
        );
        fates.push((*mutant, fate));
    }
    print_table(&fates);
    if let Some(page) = std::env::args().nth(1)
        && let Err(why) = page::write(page.as_ref(), &fates)
    {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    if fates.iter().all(|(_, fate)| fate.is_noticed()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The sets of tests that do not pass on the library as it is, or have no test.
fn fail_without_a_bug<'a>(chosen: &[&'a Mutant]) -> BTreeSet<(&'a str, &'a str)> {
    let used: BTreeMap<(&str, &str), u64> = chosen
        .iter()
        .map(|m| ((m.program, m.tests), m.limit))
        .collect();
    println!("{} sets of tests without a bug", used.len());
    let mut unsound = BTreeSet::new();
    for ((program, names), limit) in used {
        let outcome = tests::run(program, names, limit);
        if !matches!(outcome, Outcome::Passed) {
            println!("    {program} {names}: {outcome:?}");
            unsound.insert((program, names));
        }
    }
    unsound
}

/// Plants one bug, runs its tests, and takes it out again. The second answer says more.
fn plant(mutant: &Mutant) -> (Fate, String) {
    let planted = match copy::Planted::new(mutant) {
        Ok(planted) => planted,
        Err(why) => return (Fate::Stale, format!(": {why}")),
    };
    let outcome = tests::run(mutant.program, mutant.tests, mutant.limit);
    drop(planted);
    match outcome {
        Outcome::Failed(by) => (Fate::Caught, format!(" by {by}")),
        Outcome::Passed | Outcome::NoneRun => (Fate::Missed, String::new()),
        Outcome::NotCompiled(text) => (Fate::NotCompiled, format!("\n{text}")),
        Outcome::LimitReached => (Fate::LimitReached, String::new()),
    }
}

fn print_table(fates: &[(&Mutant, Fate)]) {
    let count = |place: Option<&str>, fate: &Fate| {
        fates
            .iter()
            .filter(|(m, f)| f == fate && place.is_none_or(|place| m.place == place))
            .count()
    };
    let row = |name: &str, place: Option<&str>| {
        let numbers = Fate::ALL.map(|fate| count(place, &fate));
        let sum: usize = numbers.iter().sum();
        let cells = numbers.map(|n| n.to_string()).join(" | ");
        println!("| {name} | {sum} | {cells} |");
    };
    println!(
        "\n| place | planted | caught | limit reached | missed | not compiled | no longer applies | fails without it |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for place in PLACES {
        if fates.iter().any(|(m, _)| m.place == place) {
            row(place, Some(place));
        }
    }
    row("all", None);
}
