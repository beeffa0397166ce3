//! A timer for one task, as exact as the system's: packets are paced in fractions of the
//! millisecond that tokio's own timer counts in.
//!
//! On Linux a `timerfd`; elsewhere tokio's timer. Setting one is a system call, so a deadline that
//! moves by less than [`SLACK`] does not set it again.

use dfcp_proto::Instant;
use std::future::pending;
use std::io;
use std::time::Duration;

/// A wake-up may be this late.
const SLACK: Duration = Duration::from_micros(50);
/// The shortest sleep: a deadline that passed though nothing could be done must not make a busy
/// loop.
const SHORTEST: Duration = Duration::from_micros(20);

#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Timer(nix::sys::timerfd::TimerFd);

#[cfg(target_os = "linux")]
impl std::os::fd::AsRawFd for Timer {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsFd::as_fd(&self.0).as_raw_fd()
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Alarm {
    #[cfg(target_os = "linux")]
    timer: tokio::io::unix::AsyncFd<Timer>,
    /// When the timer fires, if it is set.
    #[cfg(target_os = "linux")]
    armed: Option<Instant>,
}

impl Alarm {
    /// A timer that is not set; call within a tokio runtime.
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> io::Result<Self> {
        use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        Ok(Self {
            timer: crate::reactor::register(Timer(timer), tokio::io::Interest::READABLE)?,
            armed: None,
        })
    }

    /// Waits from `now` until about `until`, or a little longer or shorter; for ever without one.
    #[cfg(target_os = "linux")]
    pub(crate) async fn wait(&mut self, now: Instant, until: Option<Instant>) -> io::Result<()> {
        use nix::sys::timerfd::{Expiration, TimerSetTimeFlags};
        let Some(until) = until else {
            return pending().await;
        };
        let until = until.max(now + SHORTEST);
        if !self
            .armed
            .is_some_and(|at| (until..until + SLACK).contains(&at))
        {
            let wait = until.saturating_since(now);
            let once = Expiration::OneShot(wait.into());
            self.timer
                .get_ref()
                .0
                .set(once, TimerSetTimeFlags::empty())?;
            self.armed = Some(until);
        }
        // Every expiration is an event of its own: the count need not be read.
        self.timer.readable().await?.clear_ready();
        self.armed = None;
        Ok(())
    }

    /// A timer that is not set; call within a tokio runtime.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits from `now` until about `until`, or a little longer; for ever without one.
    #[cfg(not(target_os = "linux"))]
    pub(crate) async fn wait(&mut self, now: Instant, until: Option<Instant>) -> io::Result<()> {
        let Some(until) = until else {
            return pending().await;
        };
        let wait = until.saturating_since(now).max(SHORTEST);
        tokio::time::sleep(wait).await;
        Ok(())
    }
}
