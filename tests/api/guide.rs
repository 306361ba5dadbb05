//! Tests that the guide has its chapters, each with what to do, what not to do and an example that runs, and that the front page of the
//! documentation is about Rust. The examples themselves are tests of the documentation.

use std::fs;
use std::path::Path;

const CHAPTERS: [&str; 4] = ["fencing", "waiting", "loss", "testing"];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What stands behind the fences that begin the blocks of code.
fn languages(page: &str) -> Vec<&str> {
    let fences = page.lines().filter_map(|line| line.strip_prefix("```"));
    fences.step_by(2).collect()
}

#[test]
fn every_chapter_says_what_to_do_and_runs_an_example() {
    let front = read("src/guide/front_page.md");
    let list = read("src/guide/mod.rs");
    for chapter in CHAPTERS {
        let text = read(&format!("src/guide/{chapter}.rs"));
        let page: String = text
            .lines()
            .filter_map(|line| line.strip_prefix("//!"))
            .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line)))
            .collect();
        for section in ["\n# What to do\n", "\n# What not to do\n"] {
            assert!(page.contains(section), "{chapter} lacks{section}");
        }
        // A block without a word is Rust, and is run.
        assert!(languages(&page).contains(&""), "{chapter} runs nothing");
        assert!(
            front.contains(&format!("[`guide::{chapter}`]")),
            "{chapter}"
        );
        assert!(list.contains(&format!("pub mod {chapter};")), "{chapter}");
    }
    let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide"));
    // The chapters, their list and the front page.
    assert_eq!(files.expect("a folder").count(), CHAPTERS.len() + 2);
}

#[test]
fn the_front_page_is_about_rust_and_the_readme_is_tested() {
    let front = read("src/guide/front_page.md");
    let blocks = languages(&front);
    assert!(blocks.len() >= 2, "only {} examples", blocks.len());
    assert!(
        blocks.iter().all(|language| language.is_empty()),
        "{blocks:?}"
    );
    for other in ["C++", "syncguard.h", "`cgo`", "Go "] {
        assert!(!front.contains(other), "{other}");
    }
    let lib = read("src/lib.rs");
    assert!(lib.contains("#![doc = include_str!(\"guide/front_page.md\")]"));
    let readme = "doctest))]\n#[doc = include_str!(\"../README.md\")]";
    assert!(lib.contains(readme), "the README is not compiled");
}
