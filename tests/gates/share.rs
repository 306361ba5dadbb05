//! Tests the gate without a table: the row of the fence counter, `FOR SHARE`, where locks and data share a database.

use std::time::{Duration, Instant};

use crate::postgres::{Caller, Gated};
use crate::support::verbs::patient;
use crate::support::{WAIT_LIMIT, eventually};
use syncguard::gate::postgres::PostgresGate;
use syncguard::{Client, ClientOptions, ErrorCode, Guard, LockOptions};

/// A key of its own for each test: a caller that waits for a row of one schema keeps the key from callers of every other one.
fn key(gated: &Gated) -> String {
    format!("account of {}", gated.schema)
}

/// A lock whose lease ends soon, as that of a holder that is paused.
fn short(gated: &Gated) -> Guard {
    gated.client.setup_schema().expect("tables");
    let options = LockOptions::new()
        .ttl(Duration::from_millis(100))
        .no_heartbeat();
    let guard = gated.client.lock_with(key(gated), &options);
    guard.expect("a lock")
}

/// Waits until no lease keeps the next caller waiting, so that only the transaction of the holder does.
fn outlive(gated: &Gated) {
    eventually("the lease's end", || {
        let locked = gated.client.is_locked(key(gated));
        !locked.expect("an answer")
    });
}

/// The statement of [`PostgresGate::share`](syncguard::gate::postgres::PostgresGate::share) with its values.
fn share(gated: &Gated, guard: &Guard) -> String {
    let gate = PostgresGate::new(&gated.schema).expect("a name");
    with_values(gate.share(), guard)
}

fn with_values(share: &str, guard: &Guard) -> String {
    share
        .replace("$1", &format!("'fence:{}'", guard.key().as_str()))
        .replace("$2", &guard.fence().get().to_string())
}

fn holds(caller: &mut Caller, share: &str) -> bool {
    caller.rows(share) == ["1"]
}

#[test]
fn a_former_holder_finds_no_row_and_a_present_one_keeps_the_next_grant_waiting() {
    let gated = Gated::start();
    let mut caller = gated.caller();
    let first = short(&gated);
    caller.run("BEGIN");
    assert!(holds(&mut caller, &share(&gated, &first)));
    let second = std::thread::scope(|scope| {
        let next = scope.spawn(|| gated.client.lock(key(&gated)).expect("a lock"));
        // Its lease is over, and its transaction is not.
        gated.server.wait_until_waiting(&gated.schema, 1);
        assert!(!next.is_finished());
        caller.run("COMMIT");
        next.join().expect("no panic")
    });
    assert!(second.fence() > first.fence());
    caller.run("BEGIN");
    assert!(
        !holds(&mut caller, &share(&gated, &first)),
        "a former holder"
    );
    assert!(holds(&mut caller, &share(&gated, &second)));
    caller.run("COMMIT");
}

/// With a snapshot from before the next grant the row looks as it did. Postgres says 40001 then, and the same transaction tried again finds
/// no row.
#[test]
fn with_an_old_snapshot_a_former_holder_gets_40001_and_then_no_row() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let gated = Gated::start();
        let mut caller = gated.caller();
        let first = short(&gated);
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        caller.run(&begin);
        assert!(holds(&mut caller, &share(&gated, &first)), "{level}");
        assert_eq!(caller.run("COMMIT"), "00000", "{level}");
        caller.run(&begin);
        let snapshot = "SELECT count(*) FROM syncguard_fence_counters";
        assert_eq!(caller.rows(snapshot), ["1"]);
        let second = gated.client.lock(key(&gated)).expect("a lock");
        assert_eq!(caller.run(&share(&gated, &first)), "40001", "{level}");
        assert_eq!(caller.run("COMMIT"), "00000");
        caller.run(&begin);
        assert!(!holds(&mut caller, &share(&gated, &first)), "{level}");
        assert!(holds(&mut caller, &share(&gated, &second)), "{level}");
        caller.run("COMMIT");
    }
}

#[test]
fn locks_with_a_fence_table_of_another_name_have_the_form_too() {
    let gated = Gated::start();
    let options = patient()
        .schema(&gated.schema)
        .fence_table_name("other_fences");
    let client = Client::open_with(&gated.server.url(), &options).expect("a good URL");
    client.setup_schema().expect("tables");
    let guard = client.lock(key(&gated)).expect("a lock");
    let gate = PostgresGate::with_fence_table(&gated.schema, "other_fences").expect("a name");
    let mut caller = gated.caller();
    let mine = with_values(gate.share(), &guard);
    assert!(holds(&mut caller, &mine));
    drop(guard);
    let _next = client.lock(key(&gated)).expect("a lock");
    assert!(!holds(&mut caller, &mine));
    for bad in ["", "no name", "syncguard_locks", &"x".repeat(100)] {
        assert!(PostgresGate::with_fence_table("s", bad).is_err(), "{bad}");
    }
}

