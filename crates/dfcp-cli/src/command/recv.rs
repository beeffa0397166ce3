//! `dfcp recv`.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use dfcp::{Connection, Endpoint, EndpointConfig, Error, PublicKey, StaticKey};
use dfcp_command::{DEFAULT_PORT, Failure, Kind, Profile, block_on, interrupted};
use dfcp_transfer::{DONE, INTERRUPTED, Meter, Received, Store};
use tokio::task::JoinSet;

use super::{Output, farewell};
use crate::files::{self, OnConflict};
use crate::keys::{self, Allowed};
use crate::net;
use crate::progress::Bar;
use crate::published;
use crate::published::options::{Common, no_keys};
use crate::report::Report;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Address to listen on; all addresses at port 4433 unless given
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Directory to receive into
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    output_dir: PathBuf,
    /// This side's key [default: $XDG_CONFIG_HOME/dfcp/key or ~/.config/dfcp/key]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Public key of a sender that may connect; without any, those in authorized_keys beside the
    /// default key, or anyone
    #[arg(long, value_name = "KEY")]
    allow: Vec<PublicKey>,
    /// End after the first session, with its exit code
    #[arg(long)]
    once: bool,
    /// What to do with a file whose name is taken by one with other content
    #[arg(long, value_enum, default_value_t = OnConflict::Error)]
    on_conflict: OnConflict,
    /// Transport; without it, senders of every encrypted one are taken
    #[arg(long, value_enum, default_value_t)]
    profile: Profile,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    published: Common,
}

impl Args {
    /// Receiving over DFCP as published, if that is what is wanted.
    fn published(&self) -> Result<Option<published::recv::Job<'_>>, Failure> {
        // What comes is of the sender's choosing; little goes back.
        if self.profile.sealed().is_some() {
            return self.published.check_unused().map(|()| None);
        }
        no_keys(&[
            (self.key.is_some(), "--key"),
            (!self.allow.is_empty(), "--allow"),
        ])?;
        Ok(Some(published::recv::Job {
            listen: self.listen,
            output_dir: &self.output_dir,
            on_conflict: self.on_conflict,
            once: self.once,
            profile: self.profile,
            options: &self.published,
            output: &self.output,
        }))
    }
}

/// Receives until it is told to end.
pub fn run(args: Args) -> ExitCode {
    args.output.prepare();
    let result = match args.published() {
        Ok(Some(job)) => return published::recv::run(job),
        Ok(None) => block_on(serve(&args)),
        Err(failure) => Err(failure),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            // A session that was interrupted has reported already; here is why nothing else did.
            let mut report = Report::new("recv");
            report.conclude(Some(failure));
            args.output.report(&report);
            ExitCode::from(report.exit_code)
        }
    }
}

fn bind(args: &Args, key: StaticKey) -> Result<Endpoint, Failure> {
    let allowed = Allowed::new(args.allow.clone());
    let at = |address| {
        let allowed = allowed.clone();
        let config = EndpointConfig::server(key.clone(), address)
            .transport(args.output.transport())
            .authorize(move |key| allowed.contains(key));
        Endpoint::bind(config)
    };
    let everywhere = [
        (Ipv6Addr::UNSPECIFIED, DEFAULT_PORT).into(),
        (Ipv4Addr::UNSPECIFIED, DEFAULT_PORT).into(),
    ];
    let (address, bound) = match args.listen {
        Some(address) => (address, at(address)),
        None => match at(everywhere[0]) {
            Err(Error::Io(error)) if error.kind() != io::ErrorKind::AddrInUse => {
                (everywhere[1], at(everywhere[1]))
            }
            bound => (everywhere[0], bound),
        },
    };
    bound.map_err(|error| {
        let failure = Failure::from(error);
        Failure::new(
            failure.kind,
            format!("cannot listen on {address}: {failure}"),
        )
    })
}

fn announce(args: &Args, endpoint: &Endpoint) {
    let (local, key) = (endpoint.local_addr(), endpoint.public_key());
    let host = match local.ip().is_unspecified() {
        false => Some(local.ip()),
        true => net::own_address(),
    };
    let host = host.map_or(format!("HOST:{}", local.port()), |ip| {
        SocketAddr::new(ip, local.port()).to_string()
    });
    args.output.say(format_args!("listening on {local}"));
    args.output.say(format_args!("public key {key}"));
    args.output.say(format_args!(
        "to send: dfcp send PATH... {host} --peer-key {key}"
    ));
    if let Some(shortfall) = endpoint.socket_buffers().shortfall() {
        args.output.say(shortfall);
    }
}

async fn serve(args: &Args) -> Result<u8, Failure> {
    let key = keys::load_or_create(args.key.as_deref())?;
    let store = Arc::new(files::open_store(&args.output_dir, args.on_conflict)?);
    let endpoint = bind(args, key)?;
    announce(args, &endpoint);
    let mut sessions = JoinSet::new();
    let failure = loop {
        tokio::select! {
            connection = endpoint.accept() => {
                let Some(connection) = connection else {
                    break Failure::new(Kind::LocalIo, "the socket failed");
                };
                let mut report = Report::new("recv");
                report.add_buffers(endpoint.socket_buffers());
                sessions.spawn(session(connection, store.clone(), args.output.clone(), report));
            }
            Some(ended) = sessions.join_next() => {
                if let (Ok(Some(code)), true) = (ended, args.once) {
                    farewell(&endpoint, DONE, "this receiver takes one session only").await;
                    return Ok(code);
                }
            }
            failure = interrupted() => break failure,
        }
    };
    farewell(&endpoint, INTERRUPTED, &failure.message).await;
    let reported = !sessions.is_empty();
    while sessions.join_next().await.is_some() {}
    match reported {
        true => Ok(failure.kind as u8),
        false => Err(failure),
    }
}

/// Runs a session and reports on it; the exit code, unless the client left without a word.
async fn session(
    connection: Connection,
    store: Arc<Store>,
    output: Output,
    mut report: Report,
) -> Option<u8> {
    let start = Instant::now();
    let remote = connection.remote_address()?;
    let (meter, _watch) = Meter::start();
    let bar = Bar::start(output.progress(), &connection, remote, &meter);
    output.say(format_args!("{remote} connected, {}", connection.peer()));
    let received = dfcp_transfer::receive(&connection, store, &meter).await;
    drop(bar);
    let Some(Received {
        entries,
        outcomes,
        failure,
    }) = received
    else {
        output.say(format_args!("{remote} left without sending anything"));
        return None;
    };
    report.add_connection(&connection, remote);
    report.add_outcomes(&entries, &outcomes);
    report.add_time(start, meter.steady_bps());
    report.conclude(failure.map(files::failure));
    output.report(&report);
    Some(report.exit_code)
}
