//! Tests fences that come from a store's clock (`fences=clock`): beside clients that count, after data was lost, and with a clock that
//! is wrong.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::support::postgres::Server;
use crate::support::redis::RedisServer;
use crate::support::verbs::patient;
use crate::support::{eventually, set_server_clock};
use syncguard::{Client, ClientOptions, ErrorCode, FenceSource, RedisBackend};

/// More than any test counts, and less than any clock shows.
const BY_CLOCK: u64 = 1_700_000_000_000;

/// From now into the year 2200.
const AFTER_2128: i64 = 175 * 365 * 24 * 3600;

/// A store of one kind that is set up, its URL, and what reads and sets the counter of the key `k`.
struct Place {
    url: String,
    options: ClientOptions,
    counter: Box<dyn Fn() -> Option<u64>>,
    set_counter: Box<dyn Fn(u64)>,
}

impl Place {
    fn open(&self, url_option: &str, options: ClientOptions) -> Client {
        let url = match (url_option, self.url.contains('?')) {
            ("", _) => self.url.clone(),
            (option, true) => format!("{}&{option}", self.url),
            (option, false) => format!("{}?{option}", self.url),
        };
        Client::open_with(&url, &options).expect("a good URL")
    }

    fn by_clock(&self) -> Client {
        self.open("fences=clock", self.options.clone())
    }

    fn counting(&self) -> Client {
        self.open("", self.options.clone())
    }
}

fn redis_place() -> Place {
    let server = Arc::new(RedisServer::start(&[]));
    let counter = "syncguard:fence:syncguard:k";
    let (reads, writes) = (Arc::clone(&server), Arc::clone(&server));
    Place {
        url: server.url(),
        options: patient(),
        counter: Box::new(move || {
            let value = reads.cli(&["GET", counter]);
            (!value.is_nil()).then(|| value.text().parse().expect("a plain number"))
        }),
        set_counter: Box::new(move |n| {
            writes.cli(&["SET", counter, &n.to_string()]);
        }),
    }
}

fn postgres_place() -> Place {
    let server = Server::shared();
    let schema = format!("clock_{:?}", std::thread::current().id()).replace(['(', ')'], "");
    let options = patient().schema(&schema);
    let client = Client::open_with(&server.url(), &options).expect("a good URL");
    client.setup_schema().expect("set-up");
    let table = format!("\"{schema}\".syncguard_fence_counters");
    let (reads, writes) = (Arc::clone(&server), Arc::clone(&server));
    let update = format!("UPDATE {table} SET fence =");
    Place {
        url: server.url(),
        options,
        counter: Box::new(move || {
            let found = reads.sql(&format!("SELECT fence FROM {table}"));
            found.trim().parse().ok()
        }),
        set_counter: Box::new(move |n| {
            writes.sql(&format!("{update} {n}"));
        }),
    }
}

fn sqlite_place() -> Place {
    let dir = Arc::new(tempfile::tempdir().expect("a folder"));
    let file = dir.path().join("locks.db");
    let connect = move |dir: &Arc<tempfile::TempDir>| {
        rusqlite::Connection::open(dir.path().join("locks.db")).expect("the file")
    };
    let (reads, writes) = (Arc::clone(&dir), dir);
    Place {
        url: format!("sqlite:{}", file.display()),
        options: patient(),
        counter: Box::new(move || {
            let sql = "SELECT fence FROM syncguard_fence_counters";
            let found = connect(&reads).query_row(sql, [], |row| row.get::<_, i64>(0));
            found.ok().map(i64::unsigned_abs)
        }),
        set_counter: Box::new(move |n| {
            let sql = "UPDATE syncguard_fence_counters SET fence = ?1";
            connect(&writes)
                .execute(sql, [n as i64])
                .expect("a counter");
        }),
    }
}

const PLACES: [fn() -> Place; 3] = [redis_place, postgres_place, sqlite_place];

fn fence(client: &Client) -> u64 {
    let guard = client.lock("k").expect("a lock");
    let fence = guard.fence().get();
    guard.release().expect("an answer").expect_released();
    fence
}

