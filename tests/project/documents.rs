//! Tests that the documents agree with each other and with the repository: links, decisions of one shape, commands that exist.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every page, without what a build leaves behind.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for dir in [".", "docs", "docs/adr", "ffi/go", "tests/data"] {
        for entry in fs::read_dir(root().join(dir)).expect("a folder").flatten() {
            if entry.path().extension().is_some_and(|ext| ext == "md") {
                pages.push(entry.path());
            }
        }
    }
    assert!(pages.len() > 25, "only {} pages", pages.len());
    pages.sort();
    pages
}

fn decisions() -> Vec<PathBuf> {
    let all = pages().into_iter();
    all.filter(|page| page.parent().is_some_and(|dir| dir.ends_with("adr")))
        .collect()
}

/// The text without its blocks of code.
fn prose(text: &str) -> Vec<&str> {
    let mut code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        if !code && !fence {
            lines.push(line);
        }
    }
    lines
}

#[test]
fn links_lead_to_files() {
    let mut dead = Vec::new();
    for page in pages() {
        let text = read(&page);
        for line in prose(&text) {
            for rest in line.split("](").skip(1) {
                let target = rest.split([')', '#']).next().unwrap_or_default();
                let outside = target.is_empty() || target.contains("://");
                let beside = page.parent().expect("a folder");
                if !outside && !beside.join(target).exists() {
                    dead.push(format!("{}: {target}", page.display()));
                }
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

/// Every file below `dir`.
fn below(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            below(&path, into);
        } else {
            into.push(path);
        }
    }
}

/// The files that these lines name between backquotes and that are not there.
fn missing(page: &Path, lines: &[&str], files: &[PathBuf]) -> Vec<String> {
    let mut gone = Vec::new();
    for word in lines.iter().flat_map(|line| line.split('`')) {
        let ours = ["src/", "tests/", "ffi/", "docs/", "benches/", "examples/"]
            .iter()
            .any(|dir| word.starts_with(dir));
        let plain = word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
        let bare = [".rs", ".go", ".sql", ".lua"]
            .iter()
            .any(|end| word.ends_with(end))
            && plain;
        let there = files.iter().any(|file| file.ends_with(word));
        if ours && plain && !root().join(word).exists() || bare && !there {
            gone.push(format!("{}: {word}", page.display()));
        }
    }
    gone
}

#[test]
fn files_that_the_pages_name_exist() {
    let mut files = Vec::new();
    for dir in [
        "src", "tests", "ffi", "benches", "examples", "torture", "model", "mutants", "cli", "fuzz",
    ] {
        below(&root().join(dir), &mut files);
    }
    let mut gone = Vec::new();
    for page in pages() {
        // The changelog speaks of the past.
        if page.ends_with("CHANGELOG.md") {
            continue;
        }
        let text = read(&page);
        gone.extend(missing(&page, &prose(&text), &files));
    }
    // A comment speaks of files of its own crate or of the library.
    let mut comments = 0;
    for dir in ["src", "ffi/src", "cli/src"] {
        let mut near = Vec::new();
        for dir in ["src", dir] {
            below(&root().join(dir), &mut near);
        }
        let own = root().join(dir);
        let rust = |file: &&PathBuf| {
            file.starts_with(&own) && file.extension().is_some_and(|ext| ext == "rs")
        };
        for source in near.iter().filter(rust) {
            let text = read(source);
            let lines: Vec<&str> = text
                .lines()
                .filter(|line| line.trim_start().starts_with("//"))
                .collect();
            comments += lines.len();
            gone.extend(missing(source, &lines, &near));
        }
    }
    assert!(comments > 3000, "only {comments} lines of comments");
    assert!(
        gone.is_empty(),
        "named, but not there:\n{}",
        gone.join("\n")
    );
}

#[test]
fn decisions_have_one_shape() {
    for page in decisions() {
        let text = read(&page);
        let parts: Vec<&str> = prose(&text)
            .into_iter()
            .filter_map(|line| line.strip_prefix("**")?.split("**").next())
            .collect();
        let name = page.display();
        assert_eq!(parts, ["Context.", "Decision.", "Consequences."], "{name}");
        let file = page
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let number: u32 = file[..3].parse().expect("three digits");
        assert!(text.starts_with(&format!("# {number}. ")), "{name}");
        assert!(!text.contains("\n## "), "{name}");
    }
}

#[test]
fn decisions_are_numbered_without_gaps() {
    let names = decisions();
    for (n, page) in names.iter().enumerate() {
        let file = page.file_name().expect("a name").to_string_lossy();
        assert!(file.starts_with(&format!("{:03}-", n + 1)), "{file}");
    }
}

#[test]
fn decisions_are_wrapped() {
    for page in decisions() {
        let text = read(&page);
        for line in prose(&text) {
            let width = line.chars().count();
            let table = line.starts_with('|');
            assert!(
                table || width <= 140,
                "{}: {width} columns: {line}",
                page.display()
            );
        }
    }
}

#[test]
fn commands_of_make_exist() {
    let makefiles = ["Makefile", "ffi/ffi.mk", "benches/bench.mk"].map(|f| read(&root().join(f)));
    let known = |target: &str| {
        let rule = format!("{target}:");
        makefiles.iter().flat_map(|text| text.lines()).any(|line| {
            let names = line.split(':').next().unwrap_or_default();
            line.starts_with(&rule) || line.contains(':') && names.split(' ').any(|n| n == target)
        })
    };
    let mut unknown = Vec::new();
    for page in pages() {
        let text = read(&page);
        // In prose a command is marked; in a block it begins its line.
        let marked = text.split('`').filter(|word| word.starts_with("make "));
        let lines = text.lines().filter(|line| line.starts_with("make "));
        for command in marked.chain(lines) {
            let words = command.split(['#', '\n']).next().unwrap_or_default();
            let targets = words.split_whitespace().skip(1);
            for target in
                targets.take_while(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
            {
                if !target.starts_with('-') && !known(target) {
                    unknown.push(format!("{}: make {target}", page.display()));
                }
            }
        }
    }
    assert!(
        unknown.is_empty(),
        "no such target:\n{}",
        unknown.join("\n")
    );
}

/// What `make help` lists stands in the tables of CONTRIBUTING.md too, or in the text around them.
#[test]
fn every_target_of_make_is_in_contributing() {
    let page = read(&root().join("CONTRIBUTING.md"));
    // A command may be broken over two lines.
    let marked = page.split('`').skip(1).step_by(2);
    let commands = marked.map(|word| word.split_whitespace().collect::<Vec<_>>());
    let words: Vec<&str> = commands
        .filter(|words| words.first() == Some(&"make"))
        .flatten()
        .collect();
    let mut seen = 0;
    for file in ["Makefile", "ffi/ffi.mk", "benches/bench.mk"] {
        for line in read(&root().join(file)).lines() {
            let target = line.split(':').next().unwrap_or_default();
            let plain = |b: u8| b.is_ascii_lowercase() || b == b'-';
            if !line.contains("## ") || target.is_empty() || !target.bytes().all(plain) {
                continue;
            }
            seen += 1;
            assert!(
                words.contains(&target),
                "CONTRIBUTING.md does not name make {target}"
            );
        }
    }
    assert!(seen > 30, "only {seen} targets");
}

/// `make bench` copies the part that is written by hand; a correction belongs where it copies from.
#[test]
fn the_findings_of_the_bench_are_its_own_copy() {
    let page = read(&root().join("docs/performance.md"));
    let findings = read(&root().join("benches/performance/findings.md"));
    assert!(page.trim_end().ends_with(findings.trim_end()));
    assert!(
        findings.starts_with("*Written by hand on "),
        "with its date and commit"
    );
}

#[test]
fn the_page_of_postgres_counts_the_prepared_statements() {
    let sql = read(&root().join("src/stores/postgres/sql.rs"));
    assert_eq!(sql.matches("name: \"syncguard_").count(), 9);
    let page = read(&root().join("docs/postgres.md"));
    assert!(page.contains("at most nine, named\n`syncguard_…`."));
}

/// Scripts and functions have the arguments that the page says they have.
#[test]
fn the_wire_format_names_the_arguments() {
    let page = read(&root().join("docs/wire-format.md"));
    let functions = read(&root().join("src/stores/postgres/functions.sql"));
    let names = functions
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("p_") || word.starts_with("o_"));
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
    // The last argument of a script, by the highest number that its text uses.
    for (script, arguments) in [
        ("acquire", 6),
        ("extend", 4),
        ("release", 2),
        ("is_locked", 1),
    ] {
        let path = root().join(format!("src/stores/redis/lua/{script}.lua"));
        let text = read(&path);
        let used = (1..10)
            .filter(|n| text.contains(&format!("ARGV[{n}]")))
            .max();
        assert_eq!(used, Some(arguments), "{script}");
        let row = format!("| {} |", script.replace('_', " "));
        let line = page
            .lines()
            .find(|line| line.starts_with(&row))
            .expect("a row");
        let cell = line.split(" | ").nth(2).expect("a column of arguments");
        assert_eq!(cell.split(", ").count(), arguments, "{line}");
    }
}
