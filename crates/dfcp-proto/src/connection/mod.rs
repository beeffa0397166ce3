//! One connection: state, time and the way everything hangs together.
//!
//! * `handshake`: a client's SYN and the first SYNACK; `confirm`: its ACK, until the server is heard
//! * `receive`: one packet in: open → parse → events; `symbols`: to decoders, and what they rebuild
//! * `acks`: what the peer says: ACKs to loss detection, one feedback value to the rate controller,
//!   reports to blocks
//! * `transmit`: one packet out: due feedback and control → a symbol → code writes it into the datagram →
//!   seal → record; `schedule`: which symbol window, pacer and scheduler let go
//! * `datagrams`: messages that nothing repeats
//! * `report`: feedback and control frames, in packets of their own
//! * `channels`: the application's calls; `channel_map` finds the halves of each
//! * `flows`: what is kept of each direction; `queue`: which channel is next; `first_window`: what streams
//!   that nobody reads leave to others
//! * `closing`: its end, once what was finished is delivered or at once, until the peer knows of it
//! * `idle`: silence: keep-alives, and when it has lasted too long
//! * `probe`: nothing was acknowledged for too long
//! * `migration`: a peer that moved, until its new address is validated
//! * `partial`: data that are given up, at both ends

mod acks;
mod channel_map;
mod channels;
mod closing;
mod confirm;
mod datagrams;
mod event;
mod first_window;
mod flows;
mod handshake;
mod idle;
mod migration;
mod partial;
mod probe;
mod queue;
mod receive;
mod report;
mod schedule;
mod stats;
mod symbols;
mod transmit;

use acks::AckNews;
use channel_map::{Channel, Channels};
pub use channels::{ChannelError, ChunkBuffer, Read};
use confirm::Confirm;
pub use datagrams::{Datagram, DatagramError};
pub use event::{CloseCode, ConnectionError, Event};
pub(crate) use handshake::{ConnectParams, TRAIN, local_params};
pub use stats::ConnectionStats;

use crate::block::{ChannelId, Cut, MemoryBudget, Reliability, Role, Skip};
use crate::config::{Application, TransportConfig};
use crate::crypto::{Opener, PublicKey, Sealer, Secret, SecretRng, SessionKeys};
use crate::observe::{Observation, Observer};
use crate::packet::MtuSearch;
use crate::time::{Duration, Instant, Rate};
use crate::wire::{
    ConnectionId, ROUND_TRIP_LEN, SEALED_HEADER_LEN, TAG_LEN, TransportParams, VarInt,
    symbol_overhead,
};
use dfcp_fec::SchemeId;
use flows::{Incoming, Outgoing, Split};
use handshake::ClientSide;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// Why a connection wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Timer {
    /// A handshake packet is to be sent again, or the handshake has taken too long.
    Handshake,
    /// Feedback is due.
    Feedback,
    /// The pacer allows the next packets.
    Pacing,
    /// Repair symbols may leave that waited for a burst to end.
    Repair,
    /// A packet is lost unless acknowledged by now.
    Loss,
    /// Nothing was acknowledged for too long: probe.
    Probe,
    /// Data become too old to be sent, or the peer is to be told of what was given up.
    Deadline,
    /// An idle connection shows that it is alive.
    KeepAlive,
    /// Silence for too long, or nothing delivered for as long to a peer that is being left.
    Idle,
    /// A closed connection can be forgotten.
    Closed,
}

/// A control frame to be delivered reliably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Ping,
    MtuProbe(u16),
    FeedbackRate,
    PathChallenge,
    PathResponse,
    MaxStreamData(ChannelId),
    FirstWindow,
    Fin(ChannelId),
    Reset(ChannelId, VarInt),
    Stop(ChannelId, VarInt),
    Skip(ChannelId, Skip),
}

#[derive(Debug)]
enum State {
    /// Client: no SYNACK yet.
    Connecting(Box<ClientSide>),
    Established,
    /// We closed; the CLOSE is repeated until the peer answers with one of its own.
    Closing {
        code: CloseCode,
        reason: String,
        /// How often feedback that was due leaves before.
        reports: u8,
        /// Known once the first CLOSE is sent: however late that is, the peer hears it.
        until: Option<Instant>,
        due: u8,
        next: Instant,
    },
    /// The peer closed; nothing more is sent but a CLOSE for each packet that still arrives.
    Draining {
        until: Instant,
        due: bool,
    },
    Closed,
}

/// What this side begins a connection with.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) config: Arc<TransportConfig>,
    pub(crate) cid: ConnectionId,
    pub(crate) memory: Arc<MemoryBudget>,
}

