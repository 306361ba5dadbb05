//! Tests the gate of Postgres in the transactions of a caller with its own driver, which is psql here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::fence;
use crate::support::postgres::{Frozen, Server, Session};
use crate::support::verbs::patient;
use syncguard::{Client, ErrorCode};

/// A schema of its own with a gate, in a server that the tests share.
pub struct Gated {
    pub server: Arc<Server>,
    pub schema: String,
    pub client: Client,
}

impl Gated {
    pub fn start() -> Self {
        let gated = Self::without_gate();
        gated.client.setup_fence_gate().expect("a gate");
        gated
    }

    pub fn without_gate() -> Self {
        static SCHEMAS: AtomicU64 = AtomicU64::new(0);
        let server = Server::shared();
        let schema = format!("gates_{}", SCHEMAS.fetch_add(1, SeqCst));
        let client = Client::open_with(&server.url(), &patient().schema(&schema));
        Self {
            client: client.expect("a good URL"),
            server,
            schema,
        }
    }

    /// A session of a caller, which goes on after an error.
    pub fn caller(&self) -> Caller {
        let mut session = self.server.session();
        session.run("\\set ON_ERROR_STOP 0\n\\set VERBOSITY sqlstate\nSELECT");
        session.run(&format!("SET search_path = {}", self.schema));
        Caller(session)
    }
}

pub struct Caller(Session);

impl Caller {
    /// Runs one statement and answers its SQLSTATE.
    pub fn run(&mut self, sql: &str) -> String {
        self.0.send(sql);
        self.answer()
    }

    pub fn freeze(&self) -> Frozen {
        self.0.freeze()
    }

    pub fn send(&mut self, sql: &str) {
        self.0.send(sql);
    }

    /// The SQLSTATE of what was sent.
    pub fn answer(&mut self) -> String {
        self.0.finish();
        let said = self.0.run("\\echo :SQLSTATE");
        said.join("").trim_end_matches(';').trim().to_owned()
    }

    pub fn rows(&mut self, sql: &str) -> Vec<String> {
        self.0.run(sql)
    }

    /// The statement `begin`, a pass and the end of the transaction.
    fn write(&mut self, begin: &str, resource: &str, fence: i64) -> String {
        self.run(begin);
        let passed = self.pass(resource, fence);
        let ended = self.run("COMMIT");
        if passed == "00000" { ended } else { passed }
    }

    fn pass(&mut self, resource: &str, fence: i64) -> String {
        self.run(&format!(
            "SELECT syncguard_pass('{resource}'::text, {fence}::bigint)"
        ))
    }
}

const LEVELS: [&str; 3] = [
    "BEGIN ISOLATION LEVEL READ COMMITTED",
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "BEGIN ISOLATION LEVEL SERIALIZABLE",
];

#[test]
fn a_gate_passes_newer_and_equal_fences_and_refuses_older_ones() {
    let gated = Gated::start();
    let mut caller = gated.caller();
    for level in LEVELS {
        let resource = level.replace(' ', "_");
        let mut write = |fence| caller.write(level, &resource, fence);
        assert_eq!(write(33), "00000");
        assert_eq!(write(33), "00000", "one holder writes many times");
        assert_eq!(write(34), "00000");
        assert_eq!(write(33), "SGG01");
        assert_eq!(write(1), "SGG01");
        assert_eq!(write(34), "00000");
        assert_eq!(write(900_000_000_000_000), "00000");
        let newest = gated.client.newest_fence(&resource).expect("an answer");
        assert_eq!(newest, Some(fence(900_000_000_000_000)));
    }
    assert_eq!(caller.write("BEGIN", "another", 1), "00000");
}

#[test]
fn a_refusal_undoes_the_whole_transaction() {
    let gated = Gated::start();
    let mut caller = gated.caller();
    caller.run("CREATE TABLE account (balance int)");
    caller.run("INSERT INTO account VALUES (0)");
    assert_eq!(caller.write("BEGIN", "account", 34), "00000");
    caller.run("BEGIN");
    caller.run("UPDATE account SET balance = 1000");
    assert_eq!(caller.pass("account", 33), "SGG01");
    caller.run("COMMIT");
    assert_eq!(caller.rows("SELECT balance FROM account"), ["0"]);
}

