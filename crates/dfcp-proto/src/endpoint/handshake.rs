//! Handshakes of clients: SYN and ACK answered from nothing but the secret of a slot, until a client
//! has proven its key and finds a place.

use super::{Admission, Endpoint, ServerConfig};
use crate::config::{MIN_DATAGRAM, TransportConfig};
use crate::connection::{CloseCode, Connection, Local, TRAIN, local_params};
use crate::crypto::{PublicKey, SynFacts};
use crate::host::ConnectionHandle;
use crate::time::{Duration, Instant};
use crate::wire::{
    Ack, COOKIE_LEN, ConnectionId, Retry, Syn, SynAck, TransportParams, VERSION, emit_version,
};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

/// A cookie is good for the slot it was made in and the next: four minutes at most.
const SLOT: Duration = Duration::from_secs(120);
/// How often an answer serves that was computed once: for each further SYN of those that leave
/// together. More would let anybody who asks have as many answers of our size sent as he likes.
const REPEATS: u8 = TRAIN as u8 - 1;
/// Refused clients that are told so at a time; before more are, the first are forgotten.
const MAX_REFUSED: usize = 64;

/// Names that must not live again while their cookie is good, by the time that it ends.
#[derive(Debug)]
pub(super) struct Used<T> {
    ids: BTreeSet<T>,
    until: VecDeque<(Instant, T)>,
}

impl<T> Default for Used<T> {
    fn default() -> Self {
        let (ids, until) = (BTreeSet::new(), VecDeque::new());
        Self { ids, until }
    }
}

impl<T: Copy + Ord> Used<T> {
    pub fn contains(&self, id: &T) -> bool {
        self.ids.contains(id)
    }

    /// Adds one that is used since `at`, if it is new, and forgets those whose time was over then.
    pub fn insert(&mut self, at: Instant, id: T) {
        while self.until.front().is_some_and(|&(until, _)| until <= at) {
            self.until.pop_front().map(|(_, old)| self.ids.remove(&old));
        }
        if self.ids.insert(id) {
            self.until.push_back((at + 2 * SLOT, id));
        }
    }
}

/// The answer that was computed last, since the next SYN is most likely of the same client. It depends on
/// nothing but the facts of the SYN, so it changes no answer; there is one of it, whoever asks.
pub(super) struct Answer {
    remote: SocketAddr,
    client_cid: ConnectionId,
    message: [u8; 32],
    syn_size: u16,
    slot: u32,
    cookie: [u8; COOKIE_LEN],
    noise: Vec<u8>,
    /// How often it may still be given.
    left: u8,
}

impl Answer {
    fn is_for(&self, facts: &SynFacts<'_>) -> bool {
        self.remote == facts.remote
            && self.client_cid.0 == facts.client_cid
            && self.message == *facts.message
            && self.syn_size == facts.syn_size
            && self.slot == facts.slot
    }
}

impl Endpoint {
    /// What this side tells a client at `remote` about itself.
    fn params(
        &self,
        config: &TransportConfig,
        remote: SocketAddr,
        cid: ConnectionId,
    ) -> TransportParams {
        let reset_key = self.resets.key(cid, remote);
        let mut params = local_params(config, remote, cid, reset_key);
        params.max_data = self.memory.floor(params.max_data);
        params.application = 0; // a server's is the client's
        params
    }

    pub(super) fn slot(now: Instant) -> u32 {
        (now.as_nanos() / SLOT.as_nanos() as u64) as u32
    }

    pub(super) fn start_of(slot: u32) -> Instant {
        Instant::ZERO + SLOT * slot
    }

    pub(super) fn handle_syn(&mut self, now: Instant, remote: SocketAddr, syn: &Syn, len: usize) {
        let Some(server) = &self.server else { return };
        // A small SYN could make us send more than we got.
        if len < MIN_DATAGRAM {
            self.stats.refused += 1;
            return;
        }
        if syn.version != VERSION {
            return self.reply(remote, emit_version(syn.client_cid, &[VERSION]));
        }
        let facts = SynFacts {
            remote,
            client_cid: &syn.client_cid.0,
            message: &syn.noise,
            syn_size: len.min(usize::from(u16::MAX)) as u16,
            slot: Self::slot(now),
        };
        self.responder.begin(facts.slot);
        // Public-key arithmetic is for few, or for those who are where they say.
        if self.load.is_high(now)
            && !self.responder.proves_address(&facts, &syn.cookie)
            && let Some(cookie) = self.responder.retry_cookie(&facts)
        {
            self.stats.retries += 1;
            let retry = Retry {
                client_cid: syn.client_cid,
                attempt: syn.attempt,
                cookie,
            };
            return self.reply(remote, retry.emit());
        }
        if let Some(answer) = &mut self.answer
            && answer.left > 0
            && answer.is_for(&facts)
        {
            answer.left -= 1;
        } else {
            if !self.load.admit(now, remote) {
                self.stats.refused += 1;
                return;
            }
            self.stats.computed += 1;
            self.answer = self.compute(&server.transport, &facts, syn);
        }
        let Some(answer) = &self.answer else {
            self.stats.refused += 1;
            return;
        };
        let since = self.clock_origin;
        let synack = SynAck {
            version: VERSION,
            client_cid: syn.client_cid,
            attempt: syn.attempt,
            slot: answer.slot,
            syn_size: answer.syn_size,
            received_at: since.wrapping_add((now.as_nanos() / 1000) as u32),
            cookie: answer.cookie,
            noise: &answer.noise,
        };
        // What answers the first SYN shows that the way back carries packets of its size. Others are
        // short: twelve of full size that wait on a way back of 16 kbit/s take eight seconds.
        let packet = synack.emit(if syn.attempt == 0 { len } else { 0 });
        self.stats.syns += 1;
        self.reply(remote, packet);
    }