/// A connection without sockets, clocks or threads; see the crate's text for how to drive it.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    config: Arc<TransportConfig>,
    state: State,
    remote: SocketAddr,
    local_cid: ConnectionId,
    remote_cid: ConnectionId,
    peer: Option<PublicKey>,
    peer_params: Option<TransportParams>,
    sealer: Option<Sealer>,
    opener: Option<Opener>,
    confirm: Option<Confirm>,
    /// Of a server: when the client first showed that it goes on with this connection.
    settled_at: Option<Instant>,
    exporter: Option<Secret>,
    rng: SecretRng,
    epoch: Instant,
    /// Largest UDP payload known to reach the peer.
    mtu: usize,
    out: Outgoing,
    inc: Incoming,
    channels: Channels,
    /// Next index to open, and next index that the peer has not opened, by kind.
    next_local: [u64; 3],
    next_remote: [u64; 3],
    wants_write: BTreeSet<ChannelId>,
    /// One of them was refused because the send buffer was full.
    is_buffer_full: bool,
    /// Whose turn it is then.
    next_to_write: ChannelId,
    /// How often a channel was wanted and there was no room, and nobody was told of room since.
    wants_open: u64,
    /// Nobody holds the connection any more: it ends once what was finished is delivered, and then at the latest.
    leaving: Option<Instant>,
    events: VecDeque<Event>,
    /// Blocks that the driver is rebuilding.
    solving: usize,
    observer: Observer,
    stats: ConnectionStats,
}

impl Connection {
    fn new(
        role: Role,
        now: Instant,
        remote: SocketAddr,
        remote_cid: ConnectionId,
        local: Local,
        mut rng: SecretRng,
        state: State,
    ) -> Self {
        let Local {
            config,
            cid: local_cid,
            memory,
        } = local;
        let out = Outgoing::new(now, &config, &mut rng);
        let inc = Incoming::new(now, &config, memory);
        Self {
            role,
            state,
            remote,
            local_cid,
            remote_cid,
            peer: None,
            peer_params: None,
            sealer: None,
            opener: None,
            confirm: None,
            settled_at: None,
            exporter: None,
            rng,
            epoch: now,
            mtu: crate::config::MIN_DATAGRAM,
            out,
            inc,
            channels: Channels::default(),
            next_local: [0; 3],
            next_remote: [0; 3],
            wants_write: BTreeSet::new(),
            is_buffer_full: false,
            next_to_write: ChannelId(0),
            wants_open: 0,
            leaving: None,
            events: VecDeque::new(),
            solving: 0,
            observer: config.observers.begin(role, remote),
            stats: ConnectionStats::default(),
            config,
        }
    }

    /// Takes the session's keys and the peer's limits into use.
    fn establish(&mut self, now: Instant, session: SessionKeys, mtu: usize) {
        let params = session.params;
        self.sealer = Some(Sealer::new(session.send, now));
        self.opener = Some(Opener::new(session.receive));
        self.exporter = Some(session.exporter);
        self.peer = Some(session.peer);
        self.remote_cid = params.cid;
        self.out.raise_max_data(params.max_data);
        self.inc.policy = self.config.feedback(params.feedback);
        let window = Some(params.receive_packets).filter(|&packets| packets > 0);
        self.out.receive_window = window.filter(|_| self.out.feedback.receive_window().is_some());
        let largest = self
            .config
            .max_datagram(self.remote)
            .min(params.max_datagram as usize);
        self.mtu = mtu.min(largest);
        self.out.mtu_search = MtuSearch::new(largest);
        self.peer_params = Some(params);
        let packet = self.packet_size();
        self.out.path.on_established(now, packet);
        self.inc.last_heard = now;
        self.state = State::Established;
        let peer = session.peer;
        self.events.push_back(Event::Connected { peer });
        self.observer
            .tell(now, || Observation::Established { peer: Some(peer) });
    }

    /// The next thing the driver should know. The end is told after the last block that is being rebuilt: what came
    /// before it can still be read.
    pub fn poll_event(&mut self) -> Option<Event> {
        let waits = self.solving > 0 && matches!(self.events.front(), Some(Event::Closed(_)));
        if waits { None } else { self.events.pop_front() }
    }

    /// The peer's address.
    pub fn remote_address(&self) -> SocketAddr {
        self.remote
    }

    /// Shows the peer that this side is there, and from which address.
    pub fn ping(&mut self) {
        if self.is_established() && !self.out.control.contains(&Control::Ping) {
            self.out.control.push_back(Control::Ping);
        }
    }

    /// Which end this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The peer's proven key, once the handshake is done.
    pub fn peer(&self) -> Option<PublicKey> {
        self.peer
    }

    /// Whether the handshake is done and the peer is known to have the same keys: a client may go on with
    /// another answer of the server than its first until something came from it.
    pub fn is_confirmed(&self) -> bool {
        self.is_established() && self.confirm.is_none()
    }

