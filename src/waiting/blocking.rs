//! The blocking wait: does on the caller's thread what the policy says.

use std::sync::Arc;

use crate::runtime::cancel::Bell;
use crate::types::error::LockError;
use crate::waiting::attempt::{Granted, Target};
use crate::waiting::policy::WaitAction;
use crate::waiting::wait::{Entered, Wait, WaiterEvent};

impl Wait {
    /// Waits on this thread.
    pub(crate) fn run(mut self, at: Target<'_>) -> Result<Granted, LockError> {
        self.on_own_thread();
        let mut bell = None;
        let ticket = match self.enter(at, || bell.insert(Arc::new(Bell::default())).clone())? {
            Entered::Granted(granted) => return Ok(granted),
            Entered::InLine(ticket) => ticket,
        };
        let bell = bell.unwrap_or_default();
        let _subscription = at.call.token().map(|token| token.subscribe(bell.clone()));
        loop {
            let event = if at.call.is_cancelled() {
                WaiterEvent::Cancelled
            } else {
                WaiterEvent::Woken
            };
            match self.next(&ticket, event) {
                WaitAction::SleepUntil(until) => bell.sleep_until(until),
                WaitAction::Try { .. } => {
                    if let Some(granted) = self.attempt(at, Some(&ticket)) {
                        return Ok(granted);
                    }
                }
                WaitAction::GiveUp(reason) => {
                    self.leave(at);
                    return Err(self.error(at, reason));
                }
                WaitAction::Done => return Err(LockError::internal("a grant was lost")),
            }
        }
    }
}
