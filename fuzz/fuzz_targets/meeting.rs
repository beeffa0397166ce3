#![no_main]

#[path = "../src/meeting.rs"]
mod meeting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| meeting::steps(data));
