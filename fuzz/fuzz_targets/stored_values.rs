//! The target `stored_values` for cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncguard_fuzz::targets::stored_values::run(data);
});
