//! A store written after the documentation of `Backend` alone: locks in a file, on a clock of its own. Tests that it keeps the
//! contract.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use syncguard::testkit::{self, contract::ContractStore};
use syncguard::{
    Absence, AcquireOutcome, Acquired, Backend, Call, Capabilities, ErrorCode, ExtendOutcome,
    Fence, Key, LockError, LockId, LookupBy, ReleaseOutcome, StoredLock, Ttl, is_live,
};

/// Locks in a file. Processes take turns by locking the file.
struct FileStore {
    path: PathBuf,
    clock_ms: Arc<AtomicI64>,
}

/// What the file says: a line `f COUNTER KEY` for every key, and a line `l ID FENCE EXPIRES ACQUIRED KEY` for every lock. Keys are
/// written as Rust writes a text in quotes, without a line break.
#[derive(Default)]
struct Contents {
    fences: HashMap<String, i64>,
    locks: Vec<StoredLock>,
}

fn trouble(text: &str) -> LockError {
    LockError::new(ErrorCode::ServiceUnavailable, text)
}

impl Contents {
    fn read(mut file: &File) -> Result<Self, LockError> {
        let mut text = String::new();
        file.rewind()
            .and_then(|()| file.read_to_string(&mut text))
            .map_err(|_| trouble("the file cannot be read").nothing_applied())?;
        let mut contents = Self::default();
        for line in text.lines() {
            contents
                .line(line)
                .ok_or_else(|| trouble("the file is no store").nothing_applied())?;
        }
        Ok(contents)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let mut words = line.splitn(if line.starts_with('f') { 3 } else { 6 }, ' ');
        if words.next()? == "f" {
            let counter = words.next()?.parse().ok()?;
            let key = serde_json::from_str(words.next()?).ok()?;
            self.fences.insert(key, counter);
            return Some(());
        }
        let id = LockId::parse(words.next()?).ok()?;
        let fence = Fence::parse(words.next()?).ok()?;
        let expires = words.next()?.parse().ok()?;
        let acquired = words.next()?.parse().ok()?;
        let key: String = serde_json::from_str(words.next()?).ok()?;
        self.locks
            .push(StoredLock::new(&key, id, fence, expires, acquired));
        Some(())
    }

    fn write(&self, mut file: &File) -> Result<(), LockError> {
        let mut text = String::new();
        let quoted = |key: &str| serde_json::Value::from(key).to_string();
        for (key, counter) in &self.fences {
            text += &format!("f {counter} {}\n", quoted(key));
        }
        for l in &self.locks {
            text += &format!(
                "l {} {} {} {} {}\n",
                l.lock_id.as_str(),
                l.fence,
                l.expires_at_ms,
                l.acquired_at_ms,
                quoted(&l.key)
            );
        }
        file.rewind()
            .and_then(|()| file.set_len(0))
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(|_| trouble("the file cannot be written"))
    }
}

impl FileStore {
    /// Works on the contents, which no other caller changes meanwhile.
    fn with<T>(
        &self,
        call: &Call<'_>,
        work: impl FnOnce(&mut Contents, i64) -> Result<T, LockError>,
        writes: bool,
    ) -> Result<T, LockError> {
        call.check().map_err(LockError::nothing_applied)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.path)
            .map_err(|_| trouble("the file cannot be opened").nothing_applied())?;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => call
                    .sleep(Duration::from_millis(1))
                    .map_err(LockError::nothing_applied)?,
                Err(TryLockError::Error(_)) => {
                    return Err(trouble("the file cannot be locked").nothing_applied());
                }
            }
        }
        let mut contents = Contents::read(&file)?;
        let answer = work(&mut contents, self.clock_ms.load(SeqCst))?;
        if writes {
            contents.write(&file)?;
        }
        Ok(answer)
    }
}

impl Backend for FileStore {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let grant = |contents: &mut Contents, now: i64| {
            let held = contents.locks.iter().find(|l| l.key == key.as_str());
            if let Some(held) = held.filter(|l| is_live(l.expires_at_ms, now)) {
                return Ok(if held.lock_id == *lock_id {
                    let (fence, expires) = (held.fence, held.expires_at_ms);
                    AcquireOutcome::Acquired(Acquired::new(*lock_id, fence, expires))
                } else {
                    AcquireOutcome::Locked(None)
                });
            }
            let counter = contents.fences.entry(key.as_str().to_owned()).or_default();
            let fence = Fence::after(*counter)?;
            *counter += 1;
            let expires = now + ttl.as_millis();
            contents.locks.retain(|l| l.key != key.as_str());
            contents
                .locks
                .push(StoredLock::new(key.as_str(), *lock_id, fence, expires, now));
            Ok(AcquireOutcome::Acquired(Acquired::new(
                *lock_id, fence, expires,
            )))
        };
        self.with(call, grant, true)
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        let remove = |contents: &mut Contents, now: i64| {
            let own = contents.locks.iter().position(|l| l.lock_id == *lock_id);
            Ok(match own.map(|i| contents.locks.remove(i)) {
                None => ReleaseOutcome::Absent(Absence::NotFound),
                Some(l) if is_live(l.expires_at_ms, now) => ReleaseOutcome::Released,
                Some(_) => ReleaseOutcome::Absent(Absence::Expired),
            })
        };
        self.with(call, remove, true)
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        let renew = |contents: &mut Contents, now: i64| {
            let own = contents.locks.iter_mut().find(|l| l.lock_id == *lock_id);
            Ok(match own {
                None => ExtendOutcome::Absent(Absence::NotFound),
                Some(l) if is_live(l.expires_at_ms, now) => {
                    l.expires_at_ms = now + ttl.as_millis();
                    ExtendOutcome::Extended(l.expires_at_ms)
                }
                Some(_) => ExtendOutcome::Absent(Absence::Expired),
            })
        };
        self.with(call, renew, true)
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        Ok(self.find(LookupBy::Key(key), call)?.is_some())
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        let look = |contents: &mut Contents, now: i64| {
            let found = contents.locks.iter().find(|l| match by {
                LookupBy::Key(key) => l.key == key.as_str(),
                LookupBy::LockId(id) => l.lock_id == *id,
            });
            Ok(found.filter(|l| is_live(l.expires_at_ms, now)).cloned())
        };
        self.with(call, look, false)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("file")
    }
}

fn store() -> ContractStore {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("locks");
    let clock_ms = Arc::new(AtomicI64::new(1_000_000));
    let (clock, hung) = (Arc::clone(&clock_ms), path.clone());
    let store = FileStore { path, clock_ms };
    ContractStore::new(store)
        .pass_time(move |by| {
            let ms = i64::try_from(by.as_millis()).expect("a short time");
            clock.fetch_add(ms, SeqCst);
        })
        .while_hanging(move |work| {
            let file = File::create(&hung).expect("the file");
            file.lock().expect("the lock of the file");
            work();
        })
        .keep(folder)
}

testkit::contract!(keeps_the_contract, store);