    /// Of a server: when the client first acknowledged something or closed. It is known since then that it goes
    /// on with this connection, or with none, whoever has carried its handshake from elsewhere.
    pub(crate) fn settled_at(&self) -> Option<Instant> {
        self.settled_at
    }

    /// The client goes on with this connection, or ends.
    fn settle(&mut self, now: Instant) {
        if self.role == Role::Server && self.settled_at.is_none() {
            self.settled_at = Some(now);
            self.events.push_back(Event::Confirmed);
        }
    }

    /// What the client is there for, at a server to which it said so.
    pub fn application(&self) -> Option<Application> {
        Application::from_number(self.peer_params.as_ref()?.application)
    }

    /// Fills `out` (at most 2⁶⁴ − 1 bytes) with key material that both ends, and nobody else, can derive
    /// from the handshake: the same for the same `label` and `context`, unlike any other. As with
    /// RFC 8446 §7.5. A client's are final once the connection [is confirmed](Self::is_confirmed).
    ///
    /// # Errors
    /// [`ChannelError::Closed`] before the handshake is done.
    pub fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ChannelError> {
        let exporter = self.exporter.as_ref().ok_or(ChannelError::Closed)?;
        crate::crypto::export(exporter, label, context).fill(out);
        Ok(())
    }

    /// Counters and estimates.
    pub fn stats(&self) -> ConnectionStats {
        let (rtt, rate) = (&self.out.path.rtt, self.out.path.rate());
        ConnectionStats {
            rtt: rtt.smoothed(),
            min_rtt: rtt.min(),
            loss: self.out.redundancy.loss.probability(),
            loss_burstiness: self.out.redundancy.loss.estimate().burstiness,
            bandwidth: rate.bandwidth(),
            pacing_rate: rate.pacing_rate(),
            datagram_size: self.mtu,
            refused_reports: self.stats.refused_reports + rate.refused_reports(),
            ..self.stats.clone()
        }
    }

    /// Whether nothing more will happen.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Whether the handshake is done and neither side has closed.
    pub fn is_established(&self) -> bool {
        matches!(self.state, State::Established)
    }

    fn pto(&self) -> Duration {
        self.out.path.rtt.pto(self.max_ack_delay())
    }

    /// How long the peer may hold an acknowledgement back.
    fn max_ack_delay(&self) -> Duration {
        let (rtt, pace) = (self.out.path.rtt.smoothed(), self.out.path.pacing());
        let gap = if pace > Rate::ZERO {
            pace.time_for(self.out.path.packet())
        } else {
            rtt
        };
        let held = self.out.feedback.max_delay(rtt, gap);
        held + self.out.reverse.interval()
    }

    /// Loss detection waits by the larger of smoothed and latest RTT (RFC 9002 §6.1.2).
    fn loss_rtt(&self) -> Duration {
        let rtt = &self.out.path.rtt;
        rtt.smoothed().max(rtt.latest())
    }

