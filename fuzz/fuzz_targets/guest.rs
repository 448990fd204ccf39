//! What must hold for any bytes: `crates/readers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| powerfail_readers::run("guest", bytes));
