//! What the tests of the C ABI share: the library under test, compilers, and programs run under a limit.
// Every program has all of it and uses a part.
#![allow(dead_code)]

#[path = "../../../tests/support/common/mod.rs"]
pub mod common;
pub mod late_writer;
pub mod programs;
pub mod worker;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the package lies in the repository")
        .to_owned()
}

pub fn include() -> PathBuf {
    root().join("include")
}

/// Where cargo puts the libraries.
pub fn target() -> PathBuf {
    // <target>/debug/deps/<test>: the directory of the profile this test was built in.
    let exe = std::env::current_exe().expect("the test's own path");
    let deps = exe.parent().expect("a directory");
    deps.parent().expect("a profile's directory").to_owned()
}

/// A directory with `libsyncguard.so`, its `.so.0` link and `libsyncguard.a`, built once.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let profile = target();
        let target = profile.parent().expect("the target directory");
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .current_dir(root())
            .args(["build", "--quiet", "-p", "syncguard-ffi", "--lib"])
            .arg("--target-dir")
            .arg(target);
        if profile.file_name().is_some_and(|p| p == "release") {
            cargo.arg("--release");
        }
        as_outside(&mut cargo);
        succeed(&mut cargo, "building the library");
        // Programs look for the SONAME. Another test may be making the same link.
        let link = profile.join("libsyncguard.so.0");
        let _ = std::os::unix::fs::symlink("libsyncguard.so", &link);
        assert!(link.exists(), "{} is not there", link.display());
        profile
    })
}

/// Takes away what cargo sets for the test: build scripts that see it are run again, and what they build is built again.
pub fn as_outside(command: &mut Command) {
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_") && name != "CARGO_HOME" && name != "CARGO_TARGET_DIR" {
            command.env_remove(name);
        }
    }
}

/// Compiles `sources` against the header and the shared library.
pub fn compile(compiler: &str, flags: &[&str], sources: &[PathBuf], out: &Path) {
    compile_beside(&[], compiler, flags, sources, out);
}

/// The same with other libraries, by their names in pkg-config.
pub fn compile_beside(
    others: &[&str],
    compiler: &str,
    flags: &[&str],
    sources: &[PathBuf],
    out: &Path,
) {
    let library = library();
    let mut command = Command::new(compiler);
    command
        .args(flags)
        .arg("-I")
        .arg(include())
        .args(sources)
        .arg("-o")
        .arg(out)
        .arg("-L")
        .arg(library)
        .arg("-lsyncguard")
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .arg("-pthread");
    for other in others {
        let said = succeed(
            Command::new("pkg-config").args(["--cflags", "--libs", other]),
            "pkg-config",
        );
        command.args(String::from_utf8_lossy(&said.stdout).split_whitespace());
    }
    succeed(&mut command, "compiling");
}

/// Tells Go's compiler and linker where the header and the library of this checkout are.
pub fn cgo(go: &mut Command) {
    let library = library().display();
    let flags = [format!("-L{library}"), format!("-Wl,-rpath,{library}")];
    go.env("CGO_ENABLED", "1")
        .env(
            "CGO_CFLAGS",
            go_quoted(&format!("-I{}", include().display())),
        )
        .env("CGO_LDFLAGS", flags.map(|flag| go_quoted(&flag)).join(" "));
}

/// A flag as Go reads it: it splits at spaces, and knows quotes of either kind but no escapes.
pub fn go_quoted(flag: &str) -> String {
    let quote = if flag.contains('\'') { '"' } else { '\'' };
    format!("{quote}{flag}{quote}")
}

pub const C99: &[&str] = &[
    "-std=c99",
    "-Wall",
    "-Wextra",
    "-pedantic",
    "-Werror",
    "-g",
    "-O1",
];

/// Runs a command that must succeed; its output. The limit is for what hangs: valgrind on a busy machine takes minutes.
pub fn succeed(command: &mut Command, what: &str) -> Output {
    let output = run(command, Duration::from_secs(1200));
    assert!(
        output.status.success(),
        "{what} failed: {command:?}\n{}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Runs a command to its end, or to the limit, when it is killed and the test fails. A password in its output fails the test too.
pub fn run(command: &mut Command, limit: Duration) -> Output {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?} cannot be started: {e}"));
    let out = Reading::of(child.stdout.take().expect("a pipe"));
    let err = Reading::of(child.stderr.take().expect("a pipe"));
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait().expect("a child to wait for") {
            Some(status) => break status,
            None if Instant::now() >= end => {
                let _ = child.kill();
                let _ = child.wait();
                panic!(
                    "{command:?} did not end within {limit:?}\n{}",
                    String::from_utf8_lossy(&err.so_far())
                );
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let output = Output {
        status,
        stdout: out.to_end(command, end),
        stderr: err.to_end(command, end),
    };
    // The message must not hold it either: the output of the tests is searched too.
    assert!(
        !common::passwords::told(&output.stdout) && !common::passwords::told(&output.stderr),
        "{:?} told a password",
        command.get_program()
    );
    output
}

/// What a thread reads from a pipe. The pipe may outlive the child: a grandchild has it too.
struct Reading {
    text: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Reading {
    fn of(mut from: impl std::io::Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&text);
        let thread = std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut some) {
                all.lock().expect("the text").extend(&some[..n]);
            }
        });
        Self { text, thread }
    }

    fn so_far(&self) -> Vec<u8> {
        self.text.lock().expect("the text").clone()
    }

    fn to_end(&self, command: &Command, end: Instant) -> Vec<u8> {
        while !self.thread.is_finished() {
            assert!(
                Instant::now() < end,
                "{command:?} has ended, and a process that it started still has its output open"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        self.so_far()
    }
}

/// A directory of the test's own; in memory where there is one, because SQLite syncs.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).expect("a directory in memory")
    } else {
        tempfile::tempdir().expect("a temporary directory")
    }
}

/// Compares a committed file with what it should be, or writes it if `SYNCGUARD_BLESS` is set.
pub fn must_equal(file: &Path, wanted: &str, how: &str) {
    if std::env::var_os("SYNCGUARD_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        std::fs::write(file, wanted).expect("writing the file");
        return;
    }
    let found = std::fs::read_to_string(file).unwrap_or_default();
    if found != wanted {
        let line = found
            .lines()
            .zip(wanted.lines())
            .position(|(a, b)| a != b)
            .unwrap_or_else(|| found.lines().count().min(wanted.lines().count()));
        panic!(
            "{} is stale from line {} on; {how}\n- {}\n+ {}",
            file.display(),
            line + 1,
            found.lines().nth(line).unwrap_or("(end)"),
            wanted.lines().nth(line).unwrap_or("(end)")
        );
    }
}
