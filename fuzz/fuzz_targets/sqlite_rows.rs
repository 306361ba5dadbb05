//! The target `sqlite_rows` for cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncguard_fuzz::targets::sqlite_rows::run(data);
});
