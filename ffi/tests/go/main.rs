//! Tests the Go module: vetted, tested under the race detector, its example run, and its programs beside those of C and Rust.
//! `GO_COUNT=5` runs its tests that often; `GO` is the program, if another than `go` (`make go-race`, `make go-oldest`);
//! `GO_RUN=pattern` runs only the tests that the pattern finds (`make mutants`).

// The servers' files know the crate by its own name.
extern crate rust_syncguard as syncguard;

#[path = "../support/mod.rs"]
mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use support::common::postgres::Server;
use support::common::redis::RedisServer;
use support::late_writer;
use support::programs::program;
use support::worker::{stops_when_robbed, stops_when_told};
use support::{cgo, go_quoted, include, library, root, run, scratch, succeed};

/// Without pkg-config: the header and the library are those of this checkout.
const TAG: &str = "-tags=syncguard_nopkgconfig";

/// An example that is a module of its own: it needs a driver of Postgres.
const WITH_A_DRIVER: &str = "examples/go/late_writer_postgres";

/// Nothing is fetched: the standard library is all that the module needs.
fn go(module: &str, args: &[&str]) -> Command {
    let mut go = go_that_fetches(module, args);
    go.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off");
    go
}

/// For a module that needs another one, which Go fetches once, as cargo does with crates. Its `go.sum` says what that must be.
fn go_that_fetches(module: &str, args: &[&str]) -> Command {
    let mut go = Command::new(std::env::var_os("GO").unwrap_or_else(|| "go".into()));
    go.current_dir(root().join(module))
        .args(args)
        .env("GOFLAGS", "-mod=readonly")
        .env("GOTOOLCHAIN", "local");
    cgo(&mut go);
    go
}

fn build(module: &str, package: &str, dir: &Path) -> PathBuf {
    let out = dir.join(package.rsplit('/').next().unwrap_or(package));
    let to = out.display().to_string();
    ends_well(go(module, &["build", TAG, "-o", &to, package]), "go build");
    out
}

