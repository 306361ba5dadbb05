//! Tests that every public call that can fail names, in its documentation, the codes that it fails with.

use std::fs;
use std::path::Path;

fn sources() -> Vec<(String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut found, mut folders) = (Vec::new(), vec![src]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).expect("a source");
                found.push((path.display().to_string(), text));
            }
        }
    }
    found
}

/// The names of the codes, from where they are declared.
fn codes(sources: &[(String, String)]) -> Vec<&str> {
    let declared = sources
        .iter()
        .find_map(|(_, text)| text.split_once("\npub enum ErrorCode {\n"));
    let (_, rest) = declared.expect("the enum");
    let body = rest.split("\n}").next().unwrap_or_default();
    let names = body
        .lines()
        .filter_map(|line| line.trim().strip_suffix(','))
        .filter(|line| line.bytes().all(|b| b.is_ascii_alphabetic()));
    names.collect()
}

/// Whether a section `# Errors` of `docs` links one of `codes`.
fn names_a_code(docs: &str, codes: &[&str]) -> bool {
    let mut sections = docs.split("\n# ");
    let Some(errors) = sections.find_map(|section| section.strip_prefix("Errors\n")) else {
        return false;
    };
    let links = errors.split("](crate::ErrorCode::").skip(1);
    links
        .filter_map(|link| link.split(')').next())
        .any(|name| codes.contains(&name))
}

/// The public functions in `text` that answer a `Result`, by their first line, and whether their documentation names a code.
fn fallible<'a>(text: &'a str, codes: &[&str]) -> Vec<(&'a str, bool)> {
    let mut found = Vec::new();
    let (mut docs, mut hidden, mut in_trait) = (String::new(), false, false);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        if let Some(words) = code.strip_prefix("///") {
            docs.push('\n');
            docs.push_str(words.strip_prefix(' ').unwrap_or(words));
            continue;
        }
        if code.starts_with("#[") {
            hidden |= code == "#[doc(hidden)]";
            continue;
        }
        match line {
            _ if line.starts_with("pub trait ") => in_trait = true,
            "}" => in_trait = false,
            _ => {}
        }
        let public = code.starts_with("pub fn ") || in_trait && line.starts_with("    fn ");
        if public && !hidden {
            let mut whole = code.to_owned();
            while !whole.ends_with(['{', ';', '}']) {
                whole.push_str(lines.next().unwrap_or("{").trim());
            }
            let answer = whole.rsplit_once("->").map_or("", |(_, answer)| answer);
            if answer.contains("Result<") {
                found.push((code, names_a_code(&docs, codes)));
            }
        }
        docs.clear();
        hidden = false;
    }
    found
}

#[test]
fn every_public_call_that_can_fail_names_its_codes() {
    let sources = sources();
    let codes = codes(&sources);
    assert_eq!(codes.len(), 9, "{codes:?}");
    let (mut silent, mut seen) = (Vec::new(), 0);
    for (path, text) in &sources {
        for (name, documented) in fallible(text, &codes) {
            seen += 1;
            if !documented {
                silent.push(format!("{path}: {name}"));
            }
        }
    }
    assert!(seen > 60, "only {seen} calls");
    assert!(
        silent.is_empty(),
        "these need a section `# Errors` that links a code, [`Lost`](crate::ErrorCode::Lost), and says what to do:\n{}",
        silent.join("\n")
    );
}

#[test]
fn a_call_without_its_codes_would_be_seen() {
    let text = "\
impl A {
    /// # Errors
    /// [`Lost`](crate::ErrorCode::Lost) in a forked child.
    #[must_use]
    pub fn named(
        &self,
    ) -> Result<(), E> {}

    /// # Errors
    /// The store's trouble.
    pub fn silent(&self) -> Result<(), E> {}

    /// # Errors
    /// [`Gone`](crate::ErrorCode::Gone) is no code.
    pub fn wrong(&self) -> Result<(), E> {}

    /// Links [`Lost`](crate::ErrorCode::Lost) in another section.
    ///
    /// # Errors
    /// Rarely.
    pub fn elsewhere(&self) -> Result<(), E> {}

    pub fn sure(&self) -> bool {}

    #[doc(hidden)]
    pub fn hidden(&self) -> Result<(), E> {}

    pub(crate) fn private(&self) -> Result<(), E> {}
}

pub trait T {
    fn verb(&self) -> Result<(), E>;
}

impl T for A {
    fn verb(&self) -> Result<(), E> {}
}
";
    let missing = fallible(text, &["Lost"]).into_iter();
    let missing: Vec<_> = missing.filter(|(_, named)| !named).collect();
    let names = missing.iter().map(|(code, _)| code.split('(').next());
    let expected = [
        "pub fn silent",
        "pub fn wrong",
        "pub fn elsewhere",
        "fn verb",
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected.map(Some));
}