    /// When to call [`Connection::handle_timeout`], and what for.
    pub fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        // What may not be sent is not waited for.
        let fenced = self.is_fenced();
        match &self.state {
            State::Connecting(client) => Some((client.next(), Timer::Handshake)),
            State::Closing { until, next, .. } => {
                Some((until.map_or(*next, |until| until.min(*next)), Timer::Closed))
            }
            State::Draining { until, .. } => Some((*until, Timer::Closed)),
            State::Closed => None,
            State::Established => [
                self.confirm.as_ref().map(|c| (c.next(), Timer::Handshake)),
                self.inc
                    .policy
                    .due()
                    .filter(|_| !fenced)
                    .map(|t| (t, Timer::Feedback)),
                self.pacing_time().map(|t| (t, Timer::Pacing)),
                self.out.queue.held_until().map(|t| (t, Timer::Repair)),
                self.out
                    .sent
                    .loss_time(self.loss_rtt())
                    .map(|t| (t, Timer::Loss)),
                self.probe_time().map(|t| (t, Timer::Probe)),
                self.give_up_time().map(|t| (t, Timer::Deadline)),
                self.keep_alive_time()
                    .filter(|_| !fenced)
                    .map(|t| (t, Timer::KeepAlive)),
                Some((self.idle_time(), Timer::Idle)),
                self.leaving.map(|t| (t, Timer::Idle)),
            ]
            .into_iter()
            .flatten()
            .min(),
        }
    }

    /// When the pacer lets the next packets go; `None` while there is nothing to send or the
    /// window is full.
    fn pacing_time(&self) -> Option<Instant> {
        let waits = self.has_data_ready();
        let ready = waits && self.has_window_room();
        ready.then(|| self.out.path.next_departure()).flatten()
    }

    /// Whether there is something to send that window and pacer hold back.
    fn has_data_ready(&self) -> bool {
        let out = &self.out;
        out.has_symbols_ready() || !out.datagrams.is_empty()
    }

    /// A network controller allows this rate (DFCP-J §7.6); rate controllers that obey one follow.
    pub fn order_rate(&mut self, now: Instant, rate: Rate) {
        self.out.path.order_rate(now, rate);
    }

    /// Longest time that packets may wait for each other, in and out, while there are many: as the path
    /// lets them, and who goes by the feedback of either direction.
    pub fn coalescing_delay(&self) -> Duration {
        let patience = self.out.feedback.patience().min(self.inc.policy.patience());
        self.out.path.coalescing_delay().min(patience)
    }

    /// Whether the window, and what a new address has sent, let a full packet go.
    fn has_window_room(&self) -> bool {
        let room = self.out.path.window_room(self.out.sent.bytes_in_flight());
        room >= self.out.path.packet() && !self.is_fenced()
    }

    /// The largest datagram that reaches the peer is another one.
    fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
        let packet = self.packet_size();
        self.out.path.set_packet(packet);
    }

    /// Acts on every timer that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let half_pto = self.pto() / 2;
        match &mut self.state {
            State::Connecting(client) => {
                if let Some(error) = client.on_timeout(now) {
                    self.finish(now, error);
                }
            }
            State::Closing { until, .. } if until.is_some_and(|until| until <= now) => {
                self.state = State::Closed;
            }
            State::Draining { until, .. } if *until <= now => self.state = State::Closed,
            State::Closing { due, next, .. } if *next <= now => {
                *due = (*due).max(1);
                *next = now + half_pto;
            }
            State::Established => self.established_timeout(now),
            _ => {}
        }
    }

    fn established_timeout(&mut self, now: Instant) {
        if now >= self.idle_time() {
            return self.finish(now, ConnectionError::TimedOut);
        }
        if let Some(confirm) = &mut self.confirm {
            confirm.on_timeout(now);
            if now >= confirm.deadline() {
                return self.finish(now, ConnectionError::Unreachable);
            }
        }
        if self
            .out
            .sent
            .loss_time(self.loss_rtt())
            .is_some_and(|t| t <= now)
        {
            self.on_news(now, &AckNews::default());
        }
        self.out.queue.release(now);
        if self.probe_time().is_some_and(|t| t <= now) {
            self.on_probe_timeout(now);
        }
        self.give_up(now);
        self.keep_alive(now);
        self.end_if_left(now);
    }

    /// UDP payload bytes of a full data packet.
    fn packet_size(&self) -> u64 {
        let symbol = self.config.profile.max_symbol;
        let size = symbol_overhead(0, 1 << 29, self.config.profile.block_symbols, symbol as u64)
            + symbol
            + SEALED_HEADER_LEN
            + TAG_LEN
            + self.data_head();
        size.min(self.mtu) as u64
    }

    /// Bytes that a data packet may have before its symbol frame.
    fn data_head(&self) -> usize {
        let rate = self.out.path.rate();
        let round_trip = rate.round_trip().map_or(0, |_| ROUND_TRIP_LEN);
        round_trip + usize::from(rate.is_probing())
    }

    /// How blocks are cut now.
    fn cut(&self) -> Cut {
        let profile = &self.config.profile;
        let offered = self.peer_params.as_ref().map_or(u64::MAX, |p| p.schemes);
        let decodes = offered & (1 << profile.scheme as u8) != 0;
        let path = &self.out.path;
        let symbols = profile.symbols_at(path.rate().bandwidth(), path.packet());
        let (scheme, k) = match self.config.reliability {
            Reliability::Unreliable => (SchemeId::Arq, 1),
            _ if decodes => (profile.scheme, symbols),
            _ => (SchemeId::Arq, symbols),
        };
        let most = self
            .peer_params
            .as_ref()
            .map_or(u64::MAX, |p| p.max_block_symbols);
        // Blocks of which the least credit, and the least window of a stream, hold two: who has little of
        // it still gets on.
        let least = |p: &TransportParams| p.max_data.min(p.max_stream_data);
        let credit = self.peer_params.as_ref().map_or(u64::MAX, least);
        let room = self.mtu - SEALED_HEADER_LEN - TAG_LEN - self.data_head();
        let affordable = credit / 2 / room.min(profile.max_symbol).max(1) as u64;
        let k = u64::from(k).min(most).min(affordable).max(1) as u32;
        Cut {
            scheme,
            k,
            room,
            max_symbol: profile.max_symbol,
            payload: self.config.payload,
        }
    }

    pub(crate) fn local_cid(&self) -> ConnectionId {
        self.local_cid
    }

    /// The peer's connection ID.
    pub(crate) fn remote_cid(&self) -> ConnectionId {
        self.remote_cid
    }
}
