//! Tests the command with real processes, a terminal and real servers.

mod looking;
mod losing;
mod page;
mod running;
mod shell;
mod stopping;
mod support;
mod terminal;
