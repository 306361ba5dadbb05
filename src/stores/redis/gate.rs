//! The gate of Redis: a key beside the data that holds the newest fence, and scripts that compare and write in one step. It uses
//! `error`, `format`, `resp`, `verbs`, `backend` and `types`.
//!
//! The gate of the name `K` is the key [`K:fence`](gate_key), a text of 15 digits that never expires. A name lies outside of the client's
//! `key_prefix`, where every name belongs to a lock. In a Redis Cluster it needs the hash tag of that prefix too, so that all keys are on
//! one node: with the prefix `{app}` a good name is `{app}data:account:7`.

use super::error;
use super::resp::Reply;
use super::verbs::RedisVerbs;
use crate::backend::call::Call;
use crate::backend::gate::{GateOutcome, GateStore, check_fence, check_resource};
use crate::backend::pool::Rank;
use crate::types::error::LockError;
use crate::types::fence::Fence;

pub use super::format::{FENCED_SET, GATE_PRELUDE as PRELUDE};

/// What the error reply to a former holder begins with. The newest fence follows, in 15 digits.
pub const STALE: &str = "SYNCGUARD_STALE";

/// A script of yours behind the check: it runs only if the fence passes.
///
/// Give it the [gate's key](gate_key) and then your own keys, the fence and then your own arguments. The script finds its own ones in
/// `KEYS` and `ARGV` as if it were alone. A former holder gets an error reply that begins with [`STALE`], and nothing is changed. A script
/// with a first line `#!lua` does not compile behind the check, so that Redis answers an error and runs nothing: leave that line out.
///
/// ```
/// use syncguard::gate::redis::{gate_key, gated};
///
/// let script = gated("return redis.call('INCRBY', KEYS[1], ARGV[1])");
/// let gate = gate_key("account:7");
/// let command = ["EVAL", &script, "2", &gate, "account:7", "000000000000034", "100"];
/// assert_eq!(command[3], "account:7:fence");
/// ```
pub fn gated(script: &str) -> String {
    format!("{PRELUDE}{script}")
}

/// The key that holds the newest fence of a name.
///
/// A script of yours is not asked whether this key belongs to a lock: choose a name that does not begin with the `key_prefix` of your
/// clients and a colon, nor ends with `:fence`.
///
/// ```
/// assert_eq!(syncguard::gate::redis::gate_key("account:7"), "account:7:fence");
/// ```
pub fn gate_key(name: &str) -> String {
    format!("{name}{GATE_END}")
}

/// What the gate of a name ends with.
const GATE_END: &str = ":fence";
/// What counters and index entries begin with behind the prefix. Without a prefix it is all that tells them from data.
const OWN_KINDS: [&str; 2] = ["fence:", "id:"];

impl RedisVerbs {
    fn check_name(&self, name: &str) -> Result<(), LockError> {
        check_resource(name)?;
        check_place(name, self.prefix())?;
        self.sessions().check_name(name)
    }
}

/// Refuses a name that is another name's gate, and one whose data or gate would overwrite a lock, a fence counter or an index entry.
fn check_place(name: &str, prefix: &str) -> Result<(), LockError> {
    if name.ends_with(GATE_END) {
        return Err(LockError::invalid(
            "the name ends with \":fence\", as the gates of other names do: choose another one",
        ));
    }
    let gate = gate_key(name);
    let is_under = |name: &str| match prefix {
        "" => OWN_KINDS.iter().any(|kind| name.starts_with(kind)),
        prefix => name
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with(':')),
    };
    if is_under(name) || is_under(&gate) {
        return Err(LockError::invalid(
            "the name or its gate lies among the locks and fence counters of this client: choose a name that is not the key_prefix \
             and does not begin with it and a colon, nor with \"fence:\" or \"id:\" where the prefix is empty",
        ));
    }
    Ok(())
}

impl GateStore for RedisVerbs {
    /// Nothing is needed.
    fn setup_fence_gate(&self, call: &Call<'_>) -> Result<(), LockError> {
        self.enter(call).map(drop)
    }

