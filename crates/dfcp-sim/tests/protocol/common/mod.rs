//! Links, transfers and a hand-made client for the tests.

pub use crate::bodies::raw;

use dfcp_proto::{
    ChannelId, ChannelKind, ConnectionError, Duration, Event, Profile, Rate, Read, SchemeId,
    TransportConfig,
};
use dfcp_sim::pair::pattern;
use dfcp_sim::{Limit, LinkConfig, Pair, PairConfig, Side};

pub const MS: fn(u64) -> Duration = Duration::from_millis;
pub const SECOND: Duration = Duration::from_secs(1);

/// A link of `mbit` Mbit/s, half of `rtt_ms` long, with a queue of one bandwidth-delay product.
pub fn link(mbit: u64, rtt_ms: u64) -> LinkConfig {
    let rate = Rate::from_bps(mbit * 1_000_000);
    let delay = MS(rtt_ms) / 2;
    let packets = (rate.bytes_in(2 * delay) / 1500).max(50) as usize;
    LinkConfig {
        rate: rate.into(),
        delay,
        queue: Limit::Packets(packets).into(),
        ..LinkConfig::default()
    }
}

pub fn lossy(loss: f64) -> LinkConfig {
    LinkConfig {
        loss: loss.into(),
        ..link(50, 20)
    }
}

/// Both sides with `profile`.
pub fn with_profile(link: LinkConfig, seed: u64, profile: Profile) -> PairConfig {
    let transport = TransportConfig::default().profile(profile);
    PairConfig {
        client: transport.clone(),
        server: transport,
        ..PairConfig::symmetric(link, seed)
    }
}

pub fn scheme(scheme: SchemeId, symbols: u32) -> Profile {
    Profile::auto().with_scheme(scheme, symbols)
}

/// A pair whose handshake is done.
pub fn established(config: PairConfig) -> Pair {
    let seed = config.seed;
    let mut pair = Pair::new(config);
    assert!(pair.establish(8 * SECOND), "handshake, seed {seed}");
    pair
}

pub fn has_event(pair: &Pair, side: Side, event: &Event) -> bool {
    pair.hosts[side as usize].events.contains(event)
}

/// Why that side's connection ended, if it did.
pub fn closed(pair: &Pair, side: Side) -> Option<&ConnectionError> {
    pair.hosts[side as usize]
        .events
        .iter()
        .find_map(|event| match event {
            Event::Closed(error) => Some(error),
            _ => None,
        })
}

/// Both links are like this from now on.
pub fn set_links(pair: &mut Pair, config: &LinkConfig) {
    let now = pair.now;
    pair.links
        .iter_mut()
        .for_each(|link| link.set_config(now, config.clone()));
}

/// One direction of a channel: writes a pattern at one end, checks it at the other.
#[derive(Debug)]
pub struct Flow {
    pub channel: ChannelId,
    pub from: Side,
    size: u64,
    pub written: u64,
    finished: bool,
    pub received: u64,
    pub ended: bool,
    /// Most bytes per call of `write` and `read`.
    pub chunk: usize,
    salt: u64,
}

impl Flow {
    /// `size` bytes from `from` on `channel`.
    pub fn new(channel: ChannelId, from: Side, size: u64) -> Self {
        let salt = channel.0.wrapping_mul(1 << 20) ^ (from as u64) << 50;
        Self {
            channel,
            from,
            size,
            written: 0,
            finished: false,
            received: 0,
            ended: false,
            chunk: 65_536,
            salt,
        }
    }

    /// Opens a channel at `from` for it.
    pub fn open(pair: &mut Pair, from: Side, kind: ChannelKind, size: u64) -> Self {
        let channel = pair
            .connection(from)
            .open(kind)
            .expect("room for a channel");
        Self::new(channel, from, size)
    }

    pub fn write(&mut self, pair: &mut Pair) {
        self.write_to(pair, self.size);
    }

