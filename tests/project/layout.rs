//! Tests that the test programs are laid out in one way: a folder each, one line that reaches the support, short functions, and no
//! type name twice in one program. Words have clear subjects, in code, comments and documents.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The longest function that a reader can keep in mind.
const LINES: usize = 80;

/// Files that reach a module at another place, and that place.
const REACHED: &[(&str, &str)] = &[
    // The tests of the C ABI use the servers of these.
    (
        "ffi/tests/support/mod.rs",
        "../../../tests/support/common/mod.rs",
    ),
    // So do those of the command.
    (
        "cli/tests/command/support.rs",
        "../../../tests/support/common/mod.rs",
    ),
    // And those of the adapters, which share their cases.
    (
        "adapters/postgres/tests/pool/support.rs",
        "../../../../tests/support/common/mod.rs",
    ),
    (
        "adapters/postgres/tests/pool/main.rs",
        "../../../cases/faults.rs",
    ),
    (
        "adapters/postgres/tests/pool/main.rs",
        "../../../cases/interop.rs",
    ),
    (
        "adapters/redis/tests/pool/support.rs",
        "../../../../tests/support/common/mod.rs",
    ),
    (
        "adapters/redis/tests/pool/main.rs",
        "../../../cases/faults.rs",
    ),
    (
        "adapters/redis/tests/pool/main.rs",
        "../../../cases/interop.rs",
    ),
    // The list that `make mutants` works through.
    ("tests/project/mutants.rs", "../../mutants/src/list/mod.rs"),
    // The documentation shows these examples; the tests run them.
    ("tests/core/own_store.rs", "../../examples/own_store.rs"),
    ("tests/contract/own_store.rs", "../../examples/own_store.rs"),
    ("tests/api/on_tokio.rs", "../../examples/tokio_lock.rs"),
    // Servers for what is no test: a part of the support each, because a program that is no test has no use for the rest.
    ("torture/src/store.rs", COMMON_PORTS),
    ("torture/src/store.rs", COMMON_POSTGRES),
    (
        "torture/src/store.rs",
        "../../tests/support/common/proxy.rs",
    ),
    ("torture/src/store.rs", COMMON_REDIS),
    ("torture/src/drills/main.rs", COMMON),
    ("torture/src/load/main.rs", COMMON),
    ("benches/performance/servers.rs", COMMON_PORTS),
    ("benches/performance/servers.rs", COMMON_POSTGRES),
    ("benches/performance/servers.rs", COMMON_REDIS),
    (
        "cli/examples/measure.rs",
        "../../tests/support/common/mod.rs",
    ),
    // The unit tests of the socket.
    ("src/net/mod.rs", COMMON_PROXY),
    // The limit of a test program.
    ("torture/tests/drills.rs", COMMON_LIMIT),
    ("torture/tests/load.rs", COMMON_LIMIT),
    ("torture/tests/torture.rs", COMMON_LIMIT),
    // The three programs of the crate share these.
    ("torture/src/drills/main.rs", "../clock.rs"),
    ("torture/src/drills/main.rs", "../publish.rs"),
    ("torture/src/load/main.rs", "../publish.rs"),
];
const COMMON: &str = "../../../tests/support/common";
const COMMON_PORTS: &str = "../../tests/support/common/ports.rs";
const COMMON_POSTGRES: &str = "../../tests/support/common/postgres.rs";
const COMMON_PROXY: &str = "../../tests/support/common/proxy.rs";
const COMMON_REDIS: &str = "../../tests/support/common/redis.rs";
const COMMON_LIMIT: &str = "../../tests/support/common/limit.rs";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file under `dir`, as its path from the root, and its text.
fn sources(dir: &str) -> Vec<(String, String)> {
    texts(dir, &["rs"])
}

/// Every file under `dir` whose name ends in one of these, as its path from the root, and its text.
fn texts(dir: &str, endings: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(dir)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            let built = path.ends_with("target") || path.ends_with("node_modules");
            let ends = |e: &&str| path.extension().is_some_and(|ext| ext == *e);
            if path.is_dir() {
                if !built {
                    folders.push(path);
                }
            } else if endings.iter().any(ends) {
                let text = fs::read_to_string(&path).expect("a text");
                let name = path.strip_prefix(root()).expect("a file of ours");
                found.push((name.display().to_string(), text));
            }
        }
    }
    found.sort();
    found
}

fn all_sources() -> Vec<(String, String)> {
    let folders = [
        "tests",
        "ffi/tests",
        "cli/tests",
        "adapters/cases",
        "adapters/postgres/tests",
        "adapters/redis/tests",
    ];
    let all = folders.map(sources).concat();
    assert!(all.len() > 70, "only {} files", all.len());
    all
}

