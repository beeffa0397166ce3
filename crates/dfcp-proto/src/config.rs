//! Everything that can be set about a transport; valid by construction.

use crate::block::Reliability;
use crate::feedback::{FeedbackPolicy, Timed};
use crate::observe::{Observe, Observers, Vantage};
use crate::profile::{Part, Profile};
use crate::rate::{MAX_COALESCING, MIN_COALESCING};
use crate::time::Duration;
use dfcp_fec::{FecScheme, SchemeId};
use std::net::SocketAddr;

/// What the symbols of a connection are made of. Both sides must agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// Bytes.
    #[default]
    Real,
    /// Nothing but their sizes, for simulated networks: applications write and read lengths, and
    /// datagrams stand for the bytes that they lack ([`crate::Transmit::elided`]). Everything
    /// else is as with real payload: sizes, times, losses and what the blocks need.
    Virtual,
}

impl Payload {
    /// The code with number `id`.
    pub(crate) fn code(self, id: dfcp_fec::SchemeId) -> &'static dyn FecScheme {
        match self {
            Self::Real => dfcp_fec::scheme(id),
            Self::Virtual => dfcp_fec::structural::scheme(id),
        }
    }
}

/// What a client is there for, so that one server can have several applications at one port. Numbers
/// below 64 are given in `docs/spec/wire.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Application(u32);

impl Application {
    /// Files (`docs/spec/files.md`), and measurements of the path to where they would go.
    pub const FILES: Self = Self(1);
    /// TCP connections and UDP of other programs (`docs/spec/proxy.md`).
    pub const PROXY: Self = Self(2);
    /// An IP link (`docs/spec/tun.md`).
    pub const LINK: Self = Self(3);

    /// The first number that nobody gives.
    const OWN: u32 = 64;

    /// One of whoever writes both sides: number `n` of theirs, from 0.
    pub const fn own(n: u16) -> Self {
        Self(Self::OWN + n as u32)
    }

    /// Its number on the wire.
    pub const fn number(self) -> u64 {
        self.0 as u64
    }

    /// What a number means; `None` if it says nothing. Beyond those that can be said here it is the
    /// largest, which nobody serves.
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        (number > 0).then(|| Self(number.try_into().unwrap_or(u32::MAX)))
    }
}

/// Settings of a connection. The setters keep values within the stated bounds.
#[derive(Clone, Debug)]
pub struct TransportConfig {
    pub(crate) profile: Profile,
    pub(crate) receive_budget: u64,
    pub(crate) stream_window: u64,
    pub(crate) initial_stream_window: u64,
    pub(crate) send_buffer: u64,
    pub(crate) max_channels: u64,
    pub(crate) idle_timeout: Duration,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) handshake_timeout: Duration,
    pub(crate) mtu: u16,
    pub(crate) payload: Payload,
    pub(crate) reliability: Reliability,
    pub(crate) answers: Vec<Part<dyn FeedbackPolicy>>,
    pub(crate) schemes: u64,
    pub(crate) max_block_symbols: u32,
    pub(crate) application: Option<Application>,
    pub(crate) datagram_buffer: usize,
    pub(crate) coalescing: Duration,
    pub(crate) observers: Observers,
}

/// A bit for each code.
fn mask(schemes: &[SchemeId]) -> u64 {
    schemes.iter().fold(0, |mask, &id| mask | 1 << id as u8)
}

/// Smallest datagram that every path must carry (RFC 9000 §14).
pub const MIN_DATAGRAM: usize = 1200;

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            profile: Profile::auto(),
            // Three round trips of 400 Mbit/s at 200 ms, and half of the 64 MiB that a side may use.
            receive_budget: 32 << 20,
            // Order waits for repairs, which take round trips: several of 100 Mbit/s at 200 ms.
            stream_window: 16 << 20,
            initial_stream_window: 16 << 20,
            send_buffer: 32 << 20,
            max_channels: 256,
            // A path that is dead for half a minute and comes back keeps its connection.
            idle_timeout: Duration::from_secs(60),
            keep_alive: None,
            handshake_timeout: Duration::from_secs(8),
            mtu: 1500,
            payload: Payload::Real,
            reliability: Reliability::Reliable,
            answers: Vec::new(),
            schemes: mask(&SchemeId::ALL),
            max_block_symbols: dfcp_fec::MAX_BLOCK_SYMBOLS,
            application: None,
            // What 80 Mbit/s bring in 100 ms: older datagrams are rarely worth anything.
            datagram_buffer: 1 << 20,
            coalescing: MAX_COALESCING,
            observers: Observers::default(),
        }
    }
}

