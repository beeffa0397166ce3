//! When may the next packet go: rate controllers.
//!
//! A controller sees packets, never symbols: coding cannot hide loss, delay or congestion marks
//! from it. Of blocks it hears when one is acknowledged, which only [`BlockWait`] minds.
//!
//! [`PathModel`] is the flagship's. The others are the ways of DFCP-J §3.2: as fast as possible
//! ([`MaxRate`]), what someone orders ([`FixedRate`], [`Ordered`]), the available bandwidth as
//! probes show it ([`ProbeGap`], [`ProbeRate`]), and explicit feedback ([`Marked`]). [`Tokens`] is
//! CTCP's, [`Tfrc`] takes what TCP would; RC-UDP's [`BlockWait`] pauses between the blocks
//! of any, [`Capped`] bounds any, and [`Restrained`] those that do not back off, once they flood.

mod block_wait;
mod cap;
mod control;
mod delivery;
mod fixed;
mod marked;
mod path_history;
mod path_model;
mod probe_gap;
mod probe_rate;
mod restrained;
#[cfg(test)]
mod tests;
mod tfrc;
mod tokens;

pub use block_wait::BlockWait;
pub use cap::Capped;
pub(crate) use control::{Grouping, MAX_COALESCING, MIN_COALESCING, PathControl};
pub use fixed::{FixedRate, MaxRate, Ordered};
pub use marked::Marked;
pub use path_model::{MarkResponse, PathModel};
pub use probe_gap::ProbeGap;
pub use probe_rate::ProbeRate;
pub use restrained::Restrained;
pub use tfrc::{
    Discounting, LossEvent, LossHistory, OscillationReduction, Specification, Tfrc,
    loss_event_rate, tcp_throughput,
};
pub use tokens::{BackOff, MinRtt, TokenParameters, Tokens};

use crate::packet::{Place, RttEstimator};
use crate::time::{Duration, Instant, Rate};
use std::fmt::Debug;

/// Methods of [`RateController`] that a wrapper leaves to the controller in its field `inner`.
macro_rules! leave_to_inner {
    ($($method:ident),+ $(,)?) => { $($crate::rate::leave_to_inner!(@ $method);)+ };
    (@ on_pair) => {
        fn on_pair(&mut self, now: Instant, rate: Rate) {
            self.inner.on_pair(now, rate);
        }
    };
    (@ on_sent) => {
        fn on_sent(&mut self, now: Instant, sent_total: u64) {
            self.inner.on_sent(now, sent_total);
        }
    };
    (@ on_block_acked) => {
        fn on_block_acked(&mut self, now: Instant, block: &BlockSent) {
            self.inner.on_block_acked(now, block);
        }
    };
    (@ departure) => {
        fn departure(&self) -> Departure {
            self.inner.departure()
        }
    };
    (@ is_probing) => {
        fn is_probing(&self) -> bool {
            self.inner.is_probing()
        }
    };
    (@ ecn) => {
        fn ecn(&self) -> Codepoint {
            self.inner.ecn()
        }
    };
    (@ on_timeout) => {
        fn on_timeout(&mut self, now: Instant, count: u32) {
            self.inner.on_timeout(now, count);
        }
    };
    (@ round_trip) => {
        fn round_trip(&self) -> Option<Duration> {
            self.inner.round_trip()
        }
    };
    (@ refused_reports) => {
        fn refused_reports(&self) -> u64 {
            self.inner.refused_reports()
        }
    };
    (@ on_order) => {
        fn on_order(&mut self, now: Instant, rate: Rate) {
            self.inner.on_order(now, rate);
        }
    };
    (@ window) => {
        fn window(&self) -> u64 {
            self.inner.window()
        }
    };
    (@ is_bounded) => {
        fn is_bounded(&self) -> bool {
            self.inner.is_bounded()
        }
    };
    (@ max_burst) => {
        fn max_burst(&self) -> u64 {
            self.inner.max_burst()
        }
    };
    (@ initial_burst) => {
        fn initial_burst(&self) -> u64 {
            self.inner.initial_burst()
        }
    };
    (@ bandwidth) => {
        fn bandwidth(&self) -> Rate {
            self.inner.bandwidth()
        }
    };
}
use leave_to_inner;

