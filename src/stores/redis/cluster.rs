//! Redis Cluster: which node owns the one slot that all keys of a prefix share. It uses `connection`, `routed`, `net`, `backend`,
//! `runtime` and `types`.
//!
//! There is no map of the cluster. A node that does not own the slot names the node that does, and that one is remembered.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::limits::Limits;
use crate::net::uri::Endpoint;
use crate::runtime::sync::Mutex;
use crate::stores::redis::connection::Connector;
use crate::stores::redis::routed::{self, Routed, share};
use crate::types::error::{ErrorCode, LockError};

const SLOTS: u16 = 16384;
/// How many nodes are remembered beside those of the URL.
const MAX_LEARNED: usize = 16;

/// The nodes of a cluster, and which of them has our slot.
pub(crate) struct Cluster {
    slot: u16,
    seeds: Vec<Endpoint>,
    state: Mutex<ClusterState>,
    /// Grows whenever connections made so far are no longer worth using.
    generation: AtomicU64,
}

#[derive(Default)]
struct ClusterState {
    owner: Option<Endpoint>,
    /// Nodes that others named, the latest last.
    learned: Vec<Endpoint>,
    /// Where among the nodes the next search begins, so that one that is stuck is not the first every time.
    first: usize,
}

/// Where a node sends a request it does not serve itself.
#[derive(Debug)]
pub(crate) struct Redirect {
    pub(crate) endpoint: Endpoint,
    /// For this request only, because the slot is on its way there.
    pub(crate) ask: bool,
    /// What a connection made for it is marked with.
    pub(crate) generation: u64,
}