impl TransportConfig {
    /// Which parts the transport is made of.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Bytes that the peer may make us hold of incomplete, unread and taken data (at least 1 MiB);
    /// what the connections of a server may hold together is set at the endpoint.
    pub fn receive_budget(mut self, bytes: u64) -> Self {
        self.receive_budget = bytes.max(1 << 20);
        self.stream_window = self.stream_window.min(self.receive_budget / 2);
        let initial = self.initial_stream_window;
        self.initial_stream_window(initial)
    }

    /// Bytes of a new stream that the peer may send ahead of its reader (16 KiB to 16 MiB, at most half
    /// of [`TransportConfig::receive_budget`]): the most that a stream ever has, unless set. With less,
    /// what a stream may have becomes four times what was read of it, and all of them together have half
    /// of the budget beyond it. Streams that nobody reads then leave room to all others, as many as the
    /// other half has initial windows. For connections of many streams that are read by different people.
    pub fn initial_stream_window(mut self, bytes: u64) -> Self {
        self.initial_stream_window = bytes.clamp(16 << 10, self.stream_window);
        self
    }

    /// What [`TransportConfig::receive_budget`] was set to, bytes.
    pub fn max_receive(&self) -> u64 {
        self.receive_budget
    }

    /// Bytes of written data held until acknowledged (at least 1 MiB). While half of that is used, a
    /// channel has 64 KiB at most that wait to be sent.
    pub fn send_buffer(mut self, bytes: u64) -> Self {
        self.send_buffer = bytes.max(1 << 20);
        self
    }

    /// Channels that the peer may hold open at once (1 to 65536).
    pub fn max_channels(mut self, channels: u64) -> Self {
        self.max_channels = channels.clamp(1, 1 << 16);
        self
    }

