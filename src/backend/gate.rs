//! Gates: what refuses a former holder at the resource itself. It uses `types`, `options` and `backend::limits`.

use std::fmt;
use std::time::Duration;

use crate::backend::call::Call;
use crate::backend::limits::Limits;
use crate::options::client::DEFAULT_OPERATION_TIMEOUT;
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::fence::{Fence, MAX_FENCE};
use crate::types::random::random_bits;

/// The longest name of a resource, in bytes.
pub const MAX_RESOURCE_BYTES: usize = 512;

/// What a gate said to a fence. Exhaustive: a caller must handle both.
///
/// ```
/// use syncguard::gate::GateOutcome;
///
/// fn told(outcome: GateOutcome) -> String {
///     match outcome {
///         GateOutcome::Passed => "written".into(),
///         GateOutcome::Refused { newest } => format!("the holder with fence {newest} has written; stop"),
///     }
/// }
/// assert_eq!(told(GateOutcome::Passed), "written");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum GateOutcome {
    /// The fence is the newest, or the same as before: the write was made.
    Passed,
    /// A newer holder has written: nothing was changed. Stop, and do not try again with this fence.
    Refused {
        /// The fence of the newer holder.
        newest: Fence,
    },
}

impl GateOutcome {
    /// Whether the write was made.
    ///
    /// ```
    /// use syncguard::gate::GateOutcome;
    ///
    /// assert!(GateOutcome::Passed.is_passed());
    /// ```
    pub fn is_passed(self) -> bool {
        self == Self::Passed
    }
}

/// A store that has a gate of its own. A client hands its calls on: [`Client::setup_fence_gate`](crate::Client::setup_fence_gate) and
/// its kin. Calls may come from many threads at once, and end by the deadline of their [`Call`].
pub trait GateStore: Send + Sync {
    /// Creates what the gate needs; may be repeated, and run by many processes at once.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if something else has the gate's names: move it away. Otherwise as
    /// [`Backend::setup_schema`](crate::Backend::setup_schema).
    fn setup_fence_gate(&self, call: &Call<'_>) -> Result<(), LockError>;

    /// The newest fence that has passed the gate of `resource`, or `None`.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad name of a resource or a gate that is not set up. Otherwise as
    /// [`Backend::find`](crate::Backend::find).
    fn newest_fence(&self, resource: &str, call: &Call<'_>) -> Result<Option<Fence>, LockError>;

    /// Forgets the newest fence of `resource` if it is `seen`, and says whether it was.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad name of a resource or a gate that is not set up. Otherwise as
    /// [`Backend::purge_expired`](crate::Backend::purge_expired).
    fn reset_fence_gate(
        &self,
        resource: &str,
        seen: Fence,
        call: &Call<'_>,
    ) -> Result<bool, LockError>;

    /// Stores a value under a name if `fence` passes the gate of that name.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) in a store whose data the caller writes with its own statements, which is
    /// the default.
    fn fenced_set(
        &self,
        name: &str,
        value: &[u8],
        fence: Fence,
        call: &Call<'_>,
    ) -> Result<GateOutcome, LockError> {
        let _ = (name, value, fence, call);
        Err(LockError::invalid(
            "fenced_set is a call of Redis; in a database pass the gate inside your own transaction, as docs/fencing.md shows",
        ))
    }
}

/// Refuses what cannot be the name of a resource, before any I/O.
pub(crate) fn check_resource(resource: &str) -> Result<(), LockError> {
    if resource.is_empty() {
        Err(LockError::invalid("the resource's name is empty"))
    } else if resource.len() > MAX_RESOURCE_BYTES {
        Err(LockError::invalid(format!(
            "the resource's name is longer than {MAX_RESOURCE_BYTES} bytes"
        )))
    } else if resource.contains('\0') {
        Err(LockError::invalid("the resource's name holds a NUL"))
    } else {
        Ok(())
    }
}

/// Refuses what no store grants, before any I/O.
pub(crate) fn check_fence(fence: Fence) -> Result<(), LockError> {
    if fence.is_none() {
        Err(LockError::invalid(
            "the fence is 0: the lock's store has no fencing, and a gate could not tell its holders apart",
        ))
    } else if fence.get() > MAX_FENCE {
        Err(LockError::invalid(format!(
            "the fence is over {MAX_FENCE}, which no lock has"
        )))
    } else {
        Ok(())
    }
}

/// A stored value with the fence of its last writer. Exhaustive: your [`CompareAndSet`] makes it.
///
/// ```
/// use syncguard::Fence;
/// use syncguard::gate::FencedRecord;
///
/// let record = FencedRecord { value: "final", fence: Fence::new(34)?, version: 7 };
/// assert!(record.fence > Fence::new(33)?);
/// # Ok::<(), syncguard::LockError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FencedRecord<T, V> {
    /// What is stored.
    pub value: T,
    /// The fence of the holder that wrote it last. It is stored with the value, in the same write.
    pub fence: Fence,
    /// What the store compares: an `ETag`, a revision, a version number.
    pub version: V,
}

/// A place that writes only if nothing has changed since it was read: an object store with `If-Match`, etcd, Consul, DynamoDB, a row with
/// a version. What [`FenceGate`] needs of it.
///
/// The fence must be stored in the same write as the value: in a field of the object, its metadata or a column.
pub trait CompareAndSet {
    /// What is stored.
    type Value;
    /// What the place compares.
    type Version;

