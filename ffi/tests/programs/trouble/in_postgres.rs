//! Tests C programs on a Postgres that refuses, has other settings, or holds tables that the library did not make.

use super::*;
use crate::support::common::postgres::{Bouncer, Server, wait_for};
use syncguard::{Call, ClientOptions, ErrorCode, PostgresBackend};

const LOCKS: &str = "key text PRIMARY KEY, lock_id text NOT NULL UNIQUE, expires_at_ms bigint NOT NULL, acquired_at_ms bigint NOT NULL, fence text NOT NULL, user_key text NOT NULL";
const FENCES: &str = "fence_key text PRIMARY KEY, fence bigint NOT NULL DEFAULT 0, key_debug text";

#[test]
fn row_33_tables_that_are_others() {
    let server = Server::shared();
    let table = |columns: &str| format!("CREATE TABLE syncguard_locks ({columns})");
    let fences = format!("CREATE TABLE syncguard_fence_counters ({FENCES})");
    let cases = [
        (
            "columns",
            format!("{}; {fences}", table("key text PRIMARY KEY")),
            "lacks the column",
        ),
        (
            "types",
            format!("{}; {fences}", table(&LOCKS.replace("bigint", "numeric"))),
            "numeric instead of bigint",
        ),
        (
            "no_unique",
            format!("{}; {fences}", table(&LOCKS.replace(" UNIQUE", ""))),
            "no unique index on lock_id",
        ),
        (
            "unlogged",
            format!(
                "{}; {}",
                table(LOCKS),
                fences.replace("TABLE", "UNLOGGED TABLE")
            ),
            "UNLOGGED",
        ),
        (
            "triggers",
            format!(
                "{}; {fences}; CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
                 CREATE TRIGGER t BEFORE INSERT ON syncguard_locks FOR EACH ROW EXECUTE FUNCTION t()",
                table(LOCKS)
            ),
            "triggers",
        ),
        (
            "a_view",
            format!(
                "CREATE TABLE base ({LOCKS}); CREATE VIEW syncguard_locks AS SELECT * FROM base; {fences}"
            ),
            "not an ordinary table",
        ),
    ];
    for (schema, ddl, reason) in cases {
        server.sql(&format!(
            "CREATE SCHEMA {schema}; SET search_path = {schema}; {ddl}"
        ));
        probe(
            &server.url(),
            &[
                &word("schema", schema),
                &word("says", reason),
                "open=ok",
                &word("check", IA),
                &word("setup", IA),
                "says=setup_schema()",
                &word("writes", IA),
            ],
        );
    }
    // They belong to another role, which has granted no right to use them.
    server.sql("CREATE ROLE guest LOGIN; CREATE SCHEMA others");
    probe(&server.url(), &["schema=others", "open=ok", "setup=ok"]);
    probe(
        &server.url_of("guest"),
        &[
            "schema=others",
            "open=ok",
            &word("check", REFUSED),
            &word("setup", REFUSED),
            &word("writes", REFUSED),
        ],
    );
}

#[test]
fn row_36_wrong_password_no_permission_no_database() {
    let server = Server::start(&[]);
    server.sql("CREATE ROLE scram LOGIN SUPERUSER PASSWORD 'sesame'; CREATE ROLE weak LOGIN");
    let hba = "local all all trust\nhost all scram 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    std::fs::write(server.data().join("pg_hba.conf"), hba).expect("the rules");
    server.sql("SELECT pg_reload_conf()");
    // The postmaster reads the file in its own time.
    wait_for("the rules hold", || {
        let store = PostgresBackend::open(&server.url_of("scram"), &ClientOptions::new()).ok()?;
        let error = syncguard::Backend::check(&store, &Call::new()).err()?;
        (error.code() == ErrorCode::AuthFailed).then_some(())
    });
    let as_scram = |password: &str| server.url_of(&format!("scram:{password}"));
    probe(&as_scram("sesame"), &["open=ok", "setup=ok", "works"]);
    let all_refused = [
        "hides=hunter2",
        "open=ok",
        &word("check", REFUSED),
        &word("writes", REFUSED),
        &word("reads", REFUSED),
    ];
    probe(&as_scram("hunter2"), &all_refused);
    probe(&server.url_of("weak"), &all_refused[..4]);
    let missing = server.url().replace("/postgres?", "/nowhere?");
    let (writes, reads) = (word("writes", IA), word("reads", IA));
    probe(&missing, &["open=ok", &word("check", IA), &writes, &reads]);
}

