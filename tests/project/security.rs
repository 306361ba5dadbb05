//! Tests that every test that the threat model names exists, and that a password in the output of the tests is found.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether a file has this test: a Rust function that is marked as a test, or a C function that is called.
fn has_test(file: &str, text: &str, name: &str) -> bool {
    if file.ends_with(".c") {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let uses = words.filter(|word| *word == name).count();
        return text.contains(&format!("static void {name}(void)")) && uses > 1;
    }
    let mut marked = false;
    for line in text.lines().map(str::trim_start) {
        if marked && line.starts_with(&format!("fn {name}(")) {
            return true;
        }
        let mark = line.ends_with("#[test]");
        marked = mark || marked && (line.starts_with("#[") || line.starts_with("//"));
    }
    false
}

/// The tests that a line of a table names, each with its file.
fn named(line: &str) -> Vec<(&str, &str)> {
    let marked = line.split('`').skip(1).step_by(2);
    marked.filter_map(|word| word.split_once(": ")).collect()
}

#[test]
fn every_line_of_the_threat_model_names_tests_that_exist() {
    let page = fs::read_to_string(root().join("docs/security.md")).expect("the page");
    let mut texts: HashMap<&str, String> = HashMap::new();
    let (mut lines, mut missing) = (0, Vec::new());
    let mut head = true;
    for line in page.lines() {
        if !line.starts_with('|') {
            head = true;
            continue;
        }
        // The first two lines of a table are its head.
        if head || line.starts_with("|---") {
            head = false;
            continue;
        }
        lines += 1;
        let tests = named(line);
        if tests.is_empty() {
            missing.push(format!("no test: {line}"));
        }
        for (file, name) in tests {
            let text = texts.entry(file).or_insert_with(|| {
                fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
            });
            if !has_test(file, text, name) {
                missing.push(format!("{file} has no test {name}"));
            }
        }
    }
    assert!(lines > 30, "only {lines} lines");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn a_test_that_is_gone_would_be_seen() {
    let rust = "#[test]\nfn there() {}\n\nfn helper() {}\n    $(#[test]\n    fn made() {\n";
    assert!(has_test("a.rs", rust, "there") && has_test("a.rs", rust, "made"));
    assert!(!has_test("a.rs", rust, "helper") && !has_test("a.rs", rust, "gone"));
    let c = "static void called(void) {\nstatic void idle(void) {\n  called();\n";
    assert!(has_test("a.c", c, "called") && !has_test("a.c", c, "gone"));
    assert!(!has_test("a.c", c, "idle"));
    assert_eq!(named("| x | `a.rs: b`, `c.c: d` |").len(), 2);
}

/// What the search says to a command of the shell.
fn search(script: &str) -> Output {
    let output = Command::new("sh")
        .arg(root().join("tests/search-output.sh"))
        .args(["sh", "-c", script])
        .output();
    output.expect("a shell")
}

#[test]
fn a_password_in_the_output_of_the_tests_is_found() {
    let good = search("echo all is well; exit 3");
    assert_eq!(good.status.code(), Some(3));
    assert_eq!(good.stdout, b"all is well\n");
    // In two parts, so that nothing that shows this command shows the password.
    for script in ["echo one; echo a hun''ter2 >&2", "echo one; echo s3''cret"] {
        let leak = search(script);
        let said = String::from_utf8_lossy(&leak.stderr);
        assert!(!leak.status.success() && said.contains("in these lines: 2"));
    }
    // A canary key, and a lock id behind its name; a hash behind the same name is none.
    for script in [
        "echo one; echo can''ary-key-7",
        "echo one; echo 'lock_id=01234''56789abcdefghij-_ is gone'",
        "echo one; echo '\"lockId\":\"01234''56789abcdefghij-_\"'",
        "echo one; echo 'LockId(\"01234''56789abcdefghij-_\")'",
    ] {
        let leak = search(script);
        let said = String::from_utf8_lossy(&leak.stderr);
        assert!(
            !leak.status.success() && said.contains("a lock id, in these lines: 2"),
            "{script}: {said}"
        );
    }
    let hash =
        search("echo lock_id_hash=0123456789abcdef01234567 lock_id=0123456789abcdef01234567");
    assert!(hash.status.success());
    let makefile = fs::read_to_string(root().join("Makefile")).expect("the Makefile");
    let unit = makefile.split("\nunit: ##").nth(1).expect("a target");
    let unit = unit.lines().nth(1).expect("a command");
    assert!(unit.contains("search-output.sh") && unit.ends_with("--show-output"));
}
