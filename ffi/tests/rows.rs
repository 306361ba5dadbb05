//! The table of bad inputs names tests that exist.

mod support;

use std::collections::HashMap;
use std::path::PathBuf;

use support::root;

/// The rows of the list; it has no 45 and no 48.
fn rows() -> impl Iterator<Item = u32> {
    (1..=66).filter(|n| ![45, 48].contains(n))
}

/// Where a file lies that the table names in the column of Rust or of C.
fn place(file: &str, rust: bool) -> PathBuf {
    let folder = match file.rsplit('.').next() {
        Some("c") => "ffi/tests/c",
        _ if rust => "tests",
        _ => "ffi/tests",
    };
    root().join(folder).join(file)
}

/// The functions of a Rust or C file, one to a line.
fn functions(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| {
            line.strip_prefix("fn ")
                .or_else(|| line.strip_prefix("static void "))
        })
        .collect()
}

#[test]
fn every_row_has_its_tests() {
    let table = std::fs::read_to_string(root().join("docs/bad-input.md")).expect("the table");
    let mut found = HashMap::new();
    for line in table.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", number, _, of, rust, c, ""] = cells[..]
            && let Ok(number) = number.parse::<u32>()
        {
            assert!(
                found.insert(number, (of, rust, c)).is_none(),
                "{number} is there twice"
            );
        }
    }
    let mut files: HashMap<PathBuf, String> = HashMap::new();
    for number in rows() {
        let (of, rust, c) = found
            .remove(&number)
            .unwrap_or_else(|| panic!("row {number} is missing"));
        for (mark, cell) in [('R', rust), ('C', c)] {
            assert_eq!(of.contains(mark), cell != "–", "row {number}, {mark}");
            for test in cell.split(", ").filter(|t| *t != "–") {
                let (file, name) = test.split_once(": ").expect("a file and a function");
                let path = place(file, mark == 'R');
                let text = files.entry(path).or_insert_with_key(|path| {
                    std::fs::read_to_string(path)
                        .unwrap_or_else(|e| panic!("row {number}: {}: {e}", path.display()))
                });
                assert!(
                    functions(text).iter().any(|f| f.starts_with(name)),
                    "row {number}: there is no test {name} in {file}"
                );
            }
        }
    }
    assert!(found.is_empty(), "there are no such rows: {found:?}");
}