/// The first transaction has passed with 5 and is open. The second one waits for it, whatever its fence, and then answers right.
fn two_holders(level: &str, known: bool, second: i64, first_ends: &str) -> String {
    let gated = Gated::start();
    let (mut one, mut two) = (gated.caller(), gated.caller());
    if known {
        assert_eq!(one.write("BEGIN", "r", 3), "00000");
    }
    one.run(level);
    assert_eq!(one.pass("r", 5), "00000");
    two.run(level);
    let pass = format!("SELECT \"{}\".syncguard_pass('r', {second})", gated.schema);
    two.send(&pass);
    gated.server.wait_until_waiting(&gated.schema, 1);
    one.run(first_ends);
    let answer = two.answer();
    two.run("COMMIT");
    if answer != "40001" {
        return answer;
    }
    // What a caller does at these levels: the whole transaction again.
    format!("again {}", two.write(level, "r", second))
}

#[test]
fn transactions_of_two_holders_are_ordered_at_every_isolation_level() {
    for known in [true, false] {
        for level in LEVELS {
            let again = if level.ends_with("COMMITTED") {
                ""
            } else {
                "again "
            };
            let older = two_holders(level, known, 4, "COMMIT");
            assert_eq!(older, format!("{again}SGG01"), "{level} {known}");
            let newer = two_holders(level, known, 6, "COMMIT");
            assert_eq!(newer, format!("{again}00000"), "{level} {known}");
            // The first one has not written after all.
            let alone = two_holders(level, known, 4, "ROLLBACK");
            assert_eq!(alone, "00000", "{level} {known}");
        }
    }
}

#[test]
fn bad_input_has_an_sqlstate_of_its_own_and_changes_nothing() {
    let gated = Gated::start();
    let mut caller = gated.caller();
    let long = "x".repeat(10_000);
    for (resource, number, state) in [
        ("'r'", "-1", "SGG02"),
        ("'r'", "0", "SGG02"),
        ("'r'", "NULL", "SGG02"),
        ("'r'", "900000000000001", "SGG02"),
        ("'r'", "9223372036854775807", "SGG02"),
        ("'r'", "'abc'", "22P02"),
        ("''", "7", "SGG02"),
        ("NULL", "7", "SGG02"),
        (&format!("'{long}'"), "7", "SGG02"),
        (&format!("'{}'", &long[..513]), "7", "SGG02"),
        (&format!("'{}'", &long[..512]), "7", "00000"),
    ] {
        let got = caller.run(&format!("SELECT syncguard_pass({resource}, {number})"));
        assert_eq!(
            got,
            state,
            "{} {number}",
            &resource[..resource.len().min(9)]
        );
    }
    assert_eq!(
        caller.rows("SELECT count(*) FROM syncguard_fence_gates"),
        ["1"]
    );
    for name in ["", &long, "a\0b"] {
        let refused = gated.client.newest_fence(name).expect_err("a bad name");
        assert_eq!(refused.code(), ErrorCode::InvalidArgument);
        let refused = gated.client.reset_fence_gate(name, fence(1));
        assert_eq!(refused.expect_err("bad").code(), ErrorCode::InvalidArgument);
    }
    let set = gated.client.fenced_set("r", b"x", fence(1));
    assert_eq!(
        set.expect_err("no Redis").code(),
        ErrorCode::InvalidArgument
    );
}

#[test]
fn a_gate_that_is_not_set_up_says_what_to_call() {
    let gated = Gated::without_gate();
    // In a schema that is not there, and in one with the tables of locks alone.
    for _ in 0..2 {
        for refused in [
            gated.client.newest_fence("r").map(drop),
            gated.client.reset_fence_gate("r", fence(1)).map(drop),
        ] {
            let error = refused.expect_err("no gate");
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            assert!(error.message().contains("setup_fence_gate()"), "{error}");
        }
        gated.client.setup_schema().expect("tables of locks");
    }
    gated.client.setup_fence_gate().expect("a gate");
    assert_eq!(gated.client.newest_fence("r").expect("an answer"), None);
}

