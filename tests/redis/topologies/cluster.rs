//! Tests Redis Cluster: slots that move, nodes that fail, and rights.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::{PREFIX, SLACK, evals, failing, tagged, ttl, user};
use crate::support::redis::RedisServer;
use crate::support::topologies::{cluster, cluster_url, eventually, field};
use crate::support::verbs::{granted, id, key};
use syncguard::{
    AcquireOutcome, Backend, Call, Client, ClientOptions, ErrorCode, ExtendOutcome, Key, LockError,
    LockId, LookupBy, RedisBackend,
};

/// The slot of `{app}`.
const SLOT: &str = "6805";

fn open_cluster(url: &str) -> RedisBackend {
    RedisBackend::open(url, &tagged()).expect("a good URL")
}

/// A look by key, one by id, a grant, an extension and a release.
fn five_verbs(redis: &RedisBackend, k: &Key, held: &LockId) {
    let other = id();
    assert!(redis.is_locked(k, &Call::new()).expect("a look"));
    assert!(
        redis
            .find(LookupBy::LockId(held), &Call::new())
            .expect("a look")
            .is_some()
    );
    let _ = granted(redis.acquire(&key("other"), &other, ttl(), &Call::new()));
    assert!(matches!(
        redis.extend(held, ttl(), &Call::new()),
        Ok(ExtendOutcome::Extended(_))
    ));
    assert!(
        redis
            .release(&other, &Call::new())
            .expect("an answer")
            .is_released()
    );
}

#[test]
fn verbs_go_to_the_owner_of_the_slot_in_one_request() {
    let nodes = cluster(0);
    assert_eq!(
        nodes[0]
            .cli(&["CLUSTER", "KEYSLOT", "{app}:k"])
            .int()
            .to_string(),
        SLOT
    );
    // The seed is not the owner.
    let redis = open_cluster(&cluster_url(&nodes[..1]));
    let (k, held) = (key("k"), id());
    let _ = granted(redis.acquire(&k, &held, ttl(), &Call::new()));
    assert_eq!(evals(&nodes[0]), (0, 1), "one request went astray");
    // From now on every verb is one request, to the owner.
    let before = evals(&nodes[1]);
    let connections =
        |node: &RedisServer| field(&node.cli(&["INFO", "clients"]).text(), "connected_clients");
    let connected = connections(&nodes[1]);
    for _ in 0..5 {
        five_verbs(&redis, &k, &held);
    }
    // Each of the five scripts was unknown to the server once; acquire came first and does not count.
    assert_eq!(evals(&nodes[1]), (before.0 + 5 * 5 + 4, before.1));
    assert_eq!(connections(&nodes[1]), connected);
    assert_eq!(evals(&nodes[0]), (0, 1));
    assert!(
        redis
            .check(&Call::new())
            .expect("a good cluster")
            .is_empty()
    );
    // A seed that only check() has asked is followed too.
    assert!(
        open_cluster(&cluster_url(&nodes[2..]))
            .check(&Call::new())
            .is_ok()
    );
}

/// Our slot on its way from the second node to the third.
struct Move<'a> {
    nodes: &'a [RedisServer],
    ids: Vec<String>,
}

impl<'a> Move<'a> {
    fn begin(nodes: &'a [RedisServer]) -> Self {
        let ids: Vec<String> = nodes
            .iter()
            .map(|n| n.cli(&["CLUSTER", "MYID"]).text())
            .collect();
        nodes[2].cli(&["CLUSTER", "SETSLOT", SLOT, "IMPORTING", &ids[1]]);
        nodes[1].cli(&["CLUSTER", "SETSLOT", SLOT, "MIGRATING", &ids[2]]);
        Self { nodes, ids }
    }

    fn migrate(&self, name: &str) {
        let target = self.nodes[2].port().to_string();
        self.nodes[1].cli(&["MIGRATE", "127.0.0.1", &target, name, "0", "30000"]);
    }

    fn complete(self) {
        let keys = ["CLUSTER", "GETKEYSINSLOT", SLOT, "100"];
        for name in self.nodes[1].cli(&keys).list() {
            self.migrate(&name.text());
        }
        for node in [&self.nodes[2], &self.nodes[1], &self.nodes[0]] {
            node.cli(&["CLUSTER", "SETSLOT", SLOT, "NODE", &self.ids[2]]);
        }
    }
}

