//! A few seconds of every target, with the corpus and the changes of one seed.

use std::fs;
use std::path::{Path, PathBuf};

use syncguard_fuzz::allocation::Counting;
use syncguard_fuzz::engine::{LIMIT, Plan};
use syncguard_fuzz::targets::TARGETS;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The corpus is a part of the repository.
const MAX_CORPUS_BYTES: u64 = 300_000;
/// Fewer inputs, or fewer things that happen with them, and a target runs past the library.
const FEWEST_FILES: usize = 4;
const FEWEST_OUTCOMES: usize = 5;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// One after the other: the memory that is counted is that of the whole process.
#[test]
fn every_target_takes_its_corpus_and_some_thousand_changes_of_it() {
    let plan = Plan {
        runs: 0,
        seed: 17,
        corpus: root().join("corpus"),
        findings: PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
        limit: LIMIT,
    };
    for target in &TARGETS {
        let runs = target.short;
        let report = target.fuzz(&Plan {
            runs,
            ..plan.clone()
        });
        let report = report.unwrap_or_else(|finding| {
            panic!(
                "{}: {} ({})",
                target.name,
                finding.what,
                finding.file.display()
            )
        });
        println!("{}: {report:?}", target.name);
        assert!(
            runs >= 1_000 && report.executions == runs,
            "{}: {report:?}",
            target.name
        );
        assert!(report.corpus >= FEWEST_FILES, "{}: {report:?}", target.name);
        assert!(
            report.outcomes >= FEWEST_OUTCOMES,
            "{}: {report:?}",
            target.name
        );
    }
    syncguard_fuzz::clean_up();
}

#[test]
fn every_target_is_one_of_cargo_fuzz_and_the_corpus_is_small() {
    let mut bytes = 0;
    for target in &TARGETS {
        let binary = root().join(format!("fuzz_targets/{}.rs", target.name));
        let text =
            fs::read_to_string(&binary).unwrap_or_else(|e| panic!("{}: {e}", binary.display()));
        assert!(
            text.contains(&format!("targets::{}::run(", target.name)),
            "{}",
            binary.display()
        );
        let folder = root().join("corpus").join(target.name);
        let files = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        bytes += files
            .map(|file| file.and_then(|file| file.metadata()).expect("a file").len())
            .sum::<u64>();
    }
    assert_eq!(
        fs::read_dir(root().join("fuzz_targets"))
            .expect("a folder")
            .count(),
        TARGETS.len()
    );
    assert_eq!(
        fs::read_dir(root().join("corpus"))
            .expect("a folder")
            .count(),
        TARGETS.len()
    );
    assert!(bytes <= MAX_CORPUS_BYTES, "{bytes} bytes");
}
