//! Compares the public interface with `docs/public-api.txt`, so that no item comes, goes or changes unseen.
//!
//! The listing is read from the sources, as rustfmt formats them: it does not depend on a version of rustdoc. It counts on two
//! rules of the project: every export begins in `lib.rs`, and no type name is declared twice. Each line stands behind the module that
//! has the item.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::surface::{self, Export, Surface, root, words};

const FILE: &str = "docs/public-api.txt";
const INTRO: &str = "\
# The public interface of the crate with all features, one line per item, impl, method, field and variant.
# A test compares it with the sources. After a change that is meant, write it anew:
#   SYNCGUARD_WRITE_LISTING=1 cargo test --all-features --test api listing
# A line that goes or changes is a breaking change: the changelog names it.
";

/// One top-level item of a source: what stands before it, its first line, and what is in it.
struct Block {
    attributes: Vec<String>,
    header: String,
    body: Vec<String>,
    file: PathBuf,
}

/// Joins a declaration that rustfmt broke into lines, without its `{`.
fn joined(lines: &[String]) -> String {
    let text: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    let text = text.join(" ").replace("( ", "(").replace(", )", ")");
    let text = text.strip_suffix("{}").unwrap_or(&text);
    let text = text.strip_suffix('{').unwrap_or(text).trim_end();
    let text = text.trim_end_matches([';', ',']);
    // One spelling, whatever a file imports.
    let plain = [
        ("fmt::", ""),
        ("StdError", "Error"),
        ("crate::", ""),
        ("mut self", "self"),
    ];
    let text = text.to_owned();
    plain
        .iter()
        .fold(text, |text, (long, short)| text.replace(long, short))
}

fn ends_a_declaration(line: &str) -> bool {
    line.ends_with(['{', ';', '}'])
}

/// The items that begin at `depth` spaces.
fn blocks(lines: &[String], depth: usize) -> Vec<Block> {
    let margin = " ".repeat(depth);
    let end = format!("{margin}}}");
    let (mut found, mut attributes, mut at) = (Vec::new(), Vec::new(), 0);
    while at < lines.len() {
        let line = &lines[at];
        let code = line.strip_prefix(&margin).unwrap_or_default();
        at += 1;
        if code.is_empty() || code.starts_with([' ', '}', ')', ']']) || code.starts_with("//") {
            continue;
        }
        if code.starts_with("#[") || code.starts_with("#![") {
            attributes.push(code.to_owned());
            continue;
        }
        let first = at - 1;
        while !ends_a_declaration(&lines[at - 1])
            && !lines[at - 1].ends_with(',')
            && at < lines.len()
        {
            at += 1;
        }
        // A list of arguments has lines that end in a comma.
        while lines[first].ends_with('(') && !ends_a_declaration(&lines[at - 1]) {
            at += 1;
        }
        let header = joined(&lines[first..at]);
        let mut body = Vec::new();
        if lines[at - 1].ends_with('{') {
            while at < lines.len() && !lines[at].starts_with(&end) {
                body.push(lines[at].clone());
                at += 1;
            }
        }
        let attributes = std::mem::take(&mut attributes);
        found.push(Block {
            attributes,
            header,
            body,
            file: PathBuf::new(),
        });
    }
    found
}

fn sources() -> Vec<Block> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join("src")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).expect("a source");
                let lines: Vec<String> = text.lines().map(str::to_owned).collect();
                let file = path.strip_prefix(root()).expect("a file of the crate");
                let inside = blocks(&lines, 0).into_iter();
                found.extend(inside.map(|block| Block {
                    file: file.to_owned(),
                    ..block
                }));
            }
        }
    }
    found.retain(|block| {
        !block
            .attributes
            .iter()
            .any(|a| a.contains("test,") || a.contains("(test)"))
    });
    found
}

