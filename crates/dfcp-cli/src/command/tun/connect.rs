//! `dfcp tun connect HOST`.

use dfcp::{Endpoint, EndpointConfig};
use dfcp_command::{Failure, Kind, interrupted};
use dfcp_proxy::Remote;
use dfcp_tun::{Client, ClientConfig, Net};

use super::Common;
use crate::command::leave;
use crate::command::peer::{PeerOptions, no_contact};
use crate::keys;
use crate::net::{Host, own_address_towards};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The server: HOST or HOST:PORT, IPv6 addresses in brackets
    #[arg(value_name = "HOST")]
    host: Host,
    /// Network behind the server, which is routed to the device; packets from other networks than these
    /// and those of the addresses are dropped
    #[arg(long, value_name = "NET")]
    route: Vec<Net>,
    #[command(flatten)]
    peer: PeerOptions,
    #[command(flatten)]
    common: Common,
}

/// Keeps the link until it is told to end.
pub async fn connect(args: Args) -> Result<(), Failure> {
    if let Some(net) = args.route.iter().find(|net| net.network() != **net) {
        let network = net.network();
        let why = format!("{net} has bits beyond its network: write --route {network}");
        return Err(Failure::usage(why));
    }
    args.common.link.check()?;
    let key = keys::Own::load(args.peer.key.as_deref())?;
    let own = key.key().public();
    let Some(server_key) = args.peer.known_key(&args.host)? else {
        let why = format!(
            "the key of {} is not known: give --peer-key with what `dfcp tun serve` prints there",
            args.host
        );
        return Err(Failure::new(Kind::Authentication, why));
    };
    let config = EndpointConfig::client(key.key().clone()).transport(args.common.transport());
    let endpoint = Endpoint::bind(config)?;
    let link = &args.common.link;
    let device = link.device(args.route.clone(), |line| args.common.say(line))?;
    check_way(&args).await?;
    key.keep()?;
    let networks = args.common.link.address.iter().map(Net::network);
    let client = Client::start(ClientConfig {
        device,
        mtu: link.mtu(),
        remote: Remote {
            endpoint: endpoint.clone(),
            resolve: args.peer.resolver(&args.host),
            key: server_key,
        },
        addresses: args.common.link.address.clone(),
        networks: networks.chain(args.route.iter().copied()).collect(),
        delay: link.delay,
        tell: link.stats,
        report: args.common.report(),
    });
    let carried = async {
        let limit = args.common.timeout;
        let met = async {
            let met = client.ready(limit).await;
            met.map_err(|why| no_contact(&why, &args.host, limit, "dfcp tun serve"))?;
            std::future::pending().await
        };
        tokio::select! {
            error = client.run() => {
                Err(Failure::new(Kind::LocalIo, format!("the device is gone: {error}")))
            }
            failed = met => failed,
        }
    };
    let result: Result<(), Failure> = tokio::select! {
        biased;
        why = client.turned_away() => {
            let admits = format!("dfcp tun serve --client {own}=NET");
            Err(args.peer.explain(why, &args.host, &server_key, &admits))
        }
        result = carried => result,
        failure = interrupted() => Err(failure),
    };
    args.common.say(client.stats());
    leave(&endpoint, &result).await;
    result
}

/// The way to the server must not lead into the link.
async fn check_way(args: &Args) -> Result<(), Failure> {
    // What is not known yet may be known later.
    let Ok(addresses) = args.host.resolve(args.peer.family()).await else {
        return Ok(());
    };
    let is_own = |ip| args.common.link.address.iter().any(|net| net.ip == ip);
    let mut ways = addresses.iter().map(|address| address.ip());
    match ways.find(|&ip| own_address_towards(ip).is_some_and(is_own)) {
        None => Ok(()),
        Some(ip) => Err(Failure::usage(format!(
            "with these routes the way to {ip} itself leads into the link: give it one beside, as with \
             `ip route add {ip} via GATEWAY`"
        ))),
    }
}
