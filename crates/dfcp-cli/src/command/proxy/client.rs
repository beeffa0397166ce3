//! `dfcp proxy HOST`.

#[cfg(target_os = "linux")]
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use dfcp::{CloseCode, Endpoint, EndpointConfig, PublicKey};
use dfcp_command::{Failure, Kind, interrupted};
use dfcp_proxy::{Broken, Client, ClientConfig, FastOpen, Status, Target};
#[cfg(target_os = "linux")]
use dfcp_proxy::{InterceptedUdp, Interception, listen_transparent};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

use super::Common;
#[cfg(target_os = "linux")]
use super::place::Intercept;
use super::place::{Forward, Place, each_its_own};
use crate::command::leave;
use crate::command::peer::{PeerOptions, no_contact};
use crate::known_hosts;
use crate::net::{Host, cannot_listen};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The server: HOST or HOST:PORT, IPv6 addresses in brackets
    #[arg(required = true, value_name = "HOST")]
    host: Option<Host>,
    /// Speak SOCKS5 and HTTP (CONNECT, and requests for http:// URLs) to programs at this port, of this
    /// machine unless an address is given
    #[arg(short = 'D', long, value_name = "[ADDR:]PORT")]
    socks: Vec<Place>,
    /// Carry what comes to this port here to a host that the server connects to: TCP connections, which
    /// /tcp at the end may say, or datagrams with /udp there
    #[arg(short = 'L', long, value_name = "[ADDR:]PORT:HOST:PORT")]
    local: Vec<Forward>,
    /// Carry what comes to this port there to a host that is connected to from here
    #[arg(short = 'R', long, value_name = "[ADDR:]PORT:HOST:PORT")]
    remote: Vec<Forward>,
    /// Carry TCP connections that the firewall redirects to this port to where they were going (Linux:
    /// iptables -j REDIRECT)
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "[ADDR:]PORT", conflicts_with = "stdio")]
    redirect: Vec<Place>,
    /// The same of connections that it leads here as they are (-j TPROXY), which takes CAP_NET_ADMIN; of
    /// datagrams with /udp at the end
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "[ADDR:]PORT[/udp]", conflicts_with = "stdio")]
    tproxy: Vec<Intercept>,
    /// Carry standard input and output to a host, as ssh's ProxyCommand wants it
    #[arg(short = 'W', long, value_name = "HOST:PORT", conflicts_with_all = ["socks", "local", "remote"])]
    stdio: Option<Target>,
    /// When to tell programs that they are connected before the server is, which saves a round trip, but
    /// a connection that fails is reset without a reason: to hosts that they have just been connected to,
    /// always (also without a word), or never
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_value = "known", default_missing_value = "always")]
    fast_open: When,
    #[command(flatten)]
    peer: PeerOptions,
    #[command(flatten)]
    common: Common,
}

/// When programs are told that they are connected.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum When {
    Never,
    Known,
    Always,
}

impl From<When> for FastOpen {
    fn from(when: When) -> Self {
        match when {
            When::Never => Self::Never,
            When::Known => Self::Known,
            When::Always => Self::Always,
        }
    }
}

/// A port that programs come to.
async fn listen(at: SocketAddr) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(at).await;
    bound.map_err(|error| cannot_listen(at, &error))
}

/// Why there is no port to which what is for other hosts may be led.
#[cfg(target_os = "linux")]
fn cannot_intercept(at: SocketAddr, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let why = "--tproxy takes the right to administer the network: root has it, or a program \
                       after setcap cap_net_admin+ep";
            Failure::new(
                Kind::LocalIo,
                format!("cannot listen on {at}: {error}: {why}"),
            )
        }
        _ => cannot_listen(at, error),
    }
}

/// A port that datagrams come to.
async fn bind_udp(at: SocketAddr) -> Result<UdpSocket, Failure> {
    let bound = UdpSocket::bind(at).await;
    bound.map_err(|error| cannot_listen(at, &error))
}

