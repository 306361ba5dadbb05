//! The gate of a client's store: set-up, the fenced write, and what an operator does. Uses `backend::gate`.

use super::Client;
use crate::backend::Backend;
use crate::backend::call::Call;
use crate::backend::gate::{GateOutcome, GateStore};
use crate::types::error::LockError;
use crate::types::fence::Fence;

impl Client {
    /// Creates the [gate](crate::gate) in the store of this client, for data that is kept there too: in Postgres a table and the function
    /// `syncguard_pass(resource, fence)`, in SQLite a table; Redis needs nothing. Idempotent; many processes may do it at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// client.setup_fence_gate()?;
    /// client.setup_fence_gate()?; // changes nothing
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if something else has the gate's names, or the store has no gate.
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed) if a right is missing: grant it, or have an administrator run this.
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now: run it again.
    /// [`Internal`](crate::ErrorCode::Internal) for anything else.
    pub fn setup_fence_gate(&self) -> Result<(), LockError> {
        self.setup_fence_gate_with(&Call::new())
    }

    /// As [`setup_fence_gate`](Self::setup_fence_gate), within the bounds of `call`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// client.setup_fence_gate_with(&Call::new().within(Duration::from_secs(1)))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`setup_fence_gate`](Self::setup_fence_gate); [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled.
    pub fn setup_fence_gate_with(&self, call: &Call<'_>) -> Result<(), LockError> {
        self.the_gate()?.setup_fence_gate(&self.bounded(call)?)
    }

    /// Redis: stores `value` under `name` if `fence` passes the gate of that name, in one step and one round trip. The name is a key of
    /// your own outside of the client's `key_prefix`, where every name belongs to a lock; its gate is that name with `:fence` behind it.
    /// Where the prefix is empty, take no name that is the key of a lock: nothing tells the two apart.
    ///
    /// ```no_run
    /// let client = syncguard::Client::open("redis://127.0.0.1/")?;
    /// let guard = client.lock("report")?;
    /// if !client.fenced_set("report:text", b"final", guard.fence())?.is_passed() {
    ///     println!("a newer holder has written: this one was paused past its lease");
    /// }
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// A refusal is no error. [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for an empty or too long name, one that lies under the client's
    /// `key_prefix` or ends with `:fence`, a fence that no lock has, and a store that is not Redis. [`AuthFailed`](crate::ErrorCode::AuthFailed) if the user may not access the two keys.
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now: the value may have been stored, and the call may be
    /// repeated. [`Internal`](crate::ErrorCode::Internal) for anything else.
    pub fn fenced_set(
        &self,
        name: &str,
        value: &[u8],
        fence: Fence,
    ) -> Result<GateOutcome, LockError> {
        self.fenced_set_with(name, value, fence, &Call::new())
    }

    /// As [`fenced_set`](Self::fenced_set), within the bounds of `call`.
    ///
    /// ```no_run
    /// # let client = syncguard::Client::open("redis://127.0.0.1/")?;
    /// # let guard = client.lock("report")?;
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// let call = Call::new().within(Duration::from_millis(200));
    /// let outcome = client.fenced_set_with("report:text", b"final", guard.fence(), &call)?;
    /// # assert!(outcome.is_passed());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`fenced_set`](Self::fenced_set); [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled.
    pub fn fenced_set_with(
        &self,
        name: &str,
        value: &[u8],
        fence: Fence,
        call: &Call<'_>,
    ) -> Result<GateOutcome, LockError> {
        self.the_gate()?
            .fenced_set(name, value, fence, &self.bounded(call)?)
    }

    /// The newest fence that has passed the gate of `resource`, for operators. `None` if none has.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// client.setup_fence_gate()?;
    /// assert_eq!(client.newest_fence("account:7")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for an empty or too long name, and for a gate that is not set up: call
    /// [`setup_fence_gate`](Self::setup_fence_gate). [`AuthFailed`](crate::ErrorCode::AuthFailed) if a right is missing.
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now. [`Internal`](crate::ErrorCode::Internal) for
    /// anything else.
    pub fn newest_fence(&self, resource: &str) -> Result<Option<Fence>, LockError> {
        self.newest_fence_with(resource, &Call::new())
    }

    /// As [`newest_fence`](Self::newest_fence), within the bounds of `call`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// # client.setup_fence_gate()?;
    /// use syncguard::{Call, CancelToken};
    ///
    /// let token = CancelToken::new();
    /// assert_eq!(client.newest_fence_with("account:7", &Call::new().cancelled_by(&token))?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`newest_fence`](Self::newest_fence); [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled.
    pub fn newest_fence_with(
        &self,
        resource: &str,
        call: &Call<'_>,
    ) -> Result<Option<Fence>, LockError> {
        self.the_gate()?
            .newest_fence(resource, &self.bounded(call)?)
    }

    /// Forgets the newest fence of `resource` if it is `seen`, so that any fence passes next. Only for an operator that has made sure that no
    /// former holder is left, after the counters of the locks were lost. `false` if it is another one: look again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// # client.setup_fence_gate()?;
    /// let seen = syncguard::Fence::new(34)?;
    /// assert!(!client.reset_fence_gate("account:7", seen)?); // its newest fence is not 34
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`newest_fence`](Self::newest_fence): [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad name or a gate that is not
    /// set up, and what the store says if it cannot answer.
    pub fn reset_fence_gate(&self, resource: &str, seen: Fence) -> Result<bool, LockError> {
        self.reset_fence_gate_with(resource, seen, &Call::new())
    }

    /// As [`reset_fence_gate`](Self::reset_fence_gate), within the bounds of `call`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// # client.setup_fence_gate()?;
    /// use std::time::Duration;
    /// use syncguard::{Call, Fence};
    ///
    /// let call = Call::new().within(Duration::from_secs(1));
    /// assert!(!client.reset_fence_gate_with("account:7", Fence::new(34)?, &call)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`newest_fence`](Self::newest_fence); [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled.
    pub fn reset_fence_gate_with(
        &self,
        resource: &str,
        seen: Fence,
        call: &Call<'_>,
    ) -> Result<bool, LockError> {
        self.the_gate()?
            .reset_fence_gate(resource, seen, &self.bounded(call)?)
    }

    fn the_gate(&self) -> Result<&dyn GateStore, LockError> {
        self.gate().ok_or_else(|| {
            LockError::invalid(
                "the store of this client has no gate of its own; see FenceGate in the module gate",
            )
        })
    }
}
