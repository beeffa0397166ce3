//! Two endpoints of either wire and two links in simulated time: seconds of protocol in
//! milliseconds.
//!
//! The host loop here is the same as a socket driver's: it owns time and datagrams and drives the
//! core through its public interface only.

use crate::link::{Datagram, Link, LinkConfig};
use crate::random::Seed;
use dfcp_proto::host::{Core, CoreConnection, Solve};
use dfcp_proto::{ConnectionHandle, Duration, Instant, Rate};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Connects.
    Client = 0,
    /// Accepts.
    Server = 1,
}

impl Side {
    /// Both, client first.
    pub const BOTH: [Self; 2] = [Self::Client, Self::Server];

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// What its random streams are called.
    pub(crate) fn name(self) -> &'static str {
        ["client", "server"][self as usize]
    }
}

/// What happens on a connection of `C`.
type EventOf<C> = <<C as Core>::Connection as CoreConnection>::Event;

/// A host: an endpoint, its address, its connection and what the connection said.
#[derive(Debug)]
pub struct Host<C: Core> {
    /// The endpoint.
    pub endpoint: C,
    /// Its address.
    pub address: SocketAddr,
    /// Its connection to the other host, once there is one.
    pub connection: Option<ConnectionHandle>,
    /// Events not looked at yet.
    pub events: VecDeque<EventOf<C>>,
    /// IP packets sent.
    pub packets: u64,
    /// Their bytes.
    pub ip_bytes: u64,
    /// Digest of all packets sent and when.
    pub digest: u64,
    /// Largest datagram that the link carries; larger ones vanish.
    pub path_mtu: usize,
    /// When each datagram was sent, and its UDP payload bytes; kept on request.
    pub sent: Option<Vec<(Instant, usize)>>,
    /// The network card is busy until then.
    card_free: Instant,
    /// There may be more to send once it is free.
    waiting: bool,
}

/// Two hosts with endpoints `C`, whose connections have settings `S`.
#[derive(Debug)]
pub struct Joined<C: Core, S> {
    /// Client and server.
    pub hosts: [Host<C>; 2],
    /// From the client, from the server.
    pub links: [Link<Datagram>; 2],
    /// Simulated time.
    pub now: Instant,
    pub(crate) configs: [Arc<S>; 2],
    /// Rate of either host's network card, which takes a batch after the other.
    card: Option<Rate>,
    /// Steps since time last moved.
    idle_steps: u32,
}

/// More steps than this without time moving mean a timer that never gets done.
const MAX_IDLE_STEPS: u32 = 100_000;
/// Datagrams asked of the core at a time, as of a socket that can segment.
const SEGMENTS: usize = 16;
const IP_UDP_HEADER: u64 = 28;

impl<C: Core, S> Joined<C, S> {
    /// Two hosts that have not spoken yet.
    pub(crate) fn join(
        endpoints: [C; 2],
        links: [LinkConfig; 2],
        configs: [Arc<S>; 2],
        card: Option<Rate>,
        seed: Seed,
    ) -> Self {
        let [client, server] = endpoints;
        let host = |side: Side, endpoint| Host {
            endpoint,
            address: SocketAddr::from(([10, 0, 0, 1 + side as u8], 4433)),
            connection: None,
            events: VecDeque::new(),
            packets: 0,
            ip_bytes: 0,
            digest: 0,
            path_mtu: usize::MAX,
            sent: None,
            card_free: Instant::ZERO,
            waiting: false,
        };
        let [forward, backward] = links;
        let link = |config, name: &str| Link::new(config, seed.stream(name).next_u64());
        Self {
            hosts: [host(Side::Client, client), host(Side::Server, server)],
            links: [link(forward, "forward"), link(backward, "backward")],
            // Not zero, so that nothing leans on time beginning there.
            now: Instant::from_nanos(1_000_000_000),
            configs,
            card,
            idle_steps: 0,
        }
    }

    /// A host's connection.
    ///
    /// # Panics
    /// If it has none (any more).
    pub fn connection(&mut self, side: Side) -> &mut C::Connection {
        self.try_connection(side)
            .expect("the host has a connection")
    }

    /// A host's connection, if there is one.
    pub fn try_connection(&mut self, side: Side) -> Option<&mut C::Connection> {
        let host = &mut self.hosts[side as usize];
        host.connection
            .and_then(|handle| host.endpoint.connection(handle))
    }

