//! The handshake's client side, until the first SYNACK; `confirm` has what follows.
//!
//! Packets are repeated early: the first repeat comes after 20 ms, whether or not the path is
//! longer, because a lost SYN would otherwise cost far more than a spare one.
//!
//! The first three SYNs leave together. The server says of each when it arrived: how far the path drew
//! two of them apart is the first that is known of its rate (packet pair, Keshav 1991), before any data
//! leave.

use super::Event;
use super::confirm::{Answer, Facts};
use super::{CloseCode, Connection, ConnectionError, Control, Local, State};
use crate::block::{MemoryBudget, Role};
use crate::config::{Application, MIN_DATAGRAM, Payload, TransportConfig};
use crate::crypto::{
    ClientHandshake, HandshakeError, PublicKey, ResetKey, Secret, SecretRng, SessionKeys, StaticKey,
};
use crate::time::{Duration, Instant};
use crate::wire::{
    Ack, COOKIE_LEN, ConnectionId, Retry, Syn, SynAck, TransportParams, VERSION, VIRTUAL_PAYLOAD,
};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// SYNs that leave together at first. Two answered ones show the path's rate, and without that a small
/// object takes a round trip more. Where a tenth is lost each way two of three are answered 90 times in
/// 100, two of two 66; none of three once in 146, none of two once in 28. A fourth would make it 98 times,
/// for as many bytes again. The server computes one answer for all.
pub(crate) const TRAIN: usize = 3;
/// When the next SYN follows; doubles with each further one.
pub(super) const SYN_REPEAT: Duration = Duration::from_millis(40);
/// No two of the first [`EAGER_SYNS`] further apart than this: a short path that loses half of the
/// packets both ways answers one SYN in four. At 64 kbit/s a SYN takes 184 ms.
const EAGER_REPEAT: Duration = Duration::from_millis(125);
/// As many SYNs as make it likely that the path is down or long, not lossy: 0.75^16 = 1 %.
const EAGER_SYNS: usize = 16;
/// No two SYNs further apart than this.
pub(super) const MAX_REPEAT: Duration = Duration::from_millis(250);
/// SYNs sent at the full size before smaller ones take turns.
const LARGE_SYNS: usize = 4;
/// Longest round trip of a server that somebody nearer can keep a client from: two hops by
/// geostationary satellite take 1.1 s, queues the rest. What answers in the server's place says
/// nothing of it.
const LONG_PATH: Duration = Duration::from_secs(2);
/// SYNs that left within this after the first can be answered before a refusal is believed: nine,
/// of which one attempt in 1700 hears nothing where a quarter of the packets is lost both ways.
const FIRST_SYNS: Duration = Duration::from_millis(640);

/// SYNs sent at once because of a RETRY. More come from nobody honest: a server asks once, and again
/// where its cookie was lost or became too old.
const MAX_RETRIES: u8 = 3;

/// A client before its SYNACK.
pub(super) struct ClientSide {
    key: StaticKey,
    /// The same seed makes the same first message: a forged SYNACK spoils nothing.
    seed: Secret,
    message: [u8; 32],
    params: TransportParams,
    expected: Option<PublicKey>,
    /// Size of a SYN that is not one of the small ones.
    full: usize,
    /// When each SYN left.
    sent: Vec<Instant>,
    next: Instant,
    deadline: Instant,
    due: bool,
    /// What a busy server wants to see, and how often it said so.
    cookie: [u8; COOKIE_LEN],
    retries: u8,
    /// What an answer said that nobody vouches for: the end, unless a good answer comes in time.
    refusal: Option<ConnectionError>,
}

