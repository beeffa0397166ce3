//! `dfcp recv --profile dfcp`.

use std::net::{Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use dfcp::published::{Carrier, Endpoint, EndpointConfig, PORT, Stream, Traffic};
use dfcp_command::{DEFAULT_PORT, Failure, Kind, Profile, block_on, enough, interrupted};
use dfcp_transfer::{Meter, Store, serial};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::guard;
use super::options::Common;
use crate::command::{FAREWELL, Output, REPORTS_LOST};
use crate::files::Target;
use crate::progress::Bar;
use crate::report::Report;

/// Sessions at once; each may hold the receive budget of a connection.
const MAX_SESSIONS: usize = 16;

/// What is to be received, and where.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Address to listen on.
    pub listen: Option<SocketAddr>,
    /// Where files go.
    pub target: &'a Target,
    /// End after the first session.
    pub once: bool,
    /// Which published profile.
    pub profile: Profile,
    /// Its own options.
    pub options: &'a Common,
    /// What is said about it.
    pub output: &'a Output,
}

/// Receives until it is told to end.
pub fn run(job: Job<'_>) -> ExitCode {
    match block_on(serve(job)) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let mut report = Report::new("recv");
            report.conclude(Some(failure));
            job.output.report_at_end(&report)
        }
    }
}

fn bind(job: Job<'_>) -> Result<Endpoint, Failure> {
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT));
    let address = job.listen.unwrap_or(everywhere);
    guard::check(&[address], job.options)?;
    let carrier = job.options.carrier();
    if carrier == Carrier::Ip && address.ip().is_unspecified() {
        let message = "--carrier ip needs --listen with one address of this machine";
        return Err(Failure::usage(message));
    }
    let port = match carrier {
        Carrier::Udp => PORT,
        Carrier::Ip => address.port(),
    };
    let config = job.options.config(job.profile, job.output.timeout());
    let config = job.output.observed_published(config)?;
    let config = EndpointConfig::server(address, port, config)
        .max_connections(MAX_SESSIONS)
        .own_network(job.options.i_own_this_network);
    let endpoint = Endpoint::bind(config).map_err(|error| {
        let failure = Failure::from(error);
        let message = format!("cannot listen on {address}: {failure}");
        Failure::new(failure.kind, message)
    })?;
    let local = match carrier {
        Carrier::Udp => endpoint.local_addr(),
        Carrier::Ip => address,
    };
    job.output.say(format_args!("listening on {local}"));
    job.output
        .say("in clear: anyone who reaches this address may send, and anyone on the path may read");
    if let Some(shortfall) = endpoint.socket_buffers().shortfall() {
        job.output.say(shortfall);
    }
    Ok(endpoint)
}

async fn serve(job: Job<'_>) -> Result<u8, Failure> {
    let store = job.target.open(job.output)?;
    let endpoint = Arc::new(bind(job)?);
    let (stop, stopping) = watch::channel(());
    let mut sessions = JoinSet::new();
    let failure = loop {
        tokio::select! {
            stream = endpoint.accept() => {
                let Some(stream) = stream else {
                    break Failure::new(Kind::LocalIo, "the socket failed");
                };
                // As many again may have ended, and wait until their reports are read.
                if sessions.len() >= 2 * MAX_SESSIONS {
                    continue;
                }
                let session = Session {
                    endpoint: endpoint.clone(),
                    store: store.clone(),
                    output: job.output.clone(),
                    carrier: job.options.carrier(),
                };
                sessions.spawn(session.run(stream, stopping.clone()));
            }
            Some(ended) = sessions.join_next() => {
                if let (Ok(Some(code)), true) = (ended, job.once) {
                    let _ = tokio::time::timeout(FAREWELL, endpoint.wait_idle()).await;
                    return Ok(code);
                }
            }
            failure = interrupted() => break failure,
        }
    };
    let reported = !sessions.is_empty();
    let _ = stop.send(());
    let reports = async { while sessions.join_next().await.is_some() {} };
    tokio::select! {
        () = reports => {}
        _ = enough() => job.output.say(REPORTS_LOST),
    }
    let _ = tokio::time::timeout(FAREWELL, endpoint.wait_idle()).await;
    match reported {
        true => Ok(failure.kind as u8),
        false => Err(failure),
    }
}

struct Session {
    endpoint: Arc<Endpoint>,
    store: Arc<Store>,
    output: Output,
    carrier: Carrier,
}

impl Session {
    /// Runs a session and reports on it; the exit code, unless the client left without a word.
    async fn run(self, stream: Stream, mut stopping: watch::Receiver<()>) -> Option<u8> {
        let remote = stream.remote_address()?;
        let (start, before) = (Instant::now(), self.endpoint.traffic());
        let meter = Meter::start();
        let monitor = stream.monitor();
        let bar = Bar::start_published(&self.output, &monitor, &meter);
        self.output
            .say(format_args!("{remote} connected, in clear"));
        let (mut reader, mut writer) = tokio::io::split(stream);
        let stop = async {
            let _ = stopping.changed().await;
            monitor.abort();
            std::future::pending().await
        };
        let received = tokio::select! {
            received = serial::receive(&mut reader, &mut writer, self.store, &meter) => received,
            never = stop => never,
        };
        bar.end().await;
        let Some(received) = received else {
            self.output
                .say(format_args!("{remote} left without sending anything"));
            return None;
        };
        let mut report = Report::new("recv");
        report.add_buffers(self.endpoint.socket_buffers());
        let traffic = since(self.endpoint.traffic(), before);
        report.add_published(remote, self.carrier, &monitor, traffic);
        report.add_received(received, start, &meter);
        Some(self.output.report(&report).await)
    }
}

/// What a socket has carried since.
fn since(mut now: Traffic, before: Traffic) -> Traffic {
    now.packets_sent -= before.packets_sent;
    now.bytes_sent -= before.bytes_sent;
    now.packets_received -= before.packets_received;
    now.bytes_received -= before.bytes_received;
    now
}
