//! The core allocates for blocks and reports, not for packets. Each thread counts its own: the harness's
//! main thread allocates while the test runs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use dfcp_proto::{
    ChannelId, ChannelKind, ConnectionHandle, Duration, Endpoint, Instant, SecretRng, ServerConfig,
    StaticKey, TransportConfig,
};

thread_local! {
    // Without a destructor and constant at first: reading it allocates nothing.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// 100 Mbit/s for full datagrams.
const PACKET_TIME: Duration = Duration::from_micros(118);
const DELAY: Duration = Duration::from_millis(10);
const STEP: Duration = Duration::from_millis(1);
/// One packet in so many is lost.
const LOST: u64 = 10;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A host and the packets on their way to it.
struct Host {
    core: Endpoint,
    address: SocketAddr,
    on_path: VecDeque<(Instant, Vec<u8>)>,
    free_at: Instant,
    sent: u64,
    /// Allocations within calls of the core.
    allocations: usize,
    buffer: Vec<u8>,
}

impl Host {
    fn new(secret: u8, server: Option<ServerConfig>) -> Self {
        let key = StaticKey::generate(&mut SecretRng::new(&[secret; 32], "key"));
        Self {
            core: Endpoint::new(key, server, [secret; 32]),
            address: address(u16::from(secret)),
            on_path: VecDeque::new(),
            free_at: Instant::ZERO,
            sent: 0,
            allocations: 0,
            buffer: Vec::with_capacity(1 << 16),
        }
    }

    fn counted<T>(&mut self, work: impl FnOnce(&mut Endpoint) -> T) -> T {
        let before = ALLOCATIONS.get();
        let result = work(&mut self.core);
        self.allocations += ALLOCATIONS.get() - before;
        result
    }

    /// Takes what has arrived from `peer` and sends what may go to it.
    fn step(&mut self, now: Instant, peer: &mut Host) {
        while self.on_path.front().is_some_and(|(at, _)| *at <= now)
            && let Some((at, mut packet)) = self.on_path.pop_front()
        {
            let from = peer.address;
            let handle = self.counted(|core| core.handle_datagram(at, from, 0, &mut packet));
            if let Some(connection) = handle.and_then(|handle| self.core.connection(handle)) {
                let before = ALLOCATIONS.get();
                while let Some(mut job) = connection.take_solve_job() {
                    job.run();
                    connection.finish_solve(now, job);
                }
                self.allocations += ALLOCATIONS.get() - before;
            }
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        self.counted(|core| core.handle_timeout(now));
        loop {
            buffer.clear();
            let Some(next) = self.counted(|core| core.poll_transmit(now, 16, &mut buffer)) else {
                break;
            };
            for packet in buffer.chunks(next.segment_size.unwrap_or(next.size)) {
                self.sent += 1;
                peer.free_at = peer.free_at.max(now) + PACKET_TIME;
                if self.sent % LOST != 3 {
                    peer.on_path
                        .push_back((peer.free_at + DELAY, packet.to_vec()));
                }
            }
        }
        self.buffer = buffer;
    }
}

/// Writes what fits, in whole blocks.
fn write(client: &mut Host, now: Instant, handle: ConnectionHandle, id: ChannelId) {
    let mut block = Vec::new();
    loop {
        let connection = client.core.connection(handle).expect("connected");
        block.resize(connection.block_sizes(id).at(1 << 20), 7);
        let written = client.counted(|core| {
            let connection = core.connection(handle).expect("connected");
            connection.write_block(now, id, &mut block)
        });
        if written.expect("open") == 0 {
            return;
        }
    }
}

/// Takes complete blocks, as an application would, and gives the buffers back.
fn read(server: &mut Host, now: Instant, handle: ConnectionHandle, id: ChannelId) {
    server.counted(|core| {
        let connection = core.connection(handle).expect("accepted");
        while let Ok(Some((_, block))) = connection.take_block(now, id) {
            connection.recycle(now, block);
        }
        while connection.poll_event().is_some() {}
    });
}

#[test]
fn a_steady_transfer_does_not_allocate_for_packets() {
    let transport = Arc::new(TransportConfig::default());
    let config = ServerConfig {
        transport: transport.clone(),
        authorize: Arc::new(|_| true.into()),
        max_connections: 1,
        max_per_peer: 1,
        memory: 128 << 20,
    };
    let (mut client, mut server) = (Host::new(1, None), Host::new(2, Some(config)));
    let (mut now, to) = (Instant::from_nanos(1), server.address);
    let connected = client.core.connect(now, to, None, transport);
    let handle = connected.expect("a connection");
    let (mut channel, mut accepted) = (None, None);
    let (mut packets, mut allocations) = ([0; 2], [0; 2]);
    for round in 0..6000 {
        now += STEP;
        client.step(now, &mut server);
        server.step(now, &mut client);
        accepted = accepted.or_else(|| server.core.accept());
        let connection = client.core.connection(handle).expect("connected");
        channel = channel.or_else(|| connection.open(ChannelKind::Object));
        while connection.poll_event().is_some() {}
        if let (Some(id), Some(peer)) = (channel, accepted) {
            write(&mut client, now, handle, id);
            read(&mut server, now, peer, id);
        }
        if round == 2999 {
            packets = [client.sent, server.sent];
            allocations = [client.allocations, server.allocations];
        }
    }
    let packets = [client.sent - packets[0], server.sent - packets[1]];
    let allocations = [
        client.allocations - allocations[0],
        server.allocations - allocations[1],
    ];
    println!("packets sent {packets:?}, allocations {allocations:?}");
    assert!(
        packets[0] > 20_000,
        "{packets:?}: 100 Mbit/s for three seconds"
    );
}
