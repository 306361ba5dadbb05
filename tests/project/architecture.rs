//! The plan of `src/` is what docs/architecture.md says: folders in a line, drawn from the imports; files that exist; few of them on
//! the way of a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Each folder may use those before it, and no other.
const FOLDERS: [&str; 9] = [
    "types", "runtime", "options", "backend", "net", "stores", "waiting", "holding", "client",
];

/// A folder of text: chapters for users, which are a part of the documentation only.
const GUIDE: &str = "guide";

/// Files of one folder that use each other, because the one is a part of the other.
const PAIRS: &[&[&str]] = &[
    // An error names the holder, the holder has a fence, and a fence is checked.
    &["types::error", "types::fence", "types::holder"],
    // A waiter ends in a guard of its client, which gives the waiter.
    &["client", "client::waiter"],
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            into.push(path);
        }
    }
}

/// Every module of the crate by its name (`net::tls`), with its text.
fn modules() -> BTreeMap<String, String> {
    let src = root().join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let mut modules = BTreeMap::new();
    for file in files {
        let path = file
            .strip_prefix(&src)
            .expect("below src")
            .with_extension("");
        let name = path.to_str().expect("a text").replace('/', "::");
        let name = name.strip_suffix("::mod").unwrap_or(&name).to_owned();
        if name != "lib" {
            modules.insert(name, read(&file));
        }
    }
    assert!(modules.len() > 80, "only {} modules", modules.len());
    modules
}

fn is_test(name: &str) -> bool {
    name.ends_with("::tests") || name.ends_with("_model")
}

/// The code without comments, and without the unit tests at its end.
fn code(text: &str) -> String {
    let text = text.split("\nmod tests {").next().unwrap_or_default();
    let without = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    without.collect::<Vec<_>>().join("\n")
}

/// The paths below the crate that the code of `name` speaks of, those behind braces too.
fn paths(name: &str, code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (start, at) in [("crate::", None), ("super::", Some(1)), ("self::", Some(0))] {
        for (i, _) in code.match_indices(start) {
            if code[..i].ends_with("::") || code[..i].ends_with(|c: char| c.is_alphanumeric()) {
                continue;
            }
            let base = match at {
                None => String::new(),
                Some(0) => format!("{name}::"),
                Some(_) => match name.rsplit_once("::") {
                    Some((parent, _)) => format!("{parent}::"),
                    None => String::new(),
                },
            };
            expand(&base, &code[i + start.len()..], &mut found);
        }
    }
    found
}

fn expand(base: &str, rest: &str, found: &mut BTreeSet<String>) {
    let end = rest
        .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .unwrap_or(rest.len());
    let (path, after) = rest.split_at(end);
    let Some(inside) = after.strip_prefix('{') else {
        found.insert(format!("{base}{path}"));
        return;
    };
    let mut depth = 0;
    let mut from = 0;
    for (i, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                let item = inside[from..i].trim();
                if !item.is_empty() {
                    expand(&format!("{base}{path}"), item, found);
                }
                from = i + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
}

/// Which modules each module uses, itself and its unit tests left out.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let modules = modules();
    let mut uses = BTreeMap::new();
    for (name, text) in &modules {
        if is_test(name) || folder(name) == GUIDE {
            continue;
        }
        let mut used = BTreeSet::new();
        for path in paths(name, &code(text)) {
            let mut part = path.as_str();
            while !modules.contains_key(part) {
                match part.rsplit_once("::") {
                    Some((parent, _)) => part = parent,
                    None => break,
                }
            }
            if modules.contains_key(part) && part != name && !is_test(part) {
                used.insert(part.to_owned());
            }
        }
        uses.insert(name.clone(), used);
    }
    uses
}

fn folder(module: &str) -> &str {
    module.split("::").next().unwrap_or_default()
}

/// Which folders each folder uses.
fn folders() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let known = |name: &str| FOLDERS.iter().copied().find(|folder| *folder == name);
    let mut folders: BTreeMap<_, BTreeSet<_>> = FOLDERS
        .iter()
        .map(|folder| (*folder, BTreeSet::new()))
        .collect();
    for (module, used) in uses() {
        let from =
            known(folder(&module)).unwrap_or_else(|| panic!("{module} is in no known folder"));
        for other in used {
            let to = known(folder(&other)).expect("a known folder");
            if from != to {
                folders.get_mut(from).expect("every folder").insert(to);
            }
        }
    }
    folders
}

