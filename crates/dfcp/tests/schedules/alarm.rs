//! A timer that rings after whatever time: too early, for who waits for it must bear that.

use dfcp_proto::Instant;
use std::future::pending;
use std::io;

#[derive(Debug)]
pub(crate) struct Alarm;

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for other tasks; for ever without a time.
    pub(crate) async fn wait(&mut self, _now: Instant, until: Option<Instant>) -> io::Result<()> {
        if until.is_none() {
            return pending().await;
        }
        crate::sync::yield_now().await;
        Ok(())
    }
}
