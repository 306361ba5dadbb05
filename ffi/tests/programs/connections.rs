//! Runs the C program with a password callback and a connector on both servers, under sanitizers and under valgrind.

use crate::support::common::postgres::Server;
use crate::support::common::redis::RedisServer;
use crate::support::programs::{sanitized, strict_valgrind};
use crate::support::succeed;

#[test]
fn passwords_and_connectors_of_c_on_redis() {
    let server = RedisServer::start_tcp(&[]);
    let url = server.tcp_url().replace("redis://", "redis://admin@");
    succeed(sanitized("connections").arg(&url), "connections");
    strict_valgrind("connections", &url);
}

#[test]
fn passwords_and_connectors_of_c_on_postgres() {
    let server = Server::start(&[]);
    let schema = server.url();
    let client = syncguard::Client::open(&schema).expect("a client");
    client.setup_schema().expect("a schema");
    succeed(sanitized("connections").arg(&schema), "connections");
}
