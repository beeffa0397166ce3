//! Transports by name.

use dfcp::{ChameleonParameters, CtcpParameters};

/// Transports. The encrypted ones are the sender's choice alone: a receiver takes them all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// Coded, encrypted, with congestion control: for any network
    #[default]
    Auto,
    /// The same, answering the frequent marks of low-latency queues (L4S)
    AutoL4s,
    /// Network-coded TCP: coded, encrypted, shares a path as TCP does
    Ctcp,
    /// Chameleon: encrypted, smooth, at the rate that TCP would have (TFRC)
    Chameleon,
    /// DFCP as published, in clear, without congestion control: for a network that is yours
    Dfcp,
    /// RC-UDP as published, likewise: blocks of 1 MB one by one
    RcUdp,
}

impl Profile {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::AutoL4s => "auto-l4s",
            Self::Ctcp => "ctcp",
            Self::Chameleon => "chameleon",
            Self::Dfcp => "dfcp",
            Self::RcUdp => "rc-udp",
        }
    }

    /// The parts of an encrypted transport; `None` for what is in clear.
    pub fn sealed(self) -> Option<dfcp::Profile> {
        match self {
            Self::Auto => Some(dfcp::Profile::auto()),
            Self::AutoL4s => Some(dfcp::Profile::auto_l4s()),
            Self::Ctcp => Some(dfcp::Profile::ctcp_with(CtcpParameters::for_any_path())),
            Self::Chameleon => {
                let parameters = ChameleonParameters::for_any_path();
                Some(dfcp::Profile::chameleon_with(parameters))
            }
            Self::Dfcp | Self::RcUdp => None,
        }
    }
}
