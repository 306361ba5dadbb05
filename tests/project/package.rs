//! Tests that the packaged crate is small and whole: its demo runs, its links stay inside, and it says where it does not run.
//!
//! Needs the registry. Not in the package itself: Cargo does not package a package.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Shared with the repository, so that dependencies are compiled once.
fn target() -> PathBuf {
    root().join("target")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Ten minutes: a cold registry and a busy machine.
fn command(program: &str, dir: &Path) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", "600", program])
        .current_dir(dir)
        .env("CARGO_TARGET_DIR", target())
        .env("CARGO", env!("CARGO"))
        .env_remove("RUSTFLAGS");
    // What Cargo told this test about its own package: build scripts look at it, and would run again and again.
    for (name, _) in std::env::vars_os() {
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("a command");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn cargo(dir: &Path, arguments: &[&str]) -> String {
    succeed(command(env!("CARGO"), dir).args(arguments))
}

fn listed() -> BTreeSet<String> {
    let list = cargo(root(), &["package", "--list", "--allow-dirty"]);
    list.lines().map(str::to_owned).collect()
}

/// The crate as a user gets it, unpacked.
fn unpacked() -> &'static Path {
    static UNPACKED: OnceLock<PathBuf> = OnceLock::new();
    UNPACKED.get_or_init(|| {
        cargo(root(), &["package", "--no-verify", "--allow-dirty"]);
        let name = concat!("syncguard-", env!("CARGO_PKG_VERSION"));
        let archive = target().join("package").join(format!("{name}.crate"));
        // The same place each time: Cargo then replaces what it has built there.
        let place = target().join("unpacked");
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).expect("a directory");
        // With times of now (-m): in the archive all are the same, and Cargo would not see a change.
        succeed(command("tar", &place).arg("-xmf").arg(archive));
        place.join(name)
    })
}

/// The targets of links in a page that are not addresses: `[text](target)` and `[name]: target`.
fn relative_links(page: &str) -> Vec<&str> {
    let mut code = false;
    let mut found = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            let inline = line.split("](").skip(1).filter_map(|l| l.split(')').next());
            let defined = line.strip_prefix('[').and_then(|l| l.split_once("]: "));
            found.extend(inline.chain(defined.map(|(_, target)| target.trim())));
        }
    }
    found.retain(|link| !link.contains("://") && !link.starts_with('#'));
    found
}

