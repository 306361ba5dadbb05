//! Builds the C, C++ and Go programs of the README and of the page of each language with every warning an error, and runs them.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{C99, cgo, compile, root, scratch, succeed};

const FENCE: &str = "write with fence 000000000000001\n";

/// The programs in one language on a page: every block of code that is marked as that language.
fn programs(page: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(page)).expect("the page");
    let fence = format!("```{language}\n");
    let found: Vec<String> = text
        .split(&fence)
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .map(str::to_owned)
        .collect();
    assert!(!found.is_empty(), "{page} has no {language}");
    found
}

/// Builds and runs the programs of a page; each must print this and nothing to stderr.
fn run(page: &str, language: &str, compiler: &str, flags: &[&str], wanted: &str) {
    for program in programs(page, language) {
        let dir = scratch();
        let source: PathBuf = dir.path().join(format!("program.{language}"));
        std::fs::write(&source, program).expect("a source");
        let built = dir.path().join("program");
        compile(compiler, flags, &[source], &built);
        let output = succeed(Command::new(&built).current_dir(dir.path()), page);
        assert_eq!(String::from_utf8_lossy(&output.stdout), wanted, "{page}");
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(complaints.is_empty(), "{page}: {complaints}");
    }
}

#[test]
fn c() {
    for page in ["README.md", "docs/c.md"] {
        run(page, "c", "gcc", C99, FENCE);
    }
}

#[test]
fn cpp() {
    let flags = ["-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror"];
    let both = format!("{FENCE}nightly is ours\n");
    run("README.md", "cpp", "g++", &flags, FENCE);
    run("docs/cpp.md", "cpp", "g++", &flags, &both);
}

#[test]
fn go() {
    let pages = ["README.md", "ffi/go/README.md"];
    for program in pages.iter().flat_map(|page| programs(page, "go")) {
        let dir = scratch();
        let module = "github.com/syncguard/syncguard/ffi/go";
        let path = root().join("ffi/go");
        let text = format!(
            "module readme\n\ngo 1.19\n\nrequire {module} v0.0.0\n\nreplace {module} => {:?}\n",
            path.display().to_string()
        );
        std::fs::write(dir.path().join("go.mod"), text).expect("a module");
        std::fs::write(dir.path().join("main.go"), program).expect("a source");
        let mut go = Command::new("go");
        go.current_dir(dir.path())
            .args(["run", "-tags=syncguard_nopkgconfig", "."])
            .env("GOFLAGS", "-mod=mod")
            .env("GOPROXY", "off");
        cgo(&mut go);
        let output = succeed(&mut go, "the program of a page");
        assert_eq!(String::from_utf8_lossy(&output.stdout), FENCE);
    }
}