/// What an `impl` is for, without its generics.
fn subject(header: &str) -> &str {
    let of = header.split(" where ").next().unwrap_or_default();
    let of = match of.rsplit_once(" for ") {
        Some((_, subject)) => subject,
        None => of
            .rsplit_once("> ")
            .map_or(&of["impl".len()..], |(_, subject)| subject),
    };
    words(of).next().unwrap_or_default()
}

/// A constant with its value, but for the text of a script or a statement: that may change.
fn without_statement(header: &str) -> &str {
    match header.split_once(" = ") {
        Some((start, value)) if start.ends_with(": &str") && value.contains([' ', '!']) => start,
        _ => header,
    }
}

/// The list of a `#[derive(…)]`, of a feature's too.
fn derives(attribute: &str) -> Option<&str> {
    let of_a_feature = attribute.starts_with("#[cfg_attr(feature");
    let (start, list) = attribute.split_once("derive(")?;
    (start == "#[" || of_a_feature).then_some(list)
}

/// The home of what has no other one, such as the methods of `impl` blocks of a sample.
const ROOT: &str = "syncguard";

struct Listing {
    surface: Surface,
    /// The public module of every exported name.
    homes: BTreeMap<String, String>,
    /// Every type and trait of the crate.
    declared: BTreeSet<String>,
    lines: BTreeSet<String>,
}

impl Listing {
    /// A line stands behind the module whose name leads to it: two modules may have a name each.
    fn write(&mut self, module: &str, line: &str) {
        self.lines.insert(format!("{module}: {line}"));
    }

    fn home(&self, name: &str) -> String {
        let home = self.homes.get(name).map(String::as_str);
        home.unwrap_or(ROOT).to_owned()
    }

    fn exports(&self, name: &str) -> bool {
        self.homes.contains_key(name)
    }

    fn add(&mut self, block: &Block) {
        let header = block.header.strip_prefix("pub ").unwrap_or(&block.header);
        let public = block.header.starts_with("pub ");
        let mut start = words(header).skip_while(|word| *word == "pub");
        let kind = start.next().unwrap_or_default();
        let mut name = start.next().unwrap_or_default();
        if name == "fn" {
            name = start.next().unwrap_or_default();
        }
        let name = name.to_owned();
        let home = self.surface.home(&block.file, &name);
        let home = home.map(|export| export.module.clone());
        match (kind, home) {
            ("impl", _) => self.add_impl(block),
            ("struct" | "enum" | "trait", Some(home)) if public => {
                self.add_type(block, kind, &name, &home);
            }
            // A macro that writes impls of the trait.
            ("forward_to_the_store_behind", _) => self.write(ROOT, &block.header),
            ("fn" | "const" | "type" | "static", Some(home)) if public => {
                self.write(&home, without_statement(&block.header));
            }
            ("macro_rules", _) if block.attributes.iter().any(|a| a == "#[macro_export]") => {
                self.write(ROOT, &format!("macro_rules! {name}"));
            }
            _ => {}
        }
    }

    fn add_type(&mut self, block: &Block, kind: &str, name: &str, home: &str) {
        let open = block
            .attributes
            .iter()
            .any(|a| a.starts_with("#[non_exhaustive"));
        let mark = if open { "#[non_exhaustive] " } else { "" };
        let header = block.header.split('(').next().unwrap_or_default();
        self.write(home, &format!("{mark}{header}"));
        for derive in block.attributes.iter().filter_map(|a| derives(a)) {
            for derived in derive.trim_end_matches([')', ']']).split(", ") {
                let derived = derived.trim_start_matches("serde::");
                self.write(home, &format!("impl {derived} for {name}"));
            }
        }
        for member in blocks(&block.body, 4) {
            self.add_member(&member, kind, name, home);
        }
    }

