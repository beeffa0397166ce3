//! What links and queues must know of a packet, whatever it carries.

use std::ops::Sub;

use dfcp_proto::Duration;
pub use dfcp_proto::published::Priority;

/// A packet that links and queue disciplines can carry.
pub trait Packet {
    /// Bytes at the layer the packet is counted in; a link adds its framing to this.
    fn size(&self) -> u32;

    /// The flow it belongs to: what fair queues keep apart.
    fn flow(&self) -> FlowId;

    /// The ECN codepoint.
    fn ecn(&self) -> Ecn;

    /// Whether it may overtake data.
    fn priority(&self) -> Priority {
        Priority::Data
    }

    /// Sets the codepoint "congestion experienced".
    fn mark_ce(&mut self);

    /// Flips the `bit`-th bit of what it carries; nothing where only sizes are simulated.
    fn corrupt(&mut self, bit: u64);
}

/// A flow of one simulation: a small number, dense from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// The ECN codepoint of an IP packet (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct = 0b00,
    /// ECN-capable, ECT(1).
    Ect1 = 0b01,
    /// ECN-capable, ECT(0).
    Ect0 = 0b10,
    /// Congestion experienced.
    Ce = 0b11,
}

impl Ecn {
    /// Whether a queue may mark instead of dropping.
    pub fn is_capable(self) -> bool {
        self != Self::NotEct
    }
}

impl From<u8> for Ecn {
    /// From the low two bits of the traffic class.
    fn from(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// Why a packet ended before it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DropCause {
    /// The queue had no room.
    Full,
    /// A queue discipline dropped it early (RED, CoDel).
    Early,
    /// The link lost it.
    Loss,
    /// It was larger than the link's MTU.
    Mtu,
    /// It exceeded what a policer lets in.
    Policed,
}

/// Packets that ended before they arrived, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// The queue had no room.
    pub full: u64,
    /// The queue discipline dropped early.
    pub early: u64,
    /// The link lost it.
    pub loss: u64,
    /// It was larger than the MTU.
    pub mtu: u64,
    /// It exceeded what a policer lets in.
    pub policed: u64,
}

impl Drops {
    /// One more.
    pub fn count(&mut self, cause: DropCause) {
        *match cause {
            DropCause::Full => &mut self.full,
            DropCause::Early => &mut self.early,
            DropCause::Loss => &mut self.loss,
            DropCause::Mtu => &mut self.mtu,
            DropCause::Policed => &mut self.policed,
        } += 1;
    }

    /// Those of another place too.
    pub fn add(&mut self, other: &Self) {
        self.full += other.full;
        self.early += other.early;
        self.loss += other.loss;
        self.mtu += other.mtu;
        self.policed += other.policed;
    }

    /// For any cause.
    pub fn total(&self) -> u64 {
        self.full + self.early + self.loss + self.mtu + self.policed
    }
}

impl Sub for Drops {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            full: self.full - earlier.full,
            early: self.early - earlier.early,
            loss: self.loss - earlier.loss,
            mtu: self.mtu - earlier.mtu,
            policed: self.policed - earlier.policed,
        }
    }
}

/// What a link tells of packets that do not just pass; whatever is not told is ignored.
pub trait Fate<P> {
    /// The packet ends here.
    fn dropped(&mut self, packet: P, cause: DropCause) {
        let _ = (packet, cause);
    }

    /// The packet left the transmitter.
    fn departed(&mut self, packet: &P) {
        let _ = packet;
    }

    /// There are two of this packet from here on.
    fn duplicated(&mut self, packet: &P) {
        let _ = packet;
    }
}

/// Nobody listens.
impl<P> Fate<P> for () {}

/// A packet in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued<P> {
    /// The packet.
    pub packet: P,
    /// Its size on the link, framing included, bytes.
    pub size: u32,
    /// When it came, nanoseconds of the link's clock.
    pub arrived: dfcp_proto::Instant,
}

impl<P> Queued<P> {
    /// How long it has waited at `now`.
    pub fn sojourn(&self, now: dfcp_proto::Instant) -> Duration {
        now.saturating_since(self.arrived)
    }
}
