//! Links and settings for the tests.

use dfcp_fec::raptor::RaptorParameters;
use dfcp_proto::published::{Code, Config, GeneratorState, Redundancy, Sending};
use dfcp_proto::rate::FixedRate;
use dfcp_proto::{Duration, Rate};
use dfcp_sim::{LinkConfig, PublishedPair, PublishedPairConfig, Side};
use std::sync::Arc;

pub const MS: fn(u64) -> Duration = Duration::from_millis;
pub const SECOND: Duration = Duration::from_secs(1);

/// 100 Mbit/s, half of `rtt_ms` long.
pub fn link(rtt_ms: u64) -> LinkConfig {
    LinkConfig {
        rate: Rate::from_bps(100_000_000).into(),
        delay: MS(rtt_ms) / 2,
        ..LinkConfig::default()
    }
}

pub fn lossy(rtt_ms: u64, loss: f64) -> LinkConfig {
    LinkConfig {
        loss: loss.into(),
        ..link(rtt_ms)
    }
}

/// Small blocks (2000 symbols of 8 bytes), so that tests see many; a plain LT code of this size
/// needs a good deal of redundancy, which decoding by inactivation spares.
pub fn small() -> Config {
    let code = RaptorParameters {
        k: 2000,
        n: 2100,
        symbol_size: 8,
        ..RaptorParameters::published(GeneratorState::from_seed(1))
    };
    Config {
        code: Code::Raptor(code),
        redundancy: Redundancy {
            epsilon: 0.1,
            sending: Sending::Expected,
        },
        rate: Arc::new(|| Box::new(FixedRate::new(Rate::from_bps(50_000_000)))),
        ..Config::default()
    }
}

pub fn pair(link: LinkConfig, config: Config, seed: u64) -> PublishedPair {
    PublishedPair::new(PublishedPairConfig::symmetric(link, config, seed))
}

/// One side has no more to send.
pub fn finish(pair: &mut PublishedPair, side: Side) {
    let now = pair.now;
    pair.connection(side).finish(now);
    pair.flush();
}
