//! The target `names` for cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncguard_fuzz::targets::names::run(data);
});
