#![no_main]

#[path = "../../tests/exercise/mod.rs"]
mod exercise;
/// The command's own module, which no library has.
#[allow(dead_code)]
#[path = "../../src/options"]
mod options {
    pub mod study;
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::value(bytes));
