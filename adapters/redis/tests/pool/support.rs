//! A server with a proxy before it, and stores over pools of connections to them.
// The measurement uses a part.
#![allow(dead_code)]

#[path = "../../../../tests/support/common/mod.rs"]
pub mod common;

use std::any::Any;
use std::time::Duration;

use common::proxy::{Address, Proxy};
use common::redis::RedisServer;
use syncguard::{Client, ClientOptions};
use syncguard_redis_pool::RedisPool;

pub type Store = RedisPool;
pub type Pool = r2d2::Pool<redis::Client>;

/// How the measurement calls the store.
pub const NAME: &str = "Redis";

pub struct Setup {
    pub server: RedisServer,
    pub proxy: Proxy,
}

impl Setup {
    pub fn start() -> Self {
        let server = RedisServer::start_tcp(&[]);
        let proxy = Proxy::tcp(Address::port(server.port()));
        Self { server, proxy }
    }

    /// On a server of its own, which can be stopped and started again.
    pub fn alone() -> Self {
        Self::start()
    }

    /// A pool of connections through the proxy.
    pub fn pool(&self, size: u32) -> Pool {
        self.builder(size).build_unchecked(self.manager())
    }

    pub fn builder(&self, size: u32) -> r2d2::Builder<redis::Client> {
        r2d2::Pool::builder()
            .max_size(size)
            .min_idle(Some(0))
            .test_on_check_out(false)
            .connection_timeout(Duration::from_secs(2))
            .error_handler(Box::new(r2d2::NopErrorHandler))
    }

    pub fn manager(&self) -> redis::Client {
        manager(self.proxy.port())
    }

    /// What makes connections straight to the server.
    pub fn straight_manager(&self) -> redis::Client {
        manager(self.server.port())
    }

    /// A store over a pool of connections straight to the server.
    pub fn straight(&self, size: u32) -> Store {
        let builder = self.builder(size);
        self.over(&builder.build_unchecked(self.straight_manager()))
    }

    pub fn over(&self, pool: &Pool) -> Store {
        RedisPool::new(pool.clone())
    }

    pub fn store(&self, size: u32) -> Store {
        self.over(&self.pool(size))
    }

    /// The built-in driver, straight to the server.
    pub fn near(&self) -> Client {
        open(&self.server.tcp_url())
    }

    /// The built-in driver through the proxy.
    pub fn far(&self) -> Client {
        open(&format!("redis://127.0.0.1:{}/", self.proxy.port()))
    }

    /// Stops the server's process until the answer is dropped.
    pub fn stop(&self) -> Box<dyn Any> {
        Box::new(self.server.pause())
    }

    /// Kills the server and starts it again.
    pub fn restart(&mut self) {
        self.server.restart();
    }
}

fn manager(port: u16) -> redis::Client {
    redis::Client::open(format!("redis://127.0.0.1:{port}/")).expect("a URL")
}

fn open(url: &str) -> Client {
    let options = ClientOptions::new().operation_timeout(Duration::from_secs(30));
    Client::open_with(url, &options).expect("a good URL")
}