/// One acknowledged packet, seen on the clocks of both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AckPoint {
    /// When it arrived, on the receiver's clock (origin arbitrary).
    pub received_at: Duration,
    /// When it was sent.
    pub sent_at: Instant,
    /// Bytes sent up to and with it.
    pub sent_total: u64,
    /// Bytes known to have arrived when it was acknowledged.
    pub delivered_total: u64,
    /// UDP payload bytes of it; zero where that is not known.
    pub size: u64,
}

impl AckPoint {
    /// Puts a point together.
    pub fn new(
        received_at: Duration,
        sent_at: Instant,
        sent_total: u64,
        delivered_total: u64,
    ) -> Self {
        Self {
            received_at,
            sent_at,
            sent_total,
            delivered_total,
            size: 0,
        }
    }

    /// Seconds from departure to arrival, and the difference of the two clocks.
    pub(crate) fn one_way_delay(&self) -> f64 {
        self.received_at.as_secs_f64() - self.sent_at.as_nanos() as f64 / 1e9
    }
}

/// What a receiver says of the path (RFC 5348 §3.2.2): its claims, unchecked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathReport {
    /// X_recv: UDP payload bytes per second that arrived over the last round trip.
    pub receive_rate: f64,
    /// p: loss events per packet, 0 to 1.
    pub loss_event_rate: f64,
}

/// What one ACK, or the passing of time, taught about the path.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Feedback<'a> {
    /// Now.
    pub now: Instant,
    /// The newest packet acknowledged, if newer than any before.
    pub newest: Option<AckPoint>,
    /// Packets acknowledged for the first time.
    pub acked_packets: u64,
    /// Of these, how many had been declared lost before: the path reorders, it did not lose them.
    pub spurious_packets: u64,
    /// Packets declared lost.
    pub lost_packets: u64,
    /// Of those acknowledged and lost, the ones that left in groups.
    pub groups: FateInGroups,
    /// Packets that arrived marked Congestion Experienced.
    pub ce_packets: u64,
    /// Of those acknowledged for the first time, how many could be marked: what `ce_packets` is a part
    /// of (RFC 8257 §3.3).
    pub ect_packets: u64,
    /// How long nothing was acknowledged while something was in flight, if this acknowledges
    /// something; else zero.
    pub silence: Duration,
    /// Probe timeouts in a row that this ends: three and more are persistent congestion, if everything
    /// before was lost (RFC 9002 §7.6), or an outage.
    pub timeouts: u32,
    /// How much later than a packet that was sent after them others arrive (the 99th percentile); zero where packets
    /// keep their order.
    pub lateness: Duration,
    /// UDP payload bytes in flight after this.
    pub bytes_in_flight: u64,
    /// Bytes sent when the sender last had nothing to send though it was allowed to.
    pub idle_total: u64,
    /// The same, but only if its application had no more: not while it waited for the receiver to give credit or
    /// to finish blocks, which a receiver could do as it likes to look as slow as it likes.
    pub app_limited_total: u64,
    /// What the receiver itself says of the path, if its feedback does.
    pub path: Option<PathReport>,
    /// Round-trip times.
    pub rtt: &'a RttEstimator,
}

impl<'a> Feedback<'a> {
    /// Feedback that says nothing yet; fields are set by name.
    pub fn new(now: Instant, rtt: &'a RttEstimator) -> Self {
        Self {
            now,
            newest: None,
            acked_packets: 0,
            spurious_packets: 0,
            lost_packets: 0,
            groups: FateInGroups::default(),
            ce_packets: 0,
            ect_packets: 0,
            silence: Duration::ZERO,
            timeouts: 0,
            lateness: Duration::ZERO,
            bytes_in_flight: 0,
            idle_total: 0,
            app_limited_total: 0,
            path: None,
            rtt,
        }
    }
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// Acknowledged.
    pub acked: u64,
    /// Declared lost.
    pub lost: u64,
}

/// What became of packets that left in groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FateInGroups {
    /// Of the first half of a group.
    pub front: Fate,
    /// Of what left behind it.
    pub back: Fate,
}

impl FateInGroups {
    /// Packets that left at this place; `None` if it is no group's.
    pub fn at(&mut self, place: Place) -> Option<&mut Fate> {
        match place {
            Place::Alone => None,
            Place::Front => Some(&mut self.front),
            Place::Back => Some(&mut self.back),
        }
    }
}

/// What the IP header of a packet says of congestion marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codepoint {
    /// It is dropped instead of marked.
    #[default]
    NotCapable = 0,
    /// A mark is answered as a loss is, or nearly (RFC 3168, RFC 8511).
    Ect0 = 0b10,
    /// Marks are frequent and answered in proportion (RFC 9331).
    Ect1 = 0b01,
}

