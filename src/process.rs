//! What belongs to one process and must not be shared with a forked child.

use std::sync::OnceLock;

/// A static that every process has for itself: a forked child never sees its parent's value, whose threads do not exist in
/// it and whose mutexes may be locked for ever. What the parent left is kept, untouched.
pub(crate) struct PerProcess<T>(Node<T>);

struct Node<T> {
    cell: OnceLock<(u32, T)>,
    next: OnceLock<Box<Node<T>>>,
}

impl<T> Node<T> {
    const fn new() -> Self {
        Self {
            cell: OnceLock::new(),
            next: OnceLock::new(),
        }
    }
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(Node::new())
    }

    /// This process's value, made with `make` at its first use.
    pub(crate) fn get(&self, make: impl FnOnce() -> T) -> &T {
        let pid = std::process::id();
        let mut make = Some(make);
        let mut node = &self.0;
        loop {
            let (owner, value) = node.cell.get_or_init(|| match make.take() {
                Some(make) => (pid, make()),
                None => unreachable!("a value is made once, in the first empty node"),
            });
            if *owner == pid {
                return value;
            }
            node = node.next.get_or_init(|| Box::new(Node::new()));
        }
    }
}
