//! A client made by hand from the public wire and crypto interfaces: it can send anything.

use dfcp_proto::crypto::{ClientHandshake, Opener, Sealer, SessionKeys};
use dfcp_proto::wire::{
    Ack, CID_LEN, COOKIE_LEN, ConnectionId, Frame, FrameIter, Packet, SEALED_HEADER_LEN, Syn,
    SynAck, TransportParams, VERSION, emit_sealed_header,
};
use dfcp_proto::{
    ConnectionHandle, Endpoint, Instant, PublicKey, SecretRng, ServerConfig, StaticKey,
    TransportConfig,
};
use std::net::SocketAddr;
use std::sync::Arc;

pub fn key(name: &str) -> StaticKey {
    StaticKey::generate(&mut SecretRng::new(&[9; 32], name))
}

pub fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 5000))
}

/// A server that takes everyone.
pub fn server() -> Endpoint {
    server_with(TransportConfig::default(), |_| true)
}

pub fn server_with(
    transport: TransportConfig,
    authorize: impl Fn(&PublicKey) -> bool + Send + Sync + 'static,
) -> Endpoint {
    server_of(transport, authorize, [5; 32])
}

/// One whose secrets come from `seed`, as a restarted one's are new.
pub fn server_of(
    transport: TransportConfig,
    authorize: impl Fn(&PublicKey) -> bool + Send + Sync + 'static,
    seed: [u8; 32],
) -> Endpoint {
    let config = ServerConfig {
        transport: Arc::new(transport),
        authorize: Arc::new(move |key| authorize(key).into()),
        max_connections: 8,
        max_per_peer: 8,
        memory: 128 << 20,
    };
    Endpoint::new(key("server"), Some(config), seed)
}

/// A server that takes everyone, two at a time, and holds `memory` bytes of what they send.
pub fn small_server(memory: u64) -> Endpoint {
    let config = ServerConfig {
        transport: Arc::new(TransportConfig::default()),
        authorize: Arc::new(|_| true.into()),
        max_connections: 2,
        max_per_peer: 2,
        memory,
    };
    Endpoint::new(key("server"), Some(config), [5; 32])
}

/// Everything that an endpoint wants to send at `now`, one datagram each, and where it goes.
pub fn drain_to(endpoint: &mut Endpoint, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut out = Vec::new();
    let mut buffer = Vec::new();
    while let Some(t) = endpoint.poll_transmit(now, 8, &mut buffer) {
        let datagrams = buffer.chunks(t.segment_size.unwrap_or(t.size));
        out.extend(datagrams.map(|datagram| (t.destination, datagram.to_vec())));
        buffer.clear();
        assert!(out.len() < 100_000, "an endless burst");
    }
    out
}

/// The same, wherever it goes.
pub fn drain(endpoint: &mut Endpoint, now: Instant) -> Vec<Vec<u8>> {
    let sent = drain_to(endpoint, now).into_iter();
    sent.map(|(_, datagram)| datagram).collect()
}

pub const CID: ConnectionId = ConnectionId([0xc1; CID_LEN]);

pub fn params() -> TransportParams {
    TransportParams {
        cid: CID,
        reset_key: [3; 16],
        max_datagram: 1472,
        max_data: 1 << 20,
        max_stream_data: 1 << 20,
        max_channels: 16,
        idle_timeout_ms: 60_000,
        schemes: 7,
        feedback: 2,
        receive_packets: 0,
        round_trip_us: 0,
        max_block_symbols: 8192,
        application: 0,
        synack_size: 0,
    }
}

pub fn handshake() -> ClientHandshake {
    ClientHandshake::new(&key("raw client"), &CID.0, [7; 32].into()).expect("a good key")
}

pub fn syn() -> Syn {
    Syn {
        version: VERSION,
        client_cid: CID,
        attempt: 0,
        noise: handshake().message,
        cookie: [0; COOKIE_LEN],
    }
}

/// The server's answer to a SYN from `from`.
pub fn ask(server: &mut Endpoint, now: Instant, from: SocketAddr) -> Vec<u8> {
    server.handle_datagram(now, from, 0, &mut syn().emit(1400));
    let mut replies = drain(server, now);
    assert_eq!(replies.len(), 1, "one SYNACK for one SYN");
    replies.remove(0)
}

/// The ACK for a SYNACK datagram, and the session.
pub fn answer(synack: &[u8], params: &TransportParams) -> (Vec<u8>, SessionKeys) {
    let Ok(Packet::SynAck(SynAck {
        slot,
        syn_size,
        cookie,
        noise,
        ..
    })) = Packet::parse(synack)
    else {
        panic!("not a SYNACK")
    };
    let (reply, session) = handshake()
        .finish(noise, None, params)
        .expect("an honest server");
    let ack = Ack {
        version: VERSION,
        server_cid: session.params.cid,
        client_cid: CID,
        slot,
        syn_size,
        cookie,
        noise_syn: handshake().message,
        noise: &reply,
    };
    (ack.emit(), session)
}

