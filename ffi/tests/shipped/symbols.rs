//! Tests that the ABI is the committed one: exported names, struct layouts, the name that programs record. Change `ffi/abi` only
//! knowingly, with a line under "ABI" in the changelog: `SYNCGUARD_BLESS=1 cargo test -p syncguard-ffi --test shipped symbols::`.

use std::fs;
use std::process::Command;

use crate::support::{C99, compile, library, must_equal, root, scratch, succeed};

const HOW: &str = "an ABI change needs SYNCGUARD_BLESS=1 and a line in the changelog";

fn exported() -> String {
    let output = succeed(
        Command::new("nm")
            .args(["-D", "--defined-only", "--format=posix"])
            .arg(library().join("libsyncguard.so")),
        "nm",
    );
    let mut names: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split(' ').next().map(|name| format!("{name}\n")))
        .collect();
    names.sort();
    names.concat()
}

#[test]
fn only_the_committed_names_are_exported() {
    must_equal(&root().join("ffi/abi/symbols.txt"), &exported(), HOW);
}

#[test]
fn every_declared_function_is_exported() {
    let header = fs::read_to_string(root().join("include/syncguard.h")).expect("the header");
    let declared = |name: &str| header.contains(&format!("{name}("));
    for name in exported().lines() {
        assert!(
            name.starts_with("syncguard_"),
            "{name} is not ours to export"
        );
        assert!(declared(name), "{name} is not in the header");
    }
}

/// The C tests are what shows that a function does as its text says.
#[test]
fn every_function_is_called_by_a_test() {
    let programs = fs::read_dir(root().join("ffi/tests/c")).expect("the programs");
    let texts: Vec<String> = programs
        .map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("a text"))
        .collect();
    for name in exported().lines() {
        let call = format!("{name}(");
        let called = texts.iter().any(|text| text.contains(&call));
        assert!(called, "no C test calls {name}");
    }
}

/// On 64-bit machines, which is what the committed numbers are of.
#[test]
#[cfg(target_pointer_width = "64")]
fn structs_are_laid_out_as_committed() {
    let dir = scratch();
    let program = dir.path().join("layout");
    compile("gcc", C99, &[root().join("ffi/tests/c/layout.c")], &program);
    let output = succeed(&mut Command::new(program), "printing the layout");
    let layout = String::from_utf8_lossy(&output.stdout);
    must_equal(&root().join("ffi/abi/layout.txt"), &layout, HOW);
}

#[test]
fn the_library_has_its_soname_and_stays_loaded() {
    let output = succeed(
        Command::new("readelf")
            .arg("-d")
            .arg(library().join("libsyncguard.so")),
        "readelf",
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("[libsyncguard.so.0]"), "{text}");
    assert!(text.contains("NODELETE"), "{text}");
}
