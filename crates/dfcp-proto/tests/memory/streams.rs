//! What streams hold on which nothing goes on, at both ends: a proxy has thousands of them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use dfcp_proto::{
    ChannelId, ChannelKind, Connection, ConnectionHandle, Duration, Endpoint, Event, Instant, Read,
    SecretRng, ServerConfig, StaticKey, TransportConfig,
};

use super::{COUNTS, LIVE, MIB};

const DELAY: Duration = Duration::from_millis(1);
/// What a proxy reads at once, bytes.
const CHUNK: usize = 64 << 10;

/// A client and a server on a short path without limits.
struct Two {
    now: Instant,
    ends: [Endpoint; 2],
    handles: [Option<ConnectionHandle>; 2],
    /// Packets on their way, and to whom.
    packets: Vec<(usize, Vec<u8>)>,
    /// Streams of which the server knows that all has arrived.
    acknowledged: BTreeSet<ChannelId>,
}

fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + end as u16))
}

impl Two {
    fn new(transport: TransportConfig) -> Self {
        let transport = Arc::new(transport);
        let config = ServerConfig {
            transport: transport.clone(),
            authorize: Arc::new(|_| true.into()),
            max_connections: 1,
            max_per_peer: 1,
            memory: 512 << 20,
        };
        let key = |end: u8| StaticKey::generate(&mut SecretRng::new(&[end; 32], "key"));
        let mut client = Endpoint::new(key(1), None, [1; 32]);
        let server = Endpoint::new(key(2), Some(config), [2; 32]);
        let now = Instant::from_nanos(1);
        let handle = client.connect(now, address(1), None, transport);
        let mut two = Self {
            now,
            ends: [client, server],
            handles: [Some(handle.expect("a connection")), None],
            packets: Vec::new(),
            acknowledged: BTreeSet::new(),
        };
        while !two.connection(0).is_confirmed() {
            two.run(10);
        }
        two
    }

    fn connection(&mut self, end: usize) -> &mut Connection {
        let handle = self.handles[end].expect("connected");
        self.ends[end].connection(handle).expect("connected")
    }

    /// Lets so many times the delay of the path pass.
    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            self.now += DELAY;
            for (end, mut packet) in std::mem::take(&mut self.packets) {
                let from = address(1 - end);
                let handle = self.ends[end].handle_datagram(self.now, from, 0, &mut packet);
                let connection = handle.and_then(|handle| self.ends[end].connection(handle));
                if let Some(connection) = connection {
                    while let Some(mut job) = connection.take_solve_job() {
                        job.run();
                        connection.finish_solve(self.now, job);
                    }
                }
            }
            self.handles[1] = self.handles[1].or_else(|| self.ends[1].accept());
            for (end, endpoint) in self.ends.iter_mut().enumerate() {
                endpoint.handle_timeout(self.now);
                let mut buffer = Vec::new();
                while let Some(next) = endpoint.poll_transmit(self.now, 16, &mut buffer) {
                    let size = next.segment_size.unwrap_or(next.size);
                    let each = buffer.chunks(size);
                    self.packets
                        .extend(each.map(|packet| (1 - end, packet.to_vec())));
                    buffer.clear();
                }
            }
        }
        for end in [0, 1] {
            if self.handles[end].is_some() {
                while let Some(event) = self.connection(end).poll_event() {
                    if let Event::Acknowledged(id) = event {
                        self.acknowledged.insert(id);
                    }
                }
            }
        }
    }

    /// Streams that the server opens, which are named by a byte.
    fn open(&mut self, count: usize) -> Vec<ChannelId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            let now = self.now;
            let server = self.connection(1);
            let id = server.open(ChannelKind::Stream).expect("room for it");
            assert_eq!(server.write(now, id, &[1]), Ok(1));
            ids.push(id);
        }
        self.run(20);
        ids
    }

    /// The server writes to each what there is room for, in pieces of so many bytes.
    fn write(&mut self, ids: &[ChannelId], piece: usize) {
        let piece = vec![7; piece];
        let now = self.now;
        for &id in ids {
            while self.connection(1).write(now, id, &piece).expect("open") > 0 {}
        }
    }

    /// The client reads so many bytes of each, or what there is.
    fn read(&mut self, ids: &[ChannelId], most: usize) {
        let mut out = vec![0; most];
        let now = self.now;
        for &id in ids {
            // One that it does not know yet has nothing to be read.
            let read = self.connection(0).read(now, id, &mut out);
            assert!(!matches!(read, Ok(Read::Gap(_) | Read::End)), "{read:?}");
        }
    }
}