/// What it took to send a block, at the moment its acknowledgement came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockSent {
    /// Packets sent of it.
    pub sent: u64,
    /// Packets that would have been enough.
    pub needed: u64,
    /// Whether the next block could leave at once.
    pub next_is_ready: bool,
}

impl BlockSent {
    /// `sent` and `needed`; the next block is ready.
    pub fn new(sent: u64, needed: u64) -> Self {
        Self {
            sent,
            needed,
            next_is_ready: true,
        }
    }
}

/// How the next data packet leaves. Only probes leave otherwise than the pacer lets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// Its own time, which the pacer does not delay; it must not leave earlier, and the next packet
    /// not before it. `None`: when the pacer lets it.
    pub at: Option<Instant>,
    /// The receiver is asked to acknowledge it at once with the time of its arrival, so that it gets an
    /// [`AckPoint`] of its own (as by IMMEDIATE_ACK of draft-ietf-quic-ack-frequency).
    pub immediate_ack: bool,
}

/// Decides when the next packet may go. Object safe.
///
/// A sender asks [`departure`](Self::departure) before each data packet and calls
/// [`on_sent`](Self::on_sent) after it, before it asks for the next; then it takes
/// [`pacing_rate`](Self::pacing_rate) into use, as after feedback and orders.
pub trait RateController: Debug + Send {
    /// The handshake measured `rtt`; packets have up to `packet_size` bytes.
    fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64);

    /// Two packets of the handshake that left together arrived as a path of `rate` (UDP payload bits)
    /// draws them apart. Nobody vouches for it, and other traffic or a link that delivers packets in
    /// bunches falsifies it: good for the first flight, within bounds. Comes after
    /// [`on_established`](Self::on_established) and before feedback, or never.
    fn on_pair(&mut self, _now: Instant, _rate: Rate) {}

    /// Called for every ACK and every loss found by a timer.
    fn on_feedback(&mut self, feedback: &Feedback<'_>);

    /// A data packet left; its last byte is the connection's byte number `sent_total`, by which its
    /// [`AckPoint`] will name it.
    fn on_sent(&mut self, _now: Instant, _sent_total: u64) {}

    /// A block was acknowledged. The one word about blocks that a controller hears.
    fn on_block_acked(&mut self, _now: Instant, _block: &BlockSent) {}

    /// How the next data packet is to leave.
    fn departure(&self) -> Departure {
        Departure::default()
    }

    /// Whether a [`Departure`] may ever ask for an immediate acknowledgement, so that room for the question is kept.
    fn is_probing(&self) -> bool {
        false
    }

    /// What its packets say of marks: a controller that congestion marks do not slow down must not
    /// say that they can be marked (RFC 3168 §5).
    fn ecn(&self) -> Codepoint {
        Codepoint::NotCapable
    }

    /// A probe timeout passed, the `count`th in a row, without any acknowledgement.
    fn on_timeout(&mut self, _now: Instant, _count: u32) {}

    /// The round-trip time that receivers are to know, where they judge by it which losses are one
    /// event (RFC 5348 §3.2.1). `Some` from the start or never: room for it is kept.
    fn round_trip(&self) -> Option<Duration> {
        None
    }

    /// Reports of the receiver that were absurd.
    fn refused_reports(&self) -> u64 {
        0
    }

    /// A network controller allows `rate` (DFCP-J §7.6). Only those that obey one listen.
    fn on_order(&mut self, _now: Instant, _rate: Rate) {}

    /// Rate at which packets are spaced, UDP payload bits.
    fn pacing_rate(&self) -> Rate;

    /// Most bytes in flight.
    fn window(&self) -> u64;

    /// Whether the rate is somebody's bound and not what the path was found to carry: asking for more
    /// news of the path than it lets through would break it.
    fn is_bounded(&self) -> bool {
        false
    }

    /// Most bytes that may leave together once paced: what the path's queue has room for, as far as
    /// that is known. Fewer wake-ups serve larger groups.
    fn max_burst(&self) -> u64 {
        self.pacing_rate().bytes_in(Duration::from_millis(1))
    }

    /// Bytes that may leave unpaced at the very start.
    fn initial_burst(&self) -> u64;

    /// The path's bandwidth as far as known, for people.
    fn bandwidth(&self) -> Rate {
        self.pacing_rate()
    }
}
