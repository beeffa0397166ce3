//! What of a transport hangs on its path: segments and packets that fit the MTU.

use super::control::ControlLaw;
use super::flows::Transport;
use super::model::*;
use super::tree::{Fault, Place};
use crate::coded::{CodedConfig, CodedControl, Relaying};
use crate::link::LinkRate;
use crate::tcp::Sizes;

/// Bytes of IPv4 and TCP headers, and of the timestamp option.
const TCP_HEADERS: u32 = 40;
const TIMESTAMPS: u32 = 12;

/// Bytes of the headers of IPv4 and of DFCP as published.
const PUBLISHED_HEADERS: u32 = 44;

impl Transport {
    /// Stands in until the path is known.
    pub fn placeholder(&self) -> ProtocolSpec {
        match self {
            Self::Tcp(tcp, congestion) => ProtocolSpec::Tcp(tcp.config(*congestion, 0)),
            Self::Dfcp(dfcp) => ProtocolSpec::Dfcp(dfcp.clone()),
            Self::Published(spec) => ProtocolSpec::Published(spec.clone()),
            Self::Coded(spec) => ProtocolSpec::Coded(spec.clone()),
            Self::RcUdp(spec) => ProtocolSpec::RcUdp(spec.clone()),
            Self::Udp(udp) => ProtocolSpec::Udp(udp.clone()),
        }
    }

    /// The protocol on a path of this MTU.
    pub fn settle(
        &self,
        mtu: u32,
        stated: impl Fn(&str, &str) -> Place,
    ) -> Result<ProtocolSpec, Fault> {
        match self {
            Self::Tcp(tcp, congestion) => {
                let options = match (tcp.sender.timestamps, tcp.sender.sizes) {
                    (true, Sizes::Wire) => TIMESTAMPS,
                    _ => 0,
                };
                let room = mtu.saturating_sub(TCP_HEADERS + options);
                let mss = tcp.mss.unwrap_or(room);
                if mss == 0 || mss > room {
                    let message = format!(
                        "`mss`: segments of {mss} B do not fit the path: its MTU of {mtu} B leaves \
                         {room} B beside the headers"
                    );
                    return Err(Fault::new(stated("tcp", "mss"), message));
                }
                let windows = [
                    ("send_window", tcp.sender.send_buffer),
                    ("receive_window", tcp.receive_window),
                ];
                for (key, window) in windows {
                    if let Some(bytes) = window.filter(|bytes| *bytes < u64::from(mss)) {
                        let message = format!("`{key}`: {bytes} B hold no segment of {mss} B");
                        return Err(Fault::new(stated("tcp", key), message));
                    }
                }
                Ok(ProtocolSpec::Tcp(tcp.config(*congestion, mss)))
            }
            Self::Udp(udp) if udp.packet > mtu => {
                let packet = udp.packet;
                let message = format!("`packet`: {packet} B exceed the path's MTU of {mtu} B");
                Err(Fault::new(stated("udp", "packet"), message))
            }
            Self::Udp(udp) => Ok(ProtocolSpec::Udp(udp.clone())),
            Self::Dfcp(dfcp) => Ok(ProtocolSpec::Dfcp(dfcp.clone())),
            Self::Published(spec) => published(spec, mtu, stated).map(ProtocolSpec::Published),
            Self::Coded(spec) => coded(spec, mtu, stated).map(ProtocolSpec::Coded),
            Self::RcUdp(spec) => rc_udp(spec, mtu, stated).map(ProtocolSpec::RcUdp),
        }
    }
}

/// Network coding on paths of this MTU.
fn coded(
    spec: &CodedSpec,
    mtu: u32,
    stated: impl Fn(&str, &str) -> Place,
) -> Result<CodedSpec, Fault> {
    let largest = u16::try_from(mtu).unwrap_or(u16::MAX);
    let packet = spec.mtu.unwrap_or(largest);
    if packet > largest {
        let message = format!("`mtu`: packets of {packet} B exceed a path's MTU of {mtu} B");
        return Err(Fault::new(stated("coded", "mtu"), message));
    }
    let settled = CodedSpec {
        mtu: Some(packet),
        ..spec.clone()
    };
    if settled.config().symbol_size().is_none() {
        let message = format!(
            "`blksize`: packets of {packet} B have no room beside headers and {} coefficients",
            spec.ctcp.block_symbols
        );
        return Err(Fault::new(stated("coded", "blksize"), message));
    }
    Ok(settled)
}