#[test]
fn bad_input_finds_no_row_and_a_missing_table_is_42p01() {
    let gated = Gated::start();
    let mut caller = gated.caller();
    let statement = PostgresGate::new(&gated.schema).expect("a name");
    let ask = |key: &str, fence: &str| {
        let key = format!("'{key}'");
        statement.share().replace("$1", &key).replace("$2", fence)
    };
    let name = format!("fence:{}", key(&gated));
    assert_eq!(caller.run(&ask(&name, "1")), "42P01", "no tables of locks");
    let guard = short(&gated);
    let mine = guard.fence().get().to_string();
    for fence in ["-1", "0", "NULL", "900000000000001", "9223372036854775807"] {
        assert!(!holds(&mut caller, &ask(&name, fence)), "{fence}");
    }
    assert_eq!(caller.run(&ask(&name, "'abc'")), "22P02");
    for other in ["", &key(&gated), &"x".repeat(10_000)] {
        assert!(!holds(&mut caller, &ask(other, &mine)), "{other}");
    }
    assert!(holds(&mut caller, &ask(&name, &mine)));
}

#[test]
fn it_needs_the_right_to_select_and_to_update_one_column() {
    let gated = Gated::start();
    let guard = short(&gated);
    let (schema, role) = (&gated.schema, format!("{}_app", gated.schema));
    let mut caller = gated.caller();
    caller.run(&format!("CREATE ROLE {role}"));
    caller.run(&format!("GRANT USAGE ON SCHEMA {schema} TO {role}"));
    let table = format!("{schema}.syncguard_fence_counters");
    caller.run(&format!("GRANT SELECT ON {table} TO {role}"));
    caller.run(&format!("SET ROLE {role}"));
    assert_eq!(caller.run(&share(&gated, &guard)), "42501");
    caller.run("RESET ROLE");
    caller.run(&format!("GRANT UPDATE (key_debug) ON {table} TO {role}"));
    caller.run(&format!("SET ROLE {role}"));
    assert!(holds(&mut caller, &share(&gated, &guard)));
    caller.run("RESET ROLE");
    caller.run(&format!("DROP OWNED BY {role}"));
    caller.run(&format!("DROP ROLE {role}"));
}

/// A client that freezes in its transaction: with the timeout the server ends the transaction, and the next caller gets the lock.
#[test]
fn a_frozen_client_with_the_timeout_delays_the_next_grant_by_the_timeout() {
    let gated = Gated::start();
    let mut caller = gated.caller();
    let first = short(&gated);
    outlive(&gated);
    caller.run("CREATE TABLE written (text text)");
    caller.run("SET idle_in_transaction_session_timeout = '1500ms'");
    caller.run("BEGIN");
    assert!(holds(&mut caller, &share(&gated, &first)));
    caller.run("INSERT INTO written VALUES ('by the frozen one')");
    let frozen = Instant::now();
    let _frozen = caller.freeze();
    let patient = LockOptions::new().acquire_timeout(Duration::from_secs(60));
    let second = gated.client.lock_with(key(&gated), &patient);
    assert!(second.expect("a lock").fence() > first.fence());
    let waited = frozen.elapsed();
    assert!(waited < WAIT_LIMIT, "{waited:?}");
    println!(
        "the next grant came {} ms after the client froze; the timeout is 1500 ms",
        waited.as_millis()
    );
    assert!(waited >= Duration::from_millis(1200), "{waited:?}");
    // What the client wanted to write is gone with its transaction.
    assert_eq!(gated.caller().rows("SELECT count(*) FROM written"), ["0"]);
}

/// Without it the next caller waits as long as the client is frozen.
#[test]
fn a_frozen_client_without_the_timeout_keeps_the_key_from_everyone() {
    let gated = Gated::start();
    let mut caller = gated.caller();
    let first = short(&gated);
    outlive(&gated);
    caller.run("BEGIN");
    assert!(holds(&mut caller, &share(&gated, &first)));
    let begun = Instant::now();
    let frozen = caller.freeze();
    let options = ClientOptions::new()
        .schema(&gated.schema)
        .operation_timeout(Duration::from_secs(2));
    let other = Client::open_with(&gated.server.url(), &options).expect("a good URL");
    let short = LockOptions::new().acquire_timeout(Duration::from_secs(6));
    let error = other.lock_with(key(&gated), &short);
    let error = error.expect_err("the row is locked");
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
    println!("after {} ms: {error}", begun.elapsed().as_millis());
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            let patient = LockOptions::new().acquire_timeout(WAIT_LIMIT);
            let guard = gated.client.lock_with(key(&gated), &patient);
            (guard.expect("a lock"), begun.elapsed())
        });
        gated.server.wait_until_waiting(&gated.schema, 1);
        assert!(!next.is_finished(), "the client is frozen");
        let thawed = begun.elapsed();
        drop(frozen);
        assert_eq!(caller.run("COMMIT"), "00000");
        let (second, waited) = next.join().expect("no panic");
        assert!(second.fence() > first.fence() && waited >= thawed);
        println!(
            "the next grant came {} ms after the client froze, which went on after {} ms; there is no timeout",
            waited.as_millis(),
            thawed.as_millis()
        );
    });
}
