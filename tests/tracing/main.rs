//! Tests the feature `tracing`, in a program of its own, because a subscriber listens to all of its program: which spans and events a subscriber is told of, with which fields, and that it sees no key and no lock id.

#[path = "../support/mod.rs"]
mod support;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use support::eventually;
use support::kit::{TTL, kit};
use syncguard::testkit::{Fault, Verb};
use syncguard::{ErrorCode, LockOptions, hash_key};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// What a subscriber was told: of an event, or of the beginning of a span.
#[derive(Clone, Debug, Default)]
struct Told {
    span: bool,
    name: String,
    level: String,
    thread: String,
    /// The names of the spans around it, the outermost first.
    within: Vec<String>,
    fields: BTreeMap<String, String>,
}

impl Told {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", |value| value)
    }
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields
            .insert(field.name().to_owned(), format!("{value:?}"));
    }
}

/// Keeps what it is told, for all threads: losses are told on a thread of the library.
#[derive(Default)]
struct Listener {
    told: Mutex<Vec<Told>>,
    names: Mutex<BTreeMap<u64, String>>,
    next: AtomicU64,
    panics: AtomicU64,
}

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl Listener {
    fn keep(
        &self,
        metadata: &Metadata<'_>,
        name: &str,
        span: bool,
        record: impl FnOnce(&mut Told),
    ) {
        let names = self.names.lock().expect("not poisoned").clone();
        let within = ENTERED.with_borrow(|ids| ids.iter().map(|id| names[id].clone()).collect());
        let mut told = Told {
            span,
            name: name.to_owned(),
            level: metadata.level().to_string(),
            thread: std::thread::current().name().unwrap_or_default().to_owned(),
            within,
            fields: BTreeMap::new(),
        };
        record(&mut told);
        self.told.lock().expect("not poisoned").push(told);
        if self.panics.load(SeqCst) > 0 {
            panic!("planted");
        }
    }
}

impl Subscriber for &'static Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "syncguard" && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let name = span.metadata().name();
        self.keep(span.metadata(), name, true, |told| span.record(told));
        let id = self.next.fetch_add(1, SeqCst) + 1;
        let mut names = self.names.lock().expect("not poisoned");
        names.insert(id, name.to_owned());
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.keep(event.metadata(), "", false, |told| event.record(told));
    }

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|ids| ids.push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        ENTERED.with_borrow_mut(|ids| ids.retain(|id| *id != span.into_u64()));
    }
}

/// The one listener of this program, for one test at a time.
fn listen() -> (MutexGuard<'static, ()>, &'static Listener) {
    static ALONE: Mutex<()> = Mutex::new(());
    static LISTENER: OnceLock<Listener> = OnceLock::new();
    let alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let listener = LISTENER.get_or_init(Listener::default);
    // Fails for all but the first.
    let _ = tracing::subscriber::set_global_default(listener);
    listener.panics.store(0, SeqCst);
    listener.told.lock().expect("not poisoned").clear();
    (alone, listener)
}

fn told(listener: &Listener) -> Vec<Told> {
    listener.told.lock().expect("not poisoned").clone()
}

#[test]
fn a_cycle_is_told_in_spans_with_fields_and_without_secrets() {
    let (_alone, listener) = listen();
    let kit = kit();
    let guard = kit.client.lock("invoice").expect("a lock");
    kit.renew(&guard);
    let lock_id = guard.lock_id().as_str().to_owned();
    guard.release().expect("an answer").expect_released();

    let all = told(listener);
    let spans: Vec<_> = all.iter().filter(|t| t.span).map(|t| &*t.name).collect();
    assert_eq!(spans, ["wait", "acquire", "extend", "release"]);
    let events: Vec<&Told> = all.iter().filter(|told| !told.span).collect();
    let within = |n: usize| events[n].within.join("/");
    let operations: Vec<_> = events.iter().map(|t| t.field("operation")).collect();
    assert_eq!(
        operations,
        ["\"acquire\"", "\"wait\"", "\"extend\"", "\"release\""]
    );
    // An attempt is told inside its wait, and each event after its own span.
    assert_eq!([within(0), within(1)], ["wait", "wait"]);
    assert_eq!([within(2), within(3)], ["", ""]);
    let acquire = all.iter().find(|t| t.name == "acquire").expect("a span");
    assert_eq!(acquire.within, ["wait"]);
    for told in &all {
        let text = format!("{told:?}");
        assert!(
            !text.contains("invoice") && !text.contains(&lock_id),
            "{text}"
        );
        assert_eq!(told.level, "DEBUG");
        assert!(
            told.field("key_hash").contains(&hash_key("invoice")),
            "{text}"
        );
    }
    for event in &events {
        assert_eq!(event.field("ok"), "true");
        assert_eq!(event.field("fence"), "1");
        assert!(event.field("key_hash").contains(&hash_key("invoice")));
        assert!(event.field("lock_id_hash").contains(&hash_key(&lock_id)));
        assert!(event.fields.contains_key("duration_ms"));
    }
    assert_eq!(events[1].field("attempts"), "1");
    assert!(events[1].fields.contains_key("waited_ms"));
    assert_eq!(events[3].field("held_ms"), "10000.0");
}

#[test]
fn a_loss_and_a_store_in_trouble_are_warnings() {
    let (_alone, listener) = listen();
    let kit = kit();
    let fault = Fault::Refuse(ErrorCode::ServiceUnavailable);
    kit.store.once(Verb::Extend, fault);
    let guard = kit.lock_with(LockOptions::new().no_heartbeat());
    assert!(guard.extend(Duration::from_secs(30)).is_err());
    kit.clock.advance(TTL);
    assert!(guard.is_lost());
    let warnings = || -> Vec<Told> {
        let all = told(listener);
        all.into_iter()
            .filter(|told| told.level == "WARN")
            .collect()
    };
    eventually("both", || warnings().len() >= 2);
    let warnings = warnings();
    assert_eq!(warnings.len(), 2, "{warnings:#?}");
    assert_eq!(warnings[0].field("code"), "\"ServiceUnavailable\"");
    assert_eq!(warnings[1].field("operation"), "\"loss\"");
    assert_eq!(warnings[1].field("loss"), "\"NotRenewed\"");
    assert_eq!(warnings[1].field("held_ms"), "30000.0");
    // Not on the thread that found it out: that may be the timer's.
    assert_eq!(warnings[1].thread, "syncguard-call");
}

#[test]
fn a_subscriber_that_panics_loses_no_lock() {
    let (_alone, listener) = listen();
    let kit = kit();
    listener.panics.store(1, SeqCst);
    let guard = kit.lock();
    kit.renew(&guard);
    guard.release().expect("an answer").expect_released();
    listener.panics.store(0, SeqCst);
    assert_eq!(kit.store.stored(), 0);
    assert!(!told(listener).is_empty());
}
