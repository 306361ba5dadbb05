//! What a lock costs over a pool and over the built-in driver, and when a call ends on a server in trouble. For each adapter, whose
//! `support` makes servers and stores.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::support::common::proxy::Mode;
use crate::support::{NAME, Setup, Store};
use syncguard::{AcquireOutcome, Backend, Call, Key, LockId, Ttl};

/// How long a call on a server in trouble may take.
const LIMIT: Duration = Duration::from_secs(1);
const CYCLES: usize = 3000;
const CALLERS: usize = 40;
const POOL: u32 = 10;

/// Prints the rows of both drivers, and writes them into the page that the first argument names.
pub fn main() -> ExitCode {
    let setup = Setup::alone();
    let own = setup.store(POOL);
    let tested = setup.over(
        &setup
            .builder(POOL)
            .test_on_check_out(true)
            .build_unchecked(setup.manager()),
    );
    let rows = [
        row("built in", &setup, &setup.near(), &setup.far(), &|| 0),
        row("own pool", &setup, &setup.straight(POOL), &own, &|| {
            own.threads_at_work()
        }),
        row(
            "own pool, `test_on_check_out`",
            &setup,
            &straight_tested(&setup),
            &tested,
            &|| tested.threads_at_work(),
        ),
    ];
    for row in &rows {
        println!("{row}");
    }
    let Some(page) = std::env::args_os().nth(1) else {
        return ExitCode::SUCCESS;
    };
    let text = std::fs::read_to_string(&page).expect("the page");
    std::fs::write(&page, with_rows(&text, &rows)).expect("the page is written");
    ExitCode::SUCCESS
}

/// The page with these rows in place of those of the same store.
fn with_rows(page: &str, rows: &[String]) -> String {
    let ours = format!("| {NAME}, ");
    let mut lines = Vec::new();
    let mut written = false;
    for line in page.lines() {
        if !line.starts_with(&ours) {
            lines.push(line.to_owned());
        } else if !written {
            written = true;
            lines.extend(rows.iter().cloned());
        }
    }
    assert!(written, "the page has no row that begins with {ours:?}");
    lines.join("\n") + "\n"
}

fn straight_tested(setup: &Setup) -> Store {
    let builder = setup.builder(POOL).test_on_check_out(true);
    setup.over(&builder.build_unchecked(setup.straight_manager()))
}

/// One line of the table: `near` goes straight to the server, `far` through the proxy.
fn row(
    name: &str,
    setup: &Setup,
    near: &dyn Backend,
    far: &dyn Backend,
    stuck: &dyn Fn() -> usize,
) -> String {
    let micros = latency(near);
    let (takes, releases) = trips(setup, far);
    let stopped = bound(setup, far, None);
    let trickling = bound(setup, far, Some(Mode::Trickle(Duration::from_millis(900))));
    let silent = bound(setup, far, Some(Mode::LoseReply));
    let (worst, threads, connections) = crowd(setup, far, stuck);
    let ms = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    format!(
        "| {NAME}, {name} | {micros} µs | {takes} + {releases} | {} | {} | {} | {} | {threads} | {connections} |",
        ms(stopped),
        ms(trickling),
        ms(silent),
        ms(worst)
    )
}

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

fn take(store: &dyn Backend, name: &str, id: &LockId, call: &Call<'_>) -> bool {
    let ttl = Ttl::new(Duration::from_secs(60)).expect("a ttl");
    let outcome = store.acquire(&key(name), id, ttl, call);
    matches!(outcome, Ok(AcquireOutcome::Acquired(_)))
}

fn patient() -> Call<'static> {
    Call::new().within(Duration::from_secs(20))
}

fn cycle(store: &dyn Backend, name: &str) {
    let id = LockId::random().expect("an id");
    assert!(take(store, name, &id, &patient()), "not granted");
    let released = store.release(&id, &patient()).expect("an answer");
    assert!(released.is_released());
}

/// The median of taking and releasing a free lock, in microseconds.
fn latency(store: &dyn Backend) -> u128 {
    let mut times: Vec<_> = (0..CYCLES)
        .map(|_| {
            let begun = Instant::now();
            cycle(store, "latency");
            begun.elapsed()
        })
        .collect();
    times.sort();
    times[CYCLES / 2].as_micros()
}

/// Round trips of an acquire and of a release, on a connection that has been used before.
fn trips(setup: &Setup, store: &dyn Backend) -> (u64, u64) {
    cycle(store, "trips");
    cycle(store, "trips");
    let id = LockId::random().expect("an id");
    setup.proxy.reset_counts();
    assert!(take(store, "trips", &id, &patient()));
    let takes = setup.proxy.counts().round_trips;
    store
        .release(&id, &patient())
        .expect("an answer")
        .expect_released();
    (takes, setup.proxy.counts().round_trips - takes)
}

/// The longest of three attempts to take a lock within [`LIMIT`], on a connection that worked before: the proxy does this, or the server
/// has stopped.
fn bound(setup: &Setup, store: &dyn Backend, mode: Option<Mode>) -> Duration {
    let attempt = || {
        ready(setup, store);
        let stopped = match mode {
            Some(mode) => {
                setup.proxy.set(mode);
                None
            }
            None => Some(setup.stop()),
        };
        let begun = Instant::now();
        let id = LockId::random().expect("an id");
        assert!(!take(store, "trouble", &id, &Call::new().within(LIMIT)));
        let took = begun.elapsed();
        drop(stopped);
        setup.proxy.set(Mode::Pass);
        setup.proxy.close_all();
        took
    };
    (0..3).map(|_| attempt()).max().unwrap_or_default()
}

/// Waits until the store answers again.
fn ready(setup: &Setup, store: &dyn Backend) {
    setup.proxy.set(Mode::Pass);
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let id = LockId::random().expect("an id");
        let name = format!("ready:{}", id.log_hash());
        if take(store, &name, &id, &patient()) && store.release(&id, &patient()).is_ok() {
            return;
        }
        assert!(Instant::now() < end, "the store does not recover");
    }
}

/// Many callers at once on a server that has stopped: the longest call, the threads that are stuck afterwards, and the connections.
fn crowd(
    setup: &Setup,
    store: &dyn Backend,
    stuck: &dyn Fn() -> usize,
) -> (Duration, usize, usize) {
    ready(setup, store);
    std::thread::scope(|scope| {
        for n in 0..CALLERS {
            scope.spawn(move || cycle(store, &format!("crowd:{n}")));
        }
    });
    let connections = setup.proxy.open();
    let stopped = setup.stop();
    let worst = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|n| {
                scope.spawn(move || {
                    let begun = Instant::now();
                    let id = LockId::random().expect("an id");
                    take(
                        store,
                        &format!("stopped:{n}"),
                        &id,
                        &Call::new().within(LIMIT),
                    );
                    begun.elapsed()
                })
            })
            .collect();
        let times = callers
            .into_iter()
            .map(|caller| caller.join().expect("no panic"));
        times.max().unwrap_or_default()
    });
    let threads = stuck();
    drop(stopped);
    ready(setup, store);
    setup.proxy.close_all();
    (worst, threads, connections)
}