impl Cluster {
    /// # Errors
    /// `InvalidArgument` if the keys under `prefix` would be spread over the cluster: a script may touch one slot only.
    pub(crate) fn new(seeds: Vec<Endpoint>, prefix: &str) -> Result<Self, LockError> {
        let tag = hash_tag(prefix).ok_or_else(|| {
            LockError::invalid(
                "Redis Cluster needs a key_prefix with a hash tag, such as {app}: without one a lock, its fence counter and its index would lie on different nodes",
            )
        })?;
        Ok(Self {
            slot: slot(tag.as_bytes()),
            seeds,
            state: Mutex::default(),
            generation: AtomicU64::new(0),
        })
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// A connection to the owner or, if it is unknown or cannot be reached, to any node: that one names the owner.
    pub(crate) fn connect(
        &self,
        connector: &Connector,
        limits: &Limits<'_>,
    ) -> Result<Routed, LockError> {
        // Read first: a connection to a node that is found wrong meanwhile is not kept.
        let generation = self.generation();
        let nodes = self.candidates();
        let mut failures: Vec<LockError> = Vec::new();
        for (n, node) in nodes.iter().enumerate() {
            let turn = share(limits, nodes.len() - n - 1).map_err(LockError::nothing_applied)?;
            match connector.connect(node, &turn) {
                Ok(connection) => return Ok(Routed::new(connection, node.clone(), generation)),
                Err(e) if limits.is_cancelled() => return Err(e),
                Err(e) => failures.push(e),
            }
            self.forget(node);
        }
        Err(unreachable(failures))
    }

    fn candidates(&self) -> Vec<Endpoint> {
        let mut state = self.state.lock();
        let mut nodes: Vec<Endpoint> = self.seeds.clone();
        for node in state.learned.iter().rev() {
            if !nodes.contains(node) {
                nodes.push(node.clone());
            }
        }
        let first = state.first % nodes.len().max(1);
        nodes.rotate_left(first);
        match state.owner.clone() {
            Some(owner) => {
                nodes.retain(|n| *n != owner);
                nodes.insert(0, owner);
            }
            None => state.first = first + 1,
        }
        nodes
    }

    /// What an error reply of `from` says about the way.
    ///
    /// # Errors
    /// `Internal` for a redirection that makes no sense.
    pub(crate) fn redirect(
        &self,
        line: &str,
        from: &Endpoint,
    ) -> Result<Option<Redirect>, LockError> {
        let (ask, rest) = match line.split_once(' ') {
            Some(("MOVED", rest)) => (false, rest),
            Some(("ASK", rest)) => (true, rest),
            _ => return Ok(None),
        };
        let endpoint = rest.split_once(' ').and_then(|(slot, address)| {
            let ours = slot.parse() == Ok(self.slot);
            let (host, port) = address.rsplit_once(':')?;
            // An empty host is that of the node that answered.
            let host = match (host, from) {
                ("", Endpoint::Tcp { host, .. }) => host,
                (host, _) => host,
            };
            routed::endpoint(host, port).filter(|_| ours)
        });
        let endpoint = endpoint.ok_or_else(|| {
            LockError::internal(
                "a node of the Redis Cluster names no usable address for our slot; look at its cluster-announce settings",
            )
            .nothing_applied()
        })?;
        let generation = self.learn(&endpoint, ask);
        Ok(Some(Redirect {
            endpoint,
            ask,
            generation,
        }))
    }

    fn learn(&self, node: &Endpoint, ask: bool) -> u64 {
        let mut state = self.state.lock();
        state.learned.retain(|n| n != node);
        state.learned.push(node.clone());
        if state.learned.len() > MAX_LEARNED {
            state.learned.remove(0);
        }
        if !ask && state.owner.as_ref() != Some(node) {
            state.owner = Some(node.clone());
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        self.generation()
    }

    /// `node` has served a request: it is the owner, unless another one was named since.
    pub(crate) fn confirm(&self, node: &Endpoint) {
        let mut state = self.state.lock();
        if state.owner.is_none() {
            state.owner = Some(node.clone());
        }
    }

    /// A connection of `generation` failed or its node cannot serve: the next search begins elsewhere.
    pub(crate) fn lost(&self, generation: u64) {
        let mut state = self.state.lock();
        if self.generation() == generation {
            state.owner = None;
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// `node` could not be reached. Connections to it that still work are kept.
    pub(crate) fn forget(&self, node: &Endpoint) {
        let mut state = self.state.lock();
        if state.owner.as_ref() == Some(node) {
            state.owner = None;
        }
    }
}

/// One error for nodes that all failed: their code if they agree in it.
fn unreachable(failures: Vec<LockError>) -> LockError {
    let asked = failures.len();
    let same = failures.windows(2).all(|w| w[0].code() == w[1].code());
    let Some(first) = failures.into_iter().next() else {
        return LockError::unavailable("the Redis Cluster has no known node").nothing_applied();
    };
    if asked == 1 || (same && !first.code().is_transient()) {
        return first;
    }
    let code = if same {
        first.code()
    } else {
        ErrorCode::ServiceUnavailable
    };
    let message = format!(
        "none of {asked} nodes of the Redis Cluster can serve; the first: {}",
        first.message()
    );
    LockError::new(code, message)
        .with_source(first)
        .nothing_applied()
}

impl Cluster {
    /// Refuses the name of a user's own key that lies on other nodes than the keys under the prefix.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), LockError> {
        match hash_tag(name) {
            Some(tag) if slot(tag.as_bytes()) == self.slot => Ok(()),
            _ => Err(LockError::invalid(
                "in a Redis Cluster the name needs the hash tag of key_prefix, such as {app}data:account:7 for the prefix {app}: its gate would lie on another node",
            )),
        }
    }
}

/// What stands for the whole key when its slot is computed: the text between the first `{` and the next `}`.
fn hash_tag(prefix: &str) -> Option<&str> {
    let (_, rest) = prefix.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The slot of a tag: its CRC-16 (XMODEM) modulo the number of slots.
fn slot(tag: &[u8]) -> u16 {
    let crc = tag.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp {
            host: host.to_owned(),
            port,
        }
    }

    fn cluster() -> Cluster {
        Cluster::new(vec![node("a", 1), node("b", 2)], "{foo}").expect("a tag")
    }

    #[test]
    fn slots_are_those_of_the_server() {
        // From CLUSTER KEYSLOT.
        for (tag, wanted) in [
            ("foo", 12182),
            ("123456789", 12739),
            ("app", 6805),
            ("a", 15495),
        ] {
            assert_eq!(slot(tag.as_bytes()), wanted, "{tag}");
        }
    }

    #[test]
    fn a_prefix_without_a_tag_is_refused_with_the_reason() {
        for bad in ["", "app", "{}", "{}{app}", "{app", "app}", "}app{", "a}{b"] {
            let error = Cluster::new(vec![node("a", 1)], bad).err().expect(bad);
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            assert!(error.message().contains("hash tag"));
        }
        for (good, tag) in [("{app}", "app"), ("x:{a}:{b}", "a"), ("{{a}}", "{a")] {
            assert_eq!(hash_tag(good), Some(tag));
        }
    }

    #[test]
    fn a_redirection_names_a_node_or_is_an_error() {
        let cluster = cluster();
        let at = |line| cluster.redirect(line, &node("a", 1));
        let at = |line| at(line).map(|to| to.map(|to| (to.endpoint, to.ask)));
        let to = |endpoint, ask| Some((endpoint, ask));
        assert_eq!(at("ERR x").ok(), Some(None));
        assert_eq!(
            at("MOVED 12182 10.0.0.1:7000").ok(),
            Some(to(node("10.0.0.1", 7000), false))
        );
        assert_eq!(
            at("ASK 12182 ::1:7001").ok(),
            Some(to(node("::1", 7001), true))
        );
        assert_eq!(
            at("MOVED 12182 :7002").ok(),
            Some(to(node("a", 7002), false))
        );
        for bad in [
            "MOVED 1 10.0.0.1:7000",
            "MOVED 12182 ?:7000",
            "MOVED 12182 h:0",
            "MOVED 12182 h:x",
            "MOVED 12182 a b:1",
            "MOVED 12182 h",
            "MOVED x",
            "ASK ",
        ] {
            let error = at(bad).expect_err(bad);
            assert_eq!(error.code(), ErrorCode::Internal, "{bad}");
            assert!(!error.may_have_applied());
        }
    }

    #[test]
    fn the_owner_is_remembered_until_it_fails() {
        let cluster = cluster();
        assert_eq!(cluster.candidates(), [node("a", 1), node("b", 2)]);
        // No node is confirmed: the next search begins with the next node.
        assert_eq!(cluster.candidates(), [node("b", 2), node("a", 1)]);
        let before = cluster.generation();
        let moved = cluster.redirect("MOVED 12182 c:3", &node("a", 1));
        assert!(moved.is_ok() && cluster.generation() == before + 1);
        assert_eq!(cluster.candidates()[0], node("c", 3));
        // What two callers learn at once is learnt once.
        let again = cluster.redirect("MOVED 12182 c:3", &node("b", 2));
        assert!(again.is_ok() && cluster.generation() == before + 1);
        // A slot on its way has the owner it had.
        let asked = cluster.redirect("ASK 12182 b:2", &node("c", 3));
        assert!(asked.is_ok() && cluster.generation() == before + 1);
        assert_eq!(cluster.candidates()[0], node("c", 3));
        cluster.confirm(&node("a", 1));
        assert_eq!(cluster.candidates()[0], node("c", 3));
        cluster.lost(before);
        assert_eq!(cluster.candidates()[0], node("c", 3));
        cluster.lost(before + 1);
        assert!(cluster.candidates().len() == 3 && cluster.generation() == before + 2);
        cluster.confirm(&node("b", 2));
        assert_eq!(cluster.candidates()[0], node("b", 2));
        for n in 0..100 {
            let _ = cluster.redirect(&format!("ASK 12182 x{n}:1"), &node("b", 2));
        }
        assert!(cluster.candidates().len() <= MAX_LEARNED + 2);
    }
}
