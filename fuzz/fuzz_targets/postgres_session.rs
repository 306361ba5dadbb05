//! The target `postgres_session` for cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncguard_fuzz::targets::postgres_session::run(data);
});