/// A client with a session, in full control of its packets.
pub struct RawClient {
    pub server: Endpoint,
    pub handle: ConnectionHandle,
    pub now: Instant,
    pub address: SocketAddr,
    pub session: SessionKeys,
    cid: ConnectionId,
    sealer: Sealer,
    opener: Opener,
    next: u64,
    /// Bytes that the server got of this client.
    pub said: u64,
    /// Bytes that it multiplied and added to rebuild blocks.
    pub solved: u64,
}

impl RawClient {
    pub fn connect() -> Self {
        Self::connect_with(server(), &params())
    }

    pub fn connect_with(server: Endpoint, params: &TransportParams) -> Self {
        Self::connect_from(server, params, address(1))
    }

    pub fn connect_from(
        mut server: Endpoint,
        params: &TransportParams,
        address: SocketAddr,
    ) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let synack = ask(&mut server, now, address);
        let (mut ack, session) = answer(&synack, params);
        server.handle_datagram(now, address, 0, &mut ack);
        let handle = server.accept().expect("the handshake is good");
        let (sealer, opener) = (
            Sealer::new(session.send.clone(), now),
            Opener::new(session.receive.clone()),
        );
        Self {
            server,
            handle,
            now,
            address,
            session,
            cid: params.cid,
            sealer,
            opener,
            next: 0,
            said: 0,
            solved: 0,
        }
    }

    /// A sealed packet with `plaintext` and the next packet number.
    pub fn seal(&mut self, plaintext: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        emit_sealed_header(&mut packet, self.session.params.cid, self.next);
        packet.extend_from_slice(plaintext);
        self.sealer
            .seal(self.next, &mut packet, 0, SEALED_HEADER_LEN);
        self.next += 1;
        packet
    }

    /// Leaves packet numbers out.
    pub fn skip(&mut self, numbers: u64) {
        self.next += numbers;
    }

    pub fn send(&mut self, plaintext: &[u8]) {
        let mut packet = self.seal(plaintext);
        self.deliver(&mut packet);
    }

    pub fn deliver(&mut self, packet: &mut [u8]) {
        self.said += packet.len() as u64;
        self.server
            .handle_datagram(self.now, self.address, 0, packet);
        self.serve();
    }

    pub fn send_frames(&mut self, frames: &[Frame<'_>]) {
        let mut plaintext = Vec::new();
        frames.iter().for_each(|f| f.emit(&mut plaintext));
        self.send(&plaintext);
    }

    /// Solve jobs of the server's connection.
    pub fn serve(&mut self) {
        let Some(connection) = self.server.connection(self.handle) else {
            return;
        };
        while let Some(mut job) = connection.take_solve_job() {
            self.solved += job.symbol_operations() * job.symbol_size() as u64;
            job.run();
            connection.finish_solve(self.now, job);
        }
    }

    /// Opens what the server sends now; `f` sees packet number order and every frame. Not all is held at a time.
    pub fn receive(&mut self, mut f: impl FnMut(u64, &Frame<'_>)) {
        let (mut buffer, mut bursts) = (Vec::new(), 0);
        while let Some(t) = self.server.poll_transmit(self.now, 8, &mut buffer) {
            let datagrams = buffer.chunks(t.segment_size.unwrap_or(t.size));
            self.open(datagrams.map(<[u8]>::to_vec).collect(), &mut f);
            buffer.clear();
            bursts += 1;
            assert!(bursts < 100_000, "an endless burst");
        }
    }

    /// Opens datagrams of the server in their order. One that misses all packets under a key cannot open those
    /// under the next but one.
    pub fn open(&mut self, datagrams: Vec<Vec<u8>>, mut f: impl FnMut(u64, &Frame<'_>)) {
        for mut datagram in datagrams {
            let Ok(Packet::Sealed(header)) = Packet::parse(&datagram) else {
                continue;
            };
            if header.cid != self.cid {
                continue; // for another client
            }
            let pn = u64::from(header.packet_number);
            let plain = self
                .opener
                .open(pn, &mut datagram, SEALED_HEADER_LEN)
                .expect("the server seals with the session's key");
            FrameIter::new(plain).for_each(|frame| f(pn, &frame.expect("the server's frames")));
        }
    }

    pub fn connection(&mut self) -> &mut dfcp_proto::Connection {
        self.server.connection(self.handle).expect("still known")
    }

    /// Why the server's connection ended, if it did.
    pub fn closed(&mut self) -> Option<dfcp_proto::ConnectionError> {
        let connection = self.server.connection(self.handle)?;
        std::iter::from_fn(|| connection.poll_event()).find_map(|event| match event {
            dfcp_proto::Event::Closed(error) => Some(error),
            _ => None,
        })
    }
}
