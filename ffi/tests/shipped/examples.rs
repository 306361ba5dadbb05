//! Builds the examples in C and C++ with every warning an error, and runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::late_writer;
use crate::support::worker::{stops_when_robbed, stops_when_told};
use crate::support::{C99, compile_beside, root, scratch, succeed};

const CPP: &[&str] = &["-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror"];

fn build(language: &str, name: &str, dir: &Path) -> PathBuf {
    build_beside(&[], language, name, dir)
}

/// With other libraries, by their names in pkg-config.
fn build_beside(others: &[&str], language: &str, name: &str, dir: &Path) -> PathBuf {
    let program = dir.join(name);
    let source = root().join(format!("examples/{language}/{name}.{language}"));
    let (compiler, flags) = if language == "c" {
        ("gcc", C99)
    } else {
        ("g++", CPP)
    };
    compile_beside(others, compiler, flags, &[source], &program);
    program
}

fn url(dir: &Path) -> String {
    format!("sqlite:{}", dir.join("locks.db").display())
}

fn says(language: &str, name: &str, words: &[&str]) {
    let dir = scratch();
    let program = build(language, name, dir.path());
    let output = succeed(
        Command::new(program)
            .arg(url(dir.path()))
            .arg(dir.path().join("resource.txt"))
            .current_dir(dir.path()),
        name,
    );
    let text = String::from_utf8_lossy(&output.stdout);
    for words in words {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
}

#[test]
fn quickstart() {
    let first = "locked with fence 000000000000001\na second one must wait\n";
    says("c", "quickstart", &[first, "released"]);
    says(
        "cpp",
        "quickstart",
        &[first, "locked again with fence 000000000000002"],
    );
}

#[test]
fn fenced_write() {
    for language in ["c", "cpp"] {
        says(
            language,
            "fenced_write",
            &["the second has written\nthe first comes back and is refused"],
        );
    }
}

#[test]
fn late_writer() {
    for language in ["c", "cpp"] {
        let dir = scratch();
        late_writer::is_refused(&build(language, "late_writer", dir.path()));
    }
}

#[test]
fn late_writer_in_sqlite() {
    let dir = scratch();
    let program = build_beside(&["sqlite3"], "c", "late_writer_sqlite", dir.path());
    late_writer::is_refused_in_sqlite(&program, dir.path());
}

#[test]
fn late_writer_in_postgres() {
    for language in ["c", "cpp"] {
        let dir = scratch();
        let program = build_beside(&["libpq"], language, "late_writer_postgres", dir.path());
        late_writer::is_refused_in_postgres(&program);
    }
}

/// Alone it ends its work; a second one does not start; when its lock is taken away, or it is told to, it stops.
#[test]
fn worker() {
    for language in ["c", "cpp"] {
        let dir = scratch();
        let program = build(language, "worker", dir.path());
        let url = url(dir.path());
        succeed(Command::new(&program).args([&url, "2"]), "a short worker");

        stops_when_robbed(&program, &url);
        stops_when_told(&program, &url);
    }
}