/// A client that counts, as the TypeScript library and older releases do, goes on from the same plain number, and so does the clock's.
#[test]
fn clients_that_count_and_clients_with_a_clock_share_one_counter() {
    for place in PLACES {
        let place = place();
        let (counting, by_clock) = (place.counting(), place.by_clock());
        assert_eq!(fence(&counting), 1);
        let first = fence(&by_clock);
        assert!(first > BY_CLOCK, "{first}");
        assert_eq!((place.counter)(), Some(first), "a plain number is stored");
        let second = fence(&counting);
        assert_eq!(second, first + 1);
        assert!(fence(&by_clock) > second);
        // A counter ahead of the clock is never set back.
        (place.set_counter)(4_000_000_000_000);
        assert_eq!(fence(&by_clock), 4_000_000_000_001);
        assert_eq!(fence(&counting), 4_000_000_000_002);
        // The largest fence holds here too.
        (place.set_counter)(syncguard::MAX_FENCE);
        let over = by_clock.lock("k").expect_err("over the limit");
        assert_eq!(over.code(), ErrorCode::Internal);
        assert_eq!((place.counter)(), Some(syncguard::MAX_FENCE));
    }
}

#[test]
fn fences_grow_after_the_counter_was_lost() {
    for place in PLACES {
        let place = place();
        let (counting, by_clock) = (place.counting(), place.by_clock());
        let counted = [fence(&counting), fence(&counting)];
        (place.set_counter)(0);
        assert_eq!(
            fence(&counting),
            counted[0],
            "without the option they repeat"
        );
        let before = [fence(&by_clock), fence(&by_clock)];
        eventually("the next millisecond", || {
            (place.set_counter)(0);
            fence(&by_clock) > before[1]
        });
    }
}

#[test]
fn the_option_and_the_url_say_the_same_and_the_url_wins() {
    for place in PLACES {
        let place = place();
        let clock = place.options.clone().fences(FenceSource::Clock);
        let counts = place.open("fences=counter", clock.clone());
        assert_eq!(fence(&counts), 1);
        assert_eq!(counts.capabilities().fence_source, FenceSource::Counter);
        let client = place.open("", clock);
        assert!(fence(&client) > BY_CLOCK);
        assert_eq!(client.capabilities().fence_source, FenceSource::Clock);
        for bad in ["fences=", "fences=Clock", "fence=clock"] {
            let joined = if place.url.contains('?') { '&' } else { '?' };
            let refused = Client::open(&format!("{}{joined}{bad}", place.url));
            let error = refused.expect_err("no such option");
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            assert!(error.message().contains("fence"), "{bad}: {error}");
        }
    }
}

#[test]
fn a_client_that_counts_is_warned_once_per_key() {
    for place in PLACES {
        let place = place();
        let told = Arc::new(Mutex::new(Vec::new()));
        let hook = Arc::clone(&told);
        let options = place.options.clone().on_warning(move |text| {
            hook.lock().expect("no panic").push(text.to_owned());
        });
        let client = place.open("", options.clone());
        let _ = fence(&client);
        (place.set_counter)(999_999_999_998);
        assert_eq!(fence(&client), 999_999_999_999);
        for _ in 0..3 {
            let _ = fence(&client);
        }
        let hash = syncguard::hash_key("k");
        let said = || {
            let told = told.lock().expect("no panic");
            told.iter().filter(|text| text.contains(&hash)).count()
        };
        eventually("the warning", || said() > 0);
        let quiet = place.open("fences=clock", options);
        let _ = fence(&quiet);
        // Warnings are told in order: once this one has arrived, no second one is under way.
        (place.set_counter)(90_000_000_000_000);
        let _ = fence(&client);
        eventually("the last warning", || {
            let told = told.lock().expect("no panic");
            told.iter().any(|text| text.contains("nears its limit"))
        });
        let told = told.lock().expect("no panic");
        let clock = told.iter().filter(|text| text.contains("fences=clock"));
        assert_eq!(clock.count(), 1, "{told:?}");
    }
}

/// A client that only waits for a key has the same to say as one that is granted it.
#[test]
fn a_client_that_counts_is_warned_of_a_holder_with_a_fence_of_the_clock() {
    for place in PLACES {
        let place = place();
        let holder = place.by_clock().lock("k").expect("a lock");
        let (told, options) = told_to(place.options.clone());
        let client = place.open("", options);
        for _ in 0..2 {
            assert!(client.try_lock("k").expect("an answer").is_none());
        }
        let hash = syncguard::hash_key("k");
        eventually("the warning", || {
            let told = told.lock().expect("no panic");
            told.iter().any(|text| text.contains(&hash))
        });
        holder.release().expect("an answer").expect_released();
        let _ = fence(&client);
        let told = told.lock().expect("no panic");
        assert_eq!(told.iter().filter(|text| text.contains(&hash)).count(), 1);
    }
}

/// The warnings that a client with these options gives.
fn told_to(options: ClientOptions) -> (Arc<Mutex<Vec<String>>>, ClientOptions) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&told);
    let options = options.on_warning(move |text| {
        hook.lock().expect("no panic").push(text.to_owned());
    });
    (told, options)
}

