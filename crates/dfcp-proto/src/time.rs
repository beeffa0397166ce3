//! Time and rate units of the core. The core never reads a clock: a driver passes [`Instant`]s in.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
pub use std::time::Duration;

/// A point in time, in nanoseconds since an origin that the driver chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The driver's origin.
    pub const ZERO: Self = Self(0);

    /// A point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(nanos(rhs)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(rhs)))
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// A data rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

impl Rate {
    /// No data at all.
    pub const ZERO: Self = Self(0);
    /// No limit.
    pub const MAX: Self = Self(u64::MAX);

    /// `bps` bits per second.
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// The rate that moves `bytes` in `time`; [`Rate::MAX`] when `time` is zero.
    pub fn from_transfer(bytes: u64, time: Duration) -> Self {
        match nanos(time) {
            0 => Self::MAX,
            ns => Self(
                u64::try_from(u128::from(bytes) * 8_000_000_000 / u128::from(ns))
                    .unwrap_or(u64::MAX),
            ),
        }
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Time that `bytes` take at this rate; [`Duration::MAX`] at rate zero.
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        // Divisions of 128 bits cost several times those of 64.
        Duration::from_nanos(match bytes.checked_mul(8_000_000_000) {
            Some(product) => product / self.0,
            None => u64::try_from(u128::from(bytes) * 8_000_000_000 / u128::from(self.0))
                .unwrap_or(u64::MAX),
        })
    }

    /// Bytes that this rate moves in `time`.
    pub fn bytes_in(self, time: Duration) -> u64 {
        let nanos = time.as_nanos();
        match u64::try_from(nanos)
            .ok()
            .and_then(|n| n.checked_mul(self.0))
        {
            Some(product) => product / 8_000_000_000,
            None => u64::try_from(u128::from(self.0).saturating_mul(nanos) / 8_000_000_000)
                .unwrap_or(u64::MAX),
        }
    }

    /// This rate times `factor` (finite, not negative).
    pub fn mul_f64(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor.max(0.0)) as u64)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bps = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{bps:.0} bit/s"),
            1_000..1_000_000 => write!(f, "{:.1} kbit/s", bps / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.2} Mbit/s", bps / 1e6),
            _ => write!(f, "{:.3} Gbit/s", bps / 1e9),
        }
    }
}
