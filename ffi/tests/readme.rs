//! The C, C++ and Go programs of the README, built with every warning an error, and run.

#[path = "../../tests/support/limit.rs"]
mod limit;
mod support;

use std::path::PathBuf;
use std::process::Command;

use support::{C99, cgo, compile, root, scratch, succeed};

/// The code of the README in one language.
fn snippets(language: &str) -> Vec<String> {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let fence = format!("```{language}\n");
    let found: Vec<String> = readme
        .split(&fence)
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .map(str::to_owned)
        .collect();
    assert!(!found.is_empty(), "the README has no {language}");
    found
}

fn run(language: &str, compiler: &str, flags: &[&str], wanted: &str) {
    for snippet in snippets(language) {
        let dir = scratch();
        let source: PathBuf = dir.path().join(format!("readme.{language}"));
        std::fs::write(&source, snippet).expect("a source");
        let program = dir.path().join("readme");
        compile(compiler, flags, &[source], &program);
        let output = succeed(
            Command::new(&program).current_dir(dir.path()),
            "the README's program",
        );
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text, wanted);
        assert!(
            output.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn c() {
    run("c", "gcc", C99, "write with fence 000000000000001\n");
}

#[test]
fn cpp() {
    let flags = ["-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror"];
    run(
        "cpp",
        "g++",
        &flags,
        "write with fence 000000000000001\nnightly is ours\n",
    );
}

#[test]
fn go() {
    for snippet in snippets("go") {
        let dir = scratch();
        let module = "github.com/syncguard/syncguard/ffi/go";
        let path = root().join("ffi/go");
        let text = format!(
            "module readme\n\ngo 1.19\n\nrequire {module} v0.0.0\n\nreplace {module} => {:?}\n",
            path.display().to_string()
        );
        std::fs::write(dir.path().join("go.mod"), text).expect("a module");
        std::fs::write(dir.path().join("main.go"), snippet).expect("a source");
        let mut go = Command::new("go");
        go.current_dir(dir.path())
            .args(["run", "-tags=syncguard_nopkgconfig", "."])
            .env("GOFLAGS", "-mod=mod")
            .env("GOPROXY", "off");
        cgo(&mut go);
        let output = succeed(&mut go, "the README's program");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "write with fence 000000000000001\n"
        );
    }
}