/// The lock's keys are in two places.
#[track_caller]
fn moving<T: std::fmt::Debug>(answer: Result<T, LockError>) {
    let error = answer.expect_err("in two places");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    assert!(error.message().contains("moving"), "{error}");
    assert!(!error.may_have_applied());
}

#[test]
fn a_cluster_is_followed_wherever_it_moves() {
    let nodes = cluster(0);
    let redis = open_cluster(&cluster_url(&nodes[..1]));
    let (k, held, late) = (key("k"), id(), id());
    let first = granted(redis.acquire(&k, &held, ttl(), &Call::new()));
    let _ = granted(redis.acquire(&key("late"), &late, ttl(), &Call::new()));
    // The old node knows the scripts.
    five_verbs(&redis, &k, &held);
    let slot = Move::begin(&nodes);
    let index = format!("{PREFIX}:id:{}", held.as_str());
    // All keys are still there: the old node serves them.
    assert!(redis.is_locked(&k, &Call::new()).expect("a look"));
    // The index has gone ahead: the lock must not be taken for missing.
    slot.migrate(&index);
    moving(redis.release(&held, &Call::new()));
    moving(redis.extend(&held, ttl(), &Call::new()));
    moving(redis.find(LookupBy::LockId(&held), &Call::new()));
    assert!(redis.is_locked(&k, &Call::new()).expect("a look"));
    // The lock has followed: found where it is, by ASK.
    slot.migrate("{app}:k");
    assert!(redis.is_locked(&k, &Call::new()).expect("a look"));
    assert!(matches!(
        redis.extend(&held, ttl(), &Call::new()),
        Ok(ExtendOutcome::Extended(_))
    ));
    let found = redis
        .find(LookupBy::LockId(&held), &Call::new())
        .expect("a look")
        .expect("held");
    assert_eq!(found.fence, first.fence);
    assert!(!redis.is_locked(&key("free"), &Call::new()).expect("a look"));
    // A grant needs three keys in one place, and its fence counter is still at the old one.
    moving(redis.acquire(&k, &id(), ttl(), &Call::new()));
    moving(redis.acquire(&key("new"), &id(), ttl(), &Call::new()));
    // The other way round: the lock has gone ahead of its index.
    slot.migrate("{app}:late");
    moving(redis.release(&late, &Call::new()));
    moving(redis.extend(&late, ttl(), &Call::new()));
    assert!(redis.is_locked(&key("late"), &Call::new()).expect("a look"));
    assert!(redis.check(&Call::new()).is_ok());

    slot.complete();
    // The move is complete: MOVED to the new owner, with the fences.
    assert!(
        redis
            .release(&held, &Call::new())
            .expect("an answer")
            .is_released()
    );
    assert!(
        redis
            .release(&late, &Call::new())
            .expect("an answer")
            .is_released()
    );
    let second = granted(redis.acquire(&k, &id(), ttl(), &Call::new()));
    assert_eq!(second.fence.get(), first.fence.get() + 1);
    let before = evals(&nodes[1]);
    assert!(redis.is_locked(&k, &Call::new()).expect("a look"));
    assert_eq!(evals(&nodes[1]), before);
}

/// Moves our slot, as `redis-cli --cluster reshard` does.
fn move_slot(nodes: &[RedisServer], from: usize, to: usize) {
    let ids: Vec<String> = nodes
        .iter()
        .map(|n| n.cli(&["CLUSTER", "MYID"]).text())
        .collect();
    let target = nodes[to].port().to_string();
    nodes[to].cli(&["CLUSTER", "SETSLOT", SLOT, "IMPORTING", &ids[from]]);
    nodes[from].cli(&["CLUSTER", "SETSLOT", SLOT, "MIGRATING", &ids[to]]);
    eventually("an empty slot", || {
        let keys = nodes[from].cli(&["CLUSTER", "GETKEYSINSLOT", SLOT, "3"]);
        for key in keys.list() {
            // It may be gone since: then there is nothing to move.
            nodes[from].cli(&["MIGRATE", "127.0.0.1", &target, &key.text(), "0", "30000"]);
        }
        keys.list().is_empty()
    });
    for node in [to, from]
        .into_iter()
        .chain((0..nodes.len()).filter(|n| *n != to && *n != from))
    {
        nodes[node].cli(&["CLUSTER", "SETSLOT", SLOT, "NODE", &ids[to]]);
    }
}

