//! From the handshake to the two halves of the data transfer.

use super::super::code::Coder;
use super::super::config::{Carrier, Completion, Redundancy};
use super::super::data::Settled;
use super::super::header::HEADER_LEN;
use super::*;
use crate::config::Payload;

impl Connection {
    /// The handshake is done: the halves begin. False if they cannot.
    pub(super) fn establish(&mut self, now: Instant) -> bool {
        let (Some(peer), Some(settled)) = (self.peer, self.settled(now)) else {
            return false;
        };
        let message = self.birth.offer.message;
        let (sent, expected) = match self.role {
            Role::Client => (message, None),
            Role::Server => (None, message),
        };
        let settled = Settled {
            message: sent,
            ..settled
        };
        let sender = Sender::new(now, &settled, (self.birth.config.rate)());
        let received = Settled {
            initial: peer,
            message: expected,
            ..settled
        };
        let receiver = Receiver::new(now, &received);
        // The peer may have lowered the window.
        self.birth.lease.resize(self.birth.offer.memory());
        self.halves = Some(Box::new(Halves { sender, receiver }));
        self.unproven = None;
        self.last_heard = now;
        self.idle_check = now + self.birth.config.idle_timeout;
        self.events.push_back(Event::Connected);
        self.observer
            .tell(now, || Observation::Established { peer: None });
        true
    }

    fn settled(&self, now: Instant) -> Option<Settled> {
        let Birth { config, offer, .. } = &self.birth;
        let structure = config.completion == Completion::Structure;
        let needs_code = offer.payload == Payload::Real || structure;
        let coder = match needs_code {
            true => Some(Coder::new(&offer.code).ok()?),
            false => None,
        };
        let symbols = self.packet_budget() / usize::from(offer.code.symbol_size().max(1));
        let alone = self.machine.retries() == 0;
        Some(Settled {
            code: offer.code.clone(),
            coder,
            initial: self.birth.initial,
            window: offer.window,
            at_once: config.blocks_at_once.max(1),
            message: None,
            redundancy: Redundancy {
                epsilon: offer.redundancy(),
                sending: config.redundancy.sending,
            },
            acknowledge: offer.acknowledge,
            moment: offer.moment,
            encoding: offer.encoding,
            decoding: offer.decoding,
            completion: config.completion,
            last_packet: config.last_packet,
            payload: offer.payload,
            symbols_per_packet: u16::try_from(symbols).unwrap_or(u16::MAX),
            rtt: alone.then(|| now.saturating_since(self.begun)),
            send_buffer: config.send_buffer,
        })
        .filter(|s| s.symbols_per_packet > 0)
    }

    /// Bytes of symbols that fit into a packet.
    fn packet_budget(&self) -> usize {
        let ip = match self.birth.remote.ip().to_canonical() {
            std::net::IpAddr::V4(_) => 20,
            std::net::IpAddr::V6(_) => 40,
        };
        let carrier = match self.birth.config.carrier {
            Carrier::Udp => 8,
            Carrier::Ip => 0,
        };
        usize::from(self.birth.config.mtu).saturating_sub(ip + carrier + HEADER_LEN)
    }
}
