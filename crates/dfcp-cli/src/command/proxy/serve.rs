//! `dfcp proxy serve`.

use std::path::PathBuf;
use std::sync::Arc;

use dfcp::{Endpoint, EndpointConfig, Rate};
use dfcp_command::{Failure, Kind, interrupted, units};
use dfcp_proxy::{Limits, LimitsOf, Quota, Rule, Rules, Server, ServerConfig, Settings};
use dfcp_transfer::INTERRUPTED;

use super::Common;
use crate::allowed::{Allowed, Who, quota};
use crate::command::farewell;
use crate::keys;
use crate::metrics::Source;
use crate::net::{self, Listen};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Address, port or both to listen on; all addresses at port 4433 unless given
    #[arg(long, value_name = "ADDR")]
    listen: Option<Listen>,
    /// This side's key [default: $XDG_CONFIG_HOME/dfcp/key or ~/.config/dfcp/key]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Public key that is served, or a file with a key at the beginning of each line; without any,
    /// those in authorized_keys beside the default key
    #[arg(long, value_name = "KEY|FILE")]
    allow: Vec<Who>,
    /// What may be connected to, such as internet:80,443, 10.0.0.0/8:22 or all [default: internet,
    /// which has no private, loopback, link-local or multicast addresses]
    #[arg(long, value_name = "NET[:PORTS]")]
    permit: Vec<Rule>,
    /// What of that may not
    #[arg(long, value_name = "NET[:PORTS]")]
    refuse: Vec<Rule>,
    /// Where clients may have this machine listen (-R), such as 127.0.0.1:8000-8999; nowhere unless given
    #[arg(long, value_name = "NET[:PORTS]")]
    permit_listen: Vec<Rule>,
    /// Connections that each key may have at once
    #[arg(long, value_name = "N", default_value_t = dfcp_proxy::MAX_STREAMS, value_parser = clap::value_parser!(u64).range(1..))]
    max_streams: u64,
    /// Of these, associations of UDP: each takes a socket here
    #[arg(long, value_name = "N", default_value_t = dfcp_proxy::MAX_ASSOCIATIONS)]
    max_associations: u64,
    /// Rate of what each key carries each way, bits a second, such as 20M: beyond it connections wait, and
    /// datagrams are dropped
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    rate: Option<Rate>,
    /// Bytes that each key may carry in a period, both ways together, such as 10G/1d: beyond them its
    /// connections are broken and refused
    #[arg(long, value_name = "BYTES/PERIOD", value_parser = quota)]
    quota: Option<Quota>,
    #[command(flatten)]
    common: Common,
}

/// Serves until it is told to end.
pub async fn serve(args: Args) -> Result<(), Failure> {
    let key = keys::load_or_create(args.key.as_deref())?;
    let allowed = Allowed::new(&args.allow)?;
    if let Some(why) = allowed.nobody() {
        let message = format!(
            "nobody would be served: {why}. Allow a client by the key that `dfcp key show` prints on \
             its machine: dfcp proxy serve --allow KEY, or a line in authorized_keys"
        );
        return Err(Failure::new(Kind::Authentication, message));
    }
    let exporter = args.common.exporter().await?;
    let transport = args.common.transport(exporter.as_ref())?;
    let endpoint = args.listen.unwrap_or_default().bind(|address| {
        let allowed = allowed.clone();
        let config = EndpointConfig::server(key.clone(), address)
            .transport(transport.clone())
            .authorize(move |key| allowed.contains(key));
        Endpoint::bind(config)
    })?;
    announce(&args, &endpoint);
    for mistake in allowed.mistakes() {
        args.common.say(mistake);
    }
    let listen = (!args.permit_listen.is_empty())
        .then(|| Rules::new(args.permit_listen.clone(), Vec::new()));
    let config = ServerConfig {
        settings: Settings {
            rules: Rules::new(args.permit.clone(), args.refuse.clone()),
            listen,
        },
        limits: limits(&args, allowed),
        report: args.common.report(),
    };
    let server = Server::new(config);
    if let Some(exporter) = exporter {
        exporter.announce(|line| args.common.say(line));
        let ending = server.clone();
        let source = Source {
            endpoint: endpoint.clone(),
            traffic: Some(server.traffic().clone()),
            ailing: Arc::new(move || ending.is_ending().then(|| "it ends".to_owned())),
        };
        tokio::spawn(exporter.serve(source));
    }
    tokio::select! {
        () = server.serve(endpoint.clone()) => {
            Err(Failure::new(Kind::LocalIo, "the socket failed"))
        }
        failure = interrupted() => {
            farewell(&endpoint, INTERRUPTED, "the server ends").await;
            Err(failure)
        }
    }
}

/// What keys may have: what the list of keys says of one, or else the command line.
fn limits(args: &Args, allowed: Allowed) -> LimitsOf {
    let (streams, associations) = (args.max_streams, args.max_associations);
    let (rate, quota) = (args.rate, args.quota);
    Arc::new(move |key| {
        let own = allowed.options(key);
        Limits {
            streams: own.max_streams.unwrap_or(streams),
            associations: own.max_associations.unwrap_or(associations),
            rate: own.rate.or(rate),
            quota: own.quota.or(quota),
        }
    })
}

fn announce(args: &Args, endpoint: &Endpoint) {
    let (local, key) = (endpoint.local_addr(), endpoint.public_key());
    let host = net::reached_at(local);
    args.common.say(format_args!("listening on {local}"));
    args.common.say(format_args!("public key {key}"));
    args.common.say(format_args!(
        "to use it: dfcp proxy --socks 1080 {host} --peer-key {key}"
    ));
    if let Some(shortfall) = endpoint.socket_buffers().shortfall() {
        args.common.say(shortfall);
    }
}