impl fmt::Debug for ClientSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSide")
            .field("sent", &self.sent)
            .field("next", &self.next)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl ClientSide {
    pub(super) fn next(&self) -> Instant {
        self.next.min(self.deadline)
    }

    pub(super) fn on_timeout(&mut self, now: Instant) -> Option<ConnectionError> {
        if now >= self.deadline {
            return Some(self.refusal.take().unwrap_or(ConnectionError::Unreachable));
        }
        self.due |= now >= self.next;
        None
    }

    /// The next SYN leaves then, not before.
    pub(super) fn postpone(&mut self, until: Instant) {
        (self.next, self.due) = (until, false);
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How large the SYN of this number is.
    fn size(&self, attempt: usize) -> usize {
        let is_small = attempt >= LARGE_SYNS && attempt.is_multiple_of(2);
        if is_small { MIN_DATAGRAM } else { self.full }
    }

    fn transmit(&mut self, now: Instant, client_cid: ConnectionId) -> Option<Vec<u8>> {
        if !std::mem::take(&mut self.due) {
            return None;
        }
        let attempt = self.sent.len();
        self.sent.push(now);
        let most = match attempt {
            0..EAGER_SYNS => EAGER_REPEAT,
            _ => MAX_REPEAT,
        };
        self.due = attempt + 1 < TRAIN;
        self.next = now + (SYN_REPEAT * (1 << attempt.saturating_sub(TRAIN - 1).min(8))).min(most);
        let syn = Syn {
            version: VERSION,
            client_cid,
            attempt: attempt as u8, // wraps never: the deadline comes first
            noise: self.message,
            cookie: self.cookie,
        };
        Some(syn.emit(self.size(attempt)))
    }

    /// When the SYN left that a SYNACK answers; `None` if none of that number and size did.
    pub(super) fn sent(&self, synack: &SynAck<'_>) -> Option<Instant> {
        let attempt = usize::from(synack.attempt);
        let sent = self.sent.get(attempt)?;
        (self.size(attempt) == usize::from(synack.syn_size)).then_some(*sent)
    }

    /// Computes the ACK for a SYNACK that came `rtt` after its SYN had left.
    pub(super) fn answer(
        &mut self,
        client_cid: ConnectionId,
        synack: &SynAck<'_>,
        rtt: Duration,
        datagram_len: usize,
    ) -> Result<Answer, HandshakeError> {
        // The server kept no state that would tell.
        self.params.round_trip_us = rtt.as_micros() as u64;
        self.params.synack_size = datagram_len as u64;
        let handshake = ClientHandshake::new(&self.key, &client_cid.0, self.seed.clone())?;
        let (reply, session) = handshake.finish(synack.noise, self.expected, &self.params)?;
        let ack = Ack {
            version: VERSION,
            server_cid: session.params.cid,
            client_cid,
            slot: synack.slot,
            syn_size: synack.syn_size,
            cookie: synack.cookie,
            noise_syn: self.message,
            noise: &reply,
        };
        Ok(Answer {
            facts: Facts::of(synack),
            packet: ack.emit(),
            session,
            rtt,
            mtu: usize::from(synack.syn_size).max(MIN_DATAGRAM),
        })
    }
}

/// What a client needs to begin.
pub(crate) struct ConnectParams<'a> {
    pub(crate) key: &'a StaticKey,
    pub(crate) expected: Option<PublicKey>,
    pub(crate) local_cid: ConnectionId,
    pub(crate) reset_key: ResetKey,
    pub(crate) memory: Arc<MemoryBudget>,
}

/// What this side tells the peer about itself.
pub(crate) fn local_params(
    config: &TransportConfig,
    remote: SocketAddr,
    cid: ConnectionId,
    reset_key: ResetKey,
) -> TransportParams {
    let payload = match config.payload {
        Payload::Real => 0,
        Payload::Virtual => VIRTUAL_PAYLOAD,
    };
    TransportParams {
        cid,
        reset_key,
        max_datagram: config.max_datagram(remote).max(MIN_DATAGRAM) as u64,
        max_data: config.receive_budget,
        max_stream_data: config.initial_stream_window,
        max_channels: config.max_channels,
        idle_timeout_ms: u64::try_from(config.idle_timeout.as_millis()).unwrap_or(u64::MAX),
        schemes: config.schemes | payload,
        feedback: config.profile.feedback.make().number(),
        receive_packets: config.receive_window().into(),
        round_trip_us: 0,
        max_block_symbols: config.max_block_symbols.into(),
        application: config.application.map_or(0, Application::number),
        synack_size: 0,
    }
}

impl Connection {
    /// Begins a connection to `remote`.
    pub(crate) fn connect(
        now: Instant,
        remote: SocketAddr,
        config: Arc<TransportConfig>,
        client: ConnectParams<'_>,
        mut rng: SecretRng,
    ) -> Result<Self, HandshakeError> {
        let seed = rng.secret();
        let handshake = ClientHandshake::new(client.key, &client.local_cid.0, seed.clone())?;
        let side = ClientSide {
            key: client.key.clone(),
            seed,
            message: handshake.message,
            params: local_params(&config, remote, client.local_cid, client.reset_key),
            expected: client.expected,
            full: config.max_datagram(remote),
            sent: Vec::new(),
            next: now,
            deadline: now + config.handshake_timeout,
            due: true,
            cookie: [0; COOKIE_LEN],
            retries: 0,
            refusal: None,
        };
        let local = Local {
            config,
            cid: client.local_cid,
            memory: client.memory,
        };
        let state = State::Connecting(Box::new(side));
        let unknown = ConnectionId::default();
        let mut connection = Self::new(Role::Client, now, remote, unknown, local, rng, state);
        let granted = connection.inc.credit.grant();
        if let State::Connecting(side) = &mut connection.state {
            side.params.max_data = granted;
        }
        Ok(connection)
    }

    /// A server's connection, once the ACK proved everything.
    pub(crate) fn accept(
        now: Instant,
        remote: SocketAddr,
        local: Local,
        (session, mtu): (SessionKeys, usize),
        rng: SecretRng,
    ) -> Self {
        let cid = session.params.cid;
        let state = State::Established;
        let mut connection = Self::new(Role::Server, now, remote, cid, local, rng, state);
        connection.out.path.rtt.assume(session.params.round_trip());
        connection.establish(now, session, mtu);
        // Tells the client at once that its ACK arrived, and asks for a round-trip time.
        connection.inc.policy.on_urgent(now);
        connection.out.control.push_back(Control::Ping);
        connection
    }

