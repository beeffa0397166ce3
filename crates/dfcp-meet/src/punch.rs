//! Probes between two sockets until one pair of addresses works both ways.
//!
//! Both sides send to all addresses that the other named, from the very socket that the transfer
//! will use: that opens address translators on both ways. An authentic probe is echoed to where it
//! came from, which is one more address to try. An echo of a probe that is still remembered, from
//! the address that it was sent to, proves the pair both ways. The sender then chooses.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use dfcp_proto::{Duration, Instant, SecretRng};

use crate::machine::{Datagram, Path};
use crate::pake::{Candidate, CandidateKind, Keys, MAX_CANDIDATES, Side};
use crate::wire::{Probe, ProbeKind};

/// How long the sender looks for a pair. Both sides begin within a round trip of each other, so
/// this is many of them on any path that a transfer would be happy on, and what people still wait
/// for before data go over a relay.
pub const PATIENCE: Duration = Duration::from_secs(4);
/// How much longer the receiver does: it began up to a round trip later or earlier, and the choice
/// has to reach it.
pub const LONGER: Duration = Duration::from_millis(1500);
/// Between two rounds of probes. With ten addresses that is 100 packets of 57 bytes a second.
const ROUND: Duration = Duration::from_millis(100);
/// How long a nearer address may take to answer after the first one has: once the round trip of
/// the first, within bounds.
const GRACE: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];
/// Addresses beside those that the peer named which are probed because something came from them.
const MAX_FOUND: usize = 8;
/// Probes of a pair that an echo may answer: a second of them.
const REMEMBERED: usize = 10;

/// How near an address is; the nearer the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Nearness {
    Local,
    Found,
    Seen,
}

#[derive(Debug)]
struct Pair {
    remote: SocketAddr,
    nearness: Nearness,
    probes: VecDeque<(u64, Instant)>,
    rtt: Option<Duration>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Punch {
    side: Side,
    pairs: Vec<Pair>,
    next: Instant,
    choose: Option<Instant>,
    ends: Instant,
}

/// What a probe or the time led to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A pair works and is taken.
    Found(Path),
    /// Nothing was found in time.
    Nothing,
}

impl Punch {
    /// Begins to probe `candidates` at the first timeout, which is now.
    pub fn start(side: Side, candidates: &[Candidate], now: Instant) -> Self {
        let mut punch = Self {
            side,
            pairs: Vec::new(),
            next: now,
            choose: None,
            ends: match side {
                Side::Sender => now + PATIENCE,
                Side::Receiver => now + PATIENCE + LONGER,
            },
        };
        for candidate in candidates.iter().take(MAX_CANDIDATES) {
            let nearness = match candidate.kind {
                CandidateKind::Local => Nearness::Local,
                CandidateKind::Seen => Nearness::Seen,
            };
            punch.add(candidate.address, nearness);
        }
        punch
    }

    fn add(&mut self, remote: SocketAddr, nearness: Nearness) {
        if let Some(pair) = self.pairs.iter_mut().find(|pair| pair.remote == remote) {
            pair.nearness = pair.nearness.min(nearness);
        } else if self.pairs.len() < MAX_CANDIDATES + MAX_FOUND {
            self.pairs.push(Pair {
                remote,
                nearness,
                probes: VecDeque::new(),
                rtt: None,
            });
        }
    }

    /// When to call [`Punch::on_timeout`].
    pub fn timeout(&self) -> Instant {
        let next = self.next.min(self.ends);
        self.choose.map_or(next, |choose| next.min(choose))
    }

    /// Sends what is due.
    pub fn on_timeout(
        &mut self,
        now: Instant,
        keys: &Keys,
        rng: &mut SecretRng,
        out: &mut VecDeque<Datagram>,
    ) -> Option<Outcome> {
        if self.choose.is_some_and(|choose| now >= choose) {
            return Some(self.take(keys));
        }
        if now >= self.ends {
            return Some(Outcome::Nothing);
        }
        if now >= self.next {
            self.next = now + ROUND;
            for pair in &mut self.pairs {
                let nonce = u64::from_be_bytes(rng.array());
                if pair.probes.len() == REMEMBERED {
                    pair.probes.pop_front();
                }
                pair.probes.push_back((nonce, now));
                out.push_back((pair.remote, keys.probe(ProbeKind::Probe, nonce).encode()));
            }
        }
        None
    }

    /// Reads a probe, which may be anybody's.
    pub fn handle(
        &mut self,
        now: Instant,
        from: SocketAddr,
        probe: &Probe,
        keys: &Keys,
        out: &mut VecDeque<Datagram>,
    ) -> Option<Outcome> {
        if !keys.is_genuine(probe) {
            return None;
        }
        match probe.kind {
            ProbeKind::Probe => {
                self.add(from, nearness(from.ip()));
                out.push_back((from, keys.probe(ProbeKind::Echo, probe.nonce).encode()));
                None
            }
            ProbeKind::Echo => {
                let pair = self.pairs.iter_mut().find(|pair| pair.remote == from)?;
                let sent = pair.probes.iter().find(|sent| sent.0 == probe.nonce)?;
                let rtt = now.saturating_since(sent.1);
                pair.rtt = Some(pair.rtt.map_or(rtt, |known| known.min(rtt)));
                if self.side == Side::Receiver {
                    return None; // the choice is the sender's
                }
                let nearest = self.pairs.iter().map(|pair| pair.nearness).min();
                if self.best().map(|pair| pair.nearness) == nearest {
                    return Some(self.take(keys));
                }
                let grace = rtt.clamp(GRACE[0], GRACE[1]);
                self.choose.get_or_insert(now + grace);
                None
            }
            ProbeKind::Chosen => (self.side == Side::Receiver).then_some(Outcome::Found(Path {
                remote: from,
                relayed: false,
                notice: None,
            })),
        }
    }

    fn best(&self) -> Option<&Pair> {
        let works = self.pairs.iter().filter(|pair| pair.rtt.is_some());
        works.min_by_key(|pair| (pair.nearness, pair.rtt))
    }

    fn take(&self, keys: &Keys) -> Outcome {
        self.best().map_or(Outcome::Nothing, |pair| {
            let notice = Some(keys.probe(ProbeKind::Chosen, 0).encode());
            Outcome::Found(Path {
                remote: pair.remote,
                relayed: false,
                notice,
            })
        })
    }
}

/// How near an address is that nobody named.
fn nearness(ip: IpAddr) -> Nearness {
    let local = match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_link_local() || ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_loopback(),
    };
    match local {
        true => Nearness::Local,
        false => Nearness::Found,
    }
}