/// As a proxy sets it.
fn transport() -> TransportConfig {
    TransportConfig::default()
        .max_channels(4096)
        .receive_budget(128 << 20)
        .initial_stream_window(512 << 10)
        .send_buffer(64 << 20)
}

/// Some were never read, the others were for a while.
#[test]
fn what_nobody_reads_takes_as_much_memory_as_it_has_bytes() {
    let _alone = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    for (read, piece) in [(0, CHUNK), (0, CHUNK / 16), (400_000, CHUNK)] {
        let mut two = Two::new(transport());
        let before = LIVE.load(Relaxed);
        let mut all = Vec::new();
        for _ in 0..20 {
            let some = two.open(100);
            let mut left = read;
            for _ in 0..40 {
                two.write(&some, piece);
                two.run(4);
                let part = left.min(50_000);
                two.read(&some, part);
                left -= part;
            }
            all.extend(some);
        }
        for _ in 0..10 {
            two.write(&all, piece);
            two.run(20);
        }
        let held = LIVE.load(Relaxed) - before;
        let unsent = two.connection(1).unacknowledged() as usize;
        let unread = two.connection(0).credit_in_use() as usize;
        assert!(unsent > 32 * MIB && unread > 32 * MIB, "{unsent} {unread}");
        assert!(
            held < (unsent + unread) * 5 / 4 + 16 * MIB,
            "{} MiB where {} wait to be sent and {} to be read",
            held / MIB,
            unsent / MIB,
            unread / MIB
        );
    }
}

/// Whatever went over them before.
#[test]
fn a_stream_on_which_nothing_goes_on_takes_little() {
    let _alone = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut two = Two::new(transport());
    // What a connection has once that is used comes first.
    let (mut before, mut streams) = (0, 0);
    for count in [20, 20, 20, 20, 1000] {
        before = LIVE.load(Relaxed);
        let some = two.open(count);
        let (mut sent, rounds) = (0, if count > 20 { 1 } else { 20 });
        for _ in 0..rounds {
            two.write(&some, CHUNK);
            sent += two.connection(1).unacknowledged();
            two.run(10);
            two.read(&some, MIB);
        }
        assert!(sent > 8 << 20, "{sent}");
        while two.connection(1).unacknowledged() > 0 || two.connection(0).credit_in_use() > 0 {
            two.run(10);
            two.read(&some, MIB);
        }
        two.run(2000);
        streams = count;
    }
    let held = LIVE.load(Relaxed).saturating_sub(before);
    let each = held / streams;
    // Both ends.
    assert!(each < 3000, "{each} bytes for each of {streams}");
}

/// What is said of streams in a report takes turns: of hundreds on which something arrives there is not room for
/// all.
#[test]
fn the_last_of_many_busy_streams_is_reported_on_as_others_are() {
    let _alone = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut two = Two::new(transport());
    let mut all = two.open(800);
    two.run(100);
    let last = all.pop().expect("it was opened");
    let now = two.now;
    let server = two.connection(1);
    assert_eq!(server.write(now, last, &[2]), Ok(1));
    server.finish_channel(last).expect("open");
    let mut rounds = 0;
    while !two.acknowledged.contains(&last) {
        let now = two.now;
        for &id in &all {
            two.connection(1).write(now, id, &[3]).expect("open");
        }
        two.run(1);
        two.read(&all, 100);
        rounds += 1;
        assert!(rounds < 100, "nothing is heard of it");
    }
}

/// What each call costs does not grow with how many there are.
#[test]
fn streams_on_which_something_arrived_cost_another_one_nothing() {
    let _alone = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let time = |count| {
        let mut two = Two::new(transport());
        let all = two.open(count);
        two.run(100);
        let now = two.now;
        for &id in &all {
            two.connection(1).write(now, id, &[3]).expect("open");
        }
        let mut spent = std::time::Duration::ZERO;
        for _ in 0..10 {
            two.run(1);
            let client = two.connection(0);
            let begun = std::time::Instant::now();
            for _ in 0..100 {
                assert!(client.take_solve_job().is_none());
            }
            spent += begun.elapsed();
        }
        spent
    };
    // Whatever else goes on at the machine: the shortest of some.
    let least = |count| (0..5).map(|_| time(count)).min();
    let (few, many) = (least(4), least(1000));
    assert!(many < few.map(|few| 20 * few), "{many:?} and {few:?}");
}
