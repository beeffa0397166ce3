//! The real clock as the simulation's [`Instant`].
//!
//! `CLOCK_MONOTONIC`, which all processes and namespaces of a machine share: programs at both ends
//! of a path can compare their times with each other and with the path's.

use dfcp_proto::{Duration, Instant};
use nix::time::{ClockId, clock_gettime};

/// Counts from some moment on.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: u64,
}

impl Clock {
    /// Counts from now on.
    pub fn start() -> Self {
        Self {
            epoch: monotonic_ns(),
        }
    }

    /// The time since the clock's start.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(monotonic_ns().saturating_sub(self.epoch))
    }

    /// Nanoseconds of `CLOCK_MONOTONIC` at this time.
    pub fn monotonic_ns(&self, at: Instant) -> u64 {
        self.epoch.saturating_add(at.as_nanos())
    }

    /// Both clocks now, so that the kernel's timestamps, which are of `CLOCK_REALTIME`, can be
    /// told as times of this one even when that clock is set.
    pub fn reading(&self) -> Reading {
        Reading {
            now: self.now(),
            real_ns: nanos(ClockId::CLOCK_REALTIME),
        }
    }
}

/// The clock and `CLOCK_REALTIME` at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// This clock.
    pub now: Instant,
    /// Nanoseconds of `CLOCK_REALTIME`.
    real_ns: u64,
}

impl Reading {
    /// When it was `real_ns` of `CLOCK_REALTIME`; at the latest now.
    pub fn at_real(&self, real_ns: u64) -> Instant {
        let ago = Duration::from_nanos(self.real_ns.saturating_sub(real_ns));
        Instant::ZERO + self.now.saturating_since(Instant::ZERO).saturating_sub(ago)
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    nanos(ClockId::CLOCK_MONOTONIC)
}

/// Processor time of the calling thread.
pub(super) fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(ClockId::CLOCK_THREAD_CPUTIME_ID))
}

fn nanos(clock: ClockId) -> u64 {
    // These clocks exist wherever this compiles.
    let time = clock_gettime(clock).unwrap_or_else(|_| nix::sys::time::TimeSpec::new(0, 0));
    (time.tv_sec() as u64).wrapping_mul(1_000_000_000) + time.tv_nsec() as u64
}
