//! Makes the faults that a store can have, with real servers.

use std::cell::RefCell;
use std::time::Duration;

use crate::support::common::postgres::{Frozen, Server};
use crate::support::common::proxy::{Address, Mode, Proxy};
use crate::support::common::redis::{Paused, RedisServer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Stopped,
    Silent,
    Trickling,
    OneByte,
    CutAnswers,
    Refused,
}

impl Fault {
    pub const ALL: [Self; 6] = [
        Self::Stopped,
        Self::Silent,
        Self::Trickling,
        Self::OneByte,
        Self::CutAnswers,
        Self::Refused,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped (SIGSTOP)",
            Self::Silent => "accepts, says nothing",
            Self::Trickling => "a byte every 20 ms",
            Self::OneByte => "one byte, then silence",
            Self::CutAnswers => "cut in every answer",
            Self::Refused => "refused",
        }
    }
}

pub enum Store {
    Redis(RedisServer),
    Postgres(Server),
}

impl Store {
    pub fn redis() -> Self {
        Self::Redis(RedisServer::start_tcp(&[]))
    }

    pub fn postgres() -> Self {
        Self::Postgres(Server::start(&["max_connections=300"]))
    }

    /// A healthy way to the server, on which `fault` can begin.
    pub fn ready(&self, fault: Fault) -> Trouble<'_> {
        let port = match self {
            Self::Redis(server) => server.port(),
            Self::Postgres(server) => server.port,
        };
        let proxy = Proxy::tcp(Address::port(port));
        Trouble {
            store: self,
            fault,
            port: proxy.port(),
            proxy: RefCell::new(Some(proxy)),
        }
    }
}

pub struct Trouble<'a> {
    store: &'a Store,
    fault: Fault,
    port: u16,
    proxy: RefCell<Option<Proxy>>,
}

/// A fault under way, until it is dropped.
#[allow(dead_code)]
pub enum Begun {
    Paused(Paused),
    Frozen(Frozen),
    OnTheWay,
}

impl Trouble<'_> {
    pub fn url(&self) -> String {
        match self.store {
            Store::Redis(_) => format!("redis://127.0.0.1:{}", self.port),
            Store::Postgres(_) => format!(
                "postgres://postgres@127.0.0.1:{}/postgres?sslmode=disable",
                self.port
            ),
        }
    }

    pub fn begin(&self) -> Begun {
        let set = |mode| {
            if let Some(proxy) = &*self.proxy.borrow() {
                proxy.set(mode);
            }
            Begun::OnTheWay
        };
        match self.fault {
            Fault::Stopped => match self.store {
                Store::Redis(server) => Begun::Paused(server.pause()),
                Store::Postgres(server) => Begun::Frozen(server.freeze()),
            },
            Fault::Silent => set(Mode::Swallow),
            Fault::Trickling => set(Mode::Trickle(Duration::from_millis(20))),
            Fault::OneByte => set(Mode::Trickle(Duration::from_secs(60))),
            Fault::CutAnswers => set(Mode::CutReply),
            Fault::Refused => {
                // Its port is closed with it.
                drop(self.proxy.borrow_mut().take());
                Begun::OnTheWay
            }
        }
    }
}
