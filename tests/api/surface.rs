//! The public modules and what each of them exports, read from the sources: `lib.rs` and the modules that it leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// One public name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Export {
    /// The public module, such as `syncguard::gate`.
    pub module: String,
    /// The name there.
    pub name: String,
    /// The file that declares it.
    pub file: PathBuf,
    /// The name in that file.
    pub declared: String,
}

/// Crates whose types the interface has on purpose, so that a program uses the same version.
const CRATES: [&str; 1] = ["rustls"];

/// All that users can name.
#[derive(Debug, Default)]
pub struct Surface {
    /// Every public name, in the order in which the modules are reached from `lib.rs`.
    pub exports: Vec<Export>,
    /// The file of each public module.
    pub modules: BTreeMap<String, PathBuf>,
    /// Macros that are exported under another name: the module, the name there, and the name of the macro.
    pub macros: Vec<(String, String, String)>,
    /// Crates that are given on whole: the module, and the name of the crate.
    pub crates: Vec<(String, String)>,
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(file: &Path) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// The words of code.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
}

/// The name that a line at the margin declares for users, such as `pub struct Name {`.
pub fn declared(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let mut words = words(rest).skip_while(|word| ["const", "unsafe"].contains(word));
    let kinds = [
        "struct ", "enum ", "trait ", "const ", "fn ", "type ", "static ",
    ];
    let kind = kinds.iter().find(|kind| rest.starts_with(**kind))?;
    if *kind != "const " {
        words.next();
    }
    // `const fn name`, `const NAME`.
    let name = words.next()?;
    if name == "fn" {
        words.next()
    } else {
        Some(name)
    }
}

/// The folder in which the modules of the module in `file` are.
fn folder(file: &Path) -> PathBuf {
    let own = ["mod", "lib"].map(Some);
    let stem = file.file_stem().and_then(|stem| stem.to_str());
    if own.contains(&stem) {
        file.parent().expect("a folder").to_owned()
    } else {
        file.with_extension("")
    }
}

/// The file of the module `name` that the module in `folder` declares, if there is one.
fn module_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let files = [format!("{name}.rs"), format!("{name}/mod.rs")];
    files
        .map(|file| folder.join(file))
        .into_iter()
        .find(|file| root().join(file).is_file())
}

/// Where a path of a `use` in `file` leads: a module's file and a name in it, or a module's file alone.
fn target(file: &Path, path: &str) -> (PathBuf, Option<String>) {
    let steps: Vec<&str> = path.split("::").collect();
    let (start, mut folder_now) = match steps[0] {
        "crate" => (1, PathBuf::from("src")),
        "self" => (1, folder(file)),
        "super" => {
            let parent = folder(file);
            (1, parent.parent().expect("a parent").to_owned())
        }
        _ => (0, folder(file)),
    };
    let mut at = match folder_now.as_path() == Path::new("src") {
        true => PathBuf::from("src/lib.rs"),
        false => module_file(
            folder_now.parent().expect("a folder"),
            folder_now
                .file_name()
                .and_then(|n| n.to_str())
                .expect("a name"),
        )
        .expect("a module"),
    };
    for (step, name) in steps.iter().enumerate().skip(start) {
        match module_file(&folder_now, name) {
            Some(next) => {
                folder_now = folder(&next);
                at = next;
            }
            None => {
                assert_eq!(step, steps.len() - 1, "{}: {path}", file.display());
                return (at, Some((*name).to_owned()));
            }
        }
    }
    (at, None)
}

/// The statements `pub use` and `pub mod` of a file that are not of the documentation only: each path with the name that it gets.
fn given_away(file: &Path) -> Vec<(String, String)> {
    let text = read(file);
    let mut found = Vec::new();
    let mut cfg = "";
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("#[") {
            cfg = line;
            continue;
        }
        let of_docs =
            cfg.starts_with("#[cfg(") && words(cfg).any(|word| word == "doc" || word == "doctest");
        cfg = "";
        if of_docs {
            continue;
        }
        if let Some(name) = line
            .strip_prefix("pub mod ")
            .and_then(|l| l.strip_suffix(';'))
        {
            found.push((format!("self::{name}"), name.to_owned()));
        }
        let Some(start) = line.strip_prefix("pub use ") else {
            continue;
        };
        let mut statement = start.to_owned();
        while !statement.ends_with(';') {
            statement += lines.next().expect("the end of a use").trim();
        }
        let statement = statement.trim_end_matches(';');
        let (base, names) = match statement.split_once('{') {
            Some((base, names)) => (base, names.trim_end_matches('}')),
            None => ("", statement),
        };
        for name in names.split(',').map(str::trim).filter(|n| !n.is_empty()) {
            let (path, alias) = match name.split_once(" as ") {
                Some((path, alias)) => (path, alias),
                None => (name, name.rsplit("::").next().unwrap_or(name)),
            };
            found.push((format!("{base}{path}"), alias.to_owned()));
        }
    }
    found
}