/// What of network coding hangs on the links of a flow.
pub(super) fn check_coded(
    spec: &CodedSpec,
    flow: &FlowSpec,
    links: &[LinkSpec],
    stated: impl Fn(&str, &str) -> Place,
) -> Result<(), Fault> {
    let wrong = |key, message: &str| Err(Fault::new(stated("coded", key), message));
    let (recodes, at_line_rate) = (
        spec.relay == Relaying::Recode,
        spec.control == CodedControl::LineRate,
    );
    if recodes && !flow.others.is_empty() {
        return wrong(
            "relay",
            "`relay`: nodes recode on one path only: leave `paths` out",
        );
    }
    let link = |index: &LinkIndex| &links[index.0];
    let back = flow.backward.iter().rev().map(link);
    let there = flow.forward.iter().map(link);
    let mirrored = flow.forward.len() == flow.backward.len()
        && there.zip(back).all(|(there, back)| there.to == back.from);
    if recodes && !mirrored {
        let message = "`relay`: the way back goes over other nodes, which know nothing of what \
                       those on the way there have";
        return wrong("relay", message);
    }
    if !at_line_rate {
        return Ok(());
    }
    if !flow.others.is_empty() {
        let message =
            "`control`: \"line rate\" is for a single path: leave it out, or write a rate";
        return wrong("control", message);
    }
    let paced = if recodes { flow.forward.len() } else { 1 };
    let mut paced = flow.forward.iter().take(paced).map(link);
    match paced.find(|link| link.config.rate == LinkRate::Unlimited) {
        Some(link) => wrong(
            "control",
            &format!(
                "`control`: \"line rate\" needs a rate at link `{}`, which is unlimited",
                link.name
            ),
        ),
        None => Ok(()),
    }
}

/// What all that travel in the published header say of their packets.
struct Clear<'a> {
    section: &'static str,
    law: ControlLaw,
    packet: Option<u16>,
    symbol: u16,
    stated: &'a dyn Fn(&str, &str) -> Place,
}

impl Clear<'_> {
    fn wrong<T>(&self, key: &str, message: String) -> Result<T, Fault> {
        Err(Fault::new((self.stated)(self.section, key), message))
    }

    /// The largest packet on a path of this MTU.
    fn packet(&self, mtu: u32) -> Result<u16, Fault> {
        if self.law == ControlLaw::Profile {
            let message =
                "`control`: published protocols have no profile: write \"line rate\" or a rate";
            return self.wrong("control", message.to_owned());
        }
        let largest = u16::try_from(mtu).unwrap_or(u16::MAX);
        let packet = self.packet.unwrap_or(largest);
        if packet > largest {
            let message = format!("`mtu`: packets of {packet} B exceed the path's MTU of {mtu} B");
            return self.wrong("mtu", message);
        }
        let room = u32::from(packet).saturating_sub(PUBLISHED_HEADERS);
        let symbol = self.symbol;
        if u32::from(symbol) > room {
            let message = format!(
                "`symbol`: {symbol} B do not fit a packet of {packet} B, which has {room} B \
                 beside its headers"
            );
            return self.wrong("symbol", message);
        }
        Ok(packet)
    }

    fn no_code(&self, block: u32, error: &dyn std::fmt::Display) -> Fault {
        let symbol = self.symbol;
        let message = format!("`block`: {block} B in symbols of {symbol} B make no code: {error}");
        Fault::new((self.stated)(self.section, "block"), message)
    }
}

/// DFCP as published on a path of this MTU.
fn published(
    spec: &PublishedSpec,
    mtu: u32,
    stated: impl Fn(&str, &str) -> Place,
) -> Result<PublishedSpec, Fault> {
    let clear = Clear {
        section: "published",
        law: spec.control.law,
        packet: spec.mtu,
        symbol: spec.symbol,
        stated: &stated,
    };
    let packet = clear.packet(mtu)?;
    let (block, symbol) = (spec.block, u32::from(spec.symbol));
    if !block.is_multiple_of(symbol) {
        let message = format!(
            "`block`: {block} B are no whole number of symbols of {symbol} B: write for example \
             \"{} B\"",
            block.next_multiple_of(symbol)
        );
        return clear.wrong("block", message);
    }
    let code = spec.code().check();
    code.map_err(|error| clear.no_code(block, &error))?;
    Ok(PublishedSpec {
        mtu: Some(packet),
        ..spec.clone()
    })
}

impl CodedSpec {
    /// As the simulation is told it, without further routes.
    pub(crate) fn config(&self) -> CodedConfig {
        let default = CodedConfig::default();
        CodedConfig {
            ctcp: self.ctcp,
            control: self.control,
            relaying: self.relay,
            packet: self.mtu.map_or(default.packet, u32::from),
            others: Vec::new(),
        }
    }
}

/// RC-UDP on a path of this MTU.
fn rc_udp(
    spec: &RcUdpSpec,
    mtu: u32,
    stated: impl Fn(&str, &str) -> Place,
) -> Result<RcUdpSpec, Fault> {
    let clear = Clear {
        section: "rc_udp",
        law: spec.control.law,
        packet: spec.mtu,
        symbol: spec.symbol,
        stated: &stated,
    };
    let packet = clear.packet(mtu)?;
    let code = spec.code().check();
    code.map_err(|error| clear.no_code(spec.block, &error))?;
    Ok(RcUdpSpec {
        mtu: Some(packet),
        ..spec.clone()
    })
}
