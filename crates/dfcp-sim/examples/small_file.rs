//! A small file to a receiver that was never met, in simulated time: how many round trips the exchange
//! takes from the first SYN until the sender has the receiver's last word, and where they go. Both
//! links lose packets at random. The messages are those of `docs/spec/files.md`; what processes take to
//! start and to end is not in it.
//!
//! `cargo run --release -p dfcp-sim --example small_file -- [bytes] [rate Mbit/s] [rtt ms] [runs] [first
//! seed] [loss %...]`

use dfcp_proto::{ChannelId, ChannelKind, Duration, Instant, Rate, Read};
use dfcp_sim::{Limit, LinkConfig, Pair, PairConfig, Side};

/// What the sender says before its file: the offer, and what the object has.
const SAID: [usize; 2] = [300, 130];
/// What the receiver says of the offer, and at the end.
const ANSWERED: [usize; 2] = [21, 80];
/// Round trips within which a step takes one path there, or there and back: what queues and the bytes
/// themselves take is a third of one here.
const ONE_WAY: f64 = 0.85;
const THERE_AND_BACK: f64 = 1.1;

#[derive(Clone, Copy)]
struct Path {
    bytes: u64,
    rate: Rate,
    round_trip: Duration,
    loss: f64,
}

/// Of one transfer; in round trips since the first SYN.
struct Outcome {
    established: f64,
    /// When the receiver had all bytes and all that was said of them.
    received: f64,
    /// When it knew besides that no more bytes follow.
    ended: f64,
    /// When the sender had its answer.
    heard: f64,
    /// Packets of the sender until the first word of them could come back.
    first_flight: usize,
    /// IP bytes of the sender.
    sent: u64,
}

impl Outcome {
    /// What took longer than without loss, first of all.
    fn delay(&self, path: Path) -> &'static str {
        let packets = (path.bytes / 1430) as usize;
        if self.established > THERE_AND_BACK {
            "SYN or SYNACK"
        } else if self.received > self.established + ONE_WAY && self.first_flight < packets {
            "a first flight that was too short"
        } else if self.received > self.established + ONE_WAY {
            "too few repair symbols, or a message"
        } else if self.heard > self.received + ONE_WAY {
            "the answer"
        } else {
            "nothing"
        }
    }
}

fn main() {
    let args: Vec<f64> = std::env::args()
        .skip(1)
        .filter_map(|arg| arg.parse().ok())
        .collect();
    let get = |i: usize, default: f64| args.get(i).copied().unwrap_or(default);
    let (runs, first) = (get(3, 500.0) as u64, get(4, 1.0) as u64);
    let losses = args.get(5..).filter(|given| !given.is_empty());
    println!(
        "| loss % | heard, RTT: mean | 50 % | 90 % | 95 % | 99 % | received: 50 % | 90 % | end known: 90 % | bytes sent ÷ of the file | what took longer: runs of {runs} |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for loss in losses.unwrap_or(&[0.0, 1.0, 5.0, 10.0, 20.0]) {
        let path = Path {
            bytes: get(0, 150e3) as u64,
            rate: Rate::from_bps((get(1, 100.0) * 1e6) as u64),
            round_trip: Duration::from_secs_f64(get(2, 50.0) / 1e3),
            loss: loss / 100.0,
        };
        let outcomes: Vec<Outcome> = (first..first + runs).map(|seed| run(path, seed)).collect();
        let quantile = |of: fn(&Outcome) -> f64, q: f64| {
            let mut values: Vec<f64> = outcomes.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[((values.len() - 1) as f64 * q).round() as usize]
        };
        let mean = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / runs as f64;
        let [h50, h90, h95, h99] = [0.5, 0.9, 0.95, 0.99].map(|q| quantile(|o| o.heard, q));
        let [r50, r90] = [0.5, 0.9].map(|q| quantile(|o| o.received, q));
        println!(
            "| {loss} | {:.2} | {h50:.2} | {h90:.2} | {h95:.2} | {h99:.2} | {r50:.2} | {r90:.2} | {:.2} | {:.3} | {} |",
            mean(|o| o.heard),
            quantile(|o| o.ended, 0.9),
            mean(|o| o.sent as f64) / path.bytes as f64,
            delays(&outcomes, path)
        );
    }
}

/// How often each thing was what took longer.
fn delays(outcomes: &[Outcome], path: Path) -> String {
    let mut counts = std::collections::BTreeMap::new();
    for outcome in outcomes {
        *counts.entry(outcome.delay(path)).or_insert(0) += 1;
    }
    let listed: Vec<String> = counts.iter().map(|(w, n)| format!("{w}: {n}")).collect();
    listed.join("; ")
}

/// A link of the path, with a queue of one bandwidth-delay product.
fn link(path: Path) -> LinkConfig {
    let packets = (path.rate.bytes_in(path.round_trip) / 1500).max(50) as usize;
    LinkConfig {
        rate: path.rate.into(),
        delay: path.round_trip / 2,
        queue: Limit::Packets(packets).into(),
        loss: path.loss.into(),
        ..LinkConfig::default()
    }
}

