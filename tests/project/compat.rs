//! Tests programs that use syncguard beside other users of SQLite: Cargo finds versions that go together, and they compile.
//!
//! A program has one SQLite, so all its crates must agree on one version of `libsqlite3-sys`. Needs the registry. `make test`
//! resolves all cases and checks the ones at the ends of the range, `make compat` checks all of them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// For one case: a cold registry and a busy machine.
const LIMIT: Duration = Duration::from_secs(900);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    Resolve,
    Check,
}

/// Resolves, and if asked checks, a program with `dependency` and, from it, `item`; answers the version of rusqlite in it.
fn beside(dependency: &str, item: &str, goal: Goal) -> String {
    let dir = tempfile::tempdir().expect("a temp dir");
    let root = env!("CARGO_MANIFEST_DIR");
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("src")).expect("a directory");
    let manifest = |features: &str| {
        format!(
            "[package]\nname = \"beside\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n\
             syncguard = {{ path = {root:?}, features = [{features}] }}\n{dependency}\n\n[workspace]\n"
        )
    };
    let program = format!(
        "#[allow(unused_imports)]\nuse {item};\n\nfn main() {{\n    \
         println!(\"{{:?}}\", syncguard::Client::open(\"sqlite:locks.db\").is_ok());\n}}\n"
    );
    fs::write(at("src/main.rs"), program).expect("a program");
    // Cargo looks at optional dependencies too: the default features must resolve as well.
    for features in ["", "\"sqlite\""] {
        fs::write(at("Cargo.toml"), manifest(features)).expect("a manifest");
        let _ = fs::remove_file(at("Cargo.lock"));
        cargo(dir.path(), &["generate-lockfile"]);
    }
    if goal == Goal::Check {
        cargo(dir.path(), &["check"]);
    }
    let lock = fs::read_to_string(at("Cargo.lock")).expect("a lock file");
    let (_, after) = lock
        .split_once("name = \"rusqlite\"\nversion = \"")
        .expect("rusqlite");
    after.split('"').next().unwrap_or_default().to_owned()
}

fn cargo(dir: &Path, arguments: &[&str]) -> String {
    let told = dir.join("told");
    let out = || File::options().append(true).create(true).open(&told);
    let mut child = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(dir)
        .env(
            "CARGO_TARGET_DIR",
            Path::new(env!("CARGO_MANIFEST_DIR")).join("target/compat"),
        )
        // The system's SQLite in place of the bundled one: a check links nothing, and need not compile it.
        .env("LIBSQLITE3_SYS_USE_PKG_CONFIG", "1")
        .stdin(Stdio::null())
        .stdout(out().expect("a file"))
        .stderr(out().expect("a file"))
        .spawn()
        .expect("cargo");
    let limit = Instant::now() + LIMIT;
    loop {
        let told = || fs::read_to_string(&told).unwrap_or_default();
        match child.try_wait().expect("its status") {
            Some(status) => {
                assert!(status.success(), "cargo {arguments:?}: {}", told());
                return told();
            }
            None if Instant::now() > limit => {
                let _ = child.kill();
                let _ = child.wait();
                panic!("cargo {arguments:?} hangs: {}", told());
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn rusqlite(minor: u32) -> String {
    format!("rusqlite = {{ version = \"0.{minor}\", default-features = false }}")
}

/// The ends of the range in Cargo.toml.
const OLDEST: u32 = 32;
const NEWEST: u32 = 41;

#[test]
fn the_ends_of_the_range() {
    for minor in [OLDEST, NEWEST] {
        beside(&rusqlite(minor), "rusqlite::Connection", Goal::Check);
    }
}

#[test]
fn sqlx() {
    let dependency =
        "sqlx = { version = \"0.8\", default-features = false, features = [\"sqlite\"] }";
    beside(dependency, "sqlx::Sqlite", Goal::Check);
}

#[test]
fn diesel() {
    let dependency =
        "diesel = { version = \"2.3\", default-features = false, features = [\"sqlite\"] }";
    beside(dependency, "diesel::SqliteConnection", Goal::Check);
}

/// Runs a program without any feature: every URL is refused by an error that names the feature.
#[test]
fn a_url_of_a_missing_feature_is_told_so() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("src")).expect("a directory");
    let root = env!("CARGO_MANIFEST_DIR");
    let manifest = format!(
        "[package]\nname = \"bare\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n\
         syncguard = {{ path = {root:?}, default-features = false }}\n\n[workspace]\n"
    );
    fs::write(at("Cargo.toml"), manifest).expect("a manifest");
    let program = r#"
        fn main() {
            for url in ["sqlite:locks.db", "redis://localhost", "postgres://localhost/db"] {
                let error = syncguard::Client::open(url).map(drop).expect_err(url);
                println!("{url}: {:?}: {error}", error.code());
            }
        }
    "#;
    fs::write(at("src/main.rs"), program).expect("a program");
    let told = cargo(dir.path(), &["run"]);
    for (url, feature) in [
        ("sqlite:locks.db", "sqlite"),
        ("redis://localhost", "redis"),
        ("postgres://localhost/db", "postgres"),
    ] {
        let line = told.lines().find(|line| line.starts_with(url)).expect(url);
        assert!(line.contains("InvalidArgument"), "{line}");
        assert!(line.contains(&format!("--features {feature}")), "{line}");
    }
    // What is on by default, and what is not.
    let manifest = fs::read_to_string(Path::new(root).join("Cargo.toml")).expect("a manifest");
    assert!(manifest.contains("default = [\"redis\", \"postgres\", \"tls\"]"));
}

/// A dependency, and something of it to use.
const OTHERS: [(&str, &str); 8] = [
    (
        "sqlx = { version = \"0.8\", features = [\"sqlite\", \"runtime-tokio\"] }",
        "sqlx::SqlitePool",
    ),
    (
        "sqlx = { version = \"0.8\", features = [\"postgres\"] }",
        "sqlx::Postgres",
    ),
    (
        "sqlx = { version = \"0.9\", features = [\"sqlite\"] }",
        "sqlx::Sqlite",
    ),
    (
        "sqlx = { version = \"0.9\", features = [\"postgres\"] }",
        "sqlx::Postgres",
    ),
    (
        "sea-orm = { version = \"1\", features = [\"sqlx-sqlite\"] }",
        "sea_orm::Database",
    ),
    (
        "diesel = { version = \"2.3\", features = [\"sqlite\", \"r2d2\"] }",
        "diesel::SqliteConnection",
    ),
    (
        "r2d2_sqlite = \"*\"",
        "r2d2_sqlite::SqliteConnectionManager",
    ),
    (
        "refinery = { version = \"*\", features = [\"rusqlite\"] }",
        "refinery::Runner",
    ),
];

/// `make compat` checks them too, which takes minutes.
#[test]
fn every_version_and_every_common_crate() {
    let goal = match std::env::var_os("SYNCGUARD_COMPAT") {
        Some(_) => Goal::Check,
        None => Goal::Resolve,
    };
    for minor in OLDEST..=NEWEST {
        let dependency = rusqlite(minor);
        let found = beside(&dependency, "rusqlite::Connection", goal);
        println!("{dependency}: rusqlite {found}");
        assert!(found.starts_with(&format!("0.{minor}.")), "{found}");
    }
    for (dependency, item) in OTHERS {
        println!("{dependency}: rusqlite {}", beside(dependency, item, goal));
    }
}
