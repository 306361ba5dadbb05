//! A server with a proxy before it, and stores over pools of connections to them.
// The measurement uses a part.
#![allow(dead_code)]

#[path = "../../../../tests/support/common/mod.rs"]
pub mod common;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::postgres::Server;
use common::proxy::{Address, Proxy};
use r2d2_postgres::PostgresConnectionManager;
use r2d2_postgres::postgres::NoTls;
use syncguard::{Backend, Call, Client, ClientOptions};
use syncguard_postgres_pool::PostgresPool;

pub type Store = PostgresPool;
pub type Manager = PostgresConnectionManager<NoTls>;
pub type Pool = r2d2::Pool<Manager>;

/// How the measurement calls the store.
pub const NAME: &str = "Postgres";

pub struct Setup {
    pub server: Arc<Server>,
    pub proxy: Proxy,
    pub schema: String,
}

/// A schema that no other test has.
pub fn schema() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    format!("s{}", LAST.fetch_add(1, Ordering::Relaxed))
}

impl Setup {
    /// A schema of its own on the server that all tests share.
    pub fn start() -> Self {
        Self::on(Server::shared())
    }

    /// On a server of its own, which can be stopped and started again.
    pub fn alone() -> Self {
        Self::on(Arc::new(Server::start(&[])))
    }

    fn on(server: Arc<Server>) -> Self {
        let proxy = Proxy::tcp(Address::port(server.port));
        let setup = Self {
            server,
            proxy,
            schema: schema(),
        };
        setup.near().setup_schema().expect("set-up");
        setup
    }

    /// A pool of connections through the proxy.
    pub fn pool(&self, size: u32) -> Pool {
        self.builder(size).build_unchecked(self.manager())
    }

    pub fn builder(&self, size: u32) -> r2d2::Builder<Manager> {
        r2d2::Pool::builder()
            .max_size(size)
            .min_idle(Some(0))
            .test_on_check_out(false)
            .connection_timeout(Duration::from_secs(2))
            .error_handler(Box::new(r2d2::NopErrorHandler))
    }

    pub fn manager(&self) -> Manager {
        manager(self.proxy.port())
    }

    /// What makes connections straight to the server.
    pub fn straight_manager(&self) -> Manager {
        manager(self.server.port)
    }

    /// A store over a pool of connections straight to the server.
    pub fn straight(&self, size: u32) -> Store {
        let builder = self.builder(size);
        self.over(&builder.build_unchecked(self.straight_manager()))
    }

    pub fn over(&self, pool: &Pool) -> Store {
        let store = PostgresPool::new(pool.clone());
        store.with_schema(&self.schema).expect("a legal name")
    }

    pub fn store(&self, size: u32) -> Store {
        self.over(&self.pool(size))
    }

    /// The built-in driver, straight to the server.
    pub fn near(&self) -> Client {
        self.open(&self.server.url())
    }

    /// The built-in driver through the proxy.
    pub fn far(&self) -> Client {
        let port = self.proxy.port();
        self.open(&format!(
            "postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable"
        ))
    }

    fn open(&self, url: &str) -> Client {
        let options = ClientOptions::new()
            .schema(&self.schema)
            .operation_timeout(Duration::from_secs(30));
        Client::open_with(url, &options).expect("a good URL")
    }

    /// Stops the server's processes until the answer is dropped.
    pub fn stop(&self) -> Box<dyn Any> {
        Box::new(self.server.freeze())
    }

    /// Kills the server and starts it again.
    pub fn restart(&mut self) {
        self.server.kill();
        self.server.restart();
    }
}

pub fn manager(port: u16) -> Manager {
    let text = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=disable");
    PostgresConnectionManager::new(text.parse().expect("a connection string"), NoTls)
}

pub fn set_up(store: &PostgresPool) {
    let call = Call::new().within(Duration::from_secs(60));
    store.setup_schema(&call).expect("set-up");
}
