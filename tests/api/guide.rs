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

/// The features of Cargo.toml, each with whether it is on by default.
fn features() -> Vec<(String, bool)> {
    let manifest = read("Cargo.toml");
    let section = manifest.split("\n[features]\n").nth(1).expect("features");
    let section = section.split("\n[").next().unwrap_or_default();
    let lines = section.lines().filter(|line| !line.starts_with('#'));
    let pairs: Vec<_> = lines.filter_map(|line| line.split_once(" = ")).collect();
    let (_, default) = pairs[0];
    assert_eq!(pairs[0].0, "default");
    let on = |name: &str| default.contains(&format!("\"{name}\""));
    pairs[1..]
        .iter()
        .map(|(name, _)| ((*name).to_owned(), on(name)))
        .collect()
}

#[test]
fn the_front_page_has_every_feature() {
    let front = read("src/guide/front_page.md");
    let table = front.split("| feature | gives | default |\n").nth(1);
    let table = table.expect("a table").split("\n\n").next().expect("rows");
    let mut shown: Vec<(String, bool)> = table
        .lines()
        .skip(1)
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let on = match cells[2] {
                "on" => true,
                "off" => false,
                other => panic!("{row}: {other}"),
            };
            (cells[0].trim_matches('`').to_owned(), on)
        })
        .collect();
    let mut all = features();
    assert!(all.len() >= 7, "{all:?}");
    shown.sort();
    all.sort();
    assert_eq!(shown, all);
}

#[test]
fn the_front_page_leads_to_every_page_for_users() {
    let (front, lib) = (read("src/guide/front_page.md"), read("src/lib.rs"));
    let docs = lib.split("pub mod docs {").nth(1).expect("the pages");
    let docs = docs.split("\n}\n").next().expect("its end");
    let pages: Vec<&str> = docs
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub mod ")?.strip_suffix(" {}"))
        .collect();
    assert!(pages.len() >= 7, "{pages:?}");
    for page in pages {
        assert!(front.contains(&format!("[`docs::{page}`]")), "{page}");
    }
}
