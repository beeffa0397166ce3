#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| dfcp_fuzz::answers::answers(data));
