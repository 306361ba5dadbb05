//! Tests that every public method has an example in its documentation. Examples are compiled and run as tests of the documentation.

use std::fs;
use std::path::Path;

/// The public methods in `text` without an example, by their first line.
fn without_example(text: &str) -> Vec<&str> {
    let (mut found, mut example, mut hidden) = (Vec::new(), false, false);
    for line in text.lines() {
        let code = line.trim_start();
        if code.starts_with("///") {
            example |= code.contains("```");
            continue;
        }
        if code.starts_with("#[") {
            hidden |= code == "#[doc(hidden)]";
            continue;
        }
        if line.starts_with("    pub fn ") && !example && !hidden {
            found.push(code);
        }
        (example, hidden) = (false, false);
    }
    found
}

#[test]
fn every_public_method_has_an_example() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let (mut missing, mut seen) = (Vec::new(), 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).expect("a file");
            seen += text.matches("\n    pub fn ").count();
            let names = without_example(&text).into_iter();
            missing.extend(names.map(|name| format!("{}: {name}", path.display())));
        }
    }
    assert!(seen > 150, "only {seen} methods");
    assert!(
        missing.is_empty(),
        "these have none:\n{}",
        missing.join("\n")
    );
}

#[test]
fn a_method_without_an_example_would_be_seen() {
    let text = "    /// ```\n    /// a();\n    /// ```\n    #[must_use]\n    pub fn a() {}\n\n    /// Words.\n    pub fn b() {}\n\n    #[doc(hidden)]\n    pub fn c() {}\n";
    assert_eq!(without_example(text), ["pub fn b() {}"]);
}