#[test]
fn no_two_hold_one_key_while_its_slot_moves() {
    const KEYS: usize = 4;
    let nodes = cluster(0);
    let redis = open_cluster(&cluster_url(&nodes));
    let held: [AtomicBool; KEYS] = Default::default();
    let fences: [AtomicU64; KEYS] = Default::default();
    let grants = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (redis, held, fences, grants, stop) = (&redis, &held, &fences, &grants, &stop);
            scope.spawn(move || {
                let transient = |e: LockError| assert!(e.code().is_transient(), "{e}");
                for n in worker.. {
                    if stop.load(SeqCst) {
                        break;
                    }
                    let (at, id) = (n % KEYS, id());
                    match redis.acquire(&key(&format!("k{at}")), &id, ttl(), &Call::new()) {
                        Ok(AcquireOutcome::Acquired(grant)) => {
                            assert!(!held[at].swap(true, SeqCst), "two holders");
                            let before = fences[at].swap(grant.fence.get(), SeqCst);
                            assert!(before < grant.fence.get(), "{before} {:?}", grant.fence);
                            grants.fetch_add(1, SeqCst);
                            held[at].store(false, SeqCst);
                            eventually("a release", || match redis.release(&id, &Call::new()) {
                                Ok(outcome) => {
                                    assert!(outcome.is_released(), "the lock was lost");
                                    true
                                }
                                Err(e) => {
                                    transient(e);
                                    false
                                }
                            });
                        }
                        Ok(AcquireOutcome::Locked(_)) => {}
                        Err(e) => transient(e),
                    }
                }
            });
        }
        let _stop = StopOnDrop(&stop);
        for (from, to) in [(1, 2), (2, 0), (0, 1)] {
            let before = grants.load(SeqCst);
            move_slot(&nodes, from, to);
            eventually("traffic", || grants.load(SeqCst) > before + 50);
        }
    });
    let sum: u64 = fences.iter().map(|f| f.load(SeqCst)).sum();
    assert_eq!(sum, grants.load(SeqCst), "every grant has its number");
}

/// Ends the workers also when the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_node_that_dies_is_an_error_in_time_and_its_replica_is_found() {
    let mut nodes = cluster(1);
    let operation_timeout = Duration::from_secs(2);
    let options = tagged().operation_timeout(operation_timeout);
    // The replica is not among the seeds.
    let redis = RedisBackend::open(&cluster_url(&nodes[..3]), &options).expect("a good URL");
    let (k, held) = (key("k"), id());
    let first = granted(redis.acquire(&k, &held, ttl(), &Call::new()));
    eventually("replication", || {
        nodes[1].cli(&["WAIT", "1", "1000"]).int() == 1
            && nodes[3].cli(&["CLUSTER", "COUNTKEYSINSLOT", SLOT]).int() == 3
    });

    // Stopped, it costs the operation's time and no more.
    let paused = nodes[1].pause();
    let start = Instant::now();
    let error = redis
        .extend(&held, ttl(), &Call::new())
        .expect_err("stopped");
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
    assert!(start.elapsed() < operation_timeout + Duration::from_secs(5));
    drop(paused);
    nodes[1].kill();
    for node in nodes.iter().filter(|node| node.is_running()) {
        node.cli(&["CONFIG", "SET", "cluster-node-timeout", "1000"]);
    }
    let mut quickest = None;
    eventually("the failover", || {
        let before = Instant::now();
        let result = redis.extend(&held, ttl(), &Call::new());
        let time = before.elapsed();
        match result {
            Ok(ExtendOutcome::Extended(_)) => true,
            Ok(absent) => panic!("the lock was replicated: {absent:?}"),
            Err(e) => {
                assert!(e.code().is_transient(), "{e}");
                quickest = quickest.min(Some(time)).or(Some(time));
                false
            }
        }
    });
    assert!(quickest.is_none_or(|time| time < SLACK), "{quickest:?}");
    let stored = redis
        .find(LookupBy::Key(&k), &Call::new())
        .expect("a look")
        .expect("held");
    assert_eq!(stored.fence, first.fence);
    assert!(
        redis
            .release(&held, &Call::new())
            .expect("an answer")
            .is_released()
    );
    let second = granted(redis.acquire(&k, &id(), ttl(), &Call::new()));
    assert_eq!(second.fence.get(), 2);

    // The whole cluster dies.
    for node in &mut nodes {
        node.kill();
    }
    let (time, error) = failing(|| redis.is_locked(&k, &Call::new()));
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    assert!(
        error.message().contains("nodes of the Redis Cluster"),
        "{error}"
    );
    assert!(time < SLACK, "{time:?}");
}

