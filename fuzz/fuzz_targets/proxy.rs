#![no_main]
#[path = "../src/proxy.rs"]
#[allow(dead_code)]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::parsers(data));