/// Runs it within ten minutes: a first build of the race detector's runtime takes its time on a busy machine.
fn ends_well(mut command: Command, what: &str) -> Output {
    let count = std::env::var("GO_COUNT")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    let output = run(&mut command, Duration::from_secs(600) * count);
    assert!(
        output.status.success(),
        "{what} failed\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

#[test]
fn vet() {
    ends_well(go("ffi/go", &["vet", TAG, "./..."]), "go vet");
    ends_well(go("examples/go", &["vet", TAG, "./..."]), "go vet");
    ends_well(go_that_fetches(WITH_A_DRIVER, &["vet", TAG, "."]), "go vet");
    let unformatted = succeed(
        Command::new("gofmt")
            .arg("-l")
            .args([root().join("ffi/go"), root().join("examples/go")]),
        "gofmt",
    );
    let names = String::from_utf8_lossy(&unformatted.stdout);
    assert!(names.is_empty(), "run gofmt on {names}");
}

#[test]
fn race() {
    let dir = scratch();
    // The Postgres server runs as another user.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let count = std::env::var("GO_COUNT").unwrap_or_else(|_| "1".to_owned());
    let only = std::env::var("GO_RUN").unwrap_or_else(|_| ".".to_owned());
    let mut tests = go(
        "ffi/go",
        &["test", TAG, "-race", "-count", &count, "-timeout=60m"],
    );
    tests.args(["-run", &only, "."]);
    tests
        .env("SYNCGUARD_TEST_DIR", dir.path())
        .env("TMPDIR", dir.path());
    let output = ends_well(tests, "go test");
    eprintln!("{}", String::from_utf8_lossy(&output.stdout));
}

/// Go before 1.21 knows no quotes in what pkg-config says of libraries.
fn splits_libraries_at_spaces() -> bool {
    let answer = succeed(&mut go("ffi/go", &["env", "GOVERSION"]), "go env");
    let version = String::from_utf8_lossy(&answer.stdout);
    ["go1.19", "go1.20"]
        .iter()
        .any(|old| version.starts_with(old))
}

/// As for an installed library, and as a module of another project: no tag, pkg-config, and `replace`.
#[test]
fn pkg_config() {
    let dir = scratch();
    let template = std::fs::read_to_string(root().join("ffi/pkg/syncguard.pc.in")).expect("a file");
    // With spaces, which the file must quote. Not the paths themselves: Go refuses a `$` in what pkg-config says.
    let name = if splits_libraries_at_spaces() {
        "library"
    } else {
        "the library"
    };
    let [library, headers] =
        [(name, library()), ("the headers", &include())].map(|(name, place)| {
            let link = dir.path().join(name);
            std::os::unix::fs::symlink(place, &link).expect("a link");
            link.display().to_string()
        });
    let pc = template
        .replace("@PREFIX@", "/usr")
        .replace("@LIBDIR@", &library)
        .replace("@PC_INCLUDEDIR@", &headers)
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@LIBS_PRIVATE@", "");
    std::fs::write(dir.path().join("syncguard.pc"), pc).expect("a file");
    let mut build = go("examples/go", &["build", "-o"]);
    build
        .arg(dir.path().join("worker"))
        .arg("./worker")
        .env_remove("CGO_CFLAGS")
        .env("CGO_LDFLAGS", go_quoted(&format!("-Wl,-rpath,{library}")))
        .env("PKG_CONFIG_PATH", dir.path());
    ends_well(build, "go build");
    let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    succeed(
        Command::new(dir.path().join("worker")).args([&url, "1"]),
        "the worker",
    );
}

/// Alone it ends its work; a second one does not start; when its lock is taken away, or it is told to, it stops.
#[test]
fn example() {
    let dir = scratch();
    let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    let program = build("examples/go", "./worker", dir.path());
    let alone = succeed(Command::new(&program).args([&url, "2"]), "a short worker");
    let text = String::from_utf8_lossy(&alone.stdout);
    assert!(
        text.starts_with("working with fence 000000000000001") && text.contains("done"),
        "{text}"
    );

    stops_when_robbed(&program, &url);
    stops_when_told(&program, &url);
}

#[test]
fn late_writer() {
    let dir = scratch();
    late_writer::is_refused(&build("examples/go", "./late_writer", dir.path()));
}

#[test]
fn late_writer_in_postgres() {
    let dir = scratch();
    let program = dir.path().join("late_writer_postgres");
    let to = program.display().to_string();
    let build = go_that_fetches(WITH_A_DRIVER, &["build", TAG, "-o", &to, "."]);
    ends_well(build, "go build");
    late_writer::is_refused_in_postgres(&program);
}

/// A Go program, a C program and this one contend for one key: no overlap, and the fences grow in the order of the holds.
fn contend(url: &str, dir: &Path) {
    const FOR: Duration = Duration::from_secs(2);
    let client = syncguard::Client::open(url).expect("a client");
    client.setup_schema().expect("a schema");
    let others = [
        ("Go", build("ffi/go", "./internal/contend", dir)),
        ("C", program("contend", "plain", &[])),
    ]
    .map(|(language, program)| {
        let url = url.to_owned();
        let contender = std::thread::spawn(move || {
            succeed(
                Command::new(program)
                    .args([&url, "contended"])
                    .arg(FOR.as_millis().to_string()),
                "a contender",
            )
        });
        (language, contender)
    });
    let options = syncguard::LockOptions::new()
        .acquire_timeout(Duration::from_secs(60))
        .retry_delay(Duration::from_millis(1))
        .backoff(syncguard::Backoff::Fixed)
        .jitter(syncguard::Jitter::Full);
    let mut holds = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < FOR || others.iter().any(|(_, other)| !other.is_finished()) {
        let guard = client.lock_with("contended", &options).expect("a lock");
        let entered = monotonic_ns();
        std::thread::sleep(Duration::from_millis(1));
        holds.push((guard.fence().get(), entered, monotonic_ns(), "Rust"));
        assert!(guard.release().expect("a release").is_released());
    }
    for (language, other) in others {
        let output = other.join().expect("the contender ends");
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let n: Vec<i64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
            holds.push((u64::try_from(n[0]).expect("a fence"), n[1], n[2], language));
        }
    }
    holds.sort_unstable();
    for pair in holds.windows(2) {
        assert!(pair[0].0 < pair[1].0, "one fence twice: {pair:?}");
        assert!(pair[0].2 <= pair[1].1, "two holders at once: {pair:?}");
    }
    for language in ["Go", "C", "Rust"] {
        let times = holds.iter().filter(|hold| hold.3 == language).count();
        eprintln!("{language} held it {times} times");
        assert!(times > 0, "{language} never held it");
    }
}

#[test]
fn contention_on_sqlite() {
    let dir = scratch();
    let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    contend(&url, dir.path());
}

#[test]
fn contention_on_redis() {
    let dir = scratch();
    contend(&RedisServer::start(&[]).url(), dir.path());
}

#[test]
fn contention_on_postgres() {
    let dir = scratch();
    contend(&Server::shared().url(), dir.path());
}

/// The monotonic clock as C and Go programs read it.
fn monotonic_ns() -> i64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    now.tv_sec() * 1_000_000_000 + now.tv_nsec()
}
