//! Relayed paths. A datagram from one end goes to the other as it is: which end it is from, its
//! address says. So nothing is wrapped around data, and the transport sees a peer at the server's
//! address.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use dfcp_proto::{Duration, Instant};

use super::Asker;
use super::limits::Prefix;
use crate::wire::{Allowance, Id};

/// A path whose other end has not come is forgotten.
const WAIT: Duration = Duration::from_secs(30);
/// A path without data is; transports ping at least every fifteen seconds.
const IDLE: Duration = Duration::from_secs(60);
/// Paths that have an end in one address prefix.
const MAX_PER_PREFIX: usize = 8;
/// Between two looks for what is over.
const SWEEP: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Relay {
    /// The sender's and the receiver's end.
    ends: [Option<Asker>; 2],
    began: Instant,
    last: Instant,
    bytes_left: u64,
}

impl Relay {
    fn is_ready(&self) -> bool {
        self.ends.iter().all(Option::is_some)
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Relays {
    allowance: Option<Allowance>,
    max: usize,
    relays: BTreeMap<Id, Relay>,
    by_address: BTreeMap<SocketAddr, (Id, usize)>,
    swept: Instant,
}

impl Relays {
    pub fn new(allowance: Option<Allowance>, max: usize) -> Self {
        Self {
            allowance,
            max,
            relays: BTreeMap::new(),
            by_address: BTreeMap::new(),
            swept: Instant::ZERO,
        }
    }

    pub fn len(&self) -> usize {
        self.relays.len()
    }

    /// One end of a path asks to be joined; whether the other is there. `None` if it cannot be:
    /// there is no relay, no place, or no session that the path would be for.
    pub fn join(
        &mut self,
        now: Instant,
        from: Asker,
        token: Id,
        sender: bool,
        session_is_open: bool,
    ) -> Option<bool> {
        let allowance = self.allowance?;
        let end = usize::from(!sender);
        // An end has one address, an address one end.
        if self
            .by_address
            .get(&from.address)
            .is_some_and(|known| *known != (token, end))
        {
            return None;
        }
        if !self.relays.contains_key(&token) {
            if !session_is_open || self.relays.len() >= self.max || self.is_crowded(from.address) {
                return None;
            }
            let relay = Relay {
                ends: [None; 2],
                began: now,
                last: now,
                bytes_left: allowance.bytes,
            };
            self.relays.insert(token, relay);
        }
        let relay = self.relays.get_mut(&token)?;
        match relay.ends[end] {
            // Who else should know the token? But data flow already, and addresses are forged
            // easily by those who see packets: an end stays where it is.
            Some(known) if known.address != from.address => return None,
            _ => relay.ends[end] = Some(from),
        }
        relay.last = now;
        let ready = relay.is_ready();
        self.by_address.insert(from.address, (token, end));
        Some(ready)
    }

    fn is_crowded(&self, from: SocketAddr) -> bool {
        let prefix = Prefix::of(from.ip());
        let there = |address: &&SocketAddr| Prefix::of(address.ip()) == prefix;
        self.by_address.keys().filter(there).count() >= MAX_PER_PREFIX
    }

    /// Where a datagram of this length goes on to.
    pub fn forward(&mut self, now: Instant, from: SocketAddr, len: usize) -> Option<Asker> {
        let (token, end) = self.by_address.get(&from)?;
        let relay = self.relays.get_mut(token)?;
        let to = relay.ends[1 - end]?;
        relay.bytes_left = relay.bytes_left.checked_sub(len as u64)?;
        relay.last = now;
        Some(to)
    }

    /// Forgets what is over.
    pub fn turn(&mut self, now: Instant) {
        let Some(allowance) = self.allowance else {
            return;
        };
        if now.saturating_since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let longest = Duration::from_secs(allowance.seconds.into());
        self.relays.retain(|_, relay| {
            let idle = now.saturating_since(relay.last);
            let most = if relay.is_ready() { IDLE } else { WAIT };
            idle < most && now.saturating_since(relay.began) < longest
        });
        let relays = &self.relays;
        self.by_address
            .retain(|_, (token, _)| relays.contains_key(token));
    }
}