#[test]
fn each_folder_uses_only_those_before_it() {
    let place = |name: &str| FOLDERS.iter().position(|folder| *folder == name);
    for (folder, used) in folders() {
        for other in used {
            assert!(place(other) < place(folder), "{folder} uses {other}");
        }
    }
    // The walk sees imports at all.
    assert!(folders()["client"].contains("holding") && folders()["stores"].contains("backend"));
}

#[test]
fn the_guide_holds_no_code() {
    let chapters = modules().into_iter();
    let chapters: Vec<_> = chapters.filter(|(name, _)| folder(name) == GUIDE).collect();
    assert!(chapters.len() > 4, "only {} files", chapters.len());
    for (name, text) in chapters {
        for line in code(&text).lines().filter(|line| !line.is_empty()) {
            assert!(line.starts_with("pub mod "), "{name}: {line}");
        }
    }
}

#[test]
fn few_files_stand_beside_the_folders() {
    let flat: Vec<_> = fs::read_dir(root().join("src"))
        .expect("src")
        .flatten()
        .filter(|entry| entry.path().is_file() && entry.file_name() != "lib.rs")
        .collect();
    assert!(flat.len() <= 2, "{flat:?}");
}

/// Whether `from` reaches `to` over modules that `inside` allows.
fn reaches(uses: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        for used in &uses[module] {
            if used == to {
                return true;
            }
            if seen.insert(used.as_str()) {
                next.push(used);
            }
        }
    }
    false
}

#[test]
fn files_form_no_circle_but_those_that_are_named() {
    let uses = uses();
    for module in uses.keys() {
        let allowed = PAIRS.iter().find(|pair| pair.contains(&module.as_str()));
        for used in &uses[module] {
            let known = allowed.is_some_and(|pair| pair.contains(&used.as_str()));
            assert!(
                known || !reaches(&uses, used, module),
                "{module} uses {used}, which uses it in turn"
            );
        }
    }
}

#[test]
fn every_module_says_what_it_is_for_and_what_it_uses() {
    for (name, text) in modules() {
        assert!(text.starts_with("//! "), "{name} has no head");
        if is_test(&name) || folder(&name) == GUIDE {
            continue;
        }
        let head = text.lines().map_while(|line| line.strip_prefix("//!"));
        let head = head.map(str::trim).collect::<Vec<_>>().join(" ");
        let starts = [
            "uses `",
            "uses nothing",
            "use `",
            "Uses `",
            "ses the folders before it",
            "ses every other folder",
            "ses no other folder",
        ];
        let says = starts.iter().any(|start| head.contains(start));
        assert!(
            says,
            "{name} does not say what it uses: write \"It uses `x` and `y`.\""
        );
    }
}

#[test]
fn no_type_name_is_declared_twice() {
    let mut declared: BTreeMap<String, String> = BTreeMap::new();
    for (name, text) in modules() {
        for line in code(&text).lines() {
            // What a trait or an impl names is not a declaration of the crate, and a variant for another system is the same type.
            let line = line.strip_prefix("pub ").unwrap_or(line);
            let line = line
                .split_once("pub(")
                .map_or(line, |(before, after)| match before {
                    "" => after.split_once(") ").map_or(line, |(_, rest)| rest),
                    _ => line,
                });
            for kind in ["struct ", "enum ", "trait ", "type ", "union "] {
                let Some(rest) = line.strip_prefix(kind) else {
                    continue;
                };
                let end = rest
                    .find(|c: char| !c.is_alphanumeric())
                    .unwrap_or(rest.len());
                let before = declared.insert(rest[..end].to_owned(), name.clone());
                let twice = before.filter(|before| *before != name);
                assert!(
                    twice.is_none(),
                    "{} is in {name} and in {twice:?}",
                    &rest[..end]
                );
            }
        }
    }
    assert!(declared.len() > 100, "only {} types", declared.len());
}

