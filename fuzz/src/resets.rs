//! Two endpoints, an attacker between them, and a server that may lose its state.

use super::Input;
use super::live::Watch;
use super::raw::{self, address, drain_to};
use dfcp_proto::wire::{Packet, Sealed};
use dfcp_proto::{
    ChannelKind, ConnectionError, ConnectionHandle, Duration, Endpoint, Event, Instant,
    TransportConfig,
};
use std::net::SocketAddr;
use std::sync::Arc;

/// Two connections with little under way, and what the attacker keeps of them.
const MAY_HOLD: usize = 1 << 20;
/// The same for each object of 500 bytes that was ever opened, its block and its channel at both ends: half as much
/// again as the 8 kB that 106 of them were seen to hold each.
const OBJECT: usize = 12 << 10;
/// Packets of each direction that the attacker keeps.
const KEPT: usize = 256;

/// Resets that an endpoint sends in a second at most.
const MOST_RESETS: u64 = 100;

/// An endpoint, and how many resets it has sent since when.
struct Side {
    endpoint: Endpoint,
    since: Instant,
    resets: u64,
}

impl Side {
    fn new(endpoint: Endpoint, since: Instant) -> Self {
        Self {
            endpoint,
            since,
            resets: 0,
        }
    }

    /// Takes a packet, and gives what is sent then. A reset answers a sealed packet of a connection that
    /// is not known, goes to its sender and is shorter; there are no more than so many.
    fn handle(&mut self, now: Instant, from: SocketAddr, packet: &[u8]) -> Vec<Vec<u8>> {
        let known = self.endpoint.connection_ids();
        let unknown = match Packet::parse(packet) {
            Ok(Packet::Sealed(Sealed { cid, .. })) => !known.contains(&cid),
            _ => false,
        };
        let mut copy = packet.to_vec();
        self.endpoint.handle_datagram(now, from, 0, &mut copy);
        let sent = drain_to(&mut self.endpoint, now);
        for (to, datagram) in &sent {
            if !matches!(Packet::parse(datagram), Ok(Packet::Reset { .. })) {
                continue;
            }
            assert!(unknown && *to == from, "a reset that nobody asked for");
            assert!(datagram.len() < packet.len(), "longer than its question");
            self.resets += 1;
            let seconds = now.saturating_since(self.since).as_secs();
            // The seconds that it counts in begin at any time.
            let most = MOST_RESETS * (seconds + 2);
            assert!(self.resets <= most, "{} resets in {seconds} s", self.resets);
        }
        sent.into_iter().map(|(_, datagram)| datagram).collect()
    }

    fn drain(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let sent = drain_to(&mut self.endpoint, now).into_iter();
        sent.map(|(_, datagram)| datagram).collect()
    }
}

struct World {
    client: Side,
    handle: ConnectionHandle,
    server: Side,
    now: Instant,
    up: Vec<Vec<u8>>,
    down: Vec<Vec<u8>>,
    /// Whether the client has ever heard the server, and the server forgotten a connection.
    established: bool,
    lost: bool,
    restarts: u8,
}

/// The server after so many restarts.
fn server(place: &[u8], restarts: u8) -> Endpoint {
    let seed = [restarts.wrapping_add(5); 32];
    raw::server_of(TransportConfig::default(), |_| true, seed).at(place)
}

/// Takes one of the kept packets, or nothing.
fn pick(input: &mut Input<'_>, from: &[Vec<u8>]) -> Option<Vec<u8>> {
    let at = from.len().checked_sub(1 + usize::from(input.byte()))?;
    from.get(at).cloned()
}

impl World {
    fn new() -> Self {
        let mut client = Endpoint::new(raw::key("client"), None, [4; 32]);
        let now = Instant::from_nanos(1_000_000_000);
        let config = Arc::new(TransportConfig::default());
        let handle = client
            .connect(now, address(2), None, config)
            .expect("a good key");
        Self {
            client: Side::new(client, now),
            handle,
            server: Side::new(server(b"here", 0), now),
            now,
            up: Vec::new(),
            down: Vec::new(),
            established: false,
            lost: false,
            restarts: 0,
        }
    }

    fn keep(&mut self) {
        self.up.extend(self.client.drain(self.now));
        self.down.extend(self.server.drain(self.now));
        for kept in [&mut self.up, &mut self.down] {
            let excess = kept.len().saturating_sub(KEPT);
            kept.drain(..excess);
        }
    }

    fn deliver_up(&mut self, packet: &[u8], host: u8) {
        let sent = self.server.handle(self.now, address(host), packet);
        self.down.extend(sent);
    }

