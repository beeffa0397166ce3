//! `dfcp send --profile dfcp`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use dfcp::Rate;
use dfcp::published::{Carrier, Config, Endpoint, EndpointConfig, Error, PORT, Stream};
use dfcp_command::{Failure, Kind, Profile, block_on, interrupted};
use dfcp_transfer::{Meter, Sent, serial};

use super::control::{self, Control};
use super::guard;
use super::options::{Options, Rates};
use crate::command::{FAREWELL, Output};
use crate::files;
use crate::net::{self, Family, Host};
use crate::progress::Bar;
use crate::report::Report;

/// How long reaching a receiver may take in all.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// What is to be sent, and where to.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Files and directories.
    pub paths: &'a [PathBuf],
    /// The receiver.
    pub host: &'a Host,
    /// Which of its addresses.
    pub family: Family,
    /// Pacing rate; as fast as possible without.
    pub rate: Option<Rate>,
    /// Which published profile.
    pub profile: Profile,
    /// Its own options.
    pub options: &'a Options,
    /// What is said about it.
    pub output: &'a Output,
}

/// Sends the files.
pub fn run(job: Job<'_>) -> ExitCode {
    let mut report = Report::new("send");
    let result = block_on(transfer(job, &mut report));
    report.conclude(result.err());
    job.output.report_at_end(&report)
}

async fn transfer(job: Job<'_>, report: &mut Report) -> Result<(), Failure> {
    let orders = job.options.orders(job.rate).transpose()?;
    let sources = files::scan(job.paths, dfcp_transfer::Scan::default())?;
    report.left_out.clone_from(&sources.left_out);
    let start = Instant::now();
    let (endpoint, stream, remote) = tokio::select! {
        connected = connect(job, sources.bytes()) => connected?,
        failure = interrupted() => return Err(failure),
    };
    report.add_buffers(endpoint.socket_buffers());
    let meter = Meter::start();
    let monitor = stream.monitor();
    let orders = match orders {
        Some(orders) => {
            let ends = [own_end(&endpoint, remote), remote];
            let config = config(job, sources.bytes());
            let followed = orders.follow(monitor.clone(), &config, ends, job.output);
            Some(followed.await?)
        }
        None => {
            if job.options.control() == Control::Ordered {
                control::follow_orders(monitor.clone(), job.output);
            }
            None
        }
    };
    let bar = Bar::start_published(job.output, &monitor, &meter);
    let (mut replies, mut out) = tokio::io::split(stream);
    let result = tokio::select! {
        result = serial::send(&mut replies, &mut out, &sources, &meter) => {
            result.map_err(|error| match error {
                error @ dfcp_transfer::Error::Rejected(_) => files::failure(error),
                _ if job.options.is_unacknowledged() => unheard(),
                error => files::failure(error),
            })
        }
        failure = interrupted() => Err(failure),
    };
    drop(bar);
    if let Some(orders) = orders {
        orders.end().await;
    }
    let stream = replies.unsplit(out);
    let carrier = job.options.common.carrier();
    report.add_published(remote, carrier, &monitor, endpoint.traffic());
    let (sent, failure) = match result {
        Ok(sent) => (sent, None),
        Err(failure) => (Sent::default(), Some(failure)),
    };
    report.add_outcomes(&sources.entries(), &sent.outcomes, meter.diary());
    report.add_time(start, Duration::ZERO, sent.steady_bps);
    if endpoint.traffic().too_large > 0 {
        job.output
            .say("packets are larger than the interface takes: see --mtu");
    }
    let end = async {
        match &failure {
            None => drop(stream.closed().await),
            Some(_) => stream.abort(),
        }
        endpoint.wait_idle().await;
    };
    // Whether or not the farewell is heard, all is known.
    let _ = tokio::time::timeout(FAREWELL, end).await;
    failure.map_or(Ok(()), Err)
}

/// Nothing repeats the receiver's word either, where nothing is acknowledged.
fn unheard() -> Failure {
    let message = "without acknowledgements (--acknowledge none) nothing that is lost is sent again, and \
                   what the receiver says of the files was lost: look there whether they arrived whole";
    Failure::new(Kind::Failure, message)
}

/// Settings of a sender of `bytes`.
fn config(job: Job<'_>, bytes: u64) -> Config {
    let rates = Rates {
        bytes,
        fixed: job.rate,
    };
    let timeout = job.output.timeout();
    job.options.config(job.profile, rates, timeout)
}

/// This end of the connection, as the network sees it. Over IP ports are none of its business.
fn own_end(endpoint: &Endpoint, remote: SocketAddr) -> SocketAddr {
    let local = endpoint.local_addr();
    match local.ip().is_unspecified() {
        true => {
            let ip = net::own_address_towards(remote.ip());
            SocketAddr::new(ip.unwrap_or(local.ip()), local.port())
        }
        false => local,
    }
}

/// Connects to the first of the receiver's addresses that answers.
async fn connect(job: Job<'_>, bytes: u64) -> Result<(Endpoint, Stream, SocketAddr), Failure> {
    let addresses = job.host.resolve(job.family).await?;
    guard::check(&addresses, &job.options.common)?;
    let config = job.output.observed_published(config(job, bytes))?;
    let share = CONNECT_LIMIT / u32::try_from(addresses.len()).unwrap_or(1).max(1);
    let mut failure = silent(job.host, job.profile);
    for remote in addresses {
        match tokio::time::timeout(share, reach(remote, config.clone(), job.options)).await {
            Ok(Ok((endpoint, stream))) => return Ok((endpoint, stream, remote)),
            Ok(Err(dfcp::Error::Published(Error::Unreachable))) | Err(_) => {}
            Ok(Err(error)) => failure = error.into(),
        }
    }
    Err(failure)
}

async fn reach(
    remote: SocketAddr,
    config: Config,
    options: &Options,
) -> Result<(Endpoint, Stream), dfcp::Error> {
    let port = match config.carrier {
        Carrier::Udp => PORT,
        Carrier::Ip => remote.port(),
    };
    let bind = SocketAddr::new(own_address(remote, config.carrier), 0);
    let config = EndpointConfig::client(bind, config);
    let config = config.own_network(options.common.i_own_this_network);
    let endpoint = Endpoint::bind(config)?;
    let stream = endpoint.connect(remote, port).await?;
    Ok((endpoint, stream))
}

/// The address to send from.
fn own_address(remote: SocketAddr, carrier: Carrier) -> IpAddr {
    match (remote.ip(), carrier) {
        // Every raw socket of an address gets all packets to it: so neither end reads its own.
        (IpAddr::V4(Ipv4Addr::LOCALHOST), Carrier::Ip) => Ipv4Addr::new(127, 0, 0, 2).into(),
        (IpAddr::V4(ip), _) if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        (IpAddr::V6(ip), _) if ip.is_loopback() => Ipv6Addr::LOCALHOST.into(),
        (ip, Carrier::Ip) => net::own_address_towards(ip).unwrap_or(unspecified(ip)),
        (ip, Carrier::Udp) => unspecified(ip),
    }
}

fn unspecified(remote: IpAddr) -> IpAddr {
    match remote {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn silent(host: &Host, profile: Profile) -> Failure {
    let name = profile.name();
    let message = format!(
        "{host} does not answer: no receiver with --profile {name} and the same carrier runs there, or \
         the path is blocked; there: dfcp recv --profile {name} --allow-any"
    );
    Failure::new(Kind::Unreachable, message)
}
