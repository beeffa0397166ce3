//! The dfcp protocol core.
#![forbid(unsafe_code)]
pub mod time;
pub use time::{Duration, Instant, Rate};
