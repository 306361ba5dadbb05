//! The contract of a store, whole: straight to a server, and behind PgBouncer in transaction mode; its fences by the clock, and its calls
//! while the server has stopped.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::support::common::postgres::{Bouncer, Server};
use crate::support::{Setup, manager, schema, set_up};
use syncguard::testkit::contract::{self, ContractStore};
use syncguard::{FenceSource, testkit};
use syncguard_postgres_pool::PostgresPool;

/// A schema of its own on a server that all checks share, reached at `port`.
fn over(server: &Arc<Server>, port: u16, fences: FenceSource) -> ContractStore {
    let pool = r2d2::Pool::builder()
        .max_size(10)
        .min_idle(Some(0))
        .test_on_check_out(false)
        .build_unchecked(manager(port));
    let schema = schema();
    let store = PostgresPool::new(pool).with_schema(&schema);
    let store = store.expect("a legal name").with_fences(fences);
    set_up(&store);
    let server = Arc::clone(server);
    ContractStore::new(store).while_hanging(move |work| {
        // Neither readers nor writers pass the lock of the table.
        let mut session = server.session();
        session.run(&format!("BEGIN; LOCK TABLE {schema}.syncguard_locks"));
        work();
    })
}

fn straight(fences: FenceSource) -> ContractStore {
    let server = Server::shared();
    over(&server, server.port, fences).keep(server)
}

/// PgBouncer and its server.
struct Pooler {
    bouncer: Bouncer,
    server: Arc<Server>,
}

impl Pooler {
    fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Pooler>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pooler) = shared.upgrade() {
            return pooler;
        }
        let server = Server::shared();
        let pooler = Arc::new(Self {
            bouncer: Bouncer::start(&server, 4),
            server,
        });
        *shared = Arc::downgrade(&pooler);
        pooler
    }
}

fn behind_pgbouncer() -> ContractStore {
    let pooler = Pooler::shared();
    over(&pooler.server, pooler.bouncer.port, FenceSource::Counter).keep(pooler)
}

testkit::contract!(straight_to_the_server, || straight(FenceSource::Counter));
testkit::contract!(pooled_sessions, behind_pgbouncer);

#[test]
fn fences_of_the_clock_keep_it_too() {
    for check in [
        contract::fences_grow,
        contract::the_same_id_again_answers_the_stored_grant,
        contract::holders_never_overlap,
    ] {
        straight(FenceSource::Clock).run(check);
    }
}

/// A server of its own, which can be stopped.
#[test]
fn a_stopped_server_keeps_no_caller() {
    let setup = Arc::new(Setup::alone());
    for check in [
        contract::a_deadline_ends_a_call,
        contract::a_cancel_ends_a_call,
    ] {
        let stopped = Arc::clone(&setup);
        let store = setup.store(10).with_schema(&schema());
        let store = store.expect("a legal name");
        set_up(&store);
        let store = ContractStore::new(store).while_hanging(move |work| {
            let stopped = stopped.stop();
            work();
            drop(stopped);
        });
        store.run(check);
    }
}