    /// The SYN that is due, if any.
    pub(super) fn transmit_syn(&mut self, now: Instant) -> Option<Vec<u8>> {
        let client_cid = self.local_cid;
        self.client_side()?.transmit(now, client_cid)
    }

    /// What SYNs are made of, while the server has not been heard.
    fn client_side(&mut self) -> Option<&mut ClientSide> {
        match &mut self.state {
            State::Connecting(side) => Some(side),
            _ => self.confirm.as_mut().map(|confirm| &mut *confirm.side),
        }
    }

    /// The server is busy: it wants the SYN again, with a cookie.
    pub(crate) fn handle_retry(&mut self, retry: &Retry) {
        let Some(side) = self.client_side() else {
            return;
        };
        side.cookie = retry.cookie;
        let newest = usize::from(retry.attempt) + 1 == side.sent.len();
        if newest && side.retries < MAX_RETRIES {
            side.retries += 1;
            side.due = true;
        }
    }

    /// An answer that nobody vouches for says that there will be no connection. Whoever sees a SYN
    /// can send it, however near he is: it may not end what the server's own answer would complete,
    /// and the time that it took is no measure of the server's. A path on which it took long gets
    /// as long again.
    fn doubt(&mut self, now: Instant, error: ConnectionError) {
        if let State::Connecting(side) = &mut self.state
            && side.refusal.is_none()
            && let Some(&first) = side.sent.first()
        {
            side.refusal = Some(error);
            let sure = FIRST_SYNS + LONG_PATH.max(2 * now.saturating_since(first));
            side.deadline = side.deadline.min(first + sure);
        }
    }

    /// The server's answer.
    pub(crate) fn handle_synack(&mut self, now: Instant, synack: &SynAck<'_>, datagram_len: usize) {
        let State::Connecting(side) = &mut self.state else {
            return self.handle_further_synack(now, synack, datagram_len);
        };
        let Some(sent) = side.sent(synack) else {
            return;
        };
        let rtt = now.saturating_since(sent);
        let answer = match side.answer(self.local_cid, synack, rtt, datagram_len) {
            Ok(answer) => answer,
            Err(HandshakeError::WrongKey { found, .. }) => {
                return self.doubt(now, ConnectionError::WrongKey { found });
            }
            Err(_) => {
                self.stats.forged += 1;
                return;
            }
        };
        if answer.session.params.payload() != self.config.payload {
            return self.doubt(now, ConnectionError::PayloadMismatch);
        }
        let before = std::mem::replace(&mut self.state, State::Established);
        if let State::Connecting(side) = before {
            self.take_first_answer(now, side, synack, answer);
        }
    }

    /// The peer lost its state; believed only with a token for a packet that was sent since the peer
    /// knew the connection.
    pub(crate) fn handle_reset(&mut self, now: Instant, token: &[u8; 16]) {
        // Data that overtook the ACK met a server that knows nothing yet: the ACK is repeated, and
        // a reset may arrive later than the server's first words. A peer that lost its state is
        // silent, and repeats the reset when we probe.
        if self.confirm.is_some() || now < self.inc.last_heard + self.pto() {
            return;
        }
        let known = self.peer_params.as_ref().map(|p| p.reset_key);
        if known.is_some_and(|key| self.out.recent.prove(&key, token)) {
            self.finish(now, ConnectionError::Reset);
        }
    }

    /// The server lists versions; none of them is ours, or it would have answered.
    pub(crate) fn handle_version(&mut self, now: Instant, versions: &[u8]) {
        let ours = versions.chunks(4).any(|v| v == VERSION.to_be_bytes());
        if !ours {
            self.doubt(now, ConnectionError::VersionMismatch);
        }
    }

    /// Tells a peer that it is not taken, and nobody here that it was.
    pub(crate) fn refuse(&mut self, now: Instant, code: CloseCode, reason: &str) {
        self.events.clear();
        self.close(now, code, reason);
        self.events.retain(|e| !matches!(e, Event::Closed(_)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_longer_than_can_be_said_is_not_said_as_a_short_one() {
        // 2⁶⁴ ms and 384 more.
        let time = Duration::from_secs(18_446_744_073_709_552);
        let config = TransportConfig::default().idle_timeout(time);
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        let cid = ConnectionId([0; crate::wire::CID_LEN]);
        let reset_key = [0; size_of::<ResetKey>()];
        let said = local_params(&config, remote, cid, reset_key).emit();
        let heard = TransportParams::parse(&said).expect("as it was said");
        assert!(heard.idle_timeout_ms > 1 << 60, "{}", heard.idle_timeout_ms);
    }
}