#[test]
fn a_cluster_needs_a_tag_a_cluster_and_few_rights() {
    let node = RedisServer::start_tcp(&["--cluster-enabled", "yes"]);
    node.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    eventually("a cluster", || {
        field(&node.cli(&["CLUSTER", "INFO"]).text(), "cluster_state") == "ok"
    });
    let url = cluster_url([&node]);
    for prefix in ["syncguard", "", "{}", "{app"] {
        let options = ClientOptions::new().key_prefix(prefix);
        for error in [
            RedisBackend::open(&url, &options)
                .map(|_| ())
                .expect_err(prefix),
            Client::open_with(&url, &options)
                .map(|_| ())
                .expect_err(prefix),
        ] {
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            assert!(error.message().contains("{app}"), "{error}");
        }
    }
    let client = Client::open_with(&url, &tagged()).expect("a good URL");
    let guard = client.lock("k").expect("the lock");
    guard.release().expect("an answer").expect_released();

    user(&node, "~{app}:*", &[]);
    let as_bob = url.replace("://", "://bob:s3cret@");
    let error = open_cluster(&as_bob)
        .is_locked(&key("k"), &Call::new())
        .expect_err("no right to ASKING");
    assert_eq!(error.code(), ErrorCode::AuthFailed);
    assert!(error.message().contains("ASKING"), "{error}");
    user(&node, "~{app}:*", &["+asking"]);
    let bob = open_cluster(&as_bob);
    let held = id();
    let _ = granted(bob.acquire(&key("k"), &held, ttl(), &Call::new()));
    assert!(matches!(
        bob.extend(&held, ttl(), &Call::new()),
        Ok(ExtendOutcome::Extended(_))
    ));
    assert!(
        bob.release(&held, &Call::new())
            .expect("an answer")
            .is_released()
    );

    // A server on its own is refused, whichever stands first: it shares no lock with the cluster.
    let single = RedisServer::start_tcp(&[]);
    let error = open_cluster(&cluster_url([&single]))
        .is_locked(&key("k"), &Call::new())
        .expect_err("no cluster");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("redis://"), "{error}");
    let both = open_cluster(&cluster_url([&single, &node]));
    assert!(!both.is_locked(&key("k"), &Call::new()).expect("a look"));

    // A cluster that has lost a slot says so.
    node.cli(&["CLUSTER", "DELSLOTS", "0"]);
    eventually("the cluster's end", || {
        field(&node.cli(&["CLUSTER", "INFO"]).text(), "cluster_state") == "fail"
    });
    let error = client
        .is_locked_with(key("k"), &Call::new())
        .expect_err("down");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    assert!(error.message().contains("down"), "{error}");
}

/// A listing goes to the node of the slot, and its cursor names that node.
#[test]
fn a_listing_goes_to_the_owner_of_the_slot() {
    use syncguard::{ListOptions, ListPage, StoredLock};
    let nodes = cluster(0);
    // The seed is not the owner.
    let redis = open_cluster(&cluster_url(&nodes[..1]));
    let list = |options: &ListOptions| redis.list(options, &Call::new());
    assert!(list(&ListOptions::new()).expect("a page").locks.is_empty());
    for n in 0..30 {
        let _ = granted(redis.acquire(&key(&n.to_string()), &id(), ttl(), &Call::new()));
    }
    let fresh = open_cluster(&cluster_url(&nodes[2..]));
    let page: ListPage<StoredLock> = fresh
        .list(&ListOptions::new().examine(1000), &Call::new())
        .expect("a page");
    assert_eq!(page.locks.len(), 30);
    let begun = list(&ListOptions::new().examine(3)).expect("a page");
    let cursor = begun.next.expect("more");
    let owner = nodes[1].cli(&["INFO", "server"]).text();
    assert!(owner.contains(cursor.as_str().split(':').nth(1).expect("a server")));
}