    fn deliver_down(&mut self, packet: &[u8]) {
        let sent = self.client.handle(self.now, address(2), packet);
        self.up.extend(sent);
    }

    /// The newest four packets of each direction arrive.
    fn deliver(&mut self) {
        let newest = |kept: &[Vec<u8>]| kept[kept.len().saturating_sub(4)..].to_vec();
        let (up, down) = (newest(&self.up), newest(&self.down));
        up.iter().for_each(|packet| self.deliver_up(packet, 1));
        down.iter().for_each(|packet| self.deliver_down(packet));
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.client.endpoint.handle_timeout(self.now);
        self.server.endpoint.handle_timeout(self.now);
    }

    fn lose(&mut self) {
        self.lost |= !self.server.endpoint.handles().is_empty();
    }

    /// Silence ends connections, and a lost state that of the client; nothing else does.
    fn check(&mut self) {
        if let Some(connection) = self.client.endpoint.connection(self.handle) {
            self.established |= connection.is_established();
            while let Some(event) = connection.poll_event() {
                let Event::Closed(why) = event else { continue };
                match why {
                    ConnectionError::Reset => assert!(self.lost, "the server knows it"),
                    ConnectionError::TimedOut | ConnectionError::Unreachable => {}
                    // A forged answer may end an attempt that was not completed.
                    _ => assert!(!self.established, "a stranger ended it: {why}"),
                }
            }
        }
        for handle in self.server.endpoint.handles() {
            let mut connection = self.server.endpoint.connection(handle);
            while let Some(event) = connection.as_mut().and_then(|c| c.poll_event()) {
                if let Event::Closed(why) = event {
                    assert_eq!(why, ConnectionError::TimedOut, "a stranger ended it");
                }
            }
        }
    }
}

/// The attacker holds back, repeats, changes and redirects what both send, and asks another endpoint
/// with the server's key: no connection ends but by silence, or since the server lost it, and resets go to
/// nobody who did not ask.
pub fn resets(data: &[u8]) {
    let mut input = Input(data);
    let mut watch = Watch::allow(MAY_HOLD);
    let mut world = World::new();
    let mut other = Side::new(server(b"there", 0), world.now);
    for _ in 0..300 {
        if input.is_empty() {
            break;
        }
        world.keep();
        watch.check();
        let op = input.byte();
        match op & 15 {
            // What an honest network does comes often.
            0..=3 => world.deliver(),
            4 => {
                let packet = pick(&mut input, &world.up);
                let times = if op & 0x70 == 0x70 { 150 } else { 1 };
                for packet in packet
                    .iter()
                    .flat_map(|packet| std::iter::repeat_n(packet, times))
                {
                    world.deliver_up(packet, 1 + (op >> 7));
                }
            }
            5 => {
                let packet = pick(&mut input, &world.down);
                packet.iter().for_each(|p| world.deliver_down(p));
            }
            6 => {
                if let Some(mut packet) = pick(&mut input, &world.up) {
                    let at = input.number() % packet.len();
                    packet[at] ^= input.byte();
                    world.deliver_up(&packet, 1);
                }
            }
            7 => {
                if let Some(mut packet) = pick(&mut input, &world.down) {
                    let at = input.number() % packet.len();
                    packet[at] ^= input.byte();
                    world.deliver_down(&packet);
                }
            }
            8 => {
                if let Some(mut packet) = pick(&mut input, &world.up) {
                    packet.truncate(9 + input.number() % 40);
                    world.deliver_up(&packet, 1);
                }
            }
            9 => {
                if let Some(packet) = pick(&mut input, &world.up) {
                    let sent = other.handle(world.now, address(1), &packet);
                    world.down.extend(sent);
                }
            }
            10 | 11 => {
                let (now, handle) = (world.now, world.handle);
                if let Some(connection) = world.client.endpoint.connection(handle)
                    && let Some(id) = connection.open(ChannelKind::Object)
                {
                    watch.raise(OBJECT);
                    let _ = connection.write(now, id, &[7; 500]);
                    let _ = connection.finish_channel(id);
                }
            }
            12 => {
                world.lose();
                let handles = world.server.endpoint.handles();
                let server = &mut world.server.endpoint;
                handles.into_iter().for_each(|h| server.forget(h));
            }
            13 => {
                world.lose();
                world.restarts = world.restarts.wrapping_add(1);
                world.server = Side::new(server(b"here", world.restarts), world.now);
            }
            _ => world.wait(Duration::from_millis(u64::from(op >> 4) * 40)),
        }
        world.check();
    }
}
