//! Tests that the table of bad inputs names tests that exist.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::support::root;

/// The rows of the list; it has no 45 and no 48.
fn rows() -> impl Iterator<Item = u32> {
    (1..=69).filter(|n| ![45, 48].contains(n))
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

/// What stands in a cell for a row that the header only documents. The list of bad inputs asks for no more in this one row.
const DOCUMENTATION: (u32, &str) = (50, "*documentation*");

/// Whether a file has a test of which the table names the beginning: a Rust function that is marked as a test, or a C function
/// that is called.
fn has_test(text: &str, rust: bool, name: &str) -> bool {
    let mut attributes = false;
    for line in text.lines() {
        let function = line
            .strip_prefix("fn ")
            .or_else(|| line.strip_prefix("static void "))
            .filter(|f| f.starts_with(name));
        if let Some(whole) = function.and_then(|f| f.split('(').next())
            && (rust && attributes || !rust && text.matches(whole).count() > 1)
        {
            return true;
        }
        attributes = line == "#[test]" || attributes && line.starts_with("#[");
    }
    false
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
            if (number, cell) == DOCUMENTATION {
                continue;
            }
            for test in cell.split(", ").filter(|t| *t != "–") {
                let (file, name) = test.split_once(": ").expect("a file and a function");
                let path = place(file, mark == 'R');
                let text = files.entry(path).or_insert_with_key(|path| {
                    std::fs::read_to_string(path)
                        .unwrap_or_else(|e| panic!("row {number}: {}: {e}", path.display()))
                });
                assert!(
                    has_test(text, file.ends_with(".rs"), name),
                    "row {number}: there is no test {name} in {file}"
                );
            }
        }
    }
    assert!(found.is_empty(), "there are no such rows: {found:?}");
}