    /// The answer to a SYN; `None` if its Noise message is none.
    fn compute(&self, config: &TransportConfig, facts: &SynFacts<'_>, syn: &Syn) -> Option<Answer> {
        let cid = ConnectionId(self.responder.connection_id(facts)?);
        let params = self.params(config, facts.remote, cid);
        Some(Answer {
            remote: facts.remote,
            client_cid: syn.client_cid,
            message: syn.noise,
            syn_size: facts.syn_size,
            slot: facts.slot,
            cookie: self.responder.cookie(facts)?,
            noise: self.responder.synack(facts, &params).ok()?,
            left: REPEATS,
        })
    }

    pub(super) fn handle_ack(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        ack: &Ack<'_>,
    ) -> Option<ConnectionHandle> {
        if let Some(&handle) = self.by_cid.get(&ack.server_cid) {
            return Some(handle); // a repeated ACK
        }
        let server = self.server.clone()?;
        let slot = Self::slot(now);
        let fresh = ack.slot == slot || ack.slot.checked_add(1) == Some(slot);
        if ack.version != VERSION || !fresh || self.used.contains(&ack.server_cid) {
            self.stats.refused += 1;
            return None;
        }
        let facts = SynFacts {
            remote,
            client_cid: &ack.client_cid.0,
            message: &ack.noise_syn,
            syn_size: ack.syn_size,
            slot: ack.slot,
        };
        let cid = ack.server_cid;
        let is_expected = self.responder.is_expected(&facts, &ack.cookie, &cid.0);
        if !is_expected || !self.load.admit(now, remote) {
            self.stats.refused += 1;
            return None;
        }
        self.stats.computed += 1;
        let params = self.params(&server.transport, remote, cid);
        let session = match self.responder.accept(&facts, &params, ack.noise) {
            Ok(session) if session.params.payload() == server.transport.payload => session,
            _ => {
                self.stats.refused += 1;
                return None;
            }
        };
        self.used.insert(now, cid);
        let peer = session.peer;
        if self.settled.contains(&(peer, ack.client_cid)) {
            self.stats.refused += 1; // It goes on with another connection, or is over.
            return None;
        }
        if self.is_in(&peer, ack.client_cid, remote) {
            return None; // by another of its SYNs
        }
        let refusal = self.refusal(&server, &peer, remote);
        let rng = self.rng.fork("connection");
        // The way back carries what the client says arrived there.
        let arrived = session.params.synack_size.min(ack.syn_size.into()) as usize;
        let mtu = arrived.max(MIN_DATAGRAM);
        let local = Local {
            config: server.transport,
            cid,
            memory: self.memory.clone(),
        };
        let mut connection = Connection::accept(now, remote, local, (session, mtu), rng);
        if let Some((code, reason)) = refusal {
            self.stats.refused += 1;
            let is_limit = code == CloseCode::LIMIT && self.seats.is_full();
            if is_limit && self.seats.admits(&peer) && self.seats.has_share_for(remote) {
                self.stats.crowded += 1;
            }
            connection.refuse(now, code, reason);
        }
        let handle = self.insert(cid, connection);
        match refusal {
            None => {
                self.seats.take(handle, peer, remote);
                self.accepted.push_back(handle);
            }
            Some(_) => self.remember_refused(handle),
        }
        Some(handle)
    }

    /// Whether a client has a connection by the ID that it chose already. Who sees its SYN can have one by the same
    /// ID, but not with its key.
    fn is_in(&self, peer: &PublicKey, client_cid: ConnectionId, remote: SocketAddr) -> bool {
        self.named(client_cid, remote).any(|handle| {
            let own = self.peek(handle).and_then(Connection::peer);
            own.as_ref().or(self.seats.key(handle)) == Some(peer)
        })
    }

    /// Why a client that proved its key finds no place, if it does not.
    fn refusal(
        &self,
        server: &ServerConfig,
        peer: &PublicKey,
        remote: SocketAddr,
    ) -> Option<(CloseCode, &'static str)> {
        match (server.authorize)(peer) {
            Admission::Welcome => {}
            Admission::Unknown => return Some((CloseCode::REFUSED, "key not accepted")),
            Admission::Expired => return Some((CloseCode::EXPIRED, "the key's time is over")),
        }
        if !self.seats.admits(peer) {
            Some((CloseCode::LIMIT, "too many connections with this key"))
        } else if !self.seats.has_room_for(remote) {
            Some((
                CloseCode::LIMIT,
                "too many connections, in all or from one network; try later",
            ))
        } else {
            None
        }
    }

    /// Keeps a refused client until it is told so, with a few others.
    fn remember_refused(&mut self, handle: ConnectionHandle) {
        self.unwelcome.insert(handle);
        if self.unwelcome.len() > MAX_REFUSED
            && let Some(first) = self.unwelcome.pop_first()
        {
            self.forget(first);
        }
    }
}