    /// What is stored under `resource`, as the place knows it now and not as a cache or a replica remembers it.
    ///
    /// # Errors
    /// What the place says: [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable) or
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) if it cannot answer now, [`AuthFailed`](crate::ErrorCode::AuthFailed) or
    /// [`Internal`](crate::ErrorCode::Internal) if a person has to repair it first.
    #[allow(clippy::type_complexity)] // an alias would hide the two associated types
    fn load(
        &self,
        resource: &str,
        call: &Call<'_>,
    ) -> Result<Option<FencedRecord<Self::Value, Self::Version>>, LockError>;

    /// Stores value and fence if the version is still `expected`; `None` means that nothing is stored yet. `false` if it is another.
    ///
    /// # Errors
    /// What the place says: [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable) or
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) if it cannot answer now, [`AuthFailed`](crate::ErrorCode::AuthFailed) or
    /// [`Internal`](crate::ErrorCode::Internal) if a person has to repair it first.
    fn store(
        &self,
        resource: &str,
        expected: Option<&Self::Version>,
        value: Self::Value,
        fence: Fence,
        call: &Call<'_>,
    ) -> Result<bool, LockError>;
}

/// A gate over any place that can [compare and set](CompareAndSet): it lets a write pass only if no newer holder has written.
///
/// It may be used from many threads if the place may. It keeps nothing itself, so that any number of processes can have one.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use syncguard::gate::{CompareAndSet, FenceGate, FencedRecord, GateOutcome};
/// use syncguard::{Call, Fence, LockError};
///
/// /// Objects with a version, as in an object store.
/// #[derive(Default)]
/// struct Bucket(Mutex<HashMap<String, (String, Fence, u64)>>);
///
/// impl CompareAndSet for Bucket {
///     type Value = String;
///     type Version = u64;
///
///     fn load(&self, name: &str, _: &Call<'_>) -> Result<Option<FencedRecord<String, u64>>, LockError> {
///         let objects = self.0.lock().unwrap();
///         Ok(objects.get(name).cloned().map(|(value, fence, version)| FencedRecord { value, fence, version }))
///     }
///
///     fn store(&self, name: &str, expected: Option<&u64>, value: String, fence: Fence, _: &Call<'_>) -> Result<bool, LockError> {
///         let mut objects = self.0.lock().unwrap();
///         let version = objects.get(name).map(|(_, _, version)| *version);
///         if version.as_ref() != expected {
///             return Ok(false);
///         }
///         objects.insert(name.to_owned(), (value, fence, version.unwrap_or(0) + 1));
///         Ok(true)
///     }
/// }
///
/// let gate = FenceGate::new(Bucket::default());
/// let (old, new) = (Fence::new(33)?, Fence::new(34)?);
/// assert!(gate.write("report", old, |_| "draft".into(), &Call::new())?.is_passed());
/// assert!(gate.write("report", new, |draft| draft.unwrap() + ", checked", &Call::new())?.is_passed());
/// let late = gate.write("report", old, |_| "late".into(), &Call::new())?;
/// assert_eq!(late, GateOutcome::Refused { newest: new });
/// # Ok::<(), LockError>(())
/// ```
pub struct FenceGate<S> {
    place: S,
}

impl<S: CompareAndSet> FenceGate<S> {
    /// A gate over `place`.
    ///
    /// ```
    /// # use syncguard::gate::{CompareAndSet, FenceGate};
    /// fn guarded<P: CompareAndSet>(place: P) -> FenceGate<P> {
    ///     FenceGate::new(place)
    /// }
    /// ```
    pub fn new(place: S) -> Self {
        Self { place }
    }

    /// The place.
    ///
    /// ```
    /// # use syncguard::gate::{CompareAndSet, FenceGate};
    /// fn place<P: CompareAndSet>(gate: &FenceGate<P>) -> &P {
    ///     gate.place()
    /// }
    /// ```
    pub fn place(&self) -> &S {
        &self.place
    }

