//! Tests that every public method and function has an example in its documentation. Examples are compiled and run as tests of the documentation.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::surface::{self, Surface, declared, words};

/// The public methods in `text` without an example, by their first line. A method of a public trait is one that a user calls or writes: an
/// example at the trait stands for all of them.
fn without_example(text: &str) -> Vec<&str> {
    let (mut found, mut example, mut hidden) = (Vec::new(), false, false);
    let mut shown_trait = None;
    for line in text.lines() {
        let code = line.trim_start();
        if code.starts_with("///") {
            example |= code.contains("```");
            continue;
        }
        if code.starts_with("#[") {
            example |= code.starts_with("#[doc = ") && code.contains("```");
            hidden |= code == "#[doc(hidden)]";
            continue;
        }
        let public = [
            "    pub fn ",
            "pub fn ",
            "    pub const fn ",
            "pub const fn ",
        ];
        if line.starts_with("pub trait ") {
            shown_trait = Some(example);
        } else if line == "}" {
            shown_trait = None;
        }
        let of_trait = shown_trait == Some(false) && line.starts_with("    fn ");
        let public = of_trait || public.iter().any(|start| line.starts_with(start));
        if public && !example && !hidden {
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
            // Each of these is one rule; their module shows how they are called.
            let rule = path.parent().is_some_and(|dir| dir.ends_with("contract"));
            let text = fs::read_to_string(&path).expect("a file");
            let text = if rule {
                text.replace("\npub fn ", "\nfn ")
            } else {
                text
            };
            seen += text.matches("\n    pub fn ").count();
            // Their page says why they have none.
            let text = DELIBERATE.iter().fold(text, |text, name| {
                text.replace(&format!("\npub trait {name}"), "\ntrait ")
            });
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
    let text = "    /// ```\n    /// a();\n    /// ```\n    #[must_use]\n    pub fn a() {}\n\n    /// Words.\n    pub fn b() {}\n\n    #[doc(hidden)]\n    pub fn c() {}\n\npub fn d() {}\n";
    assert_eq!(without_example(text), ["pub fn b() {}", "pub fn d() {}"]);
    let text = "/// Words.\npub trait Bare {\n    /// Words.\n    fn e(&self);\n}\n\n/// ```\n/// ```\npub trait Shown {\n    fn f(&self);\n}\n\ntrait Inner {\n    fn g(&self);\n}\n";
    assert_eq!(without_example(text), ["fn e(&self);"]);
}

/// Types and traits without an example of their own, because that of another item shows them: `docs/api-guidelines.md` names that item.
const DELIBERATE: [&str; 27] = [
    "Absence",
    "Acquired",
    "Check",
    "CheckFinding",
    "CheckLevel",
    "CheckSubject",
    "CompareAndSet",
    "EventReason",
    "ExtendOutcome",
    "GateStore",
    "Greeting",
    "HelperCall",
    "ListCursor",
    "ListRequest",
    "LookupBy",
    "OnCancel",
    "Param",
    "ReleaseOrigin",
    "ReleaseOutcome",
    "Reply",
    "Row",
    "SchemaSession",
    "StoreClock",
    "StoredLock",
    "TimedReply",
    "Verb",
    "Watch",
];

/// More of them: what a [`Waiter`](syncguard::Waiter) answers.
const OF_WAITERS: [&str; 3] = ["Turn", "WaiterEvent", "WaiterStep"];

/// The documentation and the attributes above a declaration, and what it declares.
fn documented(text: &str) -> Vec<(String, &str)> {
    let (mut found, mut above) = (Vec::new(), String::new());
    for line in text.lines() {
        if line.starts_with("///") || line.starts_with("#[") {
            above += line;
            above.push('\n');
            continue;
        }
        if let Some(name) = declared(line) {
            found.push((std::mem::take(&mut above), name));
        }
        // The arguments of an attribute stand on lines of their own.
        if !line.starts_with([' ', ')', ']']) {
            above.clear();
        }
    }
    found
}

#[test]
fn every_public_type_has_an_example_or_is_named() {
    let surface = Surface::read();
    let types = surface.types();
    let mut without = BTreeSet::new();
    for export in &surface.exports {
        let text = surface::read(&export.file);
        let items = documented(&text);
        let (above, _) = items
            .iter()
            .find(|(_, name)| *name == export.declared)
            .expect("it is declared");
        let kind = types.contains(&export.declared) || export.declared == "Check";
        if kind && !above.contains("```") {
            without.insert(export.declared.clone());
        }
    }
    let named: BTreeSet<String> = DELIBERATE
        .iter()
        .chain(&OF_WAITERS)
        .map(|name| (*name).to_owned())
        .collect();
    assert_eq!(without, named);
    let page = surface::read(Path::new("docs/api-guidelines.md"));
    let row = page.lines().find(|line| line.starts_with("| C-EXAMPLE"));
    let row = row.expect("a row");
    for name in named {
        assert!(row.contains(&format!("`{name}`")), "{name} is not named");
    }
}

/// The variants of the public enums in `text` without documentation.
fn undocumented_variants<'a>(text: &'a str, public: &BTreeSet<String>) -> Vec<&'a str> {
    let (mut found, mut inside, mut documented) = (Vec::new(), false, false);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("pub enum ") {
            inside = words(rest).next().is_some_and(|name| public.contains(name));
        } else if line == "}" {
            inside = false;
        } else if inside && line.starts_with("    ") {
            let code = &line[4..];
            match code {
                _ if code.starts_with("///") => documented |= code.len() > "/// ".len(),
                _ if code.starts_with("#[") => {}
                _ if code.starts_with(|c: char| c.is_ascii_uppercase()) => {
                    if !documented {
                        found.push(code);
                    }
                    documented = false;
                }
                _ => documented = false,
            }
        }
    }
    found
}

#[test]
fn every_variant_says_when_it_occurs() {
    let surface = Surface::read();
    let types = surface.types();
    let files: BTreeSet<_> = surface.exports.iter().map(|export| &export.file).collect();
    let mut seen = 0;
    for file in files {
        let text = surface::read(file);
        seen += text.matches("\npub enum ").count();
        let missing = undocumented_variants(&text, &types);
        assert!(missing.is_empty(), "{}: {missing:?}", file.display());
    }
    assert!(seen >= 20, "only {seen} enums");
    let sample = "pub enum Sample {\n    /// Words.\n    #[serde]\n    One(u32),\n    Two {\n        /// Words.\n        a: u32,\n    },\n    Three,\n}\n\nenum Inner {\n    Four,\n}\n";
    let public = BTreeSet::from(["Sample".to_owned()]);
    assert_eq!(undocumented_variants(sample, &public), ["Two {", "Three,"]);
}
