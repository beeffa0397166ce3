#![no_main]

#[path = "../src/tun.rs"]
mod tun;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tun::link(data));