/// The two sides of a session.
struct Session {
    control: ChannelId,
    object: ChannelId,
    written: u64,
    finished: bool,
    /// Bytes that the receiver has of either, and what it has said.
    read: usize,
    arrived: u64,
    answers: usize,
    /// What the sender has read of that.
    heard: usize,
    received_at: Option<Instant>,
    ended_at: Option<Instant>,
}

fn run(path: Path, seed: u64) -> Outcome {
    let mut pair = Pair::new(PairConfig::symmetric(link(path), seed));
    pair.hosts[0].sent = Some(Vec::new());
    let start = pair.now;
    pair.connect();
    let up = pair.run_until(Duration::from_secs(8), |pair| {
        let client = pair.try_connection(Side::Client);
        client.is_some_and(|connection| connection.is_established())
    });
    assert!(up, "seed {seed}: handshake");
    let established = pair.now;
    let mut session = Session::begin(&mut pair, path.bytes);
    let said = SAID.iter().sum::<usize>();
    let done = pair.run_until(Duration::from_secs(60), |pair| {
        session.write(pair, path.bytes);
        session.receive(pair, path.bytes, said);
        session.listen(pair)
    });
    assert!(done, "seed {seed}: transfer");
    let heard = pair.now;
    let sent = pair.hosts[0].ip_bytes;
    let ended = |pair: &mut Pair| {
        session.receive(pair, path.bytes, said);
        session.ended_at.is_some()
    };
    assert!(
        pair.run_until(Duration::from_secs(60), ended),
        "seed {seed}: the object's end"
    );
    let trips =
        |at: Instant| at.saturating_since(start).as_secs_f64() / path.round_trip.as_secs_f64();
    let answered = established + path.round_trip;
    let leave = pair.hosts[0].sent.iter().flatten();
    Outcome {
        established: trips(established),
        received: session.received_at.map_or(0.0, trips),
        ended: session.ended_at.map_or(0.0, trips),
        heard: trips(heard),
        first_flight: leave
            .filter(|(at, size)| (established..answered).contains(at) && *size > 1000)
            .count(),
        sent,
    }
}

impl Session {
    fn begin(pair: &mut Pair, bytes: u64) -> Self {
        let now = pair.now;
        let client = pair.connection(Side::Client);
        let control = client.open(ChannelKind::Stream).expect("a new connection");
        client.set_priority(control, 1).expect("just opened");
        for len in SAID {
            let message = vec![1; len];
            let written = client.write(now, control, &message);
            assert_eq!(written, Ok(len));
        }
        let object = client.open(ChannelKind::Object).expect("a new connection");
        let mut session = Self {
            control,
            object,
            written: 0,
            finished: false,
            read: 0,
            arrived: 0,
            answers: 0,
            heard: 0,
            received_at: None,
            ended_at: None,
        };
        session.write(pair, bytes);
        session
    }

    fn write(&mut self, pair: &mut Pair, bytes: u64) {
        let now = pair.now;
        let client = pair.connection(Side::Client);
        while self.written < bytes {
            let data = vec![2; (bytes - self.written).min(65_536) as usize];
            match client.write(now, self.object, &data) {
                Ok(0) | Err(_) => break,
                Ok(n) => self.written += n as u64,
            }
        }
        if self.written == bytes && !self.finished {
            client.finish_channel(self.object).expect("it is open");
            self.finished = true;
        }
        pair.flush();
    }

    /// The receiver reads what there is, and says what it has to say.
    fn receive(&mut self, pair: &mut Pair, bytes: u64, said: usize) {
        let now = pair.now;
        let Some(server) = pair.try_connection(Side::Server) else {
            return;
        };
        let mut buffer = [0; 2000];
        while let Ok(Read::Data(n)) = server.read(now, self.control, &mut buffer) {
            self.read += n;
        }
        while let Ok(Some((_, block))) = server.take_block(now, self.object) {
            self.arrived += block.len() as u64;
            server.recycle(now, block);
        }
        let has_all = self.arrived == bytes && self.read == said;
        if has_all && self.received_at.is_none() {
            self.received_at = Some(now);
        }
        if has_all && self.ended_at.is_none() && server.final_size(self.object).is_some() {
            self.ended_at = Some(now);
        }
        let due = usize::from(self.read >= SAID[0]) + usize::from(has_all);
        while self.answers < due.min(ANSWERED.len()) {
            let message = vec![3; ANSWERED[self.answers]];
            server
                .write(now, self.control, &message)
                .expect("it is open");
            self.answers += 1;
        }
        pair.flush();
    }

    /// The sender reads the answers; true when it has all.
    fn listen(&mut self, pair: &mut Pair) -> bool {
        let now = pair.now;
        let client = pair.connection(Side::Client);
        let mut buffer = [0; 2000];
        while let Ok(Read::Data(n)) = client.read(now, self.control, &mut buffer) {
            self.heard += n;
        }
        self.heard == ANSWERED.iter().sum::<usize>()
    }
}