    fn add_member(&mut self, member: &Block, kind: &str, of: &str, home: &str) {
        if member.attributes.iter().any(|a| a == "#[doc(hidden)]") {
            return;
        }
        let header = member.header.strip_prefix("pub ");
        let text = match (kind, header) {
            ("enum" | "trait", _) => &member.header,
            (_, Some(public)) => public,
            _ => return,
        };
        let line = match text.split_once("fn ") {
            Some((before, rest)) if kind != "struct" && kind != "enum" => {
                format!("{before}fn {of}::{rest}")
            }
            _ => format!("{kind} {of}::{text}"),
        };
        self.write(home, &line);
        if kind == "enum" {
            for field in blocks(&member.body, 8) {
                self.write(home, &format!("{line}::{}", field.header));
            }
        }
    }

    fn add_impl(&mut self, block: &Block) {
        let of = subject(&block.header).to_owned();
        let hidden = |name: &str| self.declared.contains(name) && !self.exports(name);
        if hidden(&of) {
            return;
        }
        let Some((of_trait, _)) = block.header.rsplit_once(" for ") else {
            let home = self.home(&of);
            for member in blocks(&block.body, 4) {
                self.add_member(&member, "impl", &of, &home);
            }
            return;
        };
        if words(of_trait).any(hidden) {
            return;
        }
        // Of a type of this crate, else with one in the trait's name.
        let mut known = std::iter::once(of.as_str()).chain(words(&block.header));
        if let Some(known) = known.find(|word| self.exports(word)) {
            let home = self.home(known);
            self.write(&home, &block.header);
        }
    }

    /// Names that a module exports beside the one that has the lines of the item.
    fn add_other_names(&mut self) {
        for export in self.surface.exports.clone() {
            let home = self.surface.home(&export.file, &export.declared);
            let home = home.expect("it is exported").clone();
            if home != export {
                let line = format!("pub use {}::{} as {}", home.module, home.name, export.name);
                self.write(&export.module, &line);
            } else {
                assert_eq!(
                    export.name, export.declared,
                    "a home has the name of the item"
                );
                let start = format!("{}: ", export.module);
                let listed = self
                    .lines
                    .iter()
                    .filter_map(|line| line.strip_prefix(&start));
                let found = listed.filter(|line| {
                    let line = line.strip_prefix("#[non_exhaustive] ").unwrap_or(line);
                    surface::declared(line) == Some(&export.declared)
                });
                assert_eq!(found.count(), 1, "{export:?} has no line that declares it");
            }
        }
        for (module, name, of) in self.surface.macros.clone() {
            let there = self.lines.contains(&format!("{ROOT}: macro_rules! {of}"));
            assert!(there, "there is no macro {of}");
            self.write(&module, &format!("pub use {of}! as {name}!"));
        }
        for (module, name) in self.surface.crates.clone() {
            self.write(&module, &format!("pub use {name}"));
        }
    }
}

fn listing() -> BTreeSet<String> {
    let surface = Surface::read();
    let blocks = sources();
    let declared = blocks.iter().filter_map(|block| {
        let mut start = words(&block.header).skip_while(|w| ["pub", "crate", "super"].contains(w));
        let kind = start.next()?;
        let is_type = ["struct", "enum", "trait"].contains(&kind);
        is_type.then(|| start.next().unwrap_or_default().to_owned())
    });
    let types = surface.types();
    let of_types = surface
        .exports
        .iter()
        .filter(|e| types.contains(&e.declared));
    // The first one is the home.
    let homes = of_types
        .rev()
        .map(|e| (e.declared.clone(), e.module.clone()));
    let mut listing = Listing {
        declared: declared.collect(),
        homes: homes.collect(),
        surface: Surface::read(),
        lines: BTreeSet::new(),
    };
    for block in &blocks {
        listing.add(block);
        // A macro writes these.
        let pointer = block.header.strip_prefix("forward_to_the_store_behind!(");
        if let Some(pointer) = pointer.and_then(|rest| rest.strip_suffix(')')) {
            let line = format!("impl<B: Backend + ?Sized> Backend for {pointer}");
            listing.write(ROOT, &line);
        }
    }
    let pointers = listing
        .lines
        .iter()
        .filter(|line| line.contains("?Sized> Backend for"));
    assert_eq!(pointers.count(), 2, "Arc and Box");
    listing.add_other_names();
    listing.lines
}

