//! `dfcp tun`: an IP link over a path that loses packets.

mod connect;
mod serve;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use dfcp::TransportConfig;
use dfcp_command::text::printable;
use dfcp_command::{Failure, Kind, block_on, fail};
use dfcp_tun::{Device, DeviceConfig, DeviceError, Event, FIRST_MTU, MAX_MTU, Mtu, Net, Report};

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

/// What both sides take.
#[derive(Clone, Debug, clap::Args)]
struct Common {
    /// Address of this side's device, with its network; may be given more than once, of IPv4 and IPv6
    #[arg(long, required = true, value_name = "ADDR/LEN")]
    address: Vec<Net>,
    /// Name of the device [default: dfcp0, or the next number that is free]
    #[arg(long)]
    name: Option<String>,
    /// Longest packet of the device; what the path's datagrams hold unless given
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..=MAX_MTU as i64))]
    mtu: Option<u16>,
    /// How long after a packet its repair is still of use [default: a round trip]
    #[arg(long, value_name = "TIME", value_parser = delay)]
    delay: Option<Duration>,
    /// Silence after which the other side is given up; a client that has had no connection yet ends after
    /// as long, one that has had one tries for another without end
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = dfcp_command::units::duration)]
    timeout: Duration,
    /// Tell this often what each connection carries, and what its path is like
    #[arg(long, value_name = "TIME", value_parser = interval)]
    stats: Option<Duration>,
    /// Tell of what connections carried, and of the device's MTU
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
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

impl Common {
    fn transport(&self) -> TransportConfig {
        // Who is gone is noticed, and address translators on the way keep their entry.
        let pings = (self.timeout / 4).min(Duration::from_secs(10));
        let transport = TransportConfig::default()
            .idle_timeout(self.timeout)
            .keep_alive(Some(pings));
        dfcp_tun::transport(transport)
    }

    fn mtu(&self) -> (Mtu, usize) {
        match self.mtu.map(usize::from) {
            Some(mtu) => (Mtu::Fixed(mtu), mtu),
            None => (Mtu::OfPath, FIRST_MTU),
        }
    }

    fn device(&self, routes: Vec<Net>) -> Result<Device, Failure> {
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
        self.say(format_args!("device {name} with {addresses}"));
        Ok(device)
    }

    fn say(&self, message: impl std::fmt::Display) {
        if !self.quiet {
            dfcp_command::tell!("dfcp: {}", printable(&message.to_string()));
        }
    }

    fn report(&self) -> Report {
        let common = self.clone();
        Arc::new(move |event| match event {
            Event::Mtu(_) | Event::Carried(..) if !common.verbose => {}
            event => common.say(event),
        })
    }
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
