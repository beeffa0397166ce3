//! What a link has to say.

use std::fmt;
use std::sync::Arc;

use dfcp::{ConnectionStats, PublicKey};

use crate::nets::Net;
use crate::stats::Stats;

/// Takes events; called where it must not block.
pub type Report = Arc<dyn Fn(Event) + Send + Sync>;

/// Something that happened. `Display` puts it in words.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Of the connection to the server, or of a client's.
    Connection(dfcp_proxy::Event),
    /// The device's MTU follows the path.
    Mtu(usize),
    /// The server does not take packets from these addresses of this side.
    NotOurs {
        /// The addresses.
        addresses: Vec<Net>,
        /// Those that it takes.
        allowed: String,
    },
    /// The other side is no server of links, or one of another version.
    NotALink,
    /// What the connections of a peer have carried, at the end of one.
    Carried(PublicKey, Stats),
    /// The same meanwhile, and what the path is like.
    Carrying(PublicKey, Stats, Box<ConnectionStats>),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(event) => event.fmt(f),
            Self::Mtu(mtu) => write!(f, "packets have {mtu} bytes at most"),
            Self::NotOurs { addresses, allowed } => {
                write!(f, "the server drops packets from")?;
                for net in addresses {
                    write!(f, " {}", net.ip)?;
                }
                write!(f, ": it gives this key {allowed}")
            }
            Self::NotALink => write!(
                f,
                "the other side carries no IP packets: is it `dfcp tun serve`?"
            ),
            Self::Carried(peer, stats) => write!(f, "{peer}: {stats}"),
            Self::Carrying(peer, stats, path) => write!(
                f,
                "{peer}: round trip {:.1} ms (least {:.1}), loss {:.2} %, rate {}; {stats}",
                path.rtt.as_secs_f64() * 1e3,
                path.min_rtt.as_secs_f64() * 1e3,
                path.loss * 100.0,
                path.pacing_rate,
            ),
        }
    }
}
