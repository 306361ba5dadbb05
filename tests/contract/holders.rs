//! Tests what a holder says of itself, on every store: stored, shown where raw data is, and bound to its grant.

use std::time::Duration;

use crate::support::postgres::Server;
use crate::support::redis::RedisServer;
use crate::support::{eventually, verbs};
use std::sync::{Arc, Mutex};
use syncguard::testkit::MemoryBackend;
use syncguard::{
    Client, ClientOptions, ErrorCode, IncludeRaw, LockEvent, LockEventType, LockOptions,
};

fn default_text() -> String {
    let host = nix::unistd::gethostname().expect("a name");
    let program = std::env::current_exe().expect("a program");
    let name = program.file_name().expect("a name");
    format!(
        "{}/{}/{}",
        host.to_string_lossy(),
        std::process::id(),
        name.to_string_lossy()
    )
}

fn shown(client: &Client, key: &str) -> Option<String> {
    let found = client.get_by_key_raw(key).expect("an answer");
    let found = found.expect("a lock");
    let by_id = client.get_by_id_raw(found.lock_id).expect("an answer");
    assert_eq!(by_id.expect("a lock").holder, found.holder);
    found.holder
}

/// Every surface shows the text that was set, the default, or nothing.
fn texts_are_stored_and_shown(client: &Client) {
    let guard = client.lock("default").expect("a lock");
    assert_eq!(shown(client, "default"), Some(default_text()));
    let text = "Bücher/7 \"x\" \\ /";
    let _named = client.lock_with("named", &LockOptions::new().holder(text));
    assert_eq!(shown(client, "named").as_deref(), Some(text));
    let _silent = client.lock_with("silent", &LockOptions::new().holder(""));
    assert_eq!(shown(client, "silent"), None);

    // A renewal keeps it, and the next grant has its own.
    let extended = guard.extend(Duration::from_secs(60)).expect("an answer");
    assert!(extended.is_extended());
    assert_eq!(shown(client, "default"), Some(default_text()));
    guard.release().expect("an answer").expect_released();
    let _next = client.lock_with("default", &LockOptions::new().holder("next"));
    assert_eq!(shown(client, "default").as_deref(), Some("next"));

    let soon = LockOptions::new().acquire_timeout(Duration::ZERO);
    let refused = client.lock_with("named", &soon).expect_err("it is held");
    assert_eq!(refused.code(), ErrorCode::AcquisitionTimeout);
    assert_eq!(refused.holder_text(), Some(text));
    for seen in [refused.to_string(), format!("{refused:?}")] {
        assert!(!seen.contains("cher/7"), "{seen}");
    }
    let bad = LockOptions::new().holder("two\nlines");
    let refused = client.lock_with("bad", &bad).expect_err("a bad text");
    assert_eq!(refused.code(), ErrorCode::InvalidArgument);
    assert!(!client.is_locked("bad").expect("an answer"));
}

#[test]
fn in_memory() {
    texts_are_stored_and_shown(&Client::from_backend(MemoryBackend::new()));
}

#[test]
fn on_redis() {
    let server = RedisServer::start(&[]);
    let client = Client::open_with(&server.url(), &verbs::patient()).expect("a client");
    texts_are_stored_and_shown(&client);
}

#[test]
fn on_postgres() {
    let server = Server::start(&[]);
    let client = Client::from_backend(server.open(&verbs::patient()));
    client.setup_schema().expect("set-up");
    texts_are_stored_and_shown(&client);
}

#[test]
fn on_sqlite() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    texts_are_stored_and_shown(&Client::open(&url).expect("a client"));
}

#[test]
fn events_have_the_text_only_with_raw_data() {
    for (raw, expected) in [
        (IncludeRaw::Always, Some("first".to_owned())),
        (IncludeRaw::Never, None),
    ] {
        let seen: Arc<Mutex<Vec<LockEvent>>> = Arc::default();
        let events = Arc::clone(&seen);
        let options = ClientOptions::new()
            .events_include_raw(raw)
            .on_event(move |event| events.lock().expect("a mutex").push(event.clone()));
        let client = Client::from_backend_with(MemoryBackend::new(), &options).expect("a client");
        let _held = client.lock_with("k", &LockOptions::new().holder("first"));
        let soon = LockOptions::new().acquire_timeout(Duration::ZERO);
        assert!(client.lock_with("k", &soon).is_err());
        let ended = |e: &&LockEvent| e.kind == LockEventType::Wait && !e.ok;
        eventually("the event", || {
            seen.lock().expect("a mutex").iter().any(|e| ended(&e))
        });
        let seen = seen.lock().expect("a mutex");
        assert_eq!(seen.iter().find(ended).expect("a wait").holder, expected);
        let attempt = seen.iter().rfind(|e| e.kind == LockEventType::Acquire);
        assert_eq!(attempt.expect("an attempt").holder, expected);
        assert!(!format!("{seen:?}").contains("first"));
    }
}
