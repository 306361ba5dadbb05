//! Tests the feature `serde`: what is written, what is read again, and what is refused.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use crate::support::WAIT_LIMIT;
use serde_json::{Value, from_value, json, to_value};
use syncguard::testkit::MemoryBackend;
use syncguard::{
    CheckLevel, CheckSubject, Client, ClientOptions, ErrorCode, EventReason, Fence, FenceSource,
    HolderText, IncludeRaw, Key, ListCursor, ListOptions, LockEventType, LockId, LockInfo,
    LockOptions, LossReason, TimeAuthority, Ttl,
};

/// Written as `json`, and read back as the same.
#[track_caller]
fn both_ways<T>(value: T, written: Value)
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    assert_eq!(to_value(&value).expect("a value"), written);
    assert_eq!(from_value::<T>(written).expect("the same"), value);
}

#[test]
fn values_are_written_and_read_back() {
    let id = LockId::random().expect("randomness");
    both_ways(id, json!(id.as_str()));
    both_ways(Key::new("café").expect("a key"), json!("café"));
    both_ways(Fence::new(42).expect("a fence"), json!(42));
    let ttl = Ttl::new(Duration::from_secs(30)).expect("a ttl");
    both_ways(ttl, json!(30_000));
    both_ways(ErrorCode::NetworkTimeout, json!("NetworkTimeout"));
    both_ways(LossReason::MaxHold, json!("MaxHold"));
    both_ways(LockEventType::IsLocked, json!("is_locked"));
    both_ways(EventReason::NotFound, json!("not-found"));
    // The names are those of the Rust API too.
    assert_eq!(ErrorCode::NetworkTimeout.as_str(), "NetworkTimeout");
    assert_eq!(LossReason::MaxHold.as_str(), "MaxHold");
}

#[test]
fn what_is_read_is_checked() {
    let decomposed = from_value::<Key>(json!("cafe\u{301}")).expect("a key");
    assert_eq!(decomposed.as_str(), "caf\u{e9}");
    assert!(from_value::<Key>(json!("")).is_err());
    assert!(from_value::<Key>(json!("a\u{0}")).is_err());
    assert!(from_value::<Fence>(json!(1_000_000_000_000_000_u64)).is_err());
    assert!(from_value::<Fence>(json!(-1)).is_err());
    assert!(from_value::<Ttl>(json!(0)).is_err());
    assert!(from_value::<Ttl>(json!(u64::MAX)).is_err());
    let error = from_value::<LockId>(json!("not-the-secret-id")).expect_err("no lock id");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn an_info_goes_both_ways_and_an_event_out() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let options = ClientOptions::new()
        .events_include_raw(IncludeRaw::Always)
        .on_event(move |event| {
            let event = to_value(event).expect("a value");
            tell.lock()
                .expect("not poisoned")
                .send(event)
                .expect("heard");
        });
    let client = Client::from_backend_with(MemoryBackend::new(), &options).expect("legal options");
    let guard = client.lock("secret").expect("a lock");
    let event = told.recv_timeout(WAIT_LIMIT).expect("an event");
    assert_eq!(event["kind"], "acquire");
    assert_eq!(event["fence"], 1);
    assert_eq!(event["code"], Value::Null);
    let text = event.to_string();
    assert!(
        !text.contains("secret") && !text.contains(guard.lock_id().as_str()),
        "{text}"
    );
    let info = client.get_by_key("secret").expect("an answer").expect("it");
    let written = to_value(&info).expect("a value");
    assert_eq!(
        written["key_hash"],
        Key::new("secret").expect("a key").log_hash()
    );
    assert_eq!(from_value::<LockInfo>(written).expect("the same"), info);
}

#[test]
fn more_values_are_written_and_read_back() {
    both_ways(
        HolderText::new("build-7").expect("a text"),
        json!("build-7"),
    );
    both_ways(FenceSource::Clock, json!("clock"));
    both_ways(TimeAuthority::Server, json!("server"));
    both_ways(CheckLevel::Warning, json!("warning"));
    both_ways(CheckSubject::SetUp, json!("set-up"));
    both_ways(ListCursor::new("key:a"), json!("key:a"));
    assert_eq!(CheckSubject::SetUp.as_str(), "set-up");
    assert!(from_value::<HolderText>(json!("two\nlines")).is_err());
    assert!(from_value::<HolderText>(json!("x".repeat(201))).is_err());
}

#[test]
fn what_a_store_is_and_says_is_written_without_raw_data() {
    let client = Client::from_backend(MemoryBackend::new());
    let store = to_value(client.capabilities()).expect("a value");
    let expected = json!({
        "backend": "memory", "supports_fencing": true, "time_authority": "server", "fence_source": "counter",
    });
    assert_eq!(store, expected);
    let report = to_value(client.check_report()).expect("a value");
    assert_eq!(report["code"], Value::Null);
    assert_eq!(report["findings"][0]["subject"], "reachable");
    assert_eq!(report["findings"][0]["level"], "ok");

    let options = LockOptions::new().holder("secret holder");
    let guard = client.lock_with("secret", &options).expect("a lock");
    let refused = LockOptions::new().acquire_timeout(Duration::ZERO);
    let error = client.lock_with("secret", &refused).expect_err("held");
    let holder = error.holder().expect("the store names it");
    assert_eq!(holder.text(), Some("secret holder"));
    let holder = to_value(holder).expect("a value");
    assert_eq!(holder["fence"], guard.fence().get());
    assert_eq!(holder["lock_id_hash"], guard.lock_id().log_hash());
    assert!(!holder.to_string().contains("secret"), "{holder}");
    assert_eq!(holder.as_object().expect("an object").len(), 3);
    let page = client.list(&ListOptions::new()).expect("a page");
    let page = to_value(page).expect("a value");
    assert_eq!(page["locks"][0]["fence"], 1);
    assert_eq!(page["next"], Value::Null);
    assert!(!page.to_string().contains("secret"), "{page}");
}
