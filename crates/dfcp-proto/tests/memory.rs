//! What many peers together can make an endpoint hold. One test at a time, for the count is global.

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use dfcp_proto::wire::{BlockLen, ConnectionId, Frame, SymbolHeader};
use dfcp_proto::{
    ChannelId, ChannelKind, Duration, Endpoint, Role, SchemeId, ServerConfig, TransportConfig,
};
use raw::RawClient;

#[path = "../../../fuzz/src/raw.rs"]
#[allow(dead_code)]
mod raw;

#[path = "memory/streams.rs"]
mod streams;

#[path = "memory/published.rs"]
mod published;

static LIVE: AtomicUsize = AtomicUsize::new(0);
/// Who counts.
static COUNTS: Mutex<()> = Mutex::new(());

struct Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const MIB: usize = 1 << 20;
const BUDGET: usize = 64 * MIB;
const CONNECTIONS: usize = 32;
const SYMBOL: [u8; 1000] = [7; 1000];

/// Somebody who sends blocks of `symbols` symbols as far as credit goes.
struct Client {
    raw: RawClient,
    scheme: SchemeId,
    symbols: u64,
    offset: u64,
    used: u64,
    granted: u64,
}

impl Client {
    fn connect(server: &mut Endpoint, number: usize, scheme: SchemeId, symbols: u64) -> Self {
        let at = SocketAddr::from(([10, 0, 1, number as u8], 5000));
        let mut params = raw::params();
        params.cid = ConnectionId([number as u8; raw::CID.0.len()]);
        let nobody = Endpoint::new(raw::key("nobody"), None, [0; 32]);
        let raw = RawClient::connect_from(std::mem::replace(server, nobody), &params, at);
        let granted = raw.session.params.max_data;
        let mut client = Self {
            raw,
            scheme,
            symbols,
            offset: 0,
            used: 0,
            granted,
        };
        hand_over(server, &mut client.raw);
        client
    }

    fn charge(&self) -> u64 {
        1000 * self.symbols + 256
    }

    /// Sends the first `count` symbols of each block that there is credit for; gives how many
    /// blocks there were.
    fn send(&mut self, server: &mut Endpoint, count: u64) -> usize {
        hand_over(server, &mut self.raw);
        let mut blocks = 0;
        while self.used + self.charge() <= self.granted {
            for esi in 0..count {
                let header = SymbolHeader {
                    scheme: self.scheme,
                    channel: ChannelId::new(Role::Client, ChannelKind::Object, 0).0,
                    offset: self.offset,
                    block: BlockLen::Bytes(1000 * self.symbols),
                    esi: esi as u32,
                };
                let data = &SYMBOL;
                self.raw.send_frames(&[Frame::Symbol { header, data }]);
            }
            self.offset += 1000 * self.symbols;
            self.used += self.charge();
            blocks += 1;
        }
        hand_over(server, &mut self.raw);
        blocks
    }

    /// Reads what the server says of credit.
    fn listen(&mut self, server: &mut Endpoint) {
        hand_over(server, &mut self.raw);
        self.raw.now += Duration::from_millis(200);
        let now = self.raw.now;
        self.raw.server.handle_timeout(now);
        let mut granted = self.granted;
        self.raw.receive(|_, frame| {
            if let Frame::MaxData(limit) = frame {
                granted = granted.max(*limit);
            }
        });
        self.granted = granted;
        hand_over(server, &mut self.raw);
    }
}

/// Hands the server to the client that speaks to it, or back.
fn hand_over(server: &mut Endpoint, client: &mut RawClient) {
    std::mem::swap(server, &mut client.server);
}

#[test]
fn peers_that_send_all_they_may_never_pass_the_budget_and_leave_others_their_share() {
    let _alone = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let config = ServerConfig {
        transport: Arc::new(TransportConfig::default()),
        authorize: Arc::new(|_| true.into()),
        max_connections: CONNECTIONS,
        max_per_peer: CONNECTIONS,
        memory: BUDGET as u64,
    };
    let mut server = Endpoint::new(raw::key("server"), Some(config), [5; 32]);
    let before = LIVE.load(Relaxed);
    let mut hostile: Vec<Client> = Vec::new();
    let kinds = [
        (SchemeId::Dense, 100, 1),
        (SchemeId::RaptorQ, 200, 1),
        (SchemeId::Raptor, 60, 1),
        // Complete, and nobody takes them.
        (SchemeId::Dense, 8, 8),
        (SchemeId::Arq, 1, 1),
    ];
    for number in 0..CONNECTIONS - 1 {
        let (scheme, symbols, _) = kinds[number % kinds.len()];
        let client = Client::connect(&mut server, number + 1, scheme, symbols);
        hostile.push(client);
        for _ in 0..4 {
            for (client, kind) in hostile.iter_mut().zip(kinds.iter().cycle()) {
                client.send(&mut server, kind.2);
                client.listen(&mut server);
            }
        }
        let held = LIVE.load(Relaxed) - before;
        assert!(
            held <= BUDGET + BUDGET / 4,
            "{} peers make it hold {} MiB",
            hostile.len(),
            held / MIB
        );
    }
    let held = LIVE.load(Relaxed) - before;
    assert!(held > BUDGET / 2, "that was no attack: {held}");
    // One who means well comes last.
    let mut honest = Client::connect(&mut server, CONNECTIONS, SchemeId::Dense, 64);
    let (mut taken, mut rounds) = (0, 0);
    while taken < 16 * MIB {
        honest.send(&mut server, 64);
        let now = honest.raw.now;
        let handle = honest.raw.handle;
        let connection = server.connection(handle).expect("still there");
        let id = ChannelId::new(Role::Client, ChannelKind::Object, 0);
        while let Ok(Some((_, block))) = connection.take_block(now, id) {
            taken += block.len();
            connection.recycle(now, block);
        }
        honest.listen(&mut server);
        rounds += 1;
        assert!(rounds < 64, "{taken} bytes arrived in {rounds} round trips");
    }
}