    /// When something happens next.
    pub fn next_event(&self) -> Option<Instant> {
        let timers = self.hosts.iter().filter_map(|h| h.endpoint.poll_timeout());
        let cards = self.hosts.iter().filter(|h| h.waiting).map(|h| h.card_free);
        let links = self.links.iter().filter_map(|link| link.poll_at());
        timers.chain(cards).chain(links).min()
    }

    /// Moves time to the next event and lets everything happen that is due; false if nothing is.
    ///
    /// # Panics
    /// If a host asks to be woken without end while time stands still.
    pub fn step(&mut self) -> bool {
        let Some(next) = self.next_event() else {
            return false;
        };
        self.idle_steps = if next > self.now {
            0
        } else {
            self.idle_steps + 1
        };
        self.now = self.now.max(next);
        let timers = || Side::BOTH.map(|side| self.hosts[side as usize].endpoint.poll_timeout());
        assert!(
            self.idle_steps < MAX_IDLE_STEPS,
            "time stands still: {:?}",
            timers()
        );
        for from in Side::BOTH {
            while let Some(mut packet) = self.links[from as usize].poll(self.now) {
                self.arrive(from.other(), &mut packet);
            }
        }
        for host in &mut self.hosts {
            host.endpoint.handle_timeout(self.now);
        }
        self.flush();
        true
    }

    /// A packet from the other host arrives.
    pub(crate) fn arrive(&mut self, to: Side, packet: &mut Datagram) {
        let remote = self.hosts[to.other() as usize].address;
        let endpoint = &mut self.hosts[to as usize].endpoint;
        endpoint.handle_datagram(self.now, remote, packet.ecn as u8, &mut packet.data);
        self.serve(to);
    }

    /// Lets both hosts act on what they have and send what they may.
    pub fn flush(&mut self) {
        for side in Side::BOTH {
            self.serve(side);
            let (now, host) = (self.now, &mut self.hosts[side as usize]);
            let mut buffer = Vec::new();
            loop {
                host.waiting = host.card_free > now;
                if host.waiting {
                    break;
                }
                buffer.clear();
                let transmit = host.endpoint.poll_transmit(now, SEGMENTS, &mut buffer);
                let Some(transmit) = transmit else { break };
                let before = host.ip_bytes;
                for datagram in buffer.chunks(transmit.segment_size.unwrap_or(transmit.size)) {
                    let size = datagram.len() + transmit.elided;
                    host.record(now, datagram, size);
                    if size <= host.path_mtu {
                        let mut packet = Datagram::new(datagram.to_vec());
                        packet.elided = transmit.elided as u32;
                        packet.ecn = transmit.ecn.into();
                        self.links[side as usize].send(now, packet);
                    }
                }
                if let Some(card) = self.card {
                    host.card_free = now + card.time_for(host.ip_bytes - before);
                }
            }
        }
    }

    /// Solve jobs, accepted connections and events of one host.
    fn serve(&mut self, side: Side) {
        let now = self.now;
        let host = &mut self.hosts[side as usize];
        if let Some(handle) = host.endpoint.accept() {
            host.connection = Some(handle);
        }
        let Some(handle) = host.connection else {
            return;
        };
        let Some(connection) = host.endpoint.connection(handle) else {
            return;
        };
        while let Some(mut job) = connection.take_solve_job() {
            job.run();
            connection.finish_solve(now, job);
        }
        while let Some(event) = connection.poll_event() {
            host.events.push_back(event);
        }
    }

    /// Steps until `done` says so; false if `limit` of simulated time passed first or nothing is
    /// left to happen.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            if done(self) {
                return true;
            }
            if self.next_event().is_none_or(|next| next > end) {
                self.now = end;
                return false;
            }
            self.step();
        }
    }
}

impl<C: Core> Host<C> {
    /// Counts a datagram that stands for `size` bytes.
    fn record(&mut self, now: Instant, datagram: &[u8], size: usize) {
        let mix = |digest: u64, word: u64| {
            (digest.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        let (words, rest) = datagram.as_chunks();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        let rest = rest.iter().map(|&byte| u64::from(byte));
        let digest = words.chain(rest).fold(self.digest, mix);
        self.digest = mix(digest, now.as_nanos());
        self.packets += 1;
        self.ip_bytes += size as u64 + IP_UDP_HEADER;
        if let Some(sent) = &mut self.sent {
            sent.push((now, size));
        }
    }
}

/// The byte at `offset` of every test payload: tells a misplaced block at once.
pub fn pattern(offset: u64) -> u8 {
    let mixed = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8 ^ (offset >> 8) as u8
}
