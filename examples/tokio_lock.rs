//! Locks in a program that runs on tokio: a wait that ends when its future is dropped, and a guard whose release does not block
//! the executor. `docs/tokio.md` explains it; copy what is between the lines into your program.

// ---- begin
use std::ops::ControlFlow;
use std::sync::Arc;

use syncguard::{
    Call, CancelToken, Client, ErrorCode, Guard, IntoKey, LockError, LockOptions, ReleaseOutcome,
    Turn, WaiterEvent, WaiterStep,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Takes the lock of `key` as `options` say. If this future is dropped, the wait ends: an attempt under way is cancelled, and a
/// lock that it took all the same is released.
///
/// Only an attempt needs a thread. A task that waits has none, so any number of tasks may wait. The token of `options` has no
/// effect here: drop the future.
pub async fn lock(
    client: &Client,
    key: impl IntoKey,
    options: &LockOptions,
) -> Result<AsyncGuard, LockError> {
    let (client, key) = (client.clone(), key.into_key()?);
    let token = CancelToken::new();
    let _on_drop = CancelOnDrop(token.clone());
    let options = options.clone().cancel(&token);
    let woken = Arc::new(Notify::new());
    let wake = Arc::clone(&woken);
    let entered = blocking(move || {
        let turn = client.lock_or_wait(key, &options, move || wake.notify_one())?;
        // Made here and not after the await: an answer that no future takes is dropped by tokio, on any of its threads.
        Ok(match turn {
            Turn::Held(guard) => ControlFlow::Break(AsyncGuard::new(guard)),
            Turn::InLine(waiter) => ControlFlow::Continue(waiter),
        })
    });
    let mut waiter = match entered.await?? {
        ControlFlow::Break(guard) => return Ok(guard),
        ControlFlow::Continue(waiter) => waiter,
    };
    loop {
        match waiter.next(WaiterEvent::Woken) {
            WaiterStep::Try { .. } => {
                let token = token.clone();
                let attempt = blocking(move || {
                    let tried = waiter.try_lock(&Call::new().cancelled_by(&token));
                    (waiter, tried.map(|guard| guard.map(AsyncGuard::new)))
                });
                let (back, tried) = attempt.await?;
                if let Some(guard) = tried? {
                    return Ok(guard);
                }
                waiter = back;
            }
            WaiterStep::Sleep(time) => drop(timeout(time, woken.notified()).await),
            WaiterStep::GiveUp(error) => return Err(error),
        }
    }
}

/// A lock that is held. Dropped, it releases the lock on a thread where blocking is allowed.
#[must_use = "a guard that is not kept releases its lock at once"]
#[derive(Debug)]
pub struct AsyncGuard(Option<Guard>);

impl AsyncGuard {
    fn new(guard: Guard) -> Self {
        Self(Some(guard))
    }

    /// The guard, for what does no I/O: `fence`, `is_lost`, `remaining`.
    pub fn guard(&self) -> &Guard {
        let Some(guard) = &self.0 else {
            unreachable!("only release and drop take it")
        };
        guard
    }

    /// Releases the lock and says whether it was still held. The release goes on if this future is dropped.
    pub async fn release(mut self) -> Result<ReleaseOutcome, LockError> {
        let Some(guard) = self.0.take() else {
            unreachable!("only release and drop take it")
        };
        blocking(move || guard.release()).await?
    }
}

impl Drop for AsyncGuard {
    fn drop(&mut self) {
        let Some(guard) = self.0.take() else { return };
        match Handle::try_current() {
            // If the runtime is about to end, tokio drops the closure, and the guard releases the lock in here.
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(guard))),
            Err(_) => drop(guard),
        }
    }
}

struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Does `work` on a thread where blocking is allowed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, LockError> {
    match spawn_blocking(work).await {
        Ok(answer) => Ok(answer),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => {
                let error = LockError::new(ErrorCode::Aborted, "the runtime is about to end");
                Err(error.nothing_applied())
            }
        },
    }
}
// ---- end

// ---- use begin
async fn invoice(client: &Client) -> Result<(), LockError> {
    let guard = lock(client, "invoice:42", &LockOptions::new()).await?;
    println!("write with fence {}", guard.guard().fence());
    guard.release().await?.expect_released(); // or just drop it
    Ok(())
}
// ---- use end

/// Takes a lock twice, and gives up a wait.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("syncguard-tokio-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let client = Client::open(&format!("sqlite:{}", dir.join("locks.db").display()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()?;
    runtime.block_on(async {
        invoice(&client).await?;
        let guard = lock(&client, "invoice:42", &LockOptions::new()).await?;
        println!("write with fence {}", guard.guard().fence());

        let patient = LockOptions::new().wait_forever();
        let second = lock(&client, "invoice:42", &patient);
        if timeout(std::time::Duration::from_millis(100), second)
            .await
            .is_err()
        {
            println!("the second task gave up; its wait has ended");
        }
        guard.release().await?.expect_released();
        Ok::<(), LockError>(())
    })?;
    drop(client);
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
