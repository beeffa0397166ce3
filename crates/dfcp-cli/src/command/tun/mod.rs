//! `dfcp tun`: an IP link over a path that loses packets.

mod connect;
pub mod serve;

use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use dfcp::TransportConfig;
use dfcp_command::text::printable;
use dfcp_command::{Failure, Kind, block_on, fail};
use dfcp_tun::{
    Device, DeviceConfig, DeviceError, Event, FIRST_MTU, MAX_MTU, MIN_MTU, Mtu, Net, Report,
};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Serves links to the clients that it is told of
    Serve(Box<serve::Args>),
    /// Keeps a link to a server
    Connect(Box<connect::Args>),
}

/// This side's end of a link.
#[derive(Clone, Debug, clap::Args)]
pub struct LinkOptions {
    /// Address of this side's device, with its network; may be given more than once, of IPv4 and IPv6
    #[arg(long, required = true, value_name = "ADDR/LEN", value_parser = host_address)]
    pub address: Vec<Net>,
    /// Name of the device [default: dfcp0, or the next number that is free]
    #[arg(long)]
    name: Option<String>,
    /// Longest packet of the device; what the path's datagrams hold unless given
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..=MAX_MTU as i64))]
    mtu: Option<u16>,
    /// How long after a packet its repair is still of use [default: a round trip]
    #[arg(long, value_name = "TIME", value_parser = delay)]
    pub delay: Option<Duration>,
    /// Tell this often what each connection carries, and what its path is like
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub stats: Option<Duration>,
}

/// What both sides take.
#[derive(Clone, Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    link: LinkOptions,
    /// Silence after which the other side is given up; a client that has had no connection yet ends after
    /// as long, one that has had one tries for another without end
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = dfcp_command::units::duration)]
    timeout: Duration,
    /// Tell of what connections carried, and of the device's MTU
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// An address that a device can have: one host's, not that of the network or of all its hosts.
fn host_address(text: &str) -> Result<Net, String> {
    let net: Net = text.parse()?;
    let why = match net.ip {
        ip if ip.is_unspecified() => "it names no host",
        ip if ip.is_multicast() => "it is one of multicast",
        ip if ip.is_loopback() => "it is this machine's own in any case",
        IpAddr::V4(ip) => {
            let hosts = u32::MAX.checked_shr(net.len.into()).unwrap_or(0);
            match ip.to_bits() & hosts {
                // Networks of one and two addresses have none to spare (RFC 3021).
                _ if net.len >= 31 => return Ok(net),
                0 => "it is the network's own: a host has bits beyond it",
                bits if bits == hosts => "it is that of all hosts of the network",
                _ => return Ok(net),
            }
        }
        // Of IPv6 the lowest one is for the routers of a network (RFC 4291 §2.6.1).
        IpAddr::V6(_) if net.len < 127 && net.network() == net => {
            "it is the network's own: a host has bits beyond it"
        }
        IpAddr::V6(_) => return Ok(net),
    };
    Err(format!("no address for a device: {text}: {why}"))
}

/// A time in which a repair can come.
fn delay(text: &str) -> Result<Duration, String> {
    let delay = dfcp_command::units::duration(text)?;
    let bounds = Duration::from_millis(1)..=Duration::from_secs(5);
    match bounds.contains(&delay) {
        true => Ok(delay),
        false => Err("from 1 ms to 5 s".to_owned()),
    }
}

/// How often something is told.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = dfcp_command::units::duration(text)?;
    match interval >= Duration::from_millis(100) {
        true => Ok(interval),
        false => Err("at least 100 ms".to_owned()),
    }
}

impl LinkOptions {
    /// Whether the device can be as it is to be.
    ///
    /// # Errors
    /// What it cannot be.
    pub fn check(&self) -> Result<(), Failure> {
        let has_ipv6 = self.address.iter().any(|net| net.ip.is_ipv6());
        match self.mtu {
            // RFC 8200 §5.
            Some(mtu) if has_ipv6 && usize::from(mtu) < MIN_MTU => Err(Failure::usage(format!(
                "IPv6 needs packets of {MIN_MTU} bytes: --mtu {mtu} is for addresses of IPv4 alone"
            ))),
            _ => Ok(()),
        }
    }

    /// How long packets may be, and how long at first.
    pub fn mtu(&self) -> (Mtu, usize) {
        match self.mtu.map(usize::from) {
            Some(mtu) => (Mtu::Fixed(mtu), mtu),
            None => (Mtu::OfPath, FIRST_MTU),
        }
    }

    /// Makes the device, and says what it is like.
    ///
    /// # Errors
    /// When there is none to be had.
    pub fn device(&self, routes: Vec<Net>, say: impl Fn(String)) -> Result<Device, Failure> {
        self.check()?;
        let config = DeviceConfig {
            name: self.name.clone(),
            addresses: self.address.clone(),
            routes,
            mtu: self.mtu().1,
        };
        let device = Device::open(&config).map_err(|error| {
            let kind = match error {
                DeviceError::Name(_) | DeviceError::Unsupported => Kind::Usage,
                _ => Kind::LocalIo,
            };
            Failure::new(kind, error.to_string())
        })?;
        let addresses: Vec<String> = self.address.iter().map(Net::to_string).collect();
        let (name, addresses) = (device.name(), addresses.join(", "));
        say(format!("device {name} with {addresses}"));
        Ok(device)
    }
}

impl Common {
    fn transport(&self) -> TransportConfig {
        dfcp_tun::transport(super::lasting(self.timeout))
    }

    fn say(&self, message: impl std::fmt::Display) {
        if !self.quiet {
            dfcp_command::tell!("dfcp: {}", printable(&message.to_string()));
        }
    }

    fn report(&self) -> Report {
        let common = self.clone();
        Arc::new(move |event| {
            if common.verbose || !is_detail(&event) {
                common.say(event);
            }
        })
    }
}

/// Whether only who wants all of it hears of an event.
pub fn is_detail(event: &Event) -> bool {
    matches!(event, Event::Mtu(_) | Event::Carried(..))
}

/// Runs a server or a client until it is told to end.
pub fn run(args: Args) -> ExitCode {
    let result = block_on(async {
        match args.command {
            Command::Serve(serve) => serve::serve(*serve).await,
            Command::Connect(connect) => connect::connect(*connect).await,
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_addresses_of_hosts() {
        for good in [
            "10.9.0.1/24",
            "10.9.0.0/31",
            "10.9.0.1/32",
            "10.9.0.0/32",
            "fd00::1/64",
            "fd00::/128",
            "fd00::/127",
        ] {
            assert!(host_address(good).is_ok(), "{good}");
        }
        for bad in [
            "0.0.0.0/0",
            "::/0",
            "10.9.0.0/24",
            "10.9.0.255/24",
            "224.0.0.1/24",
            "127.0.0.1/8",
            "fd00::/64",
            "ff02::1/64",
            "::1/128",
        ] {
            let why = host_address(bad).unwrap_err();
            assert!(why.contains(bad), "{why}");
        }
    }
}