    /// Stores what `change` makes of the stored value, with the fence of the writer, unless a newer holder has written. `change` is
    /// called again if another writer was faster, after a pause of 1 ms that doubles up to 100 ms. Ends by the deadline of `call`, or after 5 s.
    ///
    /// ```
    /// # use syncguard::gate::{CompareAndSet, FenceGate, GateOutcome};
    /// # use syncguard::{Call, Guard, LockError};
    /// fn replace<P: CompareAndSet<Value = String>>(gate: &FenceGate<P>, guard: &Guard, text: &str) -> Result<bool, LockError> {
    ///     let outcome = gate.write("report", guard.fence(), |_| text.to_owned(), &Call::new())?;
    ///     Ok(outcome.is_passed())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for an empty or too long name, or a fence that no lock has: correct it.
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) if other writers were faster until the deadline, and
    /// [`Aborted`](crate::ErrorCode::Aborted) after a cancel. Otherwise what the place says.
    pub fn write(
        &self,
        resource: &str,
        fence: Fence,
        mut change: impl FnMut(Option<S::Value>) -> S::Value,
        call: &Call<'_>,
    ) -> Result<GateOutcome, LockError> {
        check_resource(resource)?;
        check_fence(fence)?;
        let limits = bounds(call)?;
        let mut pause = FIRST_PAUSE;
        loop {
            limits.left().map_err(LockError::nothing_applied)?;
            let (value, version) = match self.place.load(resource, &limits)? {
                Some(record) if record.fence > fence => {
                    return Ok(GateOutcome::Refused {
                        newest: record.fence,
                    });
                }
                Some(record) => (Some(record.value), Some(record.version)),
                None => (None, None),
            };
            let next = change(value);
            if self
                .place
                .store(resource, version.as_ref(), next, fence, &limits)?
            {
                return Ok(GateOutcome::Passed);
            }
            // Half of it at least, so that writers which met once do not meet again.
            let spread = pause.mul_f64(0.5 + (random_bits() >> 11) as f64 / (1u64 << 54) as f64);
            limits.sleep(spread).map_err(LockError::nothing_applied)?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The fence of the last writer, for operators. Ends by the deadline of `call`, or after 5 s.
    ///
    /// ```
    /// # use syncguard::gate::{CompareAndSet, FenceGate};
    /// # use syncguard::{Call, LockError};
    /// fn show<P: CompareAndSet>(gate: &FenceGate<P>) -> Result<(), LockError> {
    ///     println!("{:?}", gate.newest_fence("report", &Call::new())?);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for an empty or too long name: correct it. Otherwise what the place says.
    pub fn newest_fence(
        &self,
        resource: &str,
        call: &Call<'_>,
    ) -> Result<Option<Fence>, LockError> {
        check_resource(resource)?;
        let limits = bounds(call)?;
        let found = self.place.load(resource, &limits)?;
        Ok(found
            .map(|record| record.fence)
            .filter(|fence| !fence.is_none()))
    }

    /// Forgets the fence of the last writer if it is `seen`, and keeps the value. Only for an operator that has made sure that no former
    /// holder is left: the next writer passes whatever its fence. Ends by the deadline of `call`, or after 5 s.
    ///
    /// ```
    /// # use syncguard::gate::{CompareAndSet, FenceGate};
    /// # use syncguard::{Call, Fence, LockError};
    /// fn reset<P: CompareAndSet>(gate: &FenceGate<P>, seen: Fence) -> Result<bool, LockError> {
    ///     gate.reset("report", seen, &Call::new())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for an empty or too long name: correct it. Otherwise what the place says.
    pub fn reset(&self, resource: &str, seen: Fence, call: &Call<'_>) -> Result<bool, LockError> {
        check_resource(resource)?;
        let limits = bounds(call)?;
        match self.place.load(resource, &limits)? {
            Some(record) if record.fence == seen => self.place.store(
                resource,
                Some(&record.version),
                record.value,
                Fence::NONE,
                &limits,
            ),
            _ => Ok(false),
        }
    }
}

/// How long a writer that lost a race waits before it looks again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// A place far away is not asked more often than this, however many write to it.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The call with its deadline: that of the caller, or that of any other call of the library.
fn bounds<'a>(call: &Call<'a>) -> Result<Limits<'a>, LockError> {
    Limits::enter(Owner::current(), DEFAULT_OPERATION_TIMEOUT, call)
}

impl<S> fmt::Debug for FenceGate<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FenceGate")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::error::ErrorCode;

    #[test]
    fn bad_names_and_fences_are_refused_and_not_repeated() {
        let long = "secret".repeat(100);
        for name in ["", "a\0secret", &long] {
            let error = check_resource(name).expect_err(name);
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            assert!(!error.message().contains("secret"), "{error}");
        }
        let longest = "x".repeat(MAX_RESOURCE_BYTES);
        check_resource(&longest).expect("a legal name");
        let fence = |n| check_fence(Fence::new(n).expect("15 digits")).is_ok();
        assert!(fence(1) && fence(MAX_FENCE));
        assert!(!fence(0) && !fence(MAX_FENCE + 1));
    }
}