/// Carries connections until it is told to end, or the one of `-W` ended.
pub async fn carry(args: Args) -> Result<(), Failure> {
    let Some(host) = args.host.clone() else {
        return Err(Failure::usage("through which server?"));
    };
    if args.carries_nothing() {
        let why = "nothing to carry: say --socks PORT, -L, -R or -W HOST:PORT";
        return Err(Failure::usage(why));
    }
    if args.remote.iter().any(|forward| forward.udp) {
        let why = "-R carries TCP connections only; -L carries datagrams, too";
        return Err(Failure::usage(why));
    }
    for (places, whose) in [(args.taken_here(), "here"), (args.taken_there(), "there")] {
        each_its_own(&places, whose)?;
    }
    // Whoever cannot have a port need not connect.
    let ports = Ports::open(&args).await?;
    let key = args.peer.own_key()?;
    let own = key.public();
    let exporter = args.common.exporter().await?;
    let transport = args.common.transport(exporter.as_ref())?;
    let config = EndpointConfig::client(key).transport(transport);
    let endpoint = Endpoint::bind(config)?;
    let server_key = match args.peer.known_key(&host)? {
        Some(key) => key,
        None => introduce(&args.peer, &host, &endpoint).await?,
    };
    let client = Client::start(ClientConfig {
        endpoint: endpoint.clone(),
        resolve: args.peer.resolver(&host),
        server_key,
        fast_open: args.fast_open.into(),
        // A connection of its own is the program's that started this.
        report: match args.stdio.is_some() && !args.common.verbose {
            true => Arc::new(|_| {}),
            false => args.common.report(),
        },
    });
    if let Some(exporter) = exporter {
        args.common.show(exporter, &client, &endpoint);
    }
    let met = async {
        let limit = args.common.timeout;
        let met = client.ready(limit).await;
        met.map_err(|why| no_contact(&why, &host, limit, SERVE))
    };
    let carried = async {
        match &args.stdio {
            Some(target) => {
                let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
                // What is said leaves ahead of the server's word that it lets this side in.
                tokio::select! {
                    Err(why) = met => Err(why),
                    carried = client.carry(target, input, output) => {
                        carried.map_err(|broken| failed(broken, target))
                    }
                }
            }
            None => {
                // Ports are open by now, so that one that is taken is told first; nobody is served, or
                // told that somebody is, before it is known that the server lets this side in.
                met.await?;
                serve(&args, &client, ports).await;
                Ok(())
            }
        }
    };
    let result = tokio::select! {
        // A wrong key is why nothing is carried.
        biased;
        why = client.turned_away() => Err(args.peer.explain(why, &host, &server_key, &admits(&own))),
        result = carried => result,
        failure = interrupted() => match (&args.stdio, failure.kind) {
            // So ssh ends its ProxyCommand when its session is over.
            (Some(_), Kind::HungUp) => Ok(()),
            _ => Err(failure),
        },
    };
    leave(&endpoint, &result).await;
    result
}

impl Args {
    /// The ports that programs come to, and whether for datagrams.
    fn taken_here(&self) -> Vec<(SocketAddr, bool)> {
        let socks = self.socks.iter().map(|place| (place.0, false));
        let forwards = self.local.iter();
        let here = socks.chain(forwards.map(|forward| (forward.place, forward.udp)));
        #[cfg(target_os = "linux")]
        let here = {
            let redirect = self.redirect.iter().map(|place| (place.0, false));
            let tproxy = self.tproxy.iter();
            let tproxy = tproxy.map(|intercept| (intercept.place, intercept.udp));
            here.chain(redirect).chain(tproxy)
        };
        here.collect()
    }

    /// Those that the server is to listen at.
    fn taken_there(&self) -> Vec<(SocketAddr, bool)> {
        let remote = self.remote.iter();
        remote.map(|forward| (forward.place, false)).collect()
    }

    fn carries_nothing(&self) -> bool {
        let carries = self.socks.len() + self.local.len() + self.remote.len();
        #[cfg(target_os = "linux")]
        let carries = carries + self.redirect.len() + self.tproxy.len();
        carries == 0 && self.stdio.is_none()
    }
}

/// The ports that programs come to.
#[derive(Default)]
struct Ports {
    socks: Vec<TcpListener>,
    forwards: Vec<(TcpListener, Target)>,
    datagrams: Vec<(UdpSocket, Target)>,
    #[cfg(target_os = "linux")]
    intercepted: Vec<(TcpListener, Interception)>,
    #[cfg(target_os = "linux")]
    intercepted_udp: Vec<InterceptedUdp>,
}

