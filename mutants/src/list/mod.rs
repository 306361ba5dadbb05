//! The bugs to plant. Each is data: a text in a file, another text in its place, and the tests that must notice.
//!
//! `tests/project` checks that every old text is in its file exactly once, so an entry cannot go stale unnoticed.

mod beside;
mod bindings;
mod lock;
mod shared;
mod stores;
mod wire;

/// One bug.
#[derive(Debug)]
pub struct Mutant {
    /// The part of the library that it is in, one of [`PLACES`].
    pub place: &'static str,
    /// What is wrong with the library that has it.
    pub bug: &'static str,
    /// From the root of the repository.
    pub file: &'static str,
    /// What the file says, exactly once.
    pub old: &'static str,
    /// What it says with the bug.
    pub new: &'static str,
    /// The test program: a folder of `tests/`, `ffi/tests/` or `cli/tests/`; `lib` or `ffi-lib` for unit tests; `redis-pool` or
    /// `postgres-pool` for all tests of that crate.
    pub program: &'static str,
    /// Names of tests, or beginnings of them, separated by spaces. For the program `go` a pattern of Go's own tests.
    pub tests: &'static str,
    /// How many seconds the tests may take.
    pub limit: u64,
}

pub const PLACES: [&str; 18] = [
    "Redis scripts",
    "Postgres functions",
    "SQLite statements",
    "lifecycle",
    "waiting",
    "pool",
    "shared connections",
    "adapters",
    "undo",
    "start-up and wire",
    "TLS",
    "C boundary",
    "C++ header",
    "Go module",
    "gates",
    "clock fences",
    "holders and listing",
    "command",
];

pub fn all() -> impl Iterator<Item = &'static Mutant> {
    [
        stores::REDIS,
        stores::POSTGRES,
        stores::SQLITE,
        lock::LIFECYCLE,
        lock::WAITING,
        lock::POOL,
        shared::CONNECTIONS,
        shared::ADAPTERS,
        lock::UNDO,
        wire::START_UP,
        wire::TLS,
        bindings::C,
        bindings::CPP,
        bindings::GO,
        beside::GATES,
        beside::CLOCK_FENCES,
        beside::LISTING,
        beside::COMMAND,
    ]
    .into_iter()
    .flatten()
}
