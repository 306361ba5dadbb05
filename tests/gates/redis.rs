//! Tests the gate of Redis: the fenced write of a client, and scripts of the caller behind the check.

use crate::fence;
use crate::support::redis::{RedisServer, Value};
use crate::support::topologies::{cluster, cluster_url};
use crate::support::verbs::patient;
use syncguard::gate::GateOutcome;
use syncguard::gate::redis::{FENCED_SET, STALE, gate_key, gated};
use syncguard::{Client, ErrorCode};

fn open(server: &RedisServer) -> Client {
    Client::open_with(&server.url(), &patient()).expect("a good URL")
}

fn answer(server: &RedisServer, command: &[&str]) -> Result<i64, String> {
    match server.try_cli(command).expect("an answer") {
        Value::Error(line) => Err(line),
        value => Ok(value.int()),
    }
}

#[test]
fn a_fenced_set_passes_newer_and_equal_fences_and_refuses_older_ones() {
    let server = RedisServer::start(&[]);
    let client = open(&server);
    client.setup_fence_gate().expect("nothing to do");
    let set = |n, text: &str| client.fenced_set("report", text.as_bytes(), fence(n));
    assert!(set(33, "one").expect("an answer").is_passed());
    assert!(set(33, "two").expect("an answer").is_passed());
    assert!(set(34, "three").expect("an answer").is_passed());
    let late = set(33, "late").expect("an answer");
    assert_eq!(late, GateOutcome::Refused { newest: fence(34) });
    assert_eq!(server.cli(&["GET", "report"]).text(), "three");
    assert_eq!(
        server.cli(&["GET", "report:fence"]).text(),
        "000000000000034"
    );
    assert_eq!(server.cli(&["PTTL", "report:fence"]).int(), -1);
    // Fences of a clock are exact too.
    let clock = 1_794_786_911_069;
    assert!(set(clock, "four").expect("an answer").is_passed());
    let late = set(clock - 1, "late").expect("an answer");
    assert_eq!(
        late,
        GateOutcome::Refused {
            newest: fence(clock)
        }
    );
    let bytes = [0, 255, 13, 10];
    let binary = client.fenced_set("binary", &bytes, fence(1));
    assert!(binary.expect("an answer").is_passed());
    assert_eq!(server.cli(&["STRLEN", "binary"]).int(), 4);
}

#[test]
fn any_script_runs_behind_the_check_as_if_it_were_alone() {
    let server = RedisServer::start(&[]);
    let script = gated(
        "local sum = redis.call('INCRBY', KEYS[1], ARGV[1])\nif #KEYS ~= 1 or #ARGV ~= 1 then return -1 end\nreturn sum",
    );
    let gate = gate_key("account:7");
    let add = |fence: &str, amount: &str| {
        answer(
            &server,
            &["EVAL", &script, "2", &gate, "account:7", fence, amount],
        )
    };
    assert_eq!(add("000000000000033", "100"), Ok(100));
    assert_eq!(add("34", "10"), Ok(110));
    let late = add("000000000000033", "1000").expect_err("a former holder");
    assert!(
        late.contains(STALE) && late.contains("000000000000034"),
        "{late}"
    );
    assert_eq!(server.cli(&["GET", "account:7"]).text(), "110");
    let shebang = gated("#!lua flags=no-writes\nreturn 1");
    let said = answer(&server, &["EVAL", &shebang, "1", &gate, "35"]);
    assert!(said.is_err(), "it does not compile: {said:?}");
    let newest = server.cli(&["GET", &gate]);
    assert_eq!(newest.text(), "000000000000034", "and nothing ran");
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let server = RedisServer::start(&[]);
    let client = open(&server);
    let long = "x".repeat(10_000);
    for name in ["", &long, "a\0b"] {
        let refused = client.fenced_set(name, b"x", fence(1)).expect_err("bad");
        assert_eq!(refused.code(), ErrorCode::InvalidArgument);
        let refused = client.newest_fence(name).expect_err("bad");
        assert_eq!(refused.code(), ErrorCode::InvalidArgument);
    }
    for n in [0, syncguard::MAX_FENCE + 1] {
        let refused = client.fenced_set("r", b"x", fence(n)).expect_err("bad");
        assert_eq!(refused.code(), ErrorCode::InvalidArgument);
    }
    for bad in [
        "-1",
        "0",
        "",
        "abc",
        "1.5",
        "1e3",
        "0x10",
        " 1",
        "900000000000001",
        "1000000000000000000",
    ] {
        let said = answer(
            &server,
            &["EVAL", FENCED_SET, "2", "r:fence", "r", bad, "x"],
        );
        let said = said.expect_err(bad);
        assert!(said.contains("SYNCGUARD_FENCE"), "{bad}: {said}");
    }
    for keys in [
        &["EVAL", FENCED_SET, "0"][..],
        &["EVAL", FENCED_SET, "1", "r:fence"],
        &["EVAL", FENCED_SET, "1", "", "1"],
        &["EVAL", FENCED_SET, "1", &long, "1"],
    ] {
        let said = answer(&server, keys).expect_err("something is missing");
        assert!(said.contains("SYNCGUARD_"), "{said}");
    }
    assert_eq!(server.cli(&["DBSIZE"]).int(), 0);
    server.cli(&["SET", "r:fence", "no fence"]);
    let error = client.fenced_set("r", b"x", fence(1)).expect_err("foreign");
    assert_eq!(error.code(), ErrorCode::Internal);
    assert_eq!(
        client.newest_fence("r").expect_err("foreign").code(),
        ErrorCode::Internal
    );
    server.cli(&["DEL", "r:fence"]);
    server.cli(&["RPUSH", "r:fence", "1"]);
    let error = client.fenced_set("r", b"x", fence(1)).expect_err("a list");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(server.cli(&["GET", "r"]).is_nil());
}

