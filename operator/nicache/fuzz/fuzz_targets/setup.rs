#![no_main]

#[path = "../../tests/exercise/mod.rs"]
mod exercise;
/// The command's own modules, which no library has.
#[allow(dead_code)]
#[path = "../../src"]
mod nicache {
    pub mod options;
    pub mod policy;
    pub mod setup;
}
use nicache::{options, policy, setup};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::setup(bytes));
