//! Two endpoints, an attacker between them, and a server that may lose its state.

use super::Input;
use super::live::Watch;
use super::raw::{self, address, drain};
use dfcp_proto::{
    ChannelKind, ConnectionError, ConnectionHandle, Duration, Endpoint, Event, Instant,
    TransportConfig,
};
use std::sync::Arc;

/// Two connections with little under way, and what the attacker keeps of them.
const MAY_HOLD: usize = 4 << 20;
/// Packets of each direction that the attacker keeps.
const KEPT: usize = 256;

struct World {
    client: Endpoint,
    handle: ConnectionHandle,
    server: Endpoint,
    now: Instant,
    up: Vec<Vec<u8>>,
    down: Vec<Vec<u8>>,
}

fn server(place: &[u8]) -> Endpoint {
    raw::server_with(TransportConfig::default(), |_| true).at(place)
}

/// Takes one of the kept packets, or nothing.
fn pick(input: &mut Input<'_>, from: &[Vec<u8>]) -> Option<Vec<u8>> {
    let at = from.len().checked_sub(1 + usize::from(input.byte()))?;
    from.get(at).cloned()
}

impl World {
    fn keep(&mut self) {
        self.up.extend(drain(&mut self.client, self.now));
        self.down.extend(drain(&mut self.server, self.now));
        for kept in [&mut self.up, &mut self.down] {
            let excess = kept.len().saturating_sub(KEPT);
            kept.drain(..excess);
        }
    }

    fn deliver_up(&mut self, mut packet: Vec<u8>, host: u8) {
        let from = address(host);
        self.server.handle_datagram(self.now, from, 0, &mut packet);
    }

    fn deliver_down(&mut self, mut packet: Vec<u8>) {
        let from = address(2);
        self.client.handle_datagram(self.now, from, 0, &mut packet);
    }
}

/// The attacker holds back, repeats, changes and redirects what both send, and asks another endpoint
/// with the server's key: the client is told that the server lost the connection only if it did.
pub fn resets(data: &[u8]) {
    let mut input = Input(data);
    let watch = Watch::allow(MAY_HOLD);
    let mut client = Endpoint::new(raw::key("client"), None, [4; 32]);
    let now = Instant::from_nanos(1_000_000_000);
    let config = Arc::new(TransportConfig::default());
    let handle = client
        .connect(now, address(2), None, config)
        .expect("a good key");
    let mut world = World {
        client,
        handle,
        server: server(b"here"),
        now,
        up: Vec::new(),
        down: Vec::new(),
    };
    let mut other = server(b"there");
    let mut lost = false;
    for _ in 0..300 {
        if input.is_empty() {
            break;
        }
        world.keep();
        watch.check();
        let op = input.byte();
        match op & 15 {
            // What an honest network does comes often.
            0..=3 => {
                let (up, down) = (world.up.clone(), world.down.clone());
                up.into_iter()
                    .rev()
                    .take(4)
                    .rev()
                    .for_each(|p| world.deliver_up(p, 1));
                down.into_iter()
                    .rev()
                    .take(4)
                    .rev()
                    .for_each(|p| world.deliver_down(p));
            }
            4 => {
                let packet = pick(&mut input, &world.up);
                packet
                    .into_iter()
                    .for_each(|p| world.deliver_up(p, 1 + (op >> 7)));
            }
            5 => {
                let packet = pick(&mut input, &world.down);
                packet.into_iter().for_each(|p| world.deliver_down(p));
            }
            6 => {
                if let Some(mut packet) = pick(&mut input, &world.up) {
                    let at = input.number() % packet.len();
                    packet[at] ^= input.byte();
                    world.deliver_up(packet, 1);
                }
            }
            7 => {
                if let Some(mut packet) = pick(&mut input, &world.down) {
                    let at = input.number() % packet.len();
                    packet[at] ^= input.byte();
                    world.deliver_down(packet);
                }
            }
            8 => {
                if let Some(mut packet) = pick(&mut input, &world.up) {
                    packet.truncate(9 + input.number() % 40);
                    world.deliver_up(packet, 1);
                }
            }
            9 => {
                if let Some(mut packet) = pick(&mut input, &world.up) {
                    other.handle_datagram(world.now, address(1), 0, &mut packet);
                    world.down.extend(drain(&mut other, world.now));
                }
            }
            10 | 11 => {
                let (now, handle) = (world.now, world.handle);
                if let Some(connection) = world.client.connection(handle)
                    && let Some(id) = connection.open(ChannelKind::Object)
                {
                    let _ = connection.write(now, id, &[7; 500]);
                    let _ = connection.finish_channel(id);
                }
            }
            12 => {
                let handles = world.server.handles();
                lost |= !handles.is_empty();
                handles.into_iter().for_each(|h| world.server.forget(h));
            }
            13 => {
                lost |= !world.server.handles().is_empty();
                world.server = server(b"here");
            }
            _ => {
                world.now += Duration::from_millis(u64::from(op >> 4) * 40);
                world.client.handle_timeout(world.now);
                world.server.handle_timeout(world.now);
            }
        }
        let Some(connection) = world.client.connection(world.handle) else {
            return;
        };
        while let Some(event) = connection.poll_event() {
            if event == Event::Closed(ConnectionError::Reset) {
                assert!(lost, "the server knows the connection");
            }
        }
    }
}