#[test]
fn the_last_key_that_is_named_says_that_it_is_the_last() {
    let server = RedisServer::start(&[]);
    let (told, options) = told_to(patient());
    let client = Client::open_with(&server.url(), &options).expect("a good URL");
    let by_clock = Client::open_with(&server.url(), &patient().fences(FenceSource::Clock));
    let by_clock = by_clock.expect("a good URL");
    for n in 0..1002 {
        let held = by_clock.lock(format!("k{n}")).expect("a lock");
        let other = client.try_lock(format!("k{n}")).expect("an answer");
        assert!(other.is_none());
        drop(held);
    }
    eventually("the last warning", || {
        told.lock().expect("no panic").len() == 1000
    });
    let told = told.lock().expect("no panic");
    let last = told.iter().filter(|text| text.contains("the last key"));
    assert_eq!(last.count(), 1);
    assert!(told[999].contains("the last key"), "{}", told[999]);
}

#[test]
fn a_store_of_ones_own_that_counts_although_the_client_asks_for_a_clock_is_told_of() {
    let server = RedisServer::start(&[]);
    let asked =
        |options: &ClientOptions| RedisBackend::open(&server.url(), options).expect("a good URL");
    let (told, clock) = told_to(patient().fences(FenceSource::Clock));
    let counts = Client::from_backend_with(asked(&patient()), &clock).expect("options");
    assert_eq!(fence(&counts), 1);
    eventually("the warning", || told.lock().expect("no panic").len() == 1);
    assert!(told.lock().expect("no panic")[0].contains("fences=clock has no effect"));
    let (told, clock) = told_to(patient().fences(FenceSource::Clock));
    let by_clock = Client::from_backend_with(asked(&clock), &clock).expect("options");
    assert!(fence(&by_clock) > BY_CLOCK);
    // Told in order: this one comes behind any other.
    (redis_counter(&server))(90_000_000_000_000);
    let _ = fence(&by_clock);
    eventually("a warning", || !told.lock().expect("no panic").is_empty());
    assert!(told.lock().expect("no panic")[0].contains("nears its limit"));
}

fn redis_counter(server: &RedisServer) -> impl Fn(u64) {
    move |n| {
        server.cli(&["SET", "syncguard:fence:syncguard:k", &n.to_string()]);
    }
}

/// Grants with the right time; refuses and writes nothing with one after 2128.
fn refuses_a_late_clock(client: &Client, set_clock: &dyn Fn(i64), counter: &dyn Fn() -> String) {
    let before = fence(client);
    assert!(before > BY_CLOCK);
    let stored = counter();
    set_clock(AFTER_2128);
    let error = client.lock("k").expect_err("a wrong clock");
    assert_eq!(error.code(), ErrorCode::Internal, "{error}");
    assert!(error.message().contains("clock"), "{error}");
    assert!(!client.is_locked("k").expect("an answer"));
    assert_eq!(counter(), stored, "nothing was written");
}

#[test]
fn a_redis_clock_after_2128_is_an_error_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let (shim, clock) = (dir.path().join("clock.so"), dir.path().join("clock"));
    build_shim(&shim);
    let set_clock = |seconds: i64| set_server_clock(&clock, seconds);
    set_clock(0);
    let server = RedisServer::start_env(&[
        ("LD_PRELOAD", shim.to_str().expect("UTF-8")),
        ("SG_CLOCK", clock.to_str().expect("UTF-8")),
    ]);
    let options = patient().fences(FenceSource::Clock);
    let client = Client::open_with(&server.url(), &options).expect("a good URL");
    refuses_a_late_clock(&client, &set_clock, &|| {
        server.cli(&["GET", "syncguard:fence:syncguard:k"]).text()
    });
}

fn build_shim(to: &Path) {
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .arg(to)
        .arg("tests/support/common/clock_shim.c")
        .arg("-ldl")
        .status()
        .expect("a C compiler");
    assert!(built.success());
}

#[test]
fn a_postgres_clock_after_2128_is_an_error_and_changes_nothing() {
    let mut server = Server::start(&[]);
    server.take_clock();
    let options = patient().fences(FenceSource::Clock);
    let client = Client::open_with(&server.url(), &options).expect("a good URL");
    client.setup_schema().expect("set-up");
    refuses_a_late_clock(&client, &|seconds| server.set_clock(seconds), &|| {
        server.sql("SELECT fence FROM syncguard_fence_counters")
    });
}