/// The name and the length of every function that begins its line, in any depth.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let depth = line.len() - code.len();
        let mut words = code.split(' ').skip_while(|word| {
            word.starts_with("pub") || ["const", "unsafe", "extern", "\"C\""].contains(word)
        });
        if words.next() != Some("fn") {
            continue;
        }
        let name = words.next().unwrap_or_default();
        let name = name.split(['(', '<']).next().unwrap_or_default();
        // Formatted code: the brace that ends a function has the depth of its beginning.
        let end = format!("{}}}", " ".repeat(depth));
        let whole = line.ends_with('}') || line.ends_with(';');
        let more = lines[first..].iter().position(|line| **line == end);
        let length = if whole { 1 } else { more.map_or(1, |n| n + 1) };
        found.push((name, length));
    }
    found
}

#[test]
fn no_function_of_a_test_is_longer_than_a_screen() {
    let mut long = Vec::new();
    let mut seen = 0;
    for (file, text) in all_sources() {
        for (name, length) in functions(&text) {
            seen += 1;
            if length > LINES {
                long.push(format!("{file}: {name} has {length} lines"));
            }
        }
    }
    assert!(seen > 1000, "only {seen} functions");
    // Elsewhere only what is a test: marked, of the C and C++ programs, or by its name in Go.
    let mut tests = 0;
    for dir in ["src", "ffi/src", "torture", "model", "mutants", "benches"] {
        for (file, text) in sources(dir) {
            for (name, length) in functions(&text).into_iter().filter(|(name, _)| {
                let mark = format!("#[test]\n{{}}fn {name}(");
                [0, 4]
                    .iter()
                    .any(|depth| text.contains(&mark.replace("{}", &" ".repeat(*depth))))
            }) {
                tests += 1;
                if length > LINES {
                    long.push(format!("{file}: {name} has {length} lines"));
                }
            }
        }
    }
    for (dir, ext) in [
        ("ffi/tests/c", "c"),
        ("ffi/tests/cpp", "cpp"),
        ("ffi/go", "go"),
    ] {
        for (file, text) in texts(dir, &[ext]) {
            if ext == "go" && !file.ends_with("_test.go") {
                continue;
            }
            for (name, length) in flat_functions(&text) {
                tests += 1;
                if length > LINES {
                    long.push(format!("{file}: {name} has {length} lines"));
                }
            }
        }
    }
    assert!(tests > 500, "only {tests} tests");
    assert!(long.is_empty(), "split these:\n{}", long.join("\n"));
}

/// The first line and the length of every block of C, C++ or Go that begins at the left margin and is a function.
fn flat_functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let function =
            line.contains('(') && line.ends_with('{') && !line.starts_with([' ', '\t', '}']);
        if let (true, Some(last)) = (
            function,
            lines[first..].iter().position(|line| *line == "}"),
        ) {
            found.push((*line, last + 1));
        }
    }
    found
}

#[test]
fn a_long_function_would_be_seen() {
    let body = "    let _ = 1;\n".repeat(LINES);
    let text = format!("mod m {{\n    fn short() {{}}\n}}\n\n#[test]\nfn long() {{\n{body}}}\n");
    assert_eq!(functions(&text), [("short", 1), ("long", LINES + 2)]);
}

#[test]
fn modules_are_reached_in_one_way() {
    let mut others = Vec::new();
    let mut all = all_sources();
    for dir in [
        "src",
        "ffi/src",
        "cli/src",
        "cli/examples",
        "torture",
        "model",
        "mutants",
        "benches",
        "examples",
    ] {
        all.extend(sources(dir));
    }
    let found = |file: &str, place: &str| {
        all.iter()
            .any(|(name, text)| name == file && text.contains(&format!("path = \"{place}\"]")))
    };
    for (file, place) in REACHED {
        assert!(found(file, place), "{file} does not reach {place} any more");
    }
    for (file, text) in &all {
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| line.starts_with("#[path") || line.starts_with("#![path")) {
            let place = line.split('"').nth(1).unwrap_or_default();
            let main = file.ends_with("/main.rs") && place == "../support/mod.rs";
            if !main && !REACHED.contains(&(file, place)) {
                others.push(format!("{file}: {line}"));
            }
        }
    }
    assert!(
        others.is_empty(),
        "use a module of the program's folder, or the support:\n{}",
        others.join("\n")
    );
}

/// A feature is asked for in Cargo.toml, for a whole program.
#[test]
fn no_test_asks_for_a_feature_itself() {
    let mut asking = Vec::new();
    for (file, text) in all_sources() {
        // The support of stores in memory needs a feature that a program may be without.
        let ours = file == "tests/project/layout.rs" || file == "tests/support/mod.rs";
        for line in text.lines().filter(|line| line.contains("cfg")) {
            // With its quote: a text that a test reads has another character before that.
            if line.contains("feature = \"") && !ours {
                asking.push(format!("{file}: {}", line.trim()));
            }
        }
    }
    assert!(asking.is_empty(), "{}", asking.join("\n"));
    for package in ["Cargo.toml", "ffi/Cargo.toml"] {
        let manifest = fs::read_to_string(root().join(package)).expect("a manifest");
        let dir = Path::new(package).with_file_name("tests");
        let named = manifest.matches("[[test]]\nname = ").count();
        let features = manifest.matches("\"\nrequired-features = ").count();
        assert_eq!(programs(&dir).len(), named, "{package}");
        assert!(features >= named, "{package}");
    }
}