impl Ports {
    async fn open(args: &Args) -> Result<Self, Failure> {
        let mut ports = Self::default();
        for place in &args.socks {
            ports.socks.push(listen(place.0).await?);
        }
        for forward in &args.local {
            let target = forward.target.clone();
            match forward.udp {
                true => {
                    let socket = bind_udp(forward.place).await?;
                    ports.datagrams.push((socket, target));
                }
                false => {
                    let listener = listen(forward.place).await?;
                    ports.forwards.push((listener, target));
                }
            }
        }
        #[cfg(target_os = "linux")]
        {
            let intercepted = &mut ports.intercepted;
            for Place(at) in &args.redirect {
                intercepted.push((listen(*at).await?, Interception::Redirect));
            }
            for &Intercept { place, udp } in &args.tproxy {
                let failed = |error| cannot_intercept(place, &error);
                match udp {
                    true => {
                        let port = InterceptedUdp::bind(place).map_err(failed)?;
                        ports.intercepted_udp.push(port);
                    }
                    false => {
                        let listener = listen_transparent(place).map_err(failed)?;
                        intercepted.push((listener, Interception::Tproxy));
                    }
                }
            }
        }
        Ok(ports)
    }
}

/// Serves all ports. Does not end.
async fn serve(args: &Args, client: &Client, open: Ports) {
    let mut ports = JoinSet::new();
    let say = |line: std::fmt::Arguments<'_>| args.common.say(line);
    for listener in open.socks {
        let client = client.clone();
        if let Ok(at) = listener.local_addr() {
            say(format_args!("SOCKS5 and HTTP at {at}"));
            if !at.ip().is_loopback() {
                dfcp_command::tell!(
                    "dfcp: warning: whoever reaches {at} uses the server with this key"
                );
            }
        }
        ports.spawn(async move { client.serve_local(listener).await });
    }
    for (listener, target) in open.forwards {
        let client = client.clone();
        if let Ok(at) = listener.local_addr() {
            say(format_args!("forwarding {at} to {target}"));
        }
        ports.spawn(async move { client.forward(listener, target).await });
    }
    for (socket, target) in open.datagrams {
        let client = client.clone();
        if let Ok(at) = socket.local_addr() {
            say(format_args!("forwarding {at} to {target}, datagrams"));
        }
        ports.spawn(async move { client.forward_udp(socket, target).await });
    }
    #[cfg(target_os = "linux")]
    for (listener, how) in open.intercepted {
        let client = client.clone();
        if let Ok(at) = listener.local_addr() {
            let how = match how {
                Interception::Redirect => "REDIRECT",
                Interception::Tproxy => "TPROXY",
            };
            say(format_args!("taking connections of {how} at {at}"));
        }
        ports.spawn(async move { client.serve_intercepted(listener, how).await });
    }
    #[cfg(target_os = "linux")]
    for port in open.intercepted_udp {
        let client = client.clone();
        if let Ok(at) = port.local_addr() {
            say(format_args!("taking datagrams of TPROXY at {at}"));
        }
        ports.spawn(async move { client.serve_datagrams(port).await });
    }
    for Forward { place, target, .. } in args.remote.clone() {
        let client = client.clone();
        ports.spawn(async move { client.reverse(place.into(), target).await });
    }
    ports.join_all().await;
}

/// What runs at the server, and with what it takes a key.
pub(in crate::command) const SERVE: &str = "dfcp proxy serve";

pub(in crate::command) fn admits(key: &PublicKey) -> String {
    format!("{SERVE} --allow {key}")
}

/// Asks a person about a server whose key is not known, and remembers it.
pub(in crate::command) async fn introduce(
    peer: &PeerOptions,
    host: &Host,
    endpoint: &Endpoint,
) -> Result<PublicKey, Failure> {
    let addresses = host.resolve(peer.family()).await?;
    let connection = endpoint.connect(&addresses[..], None).await?;
    let key = connection.peer();
    connection.close(CloseCode::NO_ERROR, "");
    let name = host.clone();
    let answer = tokio::task::spawn_blocking(move || known_hosts::ask(&name, &key)).await;
    answer.map_err(std::io::Error::other)??;
    peer.known_hosts()?.add(host, &key)?;
    Ok(key)
}

/// Why the connection of `-W` did not come about, or broke.
fn failed(broken: Broken, target: &Target) -> Failure {
    match broken {
        Broken::Refused(refusal) => {
            let kind = match refusal.status {
                Status::TimedOut
                | Status::Refused
                | Status::HostUnreachable
                | Status::NetworkUnreachable => Kind::Unreachable,
                _ => Kind::Failure,
            };
            Failure::new(kind, refusal.message)
        }
        Broken::Here(error) => {
            let message = format!("standard input and output cannot be carried: {error}");
            Failure::new(Kind::LocalIo, message)
        }
        Broken::There(error) => {
            let failure = Failure::from(error);
            Failure::new(failure.kind, format!("{target}: {}", failure.message))
        }
        broken => Failure::new(Kind::Failure, broken.to_string()),
    }
}
