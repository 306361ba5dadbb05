//! Compares the public interface with `docs/public-api.txt`, so that no item comes, goes or changes unseen.
//!
//! The listing is read from the sources, as rustfmt formats them: it does not depend on a version of rustdoc. It counts on two
//! rules of the project: `lib.rs` names every export, and no type name is declared twice.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const FILE: &str = "docs/public-api.txt";
const INTRO: &str = "\
# The public interface of the crate with all features, one line per item, impl, method, field and variant.
# A test compares it with the sources. After a change that is meant, write it anew:
#   SYNCGUARD_WRITE_LISTING=1 cargo test --all-features --test api listing
# A line that goes or changes is a breaking change: the changelog names it.
";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// One top-level item of a source: what stands before it, its first line, and what is in it.
struct Block {
    attributes: Vec<String>,
    header: String,
    body: Vec<String>,
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
                found.extend(blocks(&lines, 0));
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

/// The names that a public module gives away: by `pub use`, and the types that it declares.
fn exports(path: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(path)).expect("a source");
    let statements = text.split("\npub use ").skip(1);
    let names = statements.flat_map(|rest| {
        let list = rest.split(';').next().unwrap_or_default();
        let list = list.rsplit("::").next().unwrap_or_default();
        let names = list.trim_matches(['{', '}']).split(',');
        names.map(renamed).collect::<Vec<_>>()
    });
    let declared = text.lines().filter_map(|line| {
        let rest = ["pub struct ", "pub enum ", "pub trait "];
        let rest = rest.iter().find_map(|start| line.strip_prefix(start))?;
        words(rest).next().map(str::to_owned)
    });
    let all = names.filter(|name| !name.is_empty());
    all.chain(declared).collect()
}

/// The name by which a `use` gives an item away.
fn renamed(name: &str) -> String {
    let name = name.split(" as ").last().unwrap_or_default();
    name.trim().to_owned()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
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

struct Listing {
    exported: BTreeSet<String>,
    /// Every type and trait of the crate.
    declared: BTreeSet<String>,
    lines: BTreeSet<String>,
}

impl Listing {
    fn add(&mut self, block: &Block) {
        let header = block.header.strip_prefix("pub ").unwrap_or(&block.header);
        let public = block.header.starts_with("pub ");
        let mut start = words(header);
        let kind = start.next().unwrap_or_default();
        let name = start.next().unwrap_or_default().to_owned();
        match kind {
            "impl" => self.add_impl(block),
            "struct" | "enum" | "trait" if public && self.exported.contains(&name) => {
                self.add_type(block, kind, &name);
            }
            // A macro that writes impls of the trait.
            "forward_to_the_store_behind" => drop(self.lines.insert(block.header.clone())),
            "fn" | "const" if self.exported.contains(&name) => {
                self.lines.insert(block.header.clone());
            }
            _ => {}
        }
    }

    fn add_type(&mut self, block: &Block, kind: &str, name: &str) {
        let open = block
            .attributes
            .iter()
            .any(|a| a.starts_with("#[non_exhaustive"));
        let mark = if open { "#[non_exhaustive] " } else { "" };
        let header = block.header.split('(').next().unwrap_or_default();
        self.lines.insert(format!("{mark}{header}"));
        for derive in block
            .attributes
            .iter()
            .filter_map(|a| a.strip_prefix("#[derive("))
        {
            for derived in derive.trim_end_matches(")]").split(", ") {
                self.lines.insert(format!("impl {derived} for {name}"));
            }
        }
        for member in blocks(&block.body, 4) {
            self.add_member(&member, kind, name);
        }
    }

    fn add_member(&mut self, member: &Block, kind: &str, of: &str) {
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
        self.lines.insert(line.clone());
        if kind == "enum" {
            for field in blocks(&member.body, 8) {
                self.lines.insert(format!("{line}::{}", field.header));
            }
        }
    }

    fn add_impl(&mut self, block: &Block) {
        let of = subject(&block.header).to_owned();
        let hidden = |name: &str| self.declared.contains(name) && !self.exported.contains(name);
        if hidden(&of) {
            return;
        }
        let Some((of_trait, _)) = block.header.rsplit_once(" for ") else {
            for member in blocks(&block.body, 4) {
                self.add_member(&member, "impl", &of);
            }
            return;
        };
        let known = words(&block.header).any(|word| self.exported.contains(word));
        if known && !words(of_trait).any(hidden) {
            self.lines.insert(block.header.clone());
        }
    }
}

fn listing() -> BTreeSet<String> {
    let mut exported = exports("src/lib.rs");
    exported.append(&mut exports("src/stores/memory/mod.rs"));
    let blocks = sources();
    let declared = blocks.iter().filter_map(|block| {
        let mut start = words(&block.header).skip_while(|w| ["pub", "crate", "super"].contains(w));
        let kind = start.next()?;
        let is_type = ["struct", "enum", "trait"].contains(&kind);
        is_type.then(|| start.next().unwrap_or_default().to_owned())
    });
    let mut listing = Listing {
        declared: declared.collect(),
        exported,
        lines: BTreeSet::new(),
    };
    for block in &blocks {
        listing.add(block);
    }
    for name in &listing.exported {
        let found = listing
            .lines
            .iter()
            .any(|line| words(line).any(|word| word == name));
        assert!(
            found || name == "testkit",
            "{name} is exported and not listed"
        );
    }
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

#[test]
fn a_change_of_the_interface_would_be_seen() {
    let source = "\
/// A value.
#[derive(Clone, Debug)]
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
";
    let lines: Vec<String> = source.lines().map(str::to_owned).collect();
    let mut listing = Listing {
        exported: ["Sample", "Choice", "Act"].map(str::to_owned).into(),
        declared: ["Sample", "Choice", "Act", "Private"]
            .map(str::to_owned)
            .into(),
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
        "pub trait Act: Send",
        "struct Sample::shown: u32",
    ];
    assert_eq!(listing.lines, expected.map(str::to_owned).into());
}
