//! Packets into both ends of a published connection: nothing is sealed, so everything can be said.

use super::Input;
use super::live::Watch;
use dfcp_proto::published::header::{PseudoHeader, seal};
use dfcp_proto::published::{Code, Config, GeneratorState, RaptorParameters, Redundancy, Sending};
use dfcp_proto::rate::FixedRate;
use dfcp_proto::{Duration, Rate};
use dfcp_sim::{Datagram, LinkConfig, PublishedPair, PublishedPairConfig, Side};

/// What each end may hold of what it receives.
const BUDGET: u64 = 1 << 20;
/// That of both ends and a quarter more, what they send, and what strangers said.
const MAY_HOLD: usize = 2 * BUDGET as usize * 5 / 4 + (1 << 20);

fn pair(config: Config) -> PublishedPair {
    let link = LinkConfig {
        delay: Duration::from_millis(5),
        ..LinkConfig::default()
    };
    let mut config = config.with_rate(|| Box::new(FixedRate::new(Rate::from_bps(20_000_000))));
    config.window = 4;
    config.receive_budget = BUDGET;
    config.redundancy = Redundancy {
        epsilon: 0.2,
        sending: Sending::Expected,
    };
    PublishedPair::new(PublishedPairConfig::symmetric(link, config, 1))
}

fn dfcp() -> Config {
    let code = RaptorParameters {
        k: 300,
        n: 330,
        symbol_size: 8,
        ..RaptorParameters::published(GeneratorState::from_seed(1))
    };
    Config {
        code: Code::Raptor(code),
        ..Config::default()
    }
}

fn rc_udp() -> Config {
    let mut config = Config::rc_udp(Some(10_000));
    config.code = Code::RaptorQ {
        k: 12,
        symbol_size: 200,
    };
    config
}

/// Any packets with right checksums, captured and changed ones among them, at any moment of a
/// connection: it may end, never panic, and time goes on.
pub fn packets(data: &[u8]) {
    let mut input = Input(data);
    let watch = Watch::allow(MAY_HOLD);
    let mut pair = match data.len() % 2 {
        0 => pair(dfcp()),
        _ => pair(rc_udp()),
    };
    pair.connect();
    let mut captured: Vec<Vec<u8>> = Vec::new();
    let mut buffer = [0; 4096];
    for _ in 0..64 {
        if input.is_empty() {
            break;
        }
        watch.check();
        let op = input.byte();
        let side = Side::BOTH[usize::from(op & 1)];
        for link in &pair.links {
            let mut link = link.clone();
            captured.extend(link.poll(pair.now + Duration::from_secs(1)).map(|p| p.data));
        }
        let mut packet = match op >> 1 & 3 {
            0 => {
                let len = input.number() % 1600;
                input.bytes(len).to_vec()
            }
            _ if captured.is_empty() => continue,
            kind => {
                let mut copy = captured[input.number() % captured.len()].clone();
                let at = input.number() % copy.len().min(80);
                match kind {
                    1 => copy[at] ^= input.byte(),
                    2 => copy.truncate(at),
                    _ => {}
                }
                copy
            }
        };
        seal(&mut packet, &PseudoHeader::Udp);
        pair.deliver(side, &Datagram::new(packet));
        let now = pair.now;
        if let Some(connection) = pair.try_connection(side) {
            let _ = connection.read(now, &mut buffer);
            if op & 0x10 != 0 {
                let _ = connection.write(now, &[0x5a; 3000]);
                connection.flush(now);
            }
            if op & 0x28 == 0x28 {
                connection.finish(now);
            }
        }
        pair.flush();
        if op & 8 != 0 {
            pair.run_until(Duration::from_millis(u64::from(op >> 4)), |_| false);
        }
    }
    pair.run_until(Duration::from_secs(5), |_| false);
}
