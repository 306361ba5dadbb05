//! Tests Sentinel and Cluster under TLS.

use super::{tagged, ttl};
use crate::support::redis::RedisServer;
use crate::support::topologies::{Sentinel, cluster_url, eventually, field, sentinel_url};
use crate::support::verbs::{granted, id, key};
use syncguard::{Backend, Call, ErrorCode, RedisBackend};

#[test]
fn sentinels_and_clusters_may_be_under_tls() {
    let made =
        rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let (certificate, private) = (made.cert.pem(), made.signing_key.serialize_pem());
    let node = |args: &[&str]| RedisServer::start_tls(&certificate, &private, args);

    let master = node(&[]);
    let files = master.dir().display();
    let lines = format!(
        "sentinel down-after-milliseconds main 600000\nport 0\ntls-port $port\n\
         tls-cert-file {files}/cert.pem\ntls-key-file {files}/key.pem\n\
         tls-ca-cert-file {files}/cert.pem\ntls-auth-clients no\ntls-replication yes"
    );
    let sentinels = [Sentinel::start(&master, &lines)];
    let options = tagged().tls_ca_file(master.dir().join("cert.pem"));
    let url = sentinel_url(&sentinels, "main").replace("redis+", "rediss+");
    let redis = RedisBackend::open(&url, &options).expect("a good URL");
    let _ = granted(redis.acquire(&key("k"), &id(), ttl(), &Call::new()));
    // A certificate that no root has signed is refused from the sentinel already.
    let stranger = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
    let strange = master.dir().join("strange.pem");
    std::fs::write(&strange, stranger.expect("a certificate").cert.pem()).expect("written");
    let error = RedisBackend::open(&url, &tagged().tls_ca_file(&strange))
        .expect("a good URL")
        .is_locked(&key("k"), &Call::new())
        .expect_err("not trusted");
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error}");
    assert!(error.message().contains("sentinel"), "{error}");

    let nodes = [(); 2].map(|()| node(&["--cluster-enabled", "yes", "--tls-cluster", "yes"]));
    nodes[0].cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "5460"]);
    nodes[1].cli(&["CLUSTER", "ADDSLOTSRANGE", "5461", "16383"]);
    nodes[1].cli(&["CLUSTER", "SET-CONFIG-EPOCH", "7"]);
    let first = nodes[0].port().to_string();
    nodes[1].cli(&["CLUSTER", "MEET", "127.0.0.1", &first]);
    eventually("a cluster", || {
        nodes.iter().all(|node| {
            let info = node.cli(&["CLUSTER", "INFO"]).text();
            field(&info, "cluster_state") == "ok" && field(&info, "cluster_slots_ok") == "16384"
        })
    });
    let url = cluster_url(&nodes[..1]).replace("redis+", "rediss+");
    let redis = RedisBackend::open(&url, &options).expect("a good URL");
    let _ = granted(redis.acquire(&key("k"), &id(), ttl(), &Call::new()));
    assert_eq!(nodes[1].cli(&["EXISTS", "{app}:k"]).int(), 1);
}