/// The folders under `dir` that are programs.
fn programs(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(dir)).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("main.rs").exists())
        .collect()
}

#[test]
fn no_type_name_is_declared_twice_in_one_program() {
    let common = sources("tests/support/common");
    let mut twice = Vec::new();
    for (dir, shared) in [
        ("tests", sources("tests/support")),
        ("ffi/tests", [sources("ffi/tests/support"), common].concat()),
    ] {
        for program in programs(Path::new(dir)) {
            let folder = program.strip_prefix(root()).expect("a folder of ours");
            let folder = folder.display().to_string();
            let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            let own = sources(&folder);
            for (file, text) in own.iter().chain(&shared) {
                for name in types(text) {
                    places.entry(name).or_default().push(file);
                }
            }
            places.retain(|_, files| files.len() > 1);
            twice.extend(
                places
                    .iter()
                    .map(|(name, files)| format!("{name}: {files:?}")),
            );
        }
    }
    // The other crates: each folder is a program, or what the programs of its parent share.
    for (dir, apart) in [
        ("ffi/src", &[][..]),
        ("torture/src", &["torture/src/drills/", "torture/src/load/"]),
        ("torture/src/drills", &[]),
        ("torture/src/load", &[]),
        ("model/src", &[]),
        ("mutants/src", &[]),
        ("benches/performance", &[]),
    ] {
        let own = sources(dir);
        let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (file, text) in &own {
            if apart.iter().any(|other| file.starts_with(other)) {
                continue;
            }
            for name in types(text) {
                places.entry(name).or_default().push(file);
            }
        }
        places.retain(|_, files| files.len() > 1);
        twice.extend(
            places
                .iter()
                .map(|(name, files)| format!("{name}: {files:?}")),
        );
    }
    assert!(twice.is_empty(), "declared twice:\n{}", twice.join("\n"));
}

/// The types that a file declares; not those that an implementation of a trait names.
fn types(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut implementing = false;
    for line in text.lines() {
        match line {
            _ if line.starts_with("impl") => implementing = true,
            "}" => implementing = false,
            _ => {}
        }
        let mut words = line
            .split_whitespace()
            .skip_while(|word| word.starts_with("pub"));
        let kind = words.next().unwrap_or_default();
        let declares = ["struct", "enum", "trait", "union", "type"].contains(&kind);
        if declares && !implementing {
            let name = words.next().unwrap_or_default();
            let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            found.push(name.split(end).next().unwrap_or_default());
        }
    }
    found
}

/// Words that hide the subject of a sentence or name a thing by an image.
const UNCLEAR: [&str; 16] = [
    "who", "whom", "whoever", "nobody", "nobodys", "vain", "leash", "ear", "ears", "eye", "eyes",
    "door", "room", "rooms", "dear", "patience",
];

/// The line without what stands in quotes, which may be the name of a user of some server.
fn unquoted(line: &str) -> String {
    line.split('"').step_by(2).collect::<Vec<_>>().join(" ")
}

#[test]
fn words_have_clear_subjects() {
    let endings = [
        "rs", "go", "c", "h", "hpp", "cpp", "sql", "lua", "md", "mk", "toml", "sh", "py",
    ];
    let mut all = Vec::new();
    for dir in [
        "src", "ffi", "include", "tests", "benches", "examples", "docs", "torture", "model",
        "mutants", "cli", "fuzz", "adapters",
    ] {
        all.extend(texts(dir, &endings));
    }
    for file in [
        "Makefile",
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "cbindgen.toml",
    ] {
        let text = fs::read_to_string(root().join(file)).expect("a text");
        all.push((file.to_owned(), text));
    }
    assert!(all.len() > 400, "only {} files", all.len());
    let mut found = Vec::new();
    for (file, text) in all {
        // This list is here.
        if file == "tests/project/layout.rs" {
            continue;
        }
        for line in text.lines() {
            let line = if file.contains("tests/") {
                unquoted(line)
            } else {
                line.to_owned()
            };
            let words = line.split(|c: char| !c.is_ascii_alphabetic());
            let unclear = |word: &&str| UNCLEAR.contains(&&*word.to_ascii_lowercase());
            found.extend(
                words
                    .filter(unclear)
                    .map(|word| format!("{file}: {word}: {line}")),
            );
        }
    }
    assert!(
        found.is_empty(),
        "name the caller, the waiter, the holder or the store:\n{}",
        found.join("\n")
    );
}
