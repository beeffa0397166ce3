//! Options of `--profile dfcp`, and the settings that they mean.

use std::time::Duration;

use dfcp::Rate;
use dfcp::published::rate::{BlockWait, FixedRate, MaxRate, RateController};
use dfcp::published::{Acknowledge, Carrier, Code, Config, RcUdpCode, Redundancy, Sending, rc_udp};
use dfcp_command::{Failure, Profile, units};

const HEADING: &str = "With --profile dfcp and rc-udp";

/// What both sides take.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = HEADING)]
pub struct Common {
    /// What packets travel in: UDP, or IP packets of protocol 253, which need CAP_NET_RAW [default:
    /// udp]
    #[arg(long, value_enum)]
    carrier: Option<CarrierName>,
    /// Largest IP packet [default: 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..))]
    mtu: Option<u16>,
    /// Use addresses beyond this machine, here and with --fixed-rate: on a network that you alone use,
    /// and may flood
    #[arg(long)]
    pub i_own_this_network: bool,
}

/// What the sender takes besides. The receiver takes over what concerns it.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = HEADING)]
pub struct Options {
    #[command(flatten)]
    pub common: Common,
    /// Most blocks on their way [default: 10000, less if the receiver has no room for as many; of
    /// rc-udp: 1]
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..))]
    window: Option<u32>,
    /// Redundancy: how many symbols more than its length a block takes [default: 10%; of
    /// rc-udp: 1%]
    #[arg(long, value_name = "SHARE", value_parser = units::share)]
    redundancy: Option<f64>,
    /// When to stop sending symbols of a block [default: rateless]
    #[arg(long, value_enum)]
    sending: Option<SendingName>,
    /// Bytes of a block [default: 63536; of rc-udp: 1000448]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    block: Option<u32>,
    /// Which acknowledgements are sent [default: block]
    #[arg(long, value_enum)]
    acknowledge: Option<AcknowledgeName>,
    /// Code of rc-udp's blocks [default: raptorq]
    #[arg(long, value_enum)]
    block_code: Option<BlockCode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum BlockCode {
    /// RFC 6330
    Raptorq,
    /// LDPC and LT, as published
    Raptor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CarrierName {
    Udp,
    Ip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SendingName {
    /// Not before its acknowledgement
    Rateless,
    /// After as many as the loss asks for, and more on silence
    Expected,
    /// The same, with the redundancy following the loss
    Adaptive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum AcknowledgeName {
    /// One for each block
    Block,
    /// One for each window
    Window,
}

impl Common {
    /// What packets travel in.
    pub fn carrier(&self) -> Carrier {
        match self.carrier {
            Some(CarrierName::Ip) => Carrier::Ip,
            _ => Carrier::Udp,
        }
    }

    /// An option that only published profiles take.
    fn given(&self) -> Option<&'static str> {
        let given = [
            (self.carrier.is_some(), "--carrier"),
            (self.mtu.is_some(), "--mtu"),
            (self.i_own_this_network, "--i-own-this-network"),
        ];
        given.into_iter().find_map(|(is, name)| is.then_some(name))
    }

    /// Refuses options that the other profile does not know.
    pub fn check_unused(&self) -> Result<(), Failure> {
        unused(self.given())
    }

    /// Settings of a receiver. It says little, and must not flood the way back with it.
    pub fn config(&self, profile: Profile, timeout: Duration) -> Config {
        let default = match profile {
            Profile::RcUdp => Config::rc_udp(None),
            _ => Config::default(),
        };
        Config {
            carrier: self.carrier(),
            mtu: self.mtu.unwrap_or(default.mtu),
            idle_timeout: timeout,
            redundancy: Redundancy {
                sending: Sending::Expected,
                ..default.redundancy
            },
            ..default
        }
    }
}

impl Options {
    /// As [`Common::check_unused`].
    pub fn check_unused(&self) -> Result<(), Failure> {
        let given = [
            (self.window.is_some(), "--window"),
            (self.redundancy.is_some(), "--redundancy"),
            (self.sending.is_some(), "--sending"),
            (self.block.is_some(), "--block"),
            (self.acknowledge.is_some(), "--acknowledge"),
            (self.block_code.is_some(), "--block-code"),
        ];
        let ours = given.into_iter().find_map(|(is, name)| is.then_some(name));
        unused(self.common.given().or(ours))
    }

    /// Settings of a sender that sends at `rate`, or as fast as it can.
    pub fn config(&self, profile: Profile, rate: Option<Rate>, timeout: Duration) -> Config {
        let mut config = self.common.config(profile, timeout);
        if let Some(window) = self.window {
            config.window = config.window.max(window);
            config.blocks_at_once = window;
        }
        config.redundancy.epsilon = self.redundancy.unwrap_or(config.redundancy.epsilon);
        config.redundancy.sending = match self.sending {
            None | Some(SendingName::Rateless) => Sending::Rateless,
            Some(SendingName::Expected) => Sending::Expected,
            Some(SendingName::Adaptive) => Sending::Adaptive,
        };
        config.acknowledge = match self.acknowledge {
            Some(AcknowledgeName::Window) => Acknowledge::EachWindow,
            _ => Acknowledge::EachBlock,
        };
        match (&mut config.code, profile, self.block) {
            (code, Profile::RcUdp, bytes) => {
                let k = bytes.map_or(code.k(), |b| b.div_ceil(rc_udp::SYMBOL_SIZE.into()));
                *code = match self.block_code {
                    Some(BlockCode::Raptor) => RcUdpCode::Raptor,
                    _ => RcUdpCode::RaptorQ,
                }
                .code(k, rc_udp::SYMBOL_SIZE);
            }
            (Code::Raptor(code), _, Some(bytes)) => {
                // With as large a share of check symbols as the published sizes have.
                let (k, n) = (u64::from(code.k), u64::from(code.n));
                let scaled = (u64::from(bytes) * n).div_ceil(k);
                code.n = u32::try_from(scaled).unwrap_or(u32::MAX);
                code.k = bytes;
            }
            _ => {}
        }
        config.with_rate(move || {
            let rate: Box<dyn RateController> = match rate {
                Some(rate) => Box::new(FixedRate::new(rate)),
                None => Box::new(MaxRate),
            };
            match profile {
                Profile::RcUdp => Box::new(BlockWait::new(rate, rc_udp::DELTA_T)),
                _ => rate,
            }
        })
    }

    /// Refuses options that the other published profile does not know.
    pub fn check_for(&self, profile: Profile) -> Result<(), Failure> {
        match (profile, self.block_code) {
            (Profile::RcUdp, _) | (_, None) => Ok(()),
            _ => Err(Failure::usage("--block-code needs --profile rc-udp")),
        }
    }
}

fn unused(given: Option<&str>) -> Result<(), Failure> {
    match given {
        Some(name) => Err(Failure::usage(format!(
            "{name} needs --profile dfcp or rc-udp"
        ))),
        None => Ok(()),
    }
}

/// Refuses an option that belongs to encrypted profiles.
pub fn no_keys(given: &[(bool, &str)]) -> Result<(), Failure> {
    match given.iter().find(|(is, _)| *is) {
        Some((_, name)) => Err(Failure::usage(format!(
            "published profiles are in clear and know no {name}"
        ))),
        None => Ok(()),
    }
}