/// A savepoint that is rolled back takes the pass with it, and its lock on the row: pass outside of it.
#[test]
fn a_pass_inside_a_savepoint_that_is_rolled_back_is_undone() {
    let gated = Gated::start();
    let mut caller = gated.caller();
    assert_eq!(caller.write("BEGIN", "r", 33), "00000");
    caller.run("BEGIN");
    caller.run("SAVEPOINT s");
    assert_eq!(caller.pass("r", 35), "00000");
    caller.run("ROLLBACK TO SAVEPOINT s");
    let mut other = gated.caller();
    assert_eq!(other.write("BEGIN", "r", 34), "00000", "nothing waits");
    assert_eq!(caller.run("COMMIT"), "00000");
    let newest = gated.client.newest_fence("r").expect("an answer");
    assert_eq!(newest, Some(fence(34)));
    // A refusal inside of one leaves the transaction to the caller, which must not go on.
    caller.run("BEGIN");
    caller.run("SAVEPOINT s");
    assert_eq!(caller.pass("r", 33), "SGG01");
    caller.run("ROLLBACK TO SAVEPOINT s");
    assert_eq!(caller.run("SELECT 1"), "00000", "so nothing ends it");
    caller.run("ROLLBACK");
}

/// What a driver shows of a gate that is not set up, as the documentation says.
#[test]
fn a_pass_without_set_up_is_42883() {
    let gated = Gated::without_gate();
    let mut caller = gated.caller();
    assert_eq!(caller.pass("r", 1), "42883");
    caller.run(&format!("CREATE SCHEMA {}", gated.schema));
    assert_eq!(caller.pass("r", 1), "42883");
}

#[test]
fn set_up_is_idempotent_and_safe_for_many_at_once() {
    for _ in 0..4 {
        let gated = Gated::without_gate();
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| gated.client.setup_fence_gate().expect("set-up"));
            }
        });
        assert_eq!(gated.caller().write("BEGIN", "r", 5), "00000");
        gated.client.setup_fence_gate().expect("once more");
        let newest = gated.client.newest_fence("r").expect("an answer");
        assert_eq!(newest, Some(fence(5)), "nothing is forgotten");
    }
}

#[test]
fn something_else_under_the_names_of_the_gate_is_refused_or_replaced() {
    for made in [
        "CREATE TABLE syncguard_fence_gates (resource text, fence bigint)",
        "CREATE UNLOGGED TABLE syncguard_fence_gates (resource text PRIMARY KEY, fence bigint NOT NULL)",
        "CREATE TABLE syncguard_fence_gates (resource text PRIMARY KEY, fence text NOT NULL)",
        "CREATE VIEW syncguard_fence_gates AS SELECT 'r'::text AS resource, 1::bigint AS fence",
        "CREATE TABLE syncguard_fence_gates (resource text NOT NULL, fence bigint NOT NULL)",
    ] {
        let gated = Gated::without_gate();
        let mut caller = gated.caller();
        caller.run(&format!("CREATE SCHEMA {}", gated.schema));
        assert_eq!(caller.run(made), "00000", "{made}");
        let error = gated.client.setup_fence_gate().expect_err(made);
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{made}");
        assert!(error.message().contains("setup_fence_gate()"), "{error}");
    }
    // A function of the same name that lets every fence pass.
    let gated = Gated::start();
    let mut caller = gated.caller();
    let open = "CREATE OR REPLACE FUNCTION syncguard_pass(p_resource text, p_fence int8, OUT o_fence int8) LANGUAGE sql AS 'SELECT $2'";
    assert_eq!(caller.run(open), "00000");
    gated.client.setup_fence_gate().expect("replaced");
    assert_eq!(caller.pass("r", 34), "00000");
    assert_eq!(caller.pass("r", 33), "SGG01");
}

#[test]
fn an_operator_looks_and_resets_deliberately() {
    let gated = Gated::start();
    let mut caller = gated.caller();
    assert_eq!(caller.write("BEGIN", "r", 34), "00000");
    let client = &gated.client;
    assert_eq!(
        client.newest_fence("r").expect("an answer"),
        Some(fence(34))
    );
    assert!(!client.reset_fence_gate("r", fence(33)).expect("an answer"));
    assert_eq!(caller.write("BEGIN", "r", 2), "SGG01");
    assert!(client.reset_fence_gate("r", fence(34)).expect("an answer"));
    assert_eq!(client.newest_fence("r").expect("an answer"), None);
    assert_eq!(caller.write("BEGIN", "r", 2), "00000");
}