    /// Writes as far as that offset.
    pub fn write_to(&mut self, pair: &mut Pair, to: u64) {
        let now = pair.now;
        let connection = pair.connection(self.from);
        while self.written < to {
            let end = (self.written + self.chunk as u64).min(to);
            let data: Vec<u8> = (self.written..end)
                .map(|o| pattern(o ^ self.salt))
                .collect();
            match connection
                .write(now, self.channel, &data)
                .expect("channel is open")
            {
                0 => break,
                n => self.written += n as u64,
            }
        }
        if self.written == self.size && !self.finished {
            connection
                .finish_channel(self.channel)
                .expect("channel is open");
            self.finished = true;
        }
        pair.flush();
    }

    fn check(&self, offset: u64, bytes: &[u8]) {
        let wrong = bytes
            .iter()
            .zip(offset..)
            .find(|&(&b, o)| b != pattern(o ^ self.salt));
        assert_eq!(wrong, None, "wrong byte on {:?}", self.channel);
    }

    /// Reads at most `limit` bytes.
    pub fn read_some(&mut self, pair: &mut Pair, limit: usize) {
        let now = pair.now;
        let side = self.from.other();
        let mut left = limit;
        if self.channel.kind() == ChannelKind::Object {
            while left > 0
                && let Ok(Some((offset, bytes))) =
                    pair.connection(side).take_block(now, self.channel)
            {
                self.check(offset, &bytes);
                self.received += bytes.len() as u64;
                left = left.saturating_sub(bytes.len());
                pair.connection(side).recycle(now, bytes);
            }
            if !self.ended
                && pair.connection(side).final_size(self.channel).is_some()
                && pair.connection(side).is_drained(self.channel)
            {
                pair.connection(side).end_recv(self.channel);
                self.ended = true;
            }
        }
        let mut buffer = vec![0; self.chunk.min(limit)];
        while self.channel.kind() == ChannelKind::Stream && left > 0 && !self.ended {
            let room = left.min(buffer.len());
            match pair
                .connection(side)
                .read(now, self.channel, &mut buffer[..room])
            {
                Ok(Read::Data(n)) => {
                    self.check(self.received, &buffer[..n]);
                    self.received += n as u64;
                    left -= n;
                }
                Ok(Read::Gap(n)) => panic!("{n} bytes given up on {:?}", self.channel),
                Ok(Read::End) => self.ended = true,
                Ok(Read::Blocked) => break,
                Err(_) if self.received == 0 => break, // not opened at this side yet
                Err(error) => panic!("read of {:?}: {error}", self.channel),
            }
        }
        pair.flush();
    }

    /// Writes and reads what is possible; true when the reader saw the end and the writer knows.
    pub fn poll(&mut self, pair: &mut Pair) -> bool {
        self.write(pair);
        self.read_some(pair, usize::MAX);
        self.is_done(pair)
    }

    pub fn is_done(&self, pair: &Pair) -> bool {
        self.ended
            && self.received == self.size
            && has_event(pair, self.from, &Event::Acknowledged(self.channel))
    }
}

/// Runs all flows to their end.
pub fn run_flows(pair: &mut Pair, flows: &mut [Flow], limit: Duration) -> bool {
    pair.run_until(limit, |pair| {
        // All of them, not only up to the first that is not done.
        flows
            .iter_mut()
            .filter_map(|flow| (!flow.poll(pair)).then_some(()))
            .count()
            == 0
    })
}

/// One transfer over `config`, complete and byte for byte right; gives the pair for more checks.
pub fn transfer(config: PairConfig, kind: ChannelKind, size: u64, limit: Duration) -> Pair {
    let seed = config.seed;
    let mut pair = established(config);
    let flow = Flow::open(&mut pair, Side::Client, kind, size);
    let mut flows = [flow];
    let done = run_flows(&mut pair, &mut flows, limit);
    let [client, server] = Side::BOTH.map(|side| {
        pair.try_connection(side)
            .map(|c| c.stats())
            .unwrap_or_default()
    });
    assert!(
        done,
        "seed {seed}, {size} bytes: {flows:?}\n{client:?}\n{server:?}"
    );
    pair
}
