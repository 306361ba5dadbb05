//! Tests that the header is what the source says, compiles alone, and names the version of the package.

use std::fs;
use std::process::Command;

use crate::support::{include, must_equal, root, scratch, succeed};

/// In the order in which a reader meets them.
const SOURCES: &[&str] = &[
    "version",
    "status",
    "error",
    "cancel",
    "telemetry",
    "options",
    "client",
    "guard",
    "verbs",
    "listing",
    "report",
    "gate",
    "waiter",
    "helpers",
];

fn generate() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("a config");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(root().join(format!("ffi/src/{name}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().expect("a header").write(&mut text);
    String::from_utf8(text).expect("UTF-8")
}

#[test]
fn the_header_is_current() {
    must_equal(
        &include().join("syncguard.h"),
        &generate(),
        "run `make header`",
    );
}

#[test]
fn the_header_names_the_packages_version() {
    let header = fs::read_to_string(include().join("syncguard.h")).expect("the header");
    for (name, wanted) in [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ] {
        let line = format!("#define SYNCGUARD_VERSION_{name} {wanted}");
        assert!(header.lines().any(|l| l == line), "{line} is missing");
    }
}

/// What no test can show and a caller must know.
#[test]
fn the_header_says_what_is_undefined_and_what_is_shared() {
    let header = fs::read_to_string(include().join("syncguard.h")).expect("the header");
    let words: Vec<&str> = header
        .split([' ', '\n', '*'])
        .filter(|w| !w.is_empty())
        .collect();
    let text = words.join(" ");
    for promise in [
        "Nothing here may be called from a signal handler: that is undefined.",
        "to leave one by longjmp, by an exception or by ending the thread is undefined",
        "must not nest",
        "\"a\" and \"a:\" are the same",
        "Freeing a handle twice, using it after it was freed, and passing what was never a handle.",
    ] {
        assert!(text.contains(promise), "{promise}");
    }
}

/// Alone, twice, as C of three ages and as C++, with every warning an error.
#[test]
fn the_header_compiles_alone() {
    let dir = scratch();
    let body = "#include <syncguard.h>\n#include <syncguard.h>\n\
        syncguard_client_options a = SYNCGUARD_CLIENT_OPTIONS_INIT;\n\
        syncguard_lock_options b = SYNCGUARD_LOCK_OPTIONS_INIT;\n";
    for (compiler, std, ext) in [
        ("gcc", "-std=c99", "c"),
        ("gcc", "-std=c11", "c"),
        ("gcc", "-std=c17", "c"),
        ("g++", "-std=c++17", "cpp"),
        ("g++", "-std=c++20", "cpp"),
    ] {
        let file = dir.path().join(format!("alone.{ext}"));
        fs::write(&file, body).expect("a source file");
        succeed(
            Command::new(compiler)
                .args([
                    std,
                    "-Wall",
                    "-Wextra",
                    "-pedantic",
                    "-Werror",
                    "-fsyntax-only",
                    "-I",
                ])
                .arg(include())
                .arg(&file),
            "the header alone",
        );
    }
}

/// The promises of the header that only a reader can check must at least be there.
#[test]
fn the_header_says_what_is_undefined() {
    let header = fs::read_to_string(include().join("syncguard.h")).expect("the header");
    for words in [
        "signal handler",
        "longjmp",
        "forked child",
        "Freeing a handle twice",
    ] {
        assert!(header.contains(words), "nothing is said of {words:?}");
    }
    // Every function says where it may be called from.
    let silent: Vec<&str> = header
        .split("/**")
        .skip(1)
        .filter_map(|part| part.split_once("*/"))
        .filter(|(_, code)| {
            code.split(';').next().is_some_and(|c| {
                c.contains("syncguard_")
                    && c.contains('(')
                    && !c.contains('{')
                    && !c.contains("#define")
            })
        })
        .filter(|(text, _)| !text.contains("Threads:"))
        .map(|(_, code)| code.trim().lines().next().unwrap_or_default())
        .filter(|line| !line.starts_with("void (*"))
        .collect();
    assert!(silent.is_empty(), "no word about threads: {silent:?}");
}

/// Only the module for hazards has them.
#[test]
fn hazards_stay_in_the_boundary() {
    for name in SOURCES {
        let text = fs::read_to_string(root().join(format!("ffi/src/{name}.rs"))).expect("source");
        for word in [
            "unsafe {",
            "catch_unwind",
            "from_raw",
            "transmute",
            "CStr::from_ptr",
        ] {
            assert!(!text.contains(word), "{name}.rs holds {word:?}");
        }
    }
}