impl Surface {
    /// What the sources of this crate export.
    pub fn read() -> Self {
        let mut surface = Self::default();
        surface.walk("syncguard", Path::new("src/lib.rs"));
        surface
    }

    fn walk(&mut self, module: &str, file: &Path) {
        self.modules.insert(module.to_owned(), file.to_owned());
        let mut inside = Vec::new();
        for (path, alias) in given_away(file) {
            match target(file, &path) {
                (next, None) => inside.push((alias, next)),
                (_, Some(name)) if CRATES.contains(&path.as_str()) => {
                    self.crates.push((module.to_owned(), name));
                }
                (at, Some(name)) if name.starts_with("__") => {
                    assert_eq!(at, Path::new("src/lib.rs"), "a macro is at the root");
                    self.macros.push((module.to_owned(), alias, name));
                }
                (at, Some(name)) => {
                    let there = read(&at);
                    let known = there.lines().any(|line| declared(line) == Some(&name));
                    assert!(
                        known,
                        "{}: {name} is not declared in {}",
                        file.display(),
                        at.display()
                    );
                    self.add(module, &alias, &at, &name);
                }
            }
        }
        for line in read(file).lines() {
            if let Some(name) = declared(line) {
                self.add(module, name, file, name);
            }
        }
        for (alias, next) in inside {
            self.walk(&format!("{module}::{alias}"), &next);
        }
    }

    fn add(&mut self, module: &str, name: &str, file: &Path, declared: &str) {
        self.exports.push(Export {
            module: module.to_owned(),
            name: name.to_owned(),
            file: file.to_owned(),
            declared: declared.to_owned(),
        });
    }

    /// The first public module that exports what `file` declares as `name`: its home.
    pub fn home(&self, file: &Path, name: &str) -> Option<&Export> {
        let mut all = self.exports.iter();
        all.find(|export| export.file == file && export.declared == name)
    }

    /// The public names of types and traits.
    pub fn types(&self) -> BTreeSet<String> {
        let is_type = |export: &&Export| {
            let kinds = ["struct", "enum", "trait"];
            let text = read(&export.file);
            let mut lines = text.lines();
            lines.any(|line| {
                let kind = line
                    .strip_prefix("pub ")
                    .and_then(|rest| words(rest).next());
                kind.is_some_and(|kind| kinds.contains(&kind))
                    && declared(line) == Some(&export.declared)
            })
        };
        let types = self.exports.iter().filter(is_type);
        types.map(|export| export.declared.clone()).collect()
    }
}

#[test]
fn every_public_module_is_found() {
    let surface = Surface::read();
    let modules: Vec<&str> = surface.modules.keys().map(String::as_str).collect();
    let all = "
        syncguard
        syncguard::format syncguard::format::postgres syncguard::format::redis syncguard::format::sqlite
        syncguard::gate syncguard::gate::postgres syncguard::gate::redis syncguard::gate::sqlite
        syncguard::testkit syncguard::testkit::contract";
    assert_eq!(modules, all.split_whitespace().collect::<Vec<_>>());
    let gate = |name: &str| {
        surface
            .exports
            .iter()
            .any(|e| e.module == "syncguard::gate" && e.name == name)
    };
    assert!(gate("FencedRecord") && gate("FenceGate"));
    let prelude = surface
        .exports
        .iter()
        .find(|e| e.name == "PRELUDE")
        .expect("it is exported");
    assert_eq!(prelude.declared, "GATE_PRELUDE");
    assert_eq!(surface.macros.len(), 1);
    assert!(surface.types().contains("CompareAndSet"));
}

#[test]
fn declarations_are_told_from_other_lines() {
    for (line, name) in [
        ("pub struct Sample {", Some("Sample")),
        ("pub enum Choice<T> {", Some("Choice")),
        ("pub const LIMIT: u32 = 1;", Some("LIMIT")),
        ("pub const fn half(of: u32) -> u32 {", Some("half")),
        ("pub fn whole() {", Some("whole")),
        ("pub trait Act: Send {", Some("Act")),
        ("pub(crate) fn inner() {", None),
        ("    pub fn method() {", None),
        ("pub use a::B;", None),
    ] {
        assert_eq!(declared(line), name, "{line}");
    }
}
