//! A resource that checks fences: it accepts a write whose fence is not smaller than the largest it has seen for the key.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock;

/// A write that came to the resource.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    pub at: i64,
    pub key: i64,
    pub hold: i64,
    pub accepted: bool,
}

#[derive(Default)]
struct State {
    largest: HashMap<i64, i64>,
    arrived: Vec<Arrived>,
}

#[derive(Clone, Default)]
pub struct Gate {
    state: Arc<Mutex<State>>,
    /// It accepts every write.
    open: bool,
}

/// A request is three numbers: key, fence and hold. The answer is one byte.
pub const REQUEST: usize = 24;

impl Gate {
    /// Serves on this socket until the program ends. One that is `open` lets everything in, and must be found.
    pub fn serve(path: &Path, open: bool) -> Self {
        let gate = Self {
            open,
            ..Self::default()
        };
        let listener = UnixListener::bind(path).expect("a socket for the resource");
        let serving = gate.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let gate = serving.clone();
                std::thread::spawn(move || gate.answer(stream));
            }
        });
        gate
    }

    fn answer(&self, mut stream: UnixStream) {
        let mut request = [0; REQUEST];
        while stream.read_exact(&mut request).is_ok() {
            let word = |n: usize| {
                let bytes: [u8; 8] = request[n * 8..][..8].try_into().expect("eight bytes");
                i64::from_ne_bytes(bytes)
            };
            let accepted = self.write(word(0), word(1), word(2));
            if stream.write_all(&[u8::from(accepted)]).is_err() {
                return;
            }
        }
    }

    fn write(&self, key: i64, fence: i64, hold: i64) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let largest = state.largest.entry(key).or_default();
        let accepted = self.open || fence >= *largest;
        *largest = fence.max(*largest);
        let at = clock::now();
        state.arrived.push(Arrived {
            at,
            key,
            hold,
            accepted,
        });
        accepted
    }

    /// What came since the last time.
    pub fn take(&self) -> Vec<Arrived> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.arrived)
    }
}
