//! A caller that takes locks of Redis as a client of the TypeScript library does: by its script, on a connection without our library.

use std::path::PathBuf;
use std::time::Duration;

use syncguard::{Key, KeySpace, LockId, TIME_TOLERANCE_MS};

use crate::clock;
use crate::load::Grant;
use crate::servers::redis::{Link, Value};

const ACQUIRE: &str = include_str!("../../../tests/support/common/reference_acquire.lua");

pub struct Reference {
    sockets: Vec<PathBuf>,
    names: KeySpace,
    /// The connection to the server that took the last write.
    link: Option<Link>,
}

impl Reference {
    pub fn new(sockets: &[PathBuf], prefix: &str) -> Self {
        Self {
            sockets: sockets.to_vec(),
            names: KeySpace::redis(prefix).expect("a prefix"),
            link: None,
        }
    }

    /// Asks once, or each server if the last one takes no more writes; nothing if the lock was not granted.
    pub fn acquire(&mut self, key: &Key, ttl: Duration) -> Option<Grant> {
        if let Some(mut link) = self.link.take()
            && let Ok(answer) = self.ask(&mut link, key, ttl)
        {
            self.link = Some(link);
            return answer;
        }
        for socket in self.sockets.clone() {
            let Ok(mut link) = Link::open(&socket) else {
                continue;
            };
            if let Ok(answer) = self.ask(&mut link, key, ttl) {
                self.link = Some(link);
                return answer;
            }
        }
        None
    }

    /// An error if this server is gone or takes no writes of this key.
    fn ask(&self, link: &mut Link, key: &Key, ttl: Duration) -> Result<Option<Grant>, ()> {
        let id = LockId::random().expect("randomness");
        let lock = self.names.lock(key).expect("a name");
        let (index, fence) = (self.names.index(&id), self.names.fence(&lock));
        let (index, fence) = (index.expect("a name"), fence.expect("a name"));
        let (ms, tolerance) = (ttl.as_millis().to_string(), TIME_TOLERANCE_MS.to_string());
        let begun = clock::now();
        let command = [
            "EVAL",
            ACQUIRE,
            "3",
            &lock,
            &index,
            &fence,
            id.as_str(),
            &ms,
            &tolerance,
            &lock,
            key.as_str(),
        ];
        match link.call(&command) {
            Ok(Value::Int(0)) => Ok(None),
            Ok(Value::List(granted)) => Ok(Some(Grant {
                key: key.clone(),
                id,
                fence: granted[1].text().parse().expect("a number"),
                begun,
                from: clock::now(),
                until: begun + ttl.as_nanos() as i64,
                kept: false,
            })),
            _ => Err(()),
        }
    }
}
