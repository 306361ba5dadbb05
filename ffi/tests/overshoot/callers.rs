//! Makes the calls in each language: prepares them while the store works, makes them while it does not, and measures them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use crate::Measured;
use crate::rust::{self, RustCalls};
use crate::support::programs::program;
use crate::support::{cgo, root, scratch, succeed};

/// What hangs is killed after this time, and the test fails.
const HANGS: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Rust,
    C,
    Go,
}

/// One call, made by some callers at once.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    language: Language,
    call: &'static str,
    pub callers: usize,
}

impl Row {
    /// Whether its calls wait in a scheduler that is not the system's.
    pub fn is_go(&self) -> bool {
        matches!(self.language, Language::Go)
    }
}

const C_VERBS: &[&str] = &[
    "acquire",
    "release",
    "extend",
    "is_locked",
    "lookup_by_key",
    "lookup_by_id",
    "check",
    "setup_schema",
    "purge_expired",
    "guard_release",
    "guard_extend",
    "guard_free",
    "guard_free_beside_a_call",
];
const GO_VERBS: &[&str] = &[
    "Acquire",
    "Release",
    "Extend",
    "IsLocked",
    "Check",
    "SetupSchema",
    "guard.Release",
    "guard.Extend",
];

/// Every call of every language. Those that stand in line come alone, as a few, and as more than there are connections.
pub fn rows() -> Vec<Row> {
    use Language::{C, Go, Rust};
    let mut rows = Vec::new();
    for (language, call) in [
        (Rust, "lock"),
        (C, "lock"),
        (C, "waiter"),
        (Go, "Lock"),
        (Go, "Do"),
    ] {
        rows.extend([1, 3, 20].map(|callers| Row {
            language,
            call,
            callers,
        }));
    }
    // More than there are connections, or slots of Go, and no caller waits in a line.
    for (language, call) in [(Rust, "lock, a key each"), (Go, "Lock, a key each")] {
        rows.push(Row {
            language,
            call,
            callers: 40,
        });
    }
    rows.push(Row {
        language: Rust,
        call: "with_lock",
        callers: 3,
    });
    for (language, call) in [(Rust, "try_lock"), (C, "try_lock"), (Go, "TryLock")] {
        rows.push(Row {
            language,
            call,
            callers: 20,
        });
    }
    let verbs: [(Language, &[&'static str]); 3] =
        [(Rust, rust::VERBS), (C, C_VERBS), (Go, GO_VERBS)];
    for (language, calls) in verbs {
        rows.extend(calls.iter().map(|call| Row {
            language,
            call,
            callers: 3,
        }));
    }
    // More than Go lets into the library at once.
    rows.push(Row {
        language: Go,
        call: "IsLocked",
        callers: 20,
    });
    rows
}

impl Row {
    pub fn name(&self) -> String {
        match (self.language, self.call) {
            (Language::C, "waiter") => {
                "C: `syncguard_lock_or_wait`, `syncguard_waiter_try_lock`".to_owned()
            }
            (Language::C, "guard_free_beside_a_call") => {
                "C: `syncguard_guard_free` beside `syncguard_guard_extend`".to_owned()
            }
            (Language::C, call @ ("check" | "setup_schema" | "purge_expired")) => {
                format!("C: `syncguard_client_{call}`")
            }
            (Language::C, call) => format!("C: `syncguard_{call}`"),
            (language, call) => format!("{language:?}: `{call}`"),
        }
    }

    /// Whether its bound is that of a wait.
    pub fn waits(&self) -> bool {
        matches!(
            self.call,
            "lock"
                | "lock, a key each"
                | "with_lock"
                | "waiter"
                | "Lock"
                | "Lock, a key each"
                | "Do"
        )
    }

    pub fn prepare(&self, url: &str, acquire_ms: u32, operation_ms: u32) -> Prepared {
        let bound_ms = if self.waits() {
            acquire_ms.max(operation_ms)
        } else {
            operation_ms
        };
        let program = match self.language {
            Language::Rust => {
                let calls =
                    RustCalls::prepare(url, self.call, self.callers, acquire_ms, operation_ms);
                return Prepared::Rust(calls, bound_ms);
            }
            Language::C => program("overshoot", "plain", &[]),
            Language::Go => go_program().to_owned(),
        };
        let mut child = Command::new(program)
            .args([url, self.call])
            .args(
                [self.callers as u64, acquire_ms.into(), operation_ms.into()]
                    .map(|n| n.to_string()),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program");
        let stdin = child.stdin.take().expect("its input");
        let stdout = BufReader::new(child.stdout.take().expect("its output"));
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let program = Program {
            child,
            stdin,
            lines,
            bound_ms,
            callers: self.callers,
        };
        assert_eq!(
            program.lines.recv_timeout(HANGS).as_deref(),
            Ok("ready"),
            "{}",
            self.name()
        );
        Prepared::Program(program)
    }
}

fn go_program() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    &BUILT
        .get_or_init(|| {
            let dir = scratch();
            let out = dir.path().join("overshoot");
            let mut go = Command::new(std::env::var_os("GO").unwrap_or_else(|| "go".into()));
            go.current_dir(root().join("ffi/go"))
                .args(["build", "-tags=syncguard_nopkgconfig", "-o"])
                .arg(&out)
                .arg("./internal/overshoot")
                .env("GOFLAGS", "-mod=mod")
                .env("GOPROXY", "off")
                .env("GOTOOLCHAIN", "local");
            cgo(&mut go);
            succeed(&mut go, "go build");
            (dir, out)
        })
        .1
}

/// Calls that wait for the word.
pub enum Prepared {
    Rust(RustCalls, u32),
    Program(Program),
}

pub struct Program {
    child: Child,
    stdin: ChildStdin,
    lines: mpsc::Receiver<String>,
    bound_ms: u32,
    callers: usize,
}

/// Calls under way.
pub enum Running {
    Rust(rust::RunningCallers, u32),
    Program(Program),
}

impl Prepared {
    pub fn go(self) -> Running {
        match self {
            Self::Rust(calls, bound) => Running::Rust(calls.go(bound), bound),
            Self::Program(mut program) => {
                program.stdin.write_all(b"go\n").expect("the program reads");
                Running::Program(program)
            }
        }
    }
}

impl Running {
    pub fn end(self) -> Measured {
        let mut measured = Measured::default();
        match self {
            Self::Rust(running, bound) => {
                for (took, lost) in running.end(HANGS) {
                    measured.add(took, lost, bound);
                }
            }
            Self::Program(mut program) => {
                let (bound, callers) = (program.bound_ms, program.callers);
                for (took, lost) in program.end() {
                    measured.add(took, lost, bound);
                }
                assert_eq!(
                    measured.calls, callers,
                    "a program that did not tell of all its calls"
                );
            }
        }
        measured
    }
}

/// A test that fails leaves none behind.
impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    fn end(&mut self) -> Vec<(Duration, Duration)> {
        let begun = Instant::now();
        while self.child.try_wait().expect("our own child").is_none() {
            if begun.elapsed() > HANGS {
                panic!("calls that did not end within {HANGS:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.lines
            .iter()
            .filter_map(|line| {
                let (took, lost) = line.split_once(' ')?;
                let us = |n: &str| n.parse().ok().map(Duration::from_micros);
                Some((us(took)?, us(lost)?))
            })
            .collect()
    }
}