/// Without `..`.
fn plain(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.to_str().expect("UTF-8").split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn every_relative_link_is_to_a_file_of_the_package() {
    let listed = listed();
    let mut links = 0;
    let mut dead = Vec::new();
    for name in listed.iter().filter(|name| name.ends_with(".md")) {
        let page = read(&root().join(name));
        for link in relative_links(&page) {
            links += 1;
            let folder = Path::new(name).parent().expect("a folder");
            let file = plain(&folder.join(link.split('#').next().unwrap_or_default()));
            let within = format!("{}/", file.trim_end_matches('/'));
            if !listed.iter().any(|l| *l == file || l.starts_with(&within)) {
                dead.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(dead.is_empty(), "not in the package: {dead:?}");
    assert!(links > 10, "only {links} links");
}

#[test]
fn the_package_is_small_and_whole() {
    let listed = listed();
    for needed in [
        "CHANGELOG.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "needs-rust.sh",
        "docs/wire-format.md",
        "examples/quickstart.rs",
        "include/syncguard.h",
        "src/guide/fencing.rs",
        "src/guide/front_page.md",
    ] {
        assert!(listed.contains(needed), "{needed}");
    }
    for name in &listed {
        let outside = ["benches/", "ffi/", "."]
            .iter()
            .any(|start| name.starts_with(start));
        assert!(!outside || name == ".cargo_vcs_info.json", "{name}");
    }
    let size = unpacked().parent().and_then(Path::parent).map(|target| {
        let name = concat!("package/syncguard-", env!("CARGO_PKG_VERSION"), ".crate");
        fs::metadata(target.join(name)).expect("an archive").len()
    });
    assert!(size.expect("a size") < 640 * 1024, "{size:?} bytes");
}

/// A user that has nothing but the crate runs this.
#[test]
fn the_demo_runs_from_the_package() {
    let told = succeed(command("make", unpacked()).arg("demo"));
    assert!(told.contains("fence"), "{told}");
    let told = succeed(command("make", unpacked()).arg("help"));
    assert!(told.contains("make demo"), "{told}");
    // What needs the repository says so, and does not begin.
    let output = command("make", unpacked()).arg("test").output();
    let output = output.expect("make");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(told.contains("cargo test --all-features"), "{told}");
}

/// As docs.rs does it: from the package, with the features that its metadata name.
#[test]
fn the_documentation_of_the_package_has_no_dead_link() {
    let manifest = read(&unpacked().join("Cargo.toml"));
    let (_, metadata) = manifest
        .split_once("[package.metadata.docs.rs]\n")
        .expect("metadata for docs.rs");
    assert!(metadata.starts_with("all-features = true\n"), "{manifest}");
    let _ = fs::remove_dir_all(target().join("doc/syncguard"));
    let arguments = ["doc", "--no-deps", "--all-features", "--quiet"];
    succeed(
        command(env!("CARGO"), unpacked())
            .args(arguments)
            .env("RUSTDOCFLAGS", "-D warnings"),
    );
    let front = target().join("doc/syncguard/index.html");
    let mut pages = vec![front.clone()];
    for entry in fs::read_dir(target().join("doc/syncguard/docs")).expect("the pages of docs/") {
        pages.push(entry.expect("an entry").path().join("index.html"));
    }
    pages.retain(|page| page.is_file());
    assert!(pages.len() > 4, "only {pages:?}");
    let mut dead = Vec::new();
    for page in &pages {
        let html = read(page);
        let attributes = ["href=\"", "src=\""].map(|name| html.split(name).skip(1));
        for link in attributes.into_iter().flatten() {
            let link = link.split('"').next().unwrap_or_default();
            let file = link.split(['#', '?']).next().unwrap_or_default();
            // A script of rustdoc's has `${name}` in an address.
            let outside = link.contains("://") || link.contains('$') || file.is_empty();
            if !outside && !page.parent().expect("a folder").join(file).exists() {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
    assert!(read(&front).contains("docs/postgres/index.html"));
}

/// Not a second error, and not one of a dependency first: for a machine that is no Unix, `cfg(unix)` means what `cfg(windows)` means here.
#[test]
fn elsewhere_there_is_one_error_and_it_says_why() {
    let dir = tempfile::tempdir().expect("a temp dir");
    succeed(
        Command::new("cp")
            .arg("-R")
            .arg(unpacked())
            .arg(dir.path().join("crate")),
    );
    let place = dir.path().join("crate");
    for (name, from, to) in [
        ("Cargo.toml", "cfg(unix)", "cfg(windows)"),
        ("src/lib.rs", "unix", "windows"),
    ] {
        let text = read(&place.join(name));
        assert!(text.contains(from), "{name}");
        fs::write(place.join(name), text.replace(from, to)).expect("a copy");
    }
    for features in ["--all-features", "--no-default-features"] {
        let output = command(env!("CARGO"), &place)
            .args(["check", "--lib", "--message-format=short", features])
            .output()
            .expect("cargo");
        let told = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = told.lines().filter(|l| l.contains(": error")).collect();
        assert!(!output.status.success());
        assert_eq!(errors.len(), 1, "{told}");
        assert!(
            errors[0].contains("src/lib.rs") && errors[0].contains("needs a"),
            "{told}"
        );
        assert_eq!(
            told.matches("Checking").count(),
            1,
            "a dependency is built: {told}"
        );
    }
}

#[test]
fn dependencies_come_with_the_features_that_use_them() {
    let tree = |features: &str| {
        let base = [
            "tree",
            "--edges=normal",
            "--prefix=none",
            "--no-default-features",
        ];
        let arguments = [&base[..], &["--package=syncguard", "--features", features]].concat();
        cargo(root(), &arguments)
    };
    for (features, used) in [
        ("", false),
        ("sqlite,testkit", false),
        ("redis", true),
        ("postgres", true),
    ] {
        let tree = tree(features);
        assert_eq!(tree.contains("serde_json "), used, "{features}: {tree}");
    }
    for (features, with_tracing, with_serde) in [
        ("sqlite,testkit", false, false),
        ("tracing", true, false),
        ("serde", false, true),
    ] {
        let tree = tree(features);
        assert_eq!(tree.contains("\ntracing "), with_tracing, "{tree}");
        assert_eq!(tree.contains("\nserde "), with_serde, "{tree}");
    }
    let defaults = cargo(root(), &["tree", "--edges=normal", "--prefix=none"]);
    assert!(!defaults.contains("\ntracing "), "{defaults}");
}

#[test]
fn the_readme_names_the_oldest_rust() {
    let readme = read(&root().join("README.md"));
    let wanted = concat!("Rust ", env!("CARGO_PKG_RUST_VERSION"), " or later");
    assert!(readme.contains(wanted), "{wanted}");
}

/// The marks of docs/wire-format.md: those that this library sorts and programs with older tables do not.
#[test]
fn the_unicode_of_keys_is_the_documented_one() {
    use unicode_normalization::{
        UNICODE_VERSION, UnicodeNormalization, char::canonical_combining_class,
    };
    let (major, minor, _) = UNICODE_VERSION;
    let version = format!("Unicode {major}.{minor}");
    let page = read(&root().join("docs/wire-format.md"));
    assert!(
        page.contains(&format!("tables of this library: {version}")),
        "{version}"
    );
    assert!(
        read(&root().join("README.md")).contains(&version),
        "{version}"
    );

    let (_, list) = page.split_once("```text\n").expect("the list");
    let list = list.lines().next().expect("a line");
    let hex = |digits: &str| u32::from_str_radix(digits, 16).expect("a number");
    let new: Vec<char> = list
        .split(' ')
        .map(|part| part.split_once("..").unwrap_or((part, part)))
        .flat_map(|(first, last)| hex(first)..=hex(last))
        .filter_map(char::from_u32)
        .collect();
    assert!(page.contains(&format!("These {} marks are new in {version}", new.len())));
    assert!(new.iter().all(|&mark| canonical_combining_class(mark) != 0));
    // Unicode 17.0 had 968 marks with a class.
    let marks = (char::MIN..=char::MAX).filter(|&c| canonical_combining_class(c) != 0);
    assert_eq!(marks.count() - new.len(), 968);
    assert_eq!("\u{5c9}\u{5c8}".nfc().collect::<String>(), "\u{5c8}\u{5c9}");
}
