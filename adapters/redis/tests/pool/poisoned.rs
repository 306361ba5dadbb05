//! A connection on which a read has failed is not given out again: the program may set read timeouts of its own.

use std::time::{Duration, Instant};

use crate::support::Setup;
use crate::support::common::proxy::Mode;
use crate::support::common::redis::Value;
use syncguard::{Backend, Call, ErrorCode, Key, LockId, Ttl};

/// A program that sets a read timeout for each connection.
#[derive(Debug)]
struct ReadTimeout(Duration);

impl r2d2::CustomizeConnection<redis::Connection, redis::RedisError> for ReadTimeout {
    fn on_acquire(&self, connection: &mut redis::Connection) -> Result<(), redis::RedisError> {
        connection.set_read_timeout(Some(self.0))
    }
}

#[test]
fn a_connection_whose_read_timed_out_is_closed() {
    let setup = Setup::start();
    let customizer = Box::new(ReadTimeout(Duration::from_millis(200)));
    let pool = setup
        .builder(1)
        .connection_customizer(customizer)
        .build_unchecked(setup.manager());
    let store = setup.over(&pool);
    let key = Key::new("k").expect("a key");
    let call = Call::new().within(Duration::from_secs(20));
    assert!(!store.is_locked(&key, &call).expect("an answer"));
    let connection = |pool: &crate::support::Pool| {
        let mut connection = pool.get().expect("a connection");
        let id: i64 = redis::cmd("CLIENT")
            .arg("ID")
            .query(&mut *connection)
            .expect("its number");
        id
    };
    let before = connection(&pool);
    // A reply in pieces: a part of it has been read when the time is over.
    setup.proxy.set(Mode::Trickle(Duration::from_millis(300)));
    let begun = Instant::now();
    let error = store.is_locked(&key, &call).expect_err("it is too slow");
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    setup.proxy.set(Mode::Pass);
    let id = LockId::random().expect("an id");
    let ttl = Ttl::new(Duration::from_secs(60)).expect("a ttl");
    let outcome = store.acquire(&key, &id, ttl, &call).expect("an answer");
    assert!(matches!(outcome, syncguard::AcquireOutcome::Acquired(_)));
    assert_ne!(connection(&pool), before, "the same connection again");
}

/// A server that is asked for what a script of another program is at is told apart from one that is down.
#[test]
fn a_user_without_rights_is_told_what_is_missing() {
    let setup = Setup::start();
    setup.server.cli(&[
        "ACL",
        "SETUSER",
        "weak",
        "on",
        ">w3ak-s3cret",
        "~*",
        "&*",
        "+@all",
        "-evalsha",
        "-eval",
    ]);
    let url = format!("redis://weak:w3ak-s3cret@127.0.0.1:{}/", setup.proxy.port());
    let pool = setup
        .builder(2)
        .build_unchecked(redis::Client::open(url).expect("a URL"));
    let call = Call::new().within(Duration::from_secs(20));
    let error = setup
        .over(&pool)
        .check(&call)
        .expect_err("no right to run scripts");
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error}");
    assert!(
        error.message().contains("EVAL") && !error.message().contains("s3cret"),
        "{error}"
    );
    let url = format!(
        "redis://weak:wr0ng-s3cret@127.0.0.1:{}/",
        setup.proxy.port()
    );
    let pool = setup
        .builder(2)
        .build_unchecked(redis::Client::open(url).expect("a URL"));
    let call = Call::new().within(Duration::from_secs(2));
    let error = setup
        .over(&pool)
        .check(&call)
        .expect_err("a wrong password");
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error}");
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    assert!(matches!(setup.server.cli(&["PING"]), Value::Text(_)));
}

#[test]
fn bad_prefixes_are_refused_before_any_call() {
    let setup = Setup::start();
    for bad in ["id", "a:fence", "a\0b"] {
        let refused = setup.store(1).with_key_prefix(bad).map(drop);
        let error = refused.expect_err("a bad prefix");
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{bad:?}");
    }
    assert_eq!(setup.proxy.counts().connections, 0);
}
