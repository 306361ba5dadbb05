//! A model of the protocol between callers and a store, small enough for a checker to visit every state of it.
//!
//! The model has one key. Its callers acquire, repeat an acquire, extend, release and undo. Its messages are delivered late, in any order, or
//! never. Its clocks drift apart within the margin. Its store crashes and restarts. A caller that is paused is one that makes no step while
//! time passes; the checker visits that too.
//!
//! Three of the library's promises are properties of the model: no two holders believe at once, the fence grows with every grant, and an
//! acquire whose answer was lost is undone. A [`Mistake`] is a rule of the protocol left out. The tests show that each of them breaks a promise.

mod caller;
mod protocol;
mod rules;
mod scenarios;
mod store;

pub use protocol::{Action, World};
pub use rules::{Mistake, Rules, TwoSteps, Wants};
pub use scenarios::scenarios;
