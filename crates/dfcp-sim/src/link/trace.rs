//! provisional
use dfcp_proto::{Instant, Rate};
/// t
#[derive(Clone, Debug, PartialEq)]
pub struct RateTrace;
/// e
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("trace")]
pub struct RateTraceError;
impl RateTrace {
    pub(super) const OPPORTUNITY: u32 = 1500;
    /// m
    pub fn mean_rate(&self) -> Rate {
        Rate::ZERO
    }
    /// f
    pub fn first_at_or_after(&self, _: Instant) -> u64 {
        0
    }
    /// o
    pub fn opportunity(&self, _: u64) -> Instant {
        Instant::ZERO
    }
}
