//! The C ABI of syncguard. Its manual is the header, made from the comments here by cbindgen.
//!
//! `boundary` is the only room with raw pointers, `unsafe` blocks, struct copying and `catch_unwind`; every other file converts,
//! calls the Rust API and converts back.
#![allow(non_camel_case_types)]
// What a caller must keep to stands in the header, for people who do not read Rust.
#![allow(clippy::missing_safety_doc)]

mod boundary;
mod cancel;
mod client;
mod error;
mod guard;
mod helpers;
mod options;
mod status;
mod telemetry;
mod verbs;
mod version;
mod waiter;