/// The files that the section `heading` of docs/architecture.md names.
fn walk(heading: &str) -> BTreeSet<String> {
    let page = read(&root().join("docs/architecture.md"));
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with(heading))
        .unwrap_or_else(|| panic!("no section {heading}"));
    // The steps alone: what follows says what is not counted.
    let steps = section.split("Together these are").next();
    let names = steps.unwrap_or_default().split('`').skip(1).step_by(2);
    names
        .filter(|name| name.ends_with(".rs"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_walks_name_files_that_exist() {
    for heading in ["A lock", "A wait", "A loss"] {
        let files = walk(heading);
        assert!(files.len() > 3, "{heading}: {files:?}");
        for file in files {
            assert!(
                root().join("src").join(&file).is_file(),
                "{heading}: {file}"
            );
        }
    }
}

#[test]
fn a_lock_passes_through_few_files() {
    let files = walk("A lock");
    assert!(files.len() <= 15, "{}: {files:?}", files.len());
}

/// What each folder is for: the first sentence of its head.
fn purpose(folder: &str) -> String {
    let text = read(&root().join("src").join(folder).join("mod.rs"));
    let head: Vec<_> = text
        .lines()
        .map_while(|line| line.strip_prefix("//! "))
        .collect();
    let head = head.join(" ").replace(['`', '[', ']'], "");
    let end = head.find(". ").unwrap_or(head.len() - 1);
    head[..end].to_owned()
}

/// How deep each folder lies: one more than the deepest that it uses.
fn levels(
    folders: &BTreeMap<&'static str, BTreeSet<&'static str>>,
) -> BTreeMap<&'static str, usize> {
    let mut levels = BTreeMap::new();
    for folder in FOLDERS {
        let below = folders[folder]
            .iter()
            .filter_map(|used| levels.get(used))
            .max();
        let level = below.map_or(0, |level: &usize| level + 1);
        levels.insert(folder, level);
    }
    levels
}

const WIDTH: usize = 380;
const HEIGHT: usize = 84;
const GAP: usize = 44;

/// The words of `text` in lines of at most `most` letters.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("a line");
        if last.is_empty() {
            last.push_str(word);
        } else if last.len() + 1 + word.len() <= most {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The graph of the folders: a box each, and an arrow to every folder that it uses and that no other of these uses already.
fn drawn() -> String {
    let folders = folders();
    let levels = levels(&folders);
    let deepest = levels.values().max().expect("folders");
    let mut at = BTreeMap::new();
    for level in 0..=*deepest {
        let row: Vec<_> = FOLDERS.iter().filter(|f| levels[*f] == level).collect();
        for (i, folder) in row.iter().enumerate() {
            // A folder that is alone stands in the middle.
            let left = (2 * i + 2 - row.len()) * (WIDTH + GAP) / 2 + GAP;
            at.insert(**folder, (left, GAP + (deepest - level) * (HEIGHT + GAP)));
        }
    }
    let (wide, high) = (2 * WIDTH + 3 * GAP, (deepest + 1) * (HEIGHT + GAP) + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {high}\" font-family=\"sans-serif\">\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\" fill=\"#456\"/></marker></defs>\n\
         <rect width=\"{wide}\" height=\"{high}\" fill=\"#fff\"/>\n"
    );
    for folder in FOLDERS {
        let used = &folders[folder];
        for other in used {
            if used.iter().any(|between| folders[between].contains(other)) {
                continue;
            }
            let ((x1, y1), (x2, y2)) = (at[folder], at[other]);
            let (x1, x2) = (x1 + WIDTH / 2, x2 + WIDTH / 2);
            let y1 = y1 + HEIGHT;
            let line = format!("x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"");
            let _ = writeln!(
                svg,
                "<line {line} stroke=\"#456\" stroke-width=\"1.5\" marker-end=\"url(#tip)\"/>"
            );
        }
    }
    for (folder, (x, y)) in at {
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"#eef3f8\" stroke=\"#456\"/>\n\
             <text x=\"{}\" y=\"{}\" font-size=\"17\" font-weight=\"bold\" fill=\"#123\">{folder}/</text>",
            x + 12,
            y + 23,
        );
        for (i, line) in wrapped(&purpose(folder), 52).iter().enumerate() {
            let (x, y) = (x + 12, y + 43 + 16 * i);
            let _ = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" font-size=\"12.5\" fill=\"#234\">{line}</text>"
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// With `SYNCGUARD_DRAW=1` it is drawn anew.
#[test]
fn the_graph_of_folders_is_drawn_from_the_imports() {
    let path = root().join("docs/architecture.svg");
    let drawn = drawn();
    if std::env::var_os("SYNCGUARD_DRAW").is_some() {
        fs::write(&path, &drawn).expect("the picture");
    }
    assert!(
        read(&path) == drawn,
        "docs/architecture.svg is old; draw it with: SYNCGUARD_DRAW=1 cargo test --test project architecture::"
    );
}
