//! The target `redis_session` for cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncguard_fuzz::targets::redis_session::run(data);
});
