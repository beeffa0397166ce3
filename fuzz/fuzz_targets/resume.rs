#![no_main]
#[path = "../src/transfer.rs"]
#[allow(dead_code)]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    bodies::resume(data, bodies::PATIENCE);
});