/// Under the client's prefix every name belongs to a lock; a name that ends as a gate does is another name's gate.
#[test]
fn names_that_belong_to_locks_counters_and_gates_are_refused() {
    let server = RedisServer::start(&[]);
    for (prefix, bad) in [
        (
            "syncguard",
            &[
                "syncguard:account:7",
                "syncguard:fence:syncguard:k",
                "syncguard:id:k",
                "syncguard",
                "r:fence",
            ][..],
        ),
        ("a:b:", &["a:b:account:7", "a:b"]),
        (
            "",
            &["fence:account:7", "id:account:7", "fence", "id", "r:fence"],
        ),
    ] {
        let options = patient().key_prefix(prefix);
        let client = Client::open_with(&server.url(), &options).expect("a good URL");
        for name in bad {
            for refused in [
                client.fenced_set(name, b"x", fence(1)).map(drop),
                client.newest_fence(name).map(drop),
                client.reset_fence_gate(name, fence(1)).map(drop),
            ] {
                let error = refused.expect_err(name);
                assert_eq!(error.code(), ErrorCode::InvalidArgument, "{name}");
                assert!(!error.message().contains("account"), "{error}");
            }
        }
        assert_eq!(server.cli(&["DBSIZE"]).int(), 0, "{prefix}");
    }
}

#[test]
fn in_a_cluster_the_name_has_the_tag_of_the_prefix_and_lies_beside_it() {
    let nodes = cluster(0);
    let options = patient().key_prefix("{app}");
    let client = Client::open_with(&cluster_url(&nodes), &options).expect("a good URL");
    let guard = client.lock("account:7").expect("a lock");
    for bad in [
        "{app}:account:7",
        "{app}:fence:{app}:account:7",
        "{app}",
        "{app}data:fence",
        "account:7",
        "{other}data:account:7",
    ] {
        let error = client.fenced_set(bad, b"x", guard.fence()).expect_err(bad);
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{bad}");
        assert!(!error.message().contains("{other}"), "{error}");
    }
    let name = "{app}data:account:7";
    let set = |n: u64| client.fenced_set(name, b"x", fence(n));
    assert!(set(guard.fence().get()).expect("an answer").is_passed());
    assert!(set(34).expect("an answer").is_passed());
    assert_eq!(
        set(33).expect("an answer"),
        GateOutcome::Refused { newest: fence(34) }
    );
    assert_eq!(
        client.newest_fence(name).expect("an answer"),
        Some(fence(34))
    );
    assert!(client.reset_fence_gate(name, fence(34)).expect("an answer"));
    guard.release().expect("an answer").expect_released();
}

#[test]
fn an_operator_looks_and_resets_deliberately() {
    let server = RedisServer::start(&[]);
    let client = open(&server);
    assert_eq!(client.newest_fence("r").expect("an answer"), None);
    assert!(
        client
            .fenced_set("r", b"x", fence(34))
            .expect("an answer")
            .is_passed()
    );
    assert_eq!(
        client.newest_fence("r").expect("an answer"),
        Some(fence(34))
    );
    assert!(!client.reset_fence_gate("r", fence(33)).expect("an answer"));
    assert!(
        !client
            .fenced_set("r", b"y", fence(2))
            .expect("an answer")
            .is_passed()
    );
    assert!(client.reset_fence_gate("r", fence(34)).expect("an answer"));
    assert!(
        client
            .fenced_set("r", b"y", fence(2))
            .expect("an answer")
            .is_passed()
    );
}
