//! Tests the list of bugs that `make mutants` plants: it covers every place, and every entry still fits the code.

#[path = "../../mutants/src/list/mod.rs"]
mod list;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use list::{Mutant, PLACES};

/// Fewer would leave places that matter without a bug.
const FEWEST: usize = 40;

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// What is wrong with an entry.
fn faults(mutant: &Mutant) -> Vec<String> {
    let text = read(mutant.file);
    let found = text.matches(mutant.old).count();
    let programs =
        ["tests", "ffi/tests", "cli/tests"].map(|dir| format!("{dir}/{}/main.rs", mutant.program));
    let has_program = ["lib", "ffi-lib", "redis-pool", "postgres-pool"].contains(&mutant.program)
        || programs.iter().any(|program| {
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(program)
                .is_file()
        });
    [
        (found == 1, format!("its old text is there {found} times")),
        (mutant.old != mutant.new, "it changes nothing".to_owned()),
        (
            PLACES.contains(&mutant.place),
            "its place is unknown".to_owned(),
        ),
        (
            has_program,
            format!("no test program is named {}", mutant.program),
        ),
        (!mutant.tests.is_empty(), "it names no tests".to_owned()),
        (mutant.limit > 0, "it has no limit".to_owned()),
    ]
    .into_iter()
    .filter(|(holds, _)| !holds)
    .map(|(_, fault)| format!("{} ({}): {fault}", mutant.bug, mutant.file))
    .collect()
}

#[test]
fn every_bug_that_is_planted_still_fits_the_code() {
    let wrong: Vec<String> = list::all().flat_map(faults).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_entry_that_fits_no_longer_is_noticed() {
    let gone = Mutant {
        place: "lifecycle",
        bug: "none",
        file: "src/lib.rs",
        old: "this text is nowhere in the file",
        new: "",
        program: "core",
        tests: "guard::",
        limit: 1,
    };
    assert_eq!(faults(&gone).len(), 1, "{:?}", faults(&gone));
}

#[test]
fn every_place_has_bugs_and_none_is_planted_twice() {
    let (mut count, mut places, mut bugs) = (0, BTreeSet::new(), BTreeSet::new());
    for mutant in list::all() {
        count += 1;
        places.insert(mutant.place);
        assert!(
            bugs.insert((mutant.place, mutant.bug)),
            "{} is planted twice",
            mutant.bug
        );
    }
    assert!(count >= FEWEST, "only {count} bugs");
    let missing: Vec<_> = PLACES.iter().filter(|p| !places.contains(*p)).collect();
    assert!(missing.is_empty(), "no bug is planted in {missing:?}");
}
