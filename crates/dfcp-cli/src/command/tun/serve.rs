//! `dfcp tun serve`.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use dfcp::{Endpoint, EndpointConfig, PublicKey};
use dfcp_command::{Failure, Kind, interrupted};
use dfcp_transfer::INTERRUPTED;
use dfcp_tun::{Clients, Net, Report, ServerConfig};

use super::{Common, LinkOptions};
use crate::command::farewell;
use crate::keys;
use crate::net::{self, Listen};
use crate::refusals::Refusals;

/// Connections for each client: one, and a second that replaces it.
const CONNECTIONS: usize = 2;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Address, port or both to listen on; all addresses at port 4433 unless given
    #[arg(long, value_name = "ADDR")]
    listen: Option<Listen>,
    /// This side's key [default: $XDG_CONFIG_HOME/dfcp/key or ~/.config/dfcp/key]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    guests: Guests,
    #[command(flatten)]
    common: Common,
}

/// Whom links go to.
#[derive(Clone, Debug, clap::Args)]
pub struct Guests {
    /// A client's public key, and the addresses and networks behind it: packets from others are dropped,
    /// packets to them go there
    #[arg(long, required = true, value_name = "KEY=NET[,NET]...")]
    client: Vec<Client>,
}

/// A client, as `--client` names it.
#[derive(Clone, Debug)]
struct Client {
    key: PublicKey,
    nets: Vec<Net>,
}

impl FromStr for Client {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write KEY=NET[,NET]..., such as dfcp-pub-…=10.9.0.2,10.1.0.0/16";
        let (key, nets) = text.split_once('=').ok_or(form)?;
        let key = key.parse().map_err(|error| format!("{error}"))?;
        let nets: Result<Vec<Net>, String> = nets.split(',').map(str::parse).collect();
        let nets = nets?;
        match nets.iter().find(|net| net.network() != **net) {
            Some(net) => Err(format!(
                "{net} has bits beyond its network: write {} for the network, or the address alone",
                net.network()
            )),
            None => Ok(Self { key, nets }),
        }
    }
}

impl Guests {
    /// Who has which addresses.
    ///
    /// # Errors
    /// A network that two of them have.
    pub fn clients(&self) -> Result<Clients, Failure> {
        let clients: Vec<_> = self
            .client
            .iter()
            .map(|c| (c.key, c.nets.clone()))
            .collect();
        Clients::new(&clients).map_err(|net| {
            Failure::usage(format!(
                "{net} belongs to two clients: packets to it can go to one alone"
            ))
        })
    }

    /// What is routed to the device of `link`.
    fn routes(&self, link: &LinkOptions) -> Vec<Net> {
        // What is within the device's own network is routed to it anyway; where everything else goes is
        // not for this to say.
        let within = |net: &Net| link.address.iter().any(|own| own.covers(net));
        let nets = self.client.iter().flat_map(|client| &client.nets);
        nets.filter(|net| net.len > 0 && !within(net))
            .copied()
            .collect()
    }

    /// Settings of a server of them with the device of `link`, which this makes, and says what it is like.
    ///
    /// # Errors
    /// When there is no device to be had, or two clients have one network.
    pub fn server_config(
        &self,
        link: &LinkOptions,
        report: Report,
        say: impl Fn(String),
    ) -> Result<ServerConfig, Failure> {
        Ok(ServerConfig {
            clients: self.clients()?,
            device: link.device(self.routes(link), say)?,
            mtu: link.mtu(),
            delay: link.delay,
            tell: link.stats,
            report,
        })
    }

    /// Connections that there may be.
    pub fn connections(&self) -> usize {
        CONNECTIONS * self.client.len()
    }

    /// What each client is to do, where it reaches the server at `host`.
    pub fn invitations(&self, link: &LinkOptions, host: &str, key: &PublicKey) -> Vec<String> {
        let invite = |client: &Client| {
            let mut line = format!(
                "for {}: dfcp tun connect {host} --peer-key {key}",
                client.key
            );
            // An address of each family, of the device's network as the client's with that network.
            for is_ipv6 in [false, true] {
                let own = client.nets.iter().find(|net| net.ip.is_ipv6() == is_ipv6);
                let Some(net) = own else { continue };
                let around = link.address.iter().find(|around| around.contains(net.ip));
                let len = around.map_or(net.len, |around| around.len);
                line.push_str(&format!(" --address {}/{len}", net.ip));
            }
            line
        };
        self.client.iter().map(invite).collect()
    }
}

/// Serves until it is told to end.
pub async fn serve(args: Args) -> Result<(), Failure> {
    args.common.link.check()?;
    let allowed = args.guests.clients()?;
    let own = keys::Own::load(args.key.as_deref())?;
    let transport = args.common.transport();
    let most = args.guests.connections();
    let endpoint = args.listen.unwrap_or_default().bind(|address| {
        let (allowed, common) = (allowed.clone(), args.common.clone());
        let refusals = Refusals::default();
        let opens_to = move |key: &PublicKey| {
            let opens = allowed.contains(key);
            let unknown = || "no --client names it".to_owned();
            if !opens && let Some(line) = refusals.news(key, unknown) {
                common.say(line);
            }
            opens
        };
        let config = EndpointConfig::server(own.key().clone(), address)
            .transport(transport.clone())
            .max_connections(most)
            .max_per_peer(most)
            .authorize(opens_to);
        Endpoint::bind(config)
    })?;
    let (link, report) = (&args.common.link, args.common.report());
    let config = args
        .guests
        .server_config(link, report, |line| args.common.say(line))?;
    own.keep()?;
    let say = |line: &dyn Display| args.common.say(line);
    net::announce(&endpoint, say, |host, key| {
        args.guests.invitations(link, host, key)
    });
    tokio::select! {
        ended = dfcp_tun::serve(endpoint.clone(), config) => {
            let why = match ended {
                Ok(()) => "the socket failed".to_owned(),
                Err(error) => format!("the device is gone: {error}"),
            };
            Err(Failure::new(Kind::LocalIo, why))
        }
        failure = interrupted() => {
            farewell(&endpoint, INTERRUPTED, "the server ends").await;
            Err(failure)
        }
    }
}