    /// Silence after which a connection is given up (at least 1 s).
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.idle_timeout = time.max(Duration::from_secs(1));
        self
    }

    /// Pings an idle peer this often (at least 100 ms apart, at least three times in the idle
    /// timeout): the connection lives as long as both ends do, and so do NAT bindings; and a client that only
    /// receives is found again when its address has changed. (Whatever this is, it asks once when data have
    /// stopped for 0.75 s, or three probe timeouts.) A server pings only while a channel is open. None unless set.
    pub fn keep_alive(mut self, interval: Option<Duration>) -> Self {
        self.keep_alive = interval.map(|i| i.max(Duration::from_millis(100)));
        self
    }

    /// The same with this interval, if none is set.
    pub fn or_keep_alive(self, interval: Option<Duration>) -> Self {
        match self.keep_alive {
            Some(_) => self,
            None => self.keep_alive(interval),
        }
    }

    /// How long a handshake may take (at least 1 s).
    pub fn handshake_timeout(mut self, time: Duration) -> Self {
        self.handshake_timeout = time.max(Duration::from_secs(1));
        self
    }

    /// Largest IP packet to try, bytes (1280 to 9000); what the path carries is found out.
    pub fn mtu(mut self, mtu: u16) -> Self {
        self.mtu = mtu.clamp(1280, 9000);
        self
    }

    /// Whether symbols have bytes. Virtual payload is for simulated networks only: a peer with the
    /// other kind is refused.
    pub fn payload(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    /// What of the data sent may be given up.
    pub fn reliability(mut self, reliability: Reliability) -> Self {
        self.reliability = reliability;
        self
    }

    /// Feedback that peers may ask for by its [number](FeedbackPolicy::number), beside what the profiles
    /// here ask for: a policy of the caller's, or one of theirs with other parameters. Of several with
    /// one number the last added counts, then this side's own profile.
    pub fn answer_with(
        mut self,
        make: impl Fn() -> Box<dyn FeedbackPolicy> + Send + Sync + 'static,
    ) -> Self {
        self.answers.push(Part::new(make));
        self
    }

    /// The policies that a peer may ask for, those first that count before others with their number.
    fn policies(&self) -> impl Iterator<Item = Box<dyn FeedbackPolicy>> {
        let added = self.answers.iter().rev().cloned();
        let own = std::iter::once(self.profile.feedback.clone());
        let known = crate::profile::feedback_of_all();
        added.chain(own).chain(known).map(|part| part.make())
    }

    /// The feedback with that number, new; a number that nobody here knows counts as [`Timed`]'s.
    pub(crate) fn feedback(&self, number: u64) -> Box<dyn FeedbackPolicy> {
        let mut policies = self.policies();
        let asked = policies.find(|policy| policy.number() == number);
        asked.unwrap_or_else(|| Box::new(Timed::default()))
    }

    /// Packets that the receive window of a channel holds, where feedback reports what is free of it; 0
    /// if no policy here does.
    pub(crate) fn receive_window(&self) -> u8 {
        let mut policies = self.policies();
        let window = policies.find_map(|policy| policy.receive_window());
        window.unwrap_or_default()
    }

    /// Codes that the peer's blocks may come in. ARQ, which costs nothing to decode, is always one.
    pub fn accept_schemes(mut self, schemes: &[SchemeId]) -> Self {
        self.schemes = mask(schemes) | mask(&[SchemeId::Arq]);
        self
    }

    /// Most source symbols of a block that the peer may send (1 to 8192): what rebuilding one takes
    /// grows with them.
    pub fn max_block_symbols(mut self, symbols: u32) -> Self {
        self.max_block_symbols = symbols.clamp(1, dfcp_fec::MAX_BLOCK_SYMBOLS);
        self
    }

    /// What a client is there for; nothing is said unless set. A server learns it with the client's key.
    pub fn application(mut self, application: Application) -> Self {
        self.application = Some(application);
        self
    }

    /// Bytes of datagrams that wait to be sent, and as many that wait to be read, before the oldest are
    /// dropped; each counts for 64 more than it has. 1 MiB unless set; with 0 there are none.
    pub fn datagram_buffer(mut self, bytes: usize) -> Self {
        self.datagram_buffer = bytes;
        self
    }

    /// How long packets may wait for each other, in and out, while there are many: at most so long (1 to
    /// 10 ms), and an eighth of a round trip. 10 ms unless set; shorter waits cost processor time and
    /// are for applications to whom some milliseconds matter.
    pub fn coalescing(mut self, most: Duration) -> Self {
        self.coalescing = most.clamp(MIN_COALESCING, MAX_COALESCING);
        self
    }

    /// Asks `make`, too, for an observer of each connection ([`crate::observe`]). None unless set.
    pub fn observer(
        mut self,
        make: impl Fn(&Vantage) -> Option<Box<dyn Observe>> + Send + Sync + 'static,
    ) -> Self {
        self.observers.add(make);
        self
    }

    /// Largest UDP payload to try towards `remote`.
    pub(crate) fn max_datagram(&self, remote: SocketAddr) -> usize {
        let headers = if remote.ip().to_canonical().is_ipv4() {
            20 + 8
        } else {
            40 + 8
        };
        usize::from(self.mtu) - headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feedback::EachRoundTrip;
    use crate::profile::ChameleonParameters;

    #[test]
    fn the_receive_window_is_that_of_the_policy_that_counts() {
        let window = |config: &TransportConfig| {
            let said = config.feedback(3).receive_window();
            assert_eq!(said, Some(config.receive_window()));
            said
        };
        let config = TransportConfig::default();
        assert_eq!(window(&config), Some(64));
        let parameters = ChameleonParameters {
            window: 32,
            ..ChameleonParameters::default()
        };
        let config = config.profile(Profile::chameleon_with(parameters));
        assert_eq!(window(&config), Some(32));
        let config = config.answer_with(|| Box::new(EachRoundTrip::new(16)));
        assert_eq!(window(&config), Some(16));
    }

    #[test]
    fn feedback_that_nobody_knows_is_given_on_a_clock() {
        let config = TransportConfig::default();
        assert_eq!(config.feedback(1 << 40).number(), 0);
        assert_eq!(
            [0, 1, 2, 3].map(|n| config.feedback(n).number()),
            [0, 1, 2, 3]
        );
    }
}
