//! Tests that docs/architecture.md names the files that a lock passes through: the stack of a caller whose request is with the server.

use std::backtrace::Backtrace;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::support::process;
use crate::support::redis::RedisServer;
use crate::support::{WAIT_LIMIT, eventually};
use nix::sys::pthread::{pthread_kill, pthread_self};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use syncguard::{Client, LockOptions};

const PAGE: &str = include_str!("../../docs/architecture.md");
/// What runs in a process of its own, by name.
pub const STAGES: &[process::Entry] = &[("way of a lock", look_at_the_stack)];

/// Folders of values and tools, which the page does not count.
const NOT_COUNTED: [&str; 3] = ["types/", "options/", "runtime/"];

/// The stack of the thread that was signalled last.
static STACK: Mutex<Option<Backtrace>> = Mutex::new(None);

/// The caller sleeps in `ppoll` while the server is stopped, and then holds no mutex of the allocator or of the unwinder. At another
/// moment the stack is shorter, and another signal follows.
extern "C" fn keep_the_stack(_: i32) {
    *STACK.lock().unwrap_or_else(PoisonError::into_inner) = Some(Backtrace::force_capture());
}

/// The files of `src/` on the stack that was kept.
fn files_on_the_stack() -> BTreeSet<String> {
    let kept = STACK.lock().unwrap_or_else(PoisonError::into_inner).take();
    let text = kept.map(|stack| stack.to_string()).unwrap_or_default();
    let places = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("at "));
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
    let ours = places.filter_map(|place| {
        place
            .strip_prefix("./src/")
            .or_else(|| place.strip_prefix(own))
    });
    ours.filter_map(|place| Some(place.split(':').next()?.to_owned()))
        .filter(|file| !NOT_COUNTED.iter().any(|folder| file.starts_with(folder)))
        .collect()
}

/// The files that the page names between two texts.
fn named(from: &str, to: &str) -> BTreeSet<String> {
    let part = PAGE.split(from).nth(1).expect("the section");
    let part = part.split(to).next().expect("its end");
    let names = part.split('`').skip(1).step_by(2);
    names
        .filter(|name| name.ends_with(".rs"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_lock_passes_through_the_files_that_the_page_names() {
    process::run_alone("way of a lock");
}

/// Takes a lock while the server is stopped, and looks at the caller's stack.
fn look_at_the_stack(_: &Path) {
    let server = RedisServer::start(&[]);
    let client = Client::open(&server.url()).expect("a client");
    drop(client.lock("warm").expect("a lock"));
    let handler = SigHandler::Handler(keep_the_stack);
    let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler keeps a stack; its comment says why it may allocate.
    unsafe { sigaction(Signal::SIGUSR2, &action) }.expect("a handler");

    let paused = server.pause();
    let (tell, told) = mpsc::channel();
    let caller = std::thread::spawn(move || {
        tell.send(pthread_self()).expect("it is waited for");
        let waits = LockOptions::new().acquire_timeout(WAIT_LIMIT);
        client.lock_with("k", &waits).map(drop)
    });
    let thread = told.recv().expect("a thread");
    let mut found = BTreeSet::new();
    eventually("the request is with the server", || {
        pthread_kill(thread, Signal::SIGUSR2).expect("a thread that waits");
        std::thread::sleep(Duration::from_millis(20));
        found = files_on_the_stack();
        found.contains("net/shared.rs")
    });
    drop(paused);
    caller.join().expect("no panic").expect("a lock");

    let mut on_the_stack = named("## A lock", "Beside the stack");
    // The tests are built with the feature `tracing`.
    on_the_stack.extend(named("the store is wrapped", "\n\n"));
    assert_eq!(found, on_the_stack, "docs/architecture.md");
}