#[test]
fn the_public_interface_is_the_listed_one() {
    let now = listing();
    assert!(now.len() > 400, "only {} lines", now.len());
    let path = root().join(FILE);
    let text: String = now.iter().map(|line| format!("{line}\n")).collect();
    if std::env::var_os("SYNCGUARD_WRITE_LISTING").is_some() {
        fs::write(&path, format!("{INTRO}{text}")).expect("the listing is written");
    }
    let kept = fs::read_to_string(&path).expect("the listing");
    let kept: BTreeSet<String> = kept
        .lines()
        .filter(|line| !line.starts_with("# "))
        .filter(|line| !line.starts_with("#  "))
        .map(str::to_owned)
        .collect();
    let (gone, new): (Vec<_>, Vec<_>) = (
        kept.difference(&now).collect(),
        now.difference(&kept).collect(),
    );
    assert!(
        gone.is_empty() && new.is_empty(),
        "the public interface changed; if that is meant, name it in the changelog and see {FILE}\ngone: {gone:#?}\nnew: {new:#?}"
    );
}

/// What a file may hold.
const SAMPLE: &str = "\
/// A value.
#[derive(Clone, Debug)]
#[cfg_attr(feature = \"serde\", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Sample {
    /// A field.
    pub shown: u32,
    hidden: u32,
}

impl Sample {
    /// Long.
    pub fn new(
        first: &str,
        second: impl Fn(&str) -> bool,
    ) -> Result<Self, Trouble> {
        todo!()
    }

    pub(crate) fn private(&self) {}

    #[doc(hidden)]
    pub fn secret(&self) {}
}

impl From<Sample> for u64 {
    fn from(value: Sample) -> Self {}
}

impl Private for Sample {
    fn run(&self) {}
}

#[non_exhaustive]
pub enum Choice {
    One(u32),
    Two {
        within: u32,
    },
}

pub trait Act: Send {
    fn act(&self, how: &Sample) -> bool {
        true
    }
}

trait Private {}

pub const LIMIT: u32 = 7;

pub const UNKNOWN: u32 = 8;
";

#[test]
fn a_change_of_the_interface_would_be_seen() {
    let lines: Vec<String> = SAMPLE.lines().map(str::to_owned).collect();
    let exports = ["Sample", "Choice", "Act", "LIMIT"].map(|name| Export {
        module: "syncguard::m".to_owned(),
        name: name.to_owned(),
        file: PathBuf::new(),
        declared: name.to_owned(),
    });
    let homes = exports.iter().map(|e| (e.name.clone(), e.module.clone()));
    let mut listing = Listing {
        homes: homes.collect(),
        declared: ["Sample", "Choice", "Act", "Private"]
            .map(str::to_owned)
            .into(),
        surface: Surface {
            exports: exports.to_vec(),
            ..Surface::default()
        },
        lines: BTreeSet::new(),
    };
    for block in blocks(&lines, 0) {
        listing.add(&block);
    }
    let expected = [
        "#[non_exhaustive] pub enum Choice",
        "#[non_exhaustive] pub struct Sample",
        "enum Choice::One(u32)",
        "enum Choice::Two",
        "enum Choice::Two::within: u32",
        "fn Act::act(&self, how: &Sample) -> bool",
        "fn Sample::new(first: &str, second: impl Fn(&str) -> bool) -> Result<Self, Trouble>",
        "impl Clone for Sample",
        "impl Debug for Sample",
        "impl From<Sample> for u64",
        "impl Serialize for Sample",
        "pub const LIMIT: u32 = 7",
        "pub trait Act: Send",
        "struct Sample::shown: u32",
    ];
    let expected = expected.map(|line| format!("syncguard::m: {line}"));
    assert_eq!(listing.lines, expected.into());
}
