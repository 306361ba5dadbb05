//! The C ABI of syncguard. Its manual is the header, made from the comments here by cbindgen.
//!
//! `boundary` alone has raw pointers, `unsafe` blocks, struct copying and `catch_unwind`, and uses no other file but `error`, `status`
//! and `telemetry`. Every other file has one C type or one group of functions: it converts, calls the public Rust API and converts back.
#![allow(non_camel_case_types)]
// The header says what a caller must do, for readers without Rust.
#![allow(clippy::missing_safety_doc)]

mod boundary;
mod cancel;
mod client;
mod error;
mod gate;
mod guard;
mod helpers;
mod listing;
mod options;
mod report;
mod status;
mod telemetry;
mod verbs;
mod version;
mod waiter;
