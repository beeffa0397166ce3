//! Reno's window (RFC 5681 §3.1): one segment more a round trip, one half at congestion.

use super::Window;

#[derive(Clone, Debug)]
pub(in crate::tcp) struct Reno;

impl Reno {
    #[inline]
    pub fn avoid(&self, window: &mut Window, delivered: f64) {
        window.cwnd += delivered / window.cwnd;
    }

    pub fn beta(&self) -> f64 {
        0.5
    }
}
