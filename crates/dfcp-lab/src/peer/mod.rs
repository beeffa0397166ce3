//! Programs that move files, run between two hosts of the lab: `dfcp` itself and its peers.
//!
//! - [`program`]: where they are, and which version; [`plan`]: which processes a transfer takes;
//! - [`tunnel`]: what kcptun and hysteria2 are told; [`mod@run`]: the transfer, with its deadline;
//! - [`progress`]: how much has arrived, seen from outside.
//!
//! Every transfer goes from a file to a file, with the same yardstick for all: the growth of the
//! target file, the processor time of all processes that took part, and the path's own counters.
//! A program that is missing, crashes or hangs costs its own figures and nothing else.

pub mod plan;
pub mod program;
pub mod progress;
pub mod run;
pub mod tunnel;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use self::program::{Missing, Programs};
pub use self::run::{Ends, Outcome, Session, Transfer, Work};

/// A transport under test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// `dfcp send` and `recv`, profile `auto`.
    Dfcp,
    /// The kernel's TCP with this congestion control, from file to file.
    Tcp(String),
    /// The same by iperf3: no file, no object of its own; for its goodput.
    Iperf(String),
    /// quinn, a QUIC library.
    Quinn(QuinnControl),
    /// hysteria2, told the bandwidth; TCP through its forwarding.
    Hysteria,
    /// kcptun with its forward error correction; TCP through it.
    Kcptun,
    /// SRT's file mode, encrypted, told the bandwidth.
    Srt,
    /// UDT 4.
    Udt,
}

/// Congestion controls of quinn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuinnControl {
    /// CUBIC.
    Cubic,
    /// BBR.
    Bbr,
    /// Our rendition of hysteria2's rate control: told the rate.
    Brutal,
}

impl QuinnControl {
    /// As in a peer's name and on the peer program's command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Brutal => "brutal",
        }
    }
}

/// Where the kernel lists its congestion controls.
const OFFERED: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

impl Peer {
    /// All peers; TCP with every congestion control that this kernel offers.
    pub fn all() -> Vec<Self> {
        let offered = std::fs::read_to_string(OFFERED).unwrap_or_else(|_| "cubic".to_owned());
        let mut controls: Vec<_> = offered.split_whitespace().collect();
        controls.sort_unstable();
        let tcp = controls
            .iter()
            .map(|control| Self::Tcp((*control).to_owned()));
        [Self::Dfcp]
            .into_iter()
            .chain(tcp)
            .chain([
                Self::Quinn(QuinnControl::Cubic),
                Self::Quinn(QuinnControl::Bbr),
                Self::Quinn(QuinnControl::Brutal),
                Self::Hysteria,
                Self::Kcptun,
                Self::Srt,
                Self::Udt,
            ])
            .collect()
    }

    /// The programs it takes besides the lab's own.
    pub fn programs(&self) -> &'static [&'static str] {
        match self {
            Self::Tcp(_) => &[],
            Self::Dfcp => &["dfcp"],
            Self::Iperf(_) => &["iperf3"],
            Self::Quinn(_) => &["dfcp-peer-quinn"],
            Self::Hysteria => &["hysteria", "dfcp-peer-quinn"],
            Self::Kcptun => &["kcptun-client", "kcptun-server"],
            Self::Srt => &["srt-file-transmit"],
            Self::Udt => &["dfcp-peer-udt"],
        }
    }

    /// Whether it moves objects; else it runs for [`Self::fixed_time`].
    pub fn moves_objects(&self) -> bool {
        !matches!(self, Self::Iperf(_))
    }

    /// How long it runs whatever it is given; zero for those that move objects.
    pub fn fixed_time(&self) -> Duration {
        match self {
            Self::Iperf(_) => plan::IPERF_TIME,
            _ => Duration::ZERO,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dfcp => f.write_str("dfcp"),
            Self::Tcp(control) => write!(f, "tcp-{control}"),
            Self::Iperf(control) => write!(f, "iperf3-{control}"),
            Self::Quinn(control) => write!(f, "quinn-{}", control.name()),
            Self::Hysteria => f.write_str("hysteria2"),
            Self::Kcptun => f.write_str("kcptun"),
            Self::Srt => f.write_str("srt"),
            Self::Udt => f.write_str("udt"),
        }
    }
}

/// No peer of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown peer {0:?}: dfcp, tcp-CONTROL, iperf3-CONTROL, quinn-cubic, quinn-bbr, quinn-brutal, \
     hysteria2, kcptun, srt, udt"
)]
pub struct UnknownPeer(String);

impl FromStr for Peer {
    type Err = UnknownPeer;

    fn from_str(name: &str) -> Result<Self, UnknownPeer> {
        let control = |control: &str| {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            let valid = !control.is_empty() && control.len() < 16 && control.chars().all(word);
            valid.then(|| control.to_owned())
        };
        let unknown = || UnknownPeer(name.to_owned());
        match name.split_once('-') {
            Some(("tcp", rest)) => control(rest).map(Self::Tcp).ok_or_else(unknown),
            Some(("iperf3", rest)) => control(rest).map(Self::Iperf).ok_or_else(unknown),
            Some(("quinn", "cubic")) => Ok(Self::Quinn(QuinnControl::Cubic)),
            Some(("quinn", "bbr")) => Ok(Self::Quinn(QuinnControl::Bbr)),
            Some(("quinn", "brutal")) => Ok(Self::Quinn(QuinnControl::Brutal)),
            _ => match name {
                "dfcp" => Ok(Self::Dfcp),
                "hysteria2" => Ok(Self::Hysteria),
                "kcptun" => Ok(Self::Kcptun),
                "srt" => Ok(Self::Srt),
                "udt" => Ok(Self::Udt),
                _ => Err(unknown()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_is_called_by_its_name() {
        let mut all = Peer::all();
        all.push(Peer::Iperf("bbr".to_owned()));
        assert!(all.contains(&Peer::Tcp("cubic".to_owned())));
        for peer in all {
            assert_eq!(peer.to_string().parse(), Ok(peer));
        }
        for bad in [
            "",
            "tcp",
            "tcp-",
            "tcp-../x",
            "quinn",
            "quinn-vegas",
            "DFCP",
        ] {
            let error = bad.parse::<Peer>().unwrap_err();
            assert!(error.to_string().contains("quinn-brutal"), "{bad}");
        }
    }
}
