//! The target `c_texts` for cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncguard_fuzz::targets::c_texts::run(data);
});