#[test]
fn row_40_whatever_the_role_says() {
    let server = Server::shared();
    probe(&server.url(), &["schema=roles", "open=ok", "setup=ok"]);
    for (role, setting) in [
        (
            "serializable",
            "default_transaction_isolation = serializable",
        ),
        ("readonly", "default_transaction_read_only = on"),
        ("nopath", "search_path = ''"),
        ("strings", "standard_conforming_strings = off"),
        ("nosync", "synchronous_commit = off"),
        ("hasty", "statement_timeout = 1"),
    ] {
        server.sql(&format!(
            "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET {setting}"
        ));
        let key = format!("key=k'\\{role}");
        // A millisecond may be too short for a busy machine: then that is said.
        let last = if role == "hasty" {
            "tries=ok|network timeout"
        } else {
            "works"
        };
        probe(
            &server.url_of(role),
            &["schema=roles", &key, "open=ok", last],
        );
    }
    let reads = word("reads", IA);
    probe(
        &server.url_of("nopath"),
        &["says=search_path", "open=ok", &reads],
    );
}

#[test]
fn row_40_a_standby() {
    let primary = Server::start(&["wal_level=replica", "max_wal_senders=3", "hot_standby=on"]);
    probe(&primary.url(), &["open=ok", "setup=ok", "works"]);
    let standby = primary.standby();
    wait_for("the tables arrive", || {
        let there = standby.sql("SELECT to_regclass('syncguard_locks') IS NOT NULL");
        (there == "t").then_some(())
    });
    probe(
        &standby.url(),
        &["says=standby", "open=ok", &word("tries", DOWN)],
    );
}

#[test]
fn row_40_pgbouncer() {
    let server = Server::shared();
    let bouncer = Bouncer::start(&server, 3);
    probe(
        &bouncer.url(),
        &["schema=bounced", "open=ok", "setup=ok", "works"],
    );
}

#[test]
fn row_40_databases_of_other_encodings() {
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let server = Server::start_encoded(encoding, &[]);
        let (setup, key) = (["open=ok", "setup=ok"], "key=caf\u{e9}");
        probe(&server.url(), &[&setup[..], &[key, "works"]].concat());
        let beyond = match encoding {
            "LATIN1" => "tries=invalid argument",
            _ => "tries=ok",
        };
        let says = "says=UTF8";
        probe(
            &server.url(),
            &[&setup[..], &["key=日本語", says, beyond]].concat(),
        );
    }
}

#[test]
fn row_41_counters_that_cannot_count() {
    let server = Server::shared();
    probe(&server.url(), &["schema=counters", "open=ok", "setup=ok"]);
    for bad in [
        "900000000000000",
        "999999999999999",
        "9007199254740992",
        "9223372036854775807",
        "-1",
    ] {
        server.sql(&format!(
            "INSERT INTO counters.syncguard_fence_counters VALUES ('fence:{bad}', {bad})"
        ));
        let (key, tries) = (word("key", bad), word("tries", INTERNAL));
        probe(
            &server.url(),
            &[
                "schema=counters",
                &key,
                "says=not taken",
                "open=ok",
                &tries,
                "free",
            ],
        );
    }
}

#[test]
fn row_42_rows_that_we_did_not_write() {
    let server = Server::shared();
    probe(&server.url(), &["schema=foreign", "open=ok", "setup=ok"]);
    for (name, lock_id, fence) in [
        ("short", "x", "000000000000001"),
        ("fence", "AAAAAAAAAAAAAAAAAAAAAA", "abc"),
    ] {
        server.sql(&format!("INSERT INTO \"foreign\".syncguard_locks VALUES ('{name}', '{lock_id}', 99999999999999, 1, '{fence}', '{name}')"));
        let key = word("key", name);
        probe(
            &server.url(),
            &["schema=foreign", &key, "open=ok", "held", "tries=locked"],
        );
    }
}

/// A store that stops in the middle: an error by the deadline.
#[test]
fn row_38_a_server_that_stops() {
    let server = Server::start(&[]);
    probe(&server.url(), &["open=ok", "setup=ok"]);
    let _frozen = server.freeze();
    let status = "network timeout|service unavailable";
    let (writes, reads) = (word("writes", status), word("reads", status));
    probe(&server.url(), &["timeout=150", "open=ok", &writes, &reads]);
}