    fn newest_fence(&self, resource: &str, call: &Call<'_>) -> Result<Option<Fence>, LockError> {
        self.check_name(resource)?;
        let gate = gate_key(resource);
        let limits = self.enter(call)?;
        let script = &self.scripts().newest_fence;
        let reply = self.run(Rank::Ordinary, &limits, script, &[gate.as_bytes()], &[])?;
        match reply {
            Reply::Nil => Ok(None),
            Reply::Bulk(text) => fence(&text).map(Some).ok_or_else(not_a_gate),
            _ => Err(error::unexpected()),
        }
    }

    fn reset_fence_gate(
        &self,
        resource: &str,
        seen: Fence,
        call: &Call<'_>,
    ) -> Result<bool, LockError> {
        self.check_name(resource)?;
        let gate = gate_key(resource);
        let limits = self.enter(call)?;
        let args = [&seen.to_string().into_bytes()[..]];
        let script = &self.scripts().reset_gate;
        let reply = self.run(Rank::Ordinary, &limits, script, &[gate.as_bytes()], &args)?;
        match reply {
            Reply::Integer(gone @ (0 | 1)) => Ok(gone == 1),
            _ => Err(error::unexpected()),
        }
    }

    fn fenced_set(
        &self,
        name: &str,
        value: &[u8],
        fence: Fence,
        call: &Call<'_>,
    ) -> Result<GateOutcome, LockError> {
        self.check_name(name)?;
        check_fence(fence)?;
        let gate = gate_key(name);
        let limits = self.enter(call)?;
        let reply = self.reply(
            Rank::Ordinary,
            &limits,
            &self.scripts().fenced_set,
            &[gate.as_bytes(), name.as_bytes()],
            &[fence.to_string().as_bytes(), value],
        )?;
        match reply {
            Reply::Integer(1) => Ok(GateOutcome::Passed),
            Reply::Error(line) => match newest(&line) {
                Some(newest) => Ok(GateOutcome::Refused { newest }),
                None => Err(error::refused(&line)),
            },
            _ => Err(error::unexpected()),
        }
    }
}

/// The newest fence in the answer to a former holder.
fn newest(line: &str) -> Option<Fence> {
    let (_, rest) = line.split_once(STALE)?;
    fence(rest.split_whitespace().next()?.as_bytes())
}

/// A fence in digits, as a gate holds it.
fn fence(digits: &[u8]) -> Option<Fence> {
    let text = std::str::from_utf8(digits).ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    Fence::new(text.parse().ok().filter(|_| is_number)?).ok()
}

fn not_a_gate() -> LockError {
    LockError::internal("the key of the gate holds something else than a fence").nothing_applied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::gate::MAX_RESOURCE_BYTES;
    use crate::types::error::ErrorCode;
    use crate::types::fence::MAX_FENCE;

    #[test]
    fn names_that_belong_to_locks_and_gates_are_refused() {
        let is_good = |name: &str, prefix: &str| match check_place(name, prefix) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::InvalidArgument);
                assert!(!error.message().contains("secret"), "{error}");
                false
            }
        };
        for prefix in ["syncguard", "{app}", "a:b"] {
            let bad = |end: &str| !is_good(&format!("{prefix}{end}"), prefix);
            assert!(bad(":secret") && bad(":fence:secret") && bad(":id:secret"));
            assert!(bad(":") && bad("") && bad(":secret:fence"));
            assert!(!bad("secret") && !bad("data:secret") && !bad("s"));
            assert!(is_good(":secret", prefix) && is_good("fence:secret", prefix));
            assert!(!is_good("secret:fence", prefix) && is_good("secret:fences", prefix));
        }
        for bad in ["fence:secret", "id:secret", "fence", "id", "secret:fence"] {
            assert!(!is_good(bad, ""), "{bad}");
        }
        assert!(is_good("secret", "") && is_good("ids:secret", "") && is_good("a:id:b", ""));
    }

    #[test]
    fn the_limits_are_those_of_the_library() {
        let longest = gate_key(&"x".repeat(MAX_RESOURCE_BYTES)).len();
        assert!(PRELUDE.contains(&format!("#gate > {longest} then")));
        assert!(PRELUDE.contains(&format!("tonumber(given) > {MAX_FENCE} then")));
        assert!(PRELUDE.contains(STALE));
    }
}
