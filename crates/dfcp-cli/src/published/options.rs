//! Options of `--profile dfcp`, and the settings that they mean.

use std::path::PathBuf;
use std::time::Duration;

use dfcp::Rate;
use dfcp::published::rate::BlockWait;
use dfcp::published::{
    Acknowledge, BlockSize, Carrier, Code, Config, RaptorParameters, RcUdpCode, Redundancy,
    Sending, rc_udp,
};
use dfcp_command::{Failure, Profile, units};

use super::control::{Control, before_orders};
use super::orders::{self, Orders};
use crate::net::Host;

const HEADING: &str = "With --profile dfcp and rc-udp";

/// Symbols of the published block: more need more check nodes than 16 bits name.
const MOST_SYMBOLS: u32 = 63_536;

/// Bytes of a block of larger symbols, unless told otherwise: DFCP-J §4.5 has blocks of about 1 MB for
/// long transfers.
const LARGE_BLOCK: u32 = 16 * MOST_SYMBOLS;

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
    /// Redundancy that is sent, with --sending fixed: it covers the code and the loss [default: that
    /// of --redundancy]
    #[arg(long, value_name = "SHARE", value_parser = units::share)]
    sent: Option<f64>,
    /// Bytes of a block, from 64 to 1048576, such as 50k [default: 63536, or 1016576 with --symbol of 16
    /// and more; of rc-udp: 1000448]
    #[arg(long, value_name = "BYTES", value_parser = block_bytes)]
    block: Option<u32>,
    /// Bytes of a symbol of dfcp's blocks; larger ones cost the hosts less [default: 1]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1..=1024))]
    symbol: Option<u16>,
    /// Blocks of dfcp as suits what is sent: one for little, of about 1 MB for much
    #[arg(long, conflicts_with_all = ["block", "symbol"])]
    flexible_blocks: bool,
    /// Which acknowledgements are sent [default: block]
    #[arg(long, value_enum)]
    acknowledge: Option<AcknowledgeName>,
    /// Who says how fast [default: max]
    #[arg(long, value_enum)]
    control: Option<Control>,
    /// With --control ordered: the network controller to ask, at port 4436 unless it says another
    #[arg(long, value_name = "HOST[:PORT]", value_parser = orders::host, requires = "controller_key")]
    controller: Option<Host>,
    /// File with the key that the controller has too: 64 hexadecimal digits, as `openssl rand -hex 32`
    /// makes them
    #[arg(long, value_name = "FILE", requires = "controller")]
    controller_key: Option<PathBuf>,
    /// Most that is sent, whatever the controller orders
    #[arg(long, value_name = "RATE", value_parser = units::rate, requires = "controller")]
    order_limit: Option<Rate>,
    /// How much more than the bandwidth found is sent, with --control probe-gap or probe-rate
    /// [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = units::share)]
    overestimate: Option<f64>,
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
    /// After as many as --sent says, whatever arrives
    Fixed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum AcknowledgeName {
    /// One for each block
    Block,
    /// One for each window
    Window,
    /// None: what the redundancy does not cover is lost. So may be the receiver's word on the files: then
    /// the exit code is 1, and only the receiver knows whether they arrived
    None,
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
            (self.sent.is_some(), "--sent"),
            (self.block.is_some(), "--block"),
            (self.symbol.is_some(), "--symbol"),
            (self.flexible_blocks, "--flexible-blocks"),
            (self.control.is_some(), "--control"),
            (self.overestimate.is_some(), "--overestimate"),
            (self.controller.is_some(), "--controller"),
            (self.acknowledge.is_some(), "--acknowledge"),
            (self.block_code.is_some(), "--block-code"),
        ];
        let ours = given.into_iter().find_map(|(is, name)| is.then_some(name));
        unused(self.common.given().or(ours))
    }

    /// Settings of a sender of `bytes`, at the fixed `rate` if there is one.
    pub fn config(&self, profile: Profile, job: Rates, timeout: Duration) -> Config {
        let mut config = self.common.config(profile, timeout);
        if let Some(window) = self.window {
            config.window = config.window.max(window);
            config.blocks_at_once = window;
        }
        let epsilon = self.redundancy.unwrap_or(config.redundancy.epsilon);
        config.redundancy = Redundancy {
            epsilon,
            sending: match self.sending {
                None | Some(SendingName::Rateless) => Sending::Rateless,
                Some(SendingName::Expected) => Sending::Expected,
                Some(SendingName::Adaptive) => Sending::Adaptive,
                Some(SendingName::Fixed) => Sending::Fixed {
                    extra: self.sent.unwrap_or(epsilon),
                },
            },
        };
        config.acknowledge = match self.acknowledge {
            None | Some(AcknowledgeName::Block) => Acknowledge::EachBlock,
            Some(AcknowledgeName::Window) => Acknowledge::EachWindow,
            Some(AcknowledgeName::None) => Acknowledge::Off,
        };
        if self.flexible_blocks {
            config.block_size = BlockSize::Flexible { bytes: job.bytes };
        }
        self.size(&mut config.code, profile);
        let (control, overestimate) = (self.control(), self.overestimate);
        config.with_rate(move || {
            let rate = control.controller(job.fixed, overestimate);
            match profile {
                Profile::RcUdp => Box::new(BlockWait::new(rate, rc_udp::DELTA_T)),
                _ => rate,
            }
        })
    }

    /// Gives the code its block and symbol sizes.
    fn size(&self, code: &mut Code, profile: Profile) {
        if profile == Profile::RcUdp {
            let k = match self.block {
                Some(bytes) => bytes.div_ceil(rc_udp::SYMBOL_SIZE.into()),
                None => code.k(),
            };
            *code = match self.block_code {
                Some(BlockCode::Raptor) => RcUdpCode::Raptor,
                _ => RcUdpCode::RaptorQ,
            }
            .code(k, rc_udp::SYMBOL_SIZE);
            return;
        }
        if let Code::Raptor(raptor) = code {
            // With as large a share of check symbols as the published sizes have.
            let (k, n) = (u64::from(raptor.k), u64::from(raptor.n));
            let own = self.block_symbols();
            *raptor = RaptorParameters {
                k: own,
                n: u32::try_from((u64::from(own) * n).div_ceil(k)).unwrap_or(u32::MAX),
                symbol_size: self.symbol.unwrap_or(1),
                ..raptor.clone()
            };
        }
    }

    /// Source symbols of dfcp's blocks.
    fn block_symbols(&self) -> u32 {
        let symbol = u32::from(self.symbol.unwrap_or(1));
        let usual = LARGE_BLOCK.min(MOST_SYMBOLS * symbol);
        self.block.unwrap_or(usual).div_ceil(symbol)
    }

    /// Whether nothing is acknowledged.
    pub fn is_unacknowledged(&self) -> bool {
        self.acknowledge == Some(AcknowledgeName::None)
    }

    /// Whose orders are followed over the network; `fixed` is the rate that the user fixed.
    ///
    /// # Errors
    /// When the key cannot be read.
    pub fn orders(&self, fixed: Option<Rate>) -> Option<Result<Orders<'_>, Failure>> {
        let controller = self.controller.as_ref()?;
        let key = orders::read_key(self.controller_key.as_ref()?);
        Some(key.map(|key| Orders {
            controller,
            key,
            fallback: before_orders(fixed),
            limit: self.order_limit.unwrap_or(Rate::MAX),
        }))
    }

    /// Who says how fast.
    pub fn control(&self) -> Control {
        self.control.unwrap_or_default()
    }

    /// Refuses a rate that the user fixed for who finds one, and what has no effect.
    pub fn check_rate(&self, fixed: Option<Rate>) -> Result<(), Failure> {
        if self.controller.is_some() && self.control() != Control::Ordered {
            return Err(Failure::usage("--controller needs --control ordered"));
        }
        self.control().check(fixed, self.overestimate)
    }

    /// Refuses options that the other published profile does not know, and those that contradict each
    /// other.
    pub fn check_for(&self, profile: Profile) -> Result<(), Failure> {
        let refuse = |message: &str| Err(Failure::usage(message));
        let is_sized = self.symbol.is_some() || self.flexible_blocks;
        match profile {
            Profile::RcUdp if is_sized => {
                return refuse("--symbol and --flexible-blocks need --profile dfcp");
            }
            Profile::RcUdp => {}
            _ if self.block_code.is_some() => {
                return refuse("--block-code needs --profile rc-udp");
            }
            _ if self.block_symbols() > MOST_SYMBOLS => {
                let block = self.block.unwrap_or_default();
                return Err(Failure::usage(format!(
                    "--block {block}: a block has at most {MOST_SYMBOLS} symbols, of one byte unless \
                     --symbol says more; add --symbol {} or a larger one",
                    block.div_ceil(MOST_SYMBOLS)
                )));
            }
            _ => {}
        }
        if self.sent.is_some() && self.sending != Some(SendingName::Fixed) {
            return refuse("--sent needs --sending fixed");
        }
        let least = self.redundancy.unwrap_or(
            self.common
                .config(profile, Duration::ZERO)
                .redundancy
                .epsilon,
        );
        if let Some(sent) = self.sent.filter(|sent| *sent < least) {
            let percent = |share: f64| (share * 1e4).round() / 1e2;
            return Err(Failure::usage(format!(
                "--sent {}%: a block takes {1}% more symbols than its length (--redundancy), so \
                 with less no block would be whole; send {1}% and what the path loses",
                percent(sent),
                percent(least)
            )));
        }
        Ok(())
    }
}

/// Bytes of a block: a few symbols of the largest kind at least, and what a decoder's memory is made for
/// at most.
fn block_bytes(text: &str) -> Result<u32, String> {
    let bytes = units::count(text)?;
    let bytes = u32::try_from(bytes)
        .ok()
        .filter(|bytes| (64..=1 << 20).contains(bytes));
    bytes.ok_or_else(|| "a block has from 64 to 1048576 bytes (1Mi)".to_owned())
}

/// What is sent, and how fast.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Bytes, as far as is known.
    pub bytes: u64,
    /// The rate that the user fixed.
    pub fixed: Option<Rate>,
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
