//! What a worker writes down while it works. Each record is one append of 64 bytes to a file in memory, so that the SIGKILL of the
//! worker erases nothing. Workers in C and Go write the same records.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The kind of a record, and what its fields mean. Times are nanoseconds of the boot-time clock.
pub mod kind {
    /// A lock was granted: `at` the answer, `a` when the call began, `b` the fence, `c` until when the holder believes, `d` the TTL.
    pub const GRANT: i64 = 1;
    /// A look at a guard, which said that it is held: `at` before the look, `c` until when the holder believes, `d` when the lease
    /// ends on the store's clock, which every confirmed renewal changes.
    pub const HELD: i64 = 2;
    /// A look at a guard, which said that it is lost: `a` the reason, `d` as in HELD.
    pub const LOST: i64 = 3;
    /// The holder is about to release or drop: `d` as in HELD.
    pub const RELEASING: i64 = 4;
    /// A release returned: `a` is 0 if it removed the lock, 1 if the lock was absent, -1 if it failed.
    pub const RELEASED: i64 = 5;
    /// The guard is gone: its release returned an outcome, or its drop returned.
    pub const ENDED: i64 = 6;
    /// The callback of a loss began: `a` the reason, `c` how long its thread was ready before and did not run.
    pub const TOLD: i64 = 7;
    /// A call ended: `at` its end, `id` the verb, `a` its begin, `b` its bound, `c` when it was cancelled or 0, `d` how long its
    /// thread was ready and did not run after it was due.
    pub const CALL: i64 = 8;
    /// The process did not run from `a` to `at`.
    pub const STALL: i64 = 9;
    /// An acquire of a key with a long lease failed: `a` when it began, `b` is 1 if it may have been applied.
    pub const UNKNOWN: i64 = 10;
    /// At the worker's end: `a` threads, `b` descriptors too many.
    pub const LEFT: i64 = 11;
    /// A forked child used what it inherited: `a` is 0 if all was refused.
    pub const FORKED: i64 = 12;
    /// A lock id that was released already was released once more: `a` as in RELEASED.
    pub const AGAIN: i64 = 13;
    /// The worker ended by itself.
    pub const EXIT: i64 = 14;
    /// The timer of the library was ready and did not run for a time between `a` and `at`.
    pub const TIMER: i64 = 17;
    /// The worker uses `a` kilobytes of memory after `b` holds.
    pub const MEMORY: i64 = 18;
    /// In Go, the channel of a guard said that it is lost.
    pub const DONE: i64 = 19;
    /// As GRANT, of a bare verb: nothing tells its holder of a loss.
    pub const GRANT_BARE: i64 = 16;
    /// An extend, manual or of a bare verb, was refused as absent: `a` when it began.
    pub const ABSENT: i64 = 15;
}

/// The reason `Removed` of a loss, in the numbers of the C ABI.
pub const REMOVED: i64 = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub kind: i64,
    /// The hold, or the verb of a call.
    pub id: i64,
    pub key: i64,
    pub at: i64,
    pub a: i64,
    pub b: i64,
    pub c: i64,
    pub d: i64,
}

pub const SIZE: usize = 64;

impl Record {
    fn bytes(&self) -> [u8; SIZE] {
        let fields = [
            self.kind, self.id, self.key, self.at, self.a, self.b, self.c, self.d,
        ];
        let mut bytes = [0; SIZE];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_ne_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Self {
        let mut fields = bytes.chunks_exact(8).map(|word| {
            let word: [u8; 8] = word.try_into().expect("eight bytes");
            i64::from_ne_bytes(word)
        });
        let mut next = || fields.next().unwrap_or(0);
        Self {
            kind: next(),
            id: next(),
            key: next(),
            at: next(),
            a: next(),
            b: next(),
            c: next(),
            d: next(),
        }
    }
}

/// A worker's file of records.
pub struct Log(File);

impl Log {
    pub fn open(path: &Path) -> io::Result<Self> {
        let options = OpenOptions::new().create(true).append(true).open(path);
        options.map(Self)
    }

    pub fn write(&self, record: Record) {
        (&self.0)
            .write_all(&record.bytes())
            .expect("memory for the records");
    }
}

/// The records of a worker, also of one that was killed.
pub fn read(path: &Path) -> Vec<Record> {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.chunks_exact(SIZE).map(Record::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_file_and_a_torn_one_is_left_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let record = Record {
            kind: kind::GRANT,
            id: 2,
            key: -3,
            at: 4,
            a: 5,
            b: 6,
            c: i64::MAX,
            d: 8,
        };
        Log::open(&path).expect("a log").write(record);
        let mut file = OpenOptions::new()
            .append(true)
            .open(&path)
            .expect("the file");
        file.write_all(&[1; 10]).expect("a part of a record");
        assert_eq!(read(&path), [record]);
    }
}
