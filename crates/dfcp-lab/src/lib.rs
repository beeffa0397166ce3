//! Placeholder until the lab itself is here.
#![cfg(target_os = "linux")]
pub mod peer;
mod stub;
pub use stub::*;
