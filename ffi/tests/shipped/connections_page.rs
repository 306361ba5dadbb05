//! Compiles the C and Go programs of docs/connections.md. Those of Rust are doctests.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::{C99, cgo, compile, root, run, scratch};

/// The one program of the page in this language.
fn program(language: &str) -> String {
    let page = fs::read_to_string(root().join("docs/connections.md")).expect("the page");
    let begin = format!("```{language}\n");
    let mut blocks = page.split(&begin).skip(1);
    let block = blocks.next().and_then(|rest| rest.split("```").next());
    assert!(blocks.next().is_none(), "more than one in {language}");
    block.expect("a program").to_owned()
}

#[test]
fn the_c_program_of_the_page_compiles() {
    let dir = scratch();
    let source = dir.path().join("page.c");
    fs::write(&source, program("c")).expect("a file");
    compile("gcc", C99, &[source], &dir.path().join("page"));
}

#[test]
fn the_go_program_of_the_page_is_built() {
    let dir = scratch();
    let ours = root().join("ffi/go").display().to_string();
    let module = format!(
        "module page\n\ngo 1.19\n\nrequire github.com/syncguard/syncguard/ffi/go v0.0.0\n\nreplace github.com/syncguard/syncguard/ffi/go => {ours:?}\n"
    );
    fs::write(dir.path().join("go.mod"), module).expect("a file");
    fs::write(dir.path().join("main.go"), program("go")).expect("a file");
    let mut go = Command::new(std::env::var_os("GO").unwrap_or_else(|| "go".into()));
    go.current_dir(dir.path())
        .args(["vet", "-mod=mod", "-tags=syncguard_nopkgconfig", "."])
        .env("GOPROXY", "off")
        .env("GOTOOLCHAIN", "local");
    cgo(&mut go);
    let output = run(&mut go, Duration::from_secs(600));
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
}
