//! Tests the C++ header: alone, included twice, from two units, as C++17 and C++20, with every warning an error.

use std::process::Command;

use crate::support::{compile, include, root, scratch, succeed};

const STRICT: &[&str] = &["-Wall", "-Wextra", "-Wshadow", "-pedantic", "-Werror"];

fn used_as(std: &str, extra: &[&str], name: &str) {
    let dir = scratch();
    let program = dir.path().join("use");
    let sources = ["use", "other"].map(|unit| root().join(format!("ffi/tests/cpp/{unit}.cpp")));
    let flags: Vec<&str> = [std, "-g"]
        .iter()
        .chain(STRICT)
        .chain(extra)
        .copied()
        .collect();
    compile("g++", &flags, &sources, &program);
    succeed(
        Command::new(program)
            .arg(format!("sqlite:{}", dir.path().join("locks.db").display()))
            .arg(dir.path()),
        name,
    );
}

#[test]
fn as_cpp17() {
    used_as("-std=c++17", &[], "C++17");
}

#[test]
fn as_cpp20_with_sanitizers() {
    used_as(
        "-std=c++20",
        &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        "C++20 with sanitizers",
    );
}

#[test]
fn the_header_compiles_alone() {
    let dir = scratch();
    let file = dir.path().join("alone.cpp");
    // Options left out draw no warning.
    let text = "#include <syncguard.hpp>\n#if __cplusplus >= 202002L\n\
        const syncguard::lock_options lock{.ttl = syncguard::forever};\n\
        const syncguard::client_options client{.pool_size = 2};\n#endif\n";
    std::fs::write(&file, text).expect("a source file");
    for std in ["-std=c++17", "-std=c++20"] {
        succeed(
            Command::new("g++")
                .arg(std)
                .args(STRICT)
                .args(["-Wconversion", "-fsyntax-only", "-I"])
                .arg(include())
                .arg(&file),
            "the header alone",
        );
    }
}

/// The public members of the classes in `text` that no comment stands before, by their first line.
fn without_words(text: &str) -> Vec<&str> {
    let (mut found, mut public, mut before) = (Vec::new(), false, "");
    for line in text.lines() {
        public = match line {
            " public:" => true,
            " private:" | "};" => false,
            _ => public,
        };
        let member = line.strip_prefix("  ").filter(|code| {
            code.starts_with(|c: char| c.is_ascii_alphabetic() || c == ':' || c == '[')
        });
        let told = before.trim_start().starts_with("//") || before.starts_with("  template");
        // What the compiler writes needs no words.
        let written = !line.contains("= default;") && !line.contains("= delete;");
        let call = member.filter(|code| code.contains('('));
        if let (true, Some(code), true, false) = (public, call, written, told) {
            found.push(code);
        }
        before = line;
    }
    found
}

/// The header is the manual of C++.
#[test]
fn every_member_says_what_it_does() {
    let header = std::fs::read_to_string(include().join("syncguard.hpp")).expect("the header");
    assert!(header.matches(" public:").count() > 4);
    let silent = without_words(&header);
    assert!(silent.is_empty(), "no words for:\n{}", silent.join("\n"));
    let planted =
        "class a {\n public:\n  /// Words.\n  int b();\n  int c();\n private:\n  int d();\n};\n";
    assert_eq!(without_words(planted), ["int c();"]);
}

/// What must not compile: a guard that is thrown away, or copied.
#[test]
fn a_guard_cannot_be_ignored_or_copied() {
    let dir = scratch();
    for (body, ok) in [
        ("auto g = c.lock(\"k\");", true),
        ("c.lock(\"k\");", false),
        ("auto g = c.lock(\"k\"); auto h = g;", false),
    ] {
        let file = dir.path().join("nodiscard.cpp");
        let text = format!("#include <syncguard.hpp>\nvoid f(syncguard::client& c) {{ {body} }}\n");
        std::fs::write(&file, text).expect("a source file");
        let compiled = Command::new("g++")
            .args(["-std=c++17", "-Werror=unused-result", "-fsyntax-only", "-I"])
            .arg(include())
            .arg(&file)
            .output()
            .expect("g++");
        assert_eq!(compiled.status.success(), ok, "{body}");
    }
}
