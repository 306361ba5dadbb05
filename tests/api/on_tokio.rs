//! Tests the wrappers for tokio that the documentation shows.

#[allow(dead_code)]
#[path = "../../examples/tokio_lock.rs"]
mod tokio_lock;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::support::WAIT_LIMIT;
use syncguard::testkit::MemoryBackend;
use syncguard::{
    AcquireOutcome, Backend, Call, Capabilities, Client, ClientOptions, ErrorCode, ExtendOutcome,
    Key, LockError, LockId, LockOptions, LookupBy, ReleaseOutcome, StoredLock, Ttl,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use tokio_lock::lock;

/// As long as a test can wait for what must not happen.
const SHORT: Duration = Duration::from_millis(50);

/// One thread for tasks and one for work that blocks.
fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .max_blocking_threads(1)
        .build()
        .expect("a runtime")
}

/// A store that can hang in an acquire, and remembers how that ended and which threads have released.
#[derive(Default)]
struct Observed {
    store: MemoryBackend,
    hangs: AtomicBool,
    ended_by: Mutex<Vec<ErrorCode>>,
    released_on: Mutex<Vec<ThreadId>>,
}

impl Backend for Observed {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        if self.hangs.load(SeqCst) {
            let ended = call.sleep(WAIT_LIMIT * 2);
            let code = ended
                .as_ref()
                .map_or_else(LockError::code, |()| ErrorCode::Internal);
            self.ended_by.lock().expect("no panic").push(code);
            ended?;
        }
        self.store.acquire(key, lock_id, ttl, call)
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        let answer = self.store.release(lock_id, call);
        let thread = std::thread::current().id();
        self.released_on.lock().expect("no panic").push(thread);
        answer
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        self.store.extend(lock_id, ttl, call)
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        self.store.is_locked(key, call)
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        self.store.find(by, call)
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

fn store() -> (Arc<Observed>, Client) {
    let store = Arc::new(Observed::default());
    // Longer than a test waits: a call that only its own time ends fails the test.
    let options = ClientOptions::new().operation_timeout(WAIT_LIMIT * 2);
    let client = Client::from_backend_with(Arc::clone(&store), &options).expect("good options");
    (store, client)
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + WAIT_LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "not so: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn a_wait_ends_when_its_future_is_dropped() {
    let (store, client) = store();
    runtime().block_on(async {
        let held = lock(&client, "k", &LockOptions::new())
            .await
            .expect("a lock");
        let patient = LockOptions::new().wait_forever();
        let mut wait = Box::pin(lock(&client, "k", &patient));
        eventually_in_line(&client, &mut wait).await;
        drop(wait);
        eventually("the line is empty", || {
            !client.is_waited_for("k").expect("an answer")
        })
        .await;
        held.release().await.expect("an answer").expect_released();
        // No former waiter takes it.
        let next = lock(&client, "k", &LockOptions::new())
            .await
            .expect("a lock");
        assert_eq!(next.guard().fence().get(), 2);
        drop(next);
        eventually("the release of a drop", || store.store.stored() == 0).await;
    });
}

/// Polls `wait` until it stands in line.
async fn eventually_in_line<F: Future + Unpin>(client: &Client, wait: &mut F) {
    let end = Instant::now() + WAIT_LIMIT;
    while !client.is_waited_for("k").expect("an answer") {
        assert!(Instant::now() < end, "it does not wait");
        let polled = timeout(Duration::from_millis(5), &mut *wait).await;
        assert!(polled.is_err(), "another holder has it");
    }
}

#[test]
fn an_attempt_under_way_ends_when_its_future_is_dropped() {
    let (store, client) = store();
    runtime().block_on(async {
        store.hangs.store(true, SeqCst);
        let options = LockOptions::new().acquire_timeout(WAIT_LIMIT * 2);
        let attempt = lock(&client, "k", &options);
        assert!(timeout(SHORT, attempt).await.is_err(), "it hangs");
        store.hangs.store(false, SeqCst);
        // The only thread for work that blocks is free again.
        let guard = timeout(WAIT_LIMIT, lock(&client, "k", &options)).await;
        let guard = guard.expect("a thread").expect("a lock");
        guard.release().await.expect("an answer").expect_released();
        eventually("nothing is left", || store.store.stored() == 0).await;
    });
    // It may not have begun when the future was dropped, and then it never did.
    let ended = store.ended_by.lock().expect("no panic").clone();
    assert!(
        ended.iter().all(|code| *code == ErrorCode::Aborted),
        "{ended:?}"
    );
}

#[test]
fn the_executor_releases_nothing() {
    let (store, client) = store();
    runtime().block_on(async {
        let dropped = lock(&client, "a", &LockOptions::new()).await;
        drop(dropped.expect("a lock"));
        let released = lock(&client, "b", &LockOptions::new()).await;
        let outcome = released.expect("a lock").release().await;
        outcome.expect("an answer").expect_released();
        eventually("both are free", || store.store.stored() == 0).await;
    });
    let executor = std::thread::current().id();
    let threads = store.released_on.lock().expect("no panic").clone();
    assert_eq!(threads.len(), 2);
    assert!(!threads.contains(&executor), "{threads:?}");
}

#[test]
fn tasks_that_wait_hold_no_thread() {
    const TASKS: usize = 20;
    let (_store, client) = store();
    let done = Arc::new(AtomicUsize::new(0));
    runtime().block_on(async {
        let held = lock(&client, "k", &LockOptions::new())
            .await
            .expect("a lock");
        let options = LockOptions::new().acquire_timeout(WAIT_LIMIT * 4);
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (client, options, done) = (client.clone(), options.clone(), Arc::clone(&done));
                tokio::spawn(async move {
                    let guard = lock(&client, "k", &options).await.expect("a lock");
                    done.fetch_add(1, SeqCst);
                    guard.release().await.expect("an answer").expect_released();
                })
            })
            .collect();
        eventually("a line", || client.is_waited_for("k").expect("an answer")).await;
        // It needs the only thread for work that blocks.
        let released = timeout(WAIT_LIMIT, held.release()).await;
        released
            .expect("a thread")
            .expect("an answer")
            .expect_released();
        for task in tasks {
            let ended = timeout(WAIT_LIMIT, task).await.expect("its turn");
            ended.expect("no panic");
        }
        assert_eq!(done.load(SeqCst), TASKS);
    });
}

#[test]
fn the_page_shows_the_code_that_is_tested() {
    let root = env!("CARGO_MANIFEST_DIR");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).expect("a file");
    let (page, example) = (read("docs/tokio.md"), read("examples/tokio_lock.rs"));
    let between = |text: &str, begin: &str, end: &str| {
        let rest = text.split_once(begin).expect("a begin").1;
        rest.split_once(end).expect("an end").0.to_owned()
    };
    assert_eq!(
        between(&page, "```rust\n", "```\n"),
        between(&example, "// ---- begin\n", "// ---- end\n"),
        "copy the code of examples/tokio_lock.rs into docs/tokio.md"
    );
    assert_eq!(
        between(&page, "```text\n", "```\n"),
        between(&example, "// ---- use begin\n", "// ---- use end\n"),
        "copy the use of examples/tokio_lock.rs into docs/tokio.md"
    );
}

#[test]
fn the_example_runs_to_its_end() {
    tokio_lock::main().expect("the example");
}
