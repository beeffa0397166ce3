//! `dfcp serve`: one service for all that is served, at one port, by one file.

pub mod files;
mod health;
mod parts;
mod settings;
mod sockets;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use dfcp::{Endpoint, EndpointConfig, StaticKey};
use dfcp_command::{Failure, Kind, Requests, block_on, fail};
use dfcp_transfer::INTERRUPTED;

use super::proxy::place::Place;
use super::rendezvous::Meeting;
use super::service::{Service, attend};
use super::{FAREWELL, farewell, take_open_files};
use crate::config;
use crate::keys;
use crate::log::Log;
use crate::memory;
use crate::metrics::{Exporter, Source};
use crate::net;
use crate::notify;
use crate::phrase::phrase;
use parts::Parts;
pub use settings::Whole;
use settings::{Link, Settings};
use sockets::Passed;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Settings, TOML: those of all above the first section, then [recv], [proxy], [tun], [rendezvous],
    /// whose keys are the options of `dfcp recv`, `dfcp proxy serve`, `dfcp tun serve`, `dfcp rendezvous`.
    /// SIGHUP reads it again
    file: PathBuf,
    /// Say what is wrong in the file, and end
    #[arg(long, conflicts_with = "health")]
    check: bool,
    /// Ask the service of this file on this machine whether it works (/healthz of its metrics), and end
    #[arg(long)]
    health: bool,
}

/// Serves until it is told to end.
pub fn run(args: Args) -> ExitCode {
    let done = |()| ExitCode::SUCCESS;
    let ask = |settings: Settings| health::ask(&settings.whole);
    let result = match (args.check, args.health) {
        (true, _) => check(&args).map(done),
        (_, true) => Settings::read(&args.file).and_then(ask).map(done),
        _ => {
            take_open_files();
            block_on(serve(&args))
        }
    };
    result.unwrap_or_else(|failure| fail(&failure))
}

fn check(args: &Args) -> Result<(), Failure> {
    let settings = Settings::read(&args.file)?;
    let names = settings.names().join("], [");
    dfcp_command::print(format_args!("{}: [{names}]", args.file.display()))
}

/// # Errors
/// Those from before there is a log: later ones are told there, as whoever reads it expects.
async fn serve(args: &Args) -> Result<ExitCode, Failure> {
    tokio::spawn(memory::give_back());
    // Before anything else: whoever asks for a reload meanwhile does not end the service.
    let requests = Requests::listen()?;
    let settings = Settings::read(&args.file)?;
    let log = Log::start(settings.whole.log)?;
    let ended = match Running::start(args, settings, log).await {
        Ok(running) => attend(running, requests).await,
        Err(failure) => failure,
    };
    Ok(log.end(&ended))
}

/// A service that runs.
struct Running {
    args: Args,
    settings: Settings,
    log: Log,
    parts: Arc<Parts>,
    /// Without one there are only meetings.
    endpoint: Option<Endpoint>,
    links: Option<dfcp_tun::Server>,
    meeting: Option<Meeting>,
}

impl Running {
    async fn start(args: &Args, settings: Settings, log: Log) -> Result<Self, Failure> {
        let whole = &settings.whole;
        let passed = Passed::take()?;
        let parts = Arc::new(Parts::open(&settings, log)?);
        let (exporter, taken) = match (passed.metrics, whole.metrics) {
            (Some(listener), _) => (Some(Exporter::over(listener)), None),
            (None, Some(Place(at))) => {
                let (exporter, taken) = Exporter::bind_or_wait(at).await;
                (Some(exporter), taken)
            }
            (None, None) => (None, None),
        };
        let meeting = settings
            .rendezvous
            .as_ref()
            .map(Meeting::open)
            .transpose()?;
        let serves = settings.recv.is_some() || settings.proxy.is_some() || settings.tun.is_some();
        let bound = match serves {
            true => {
                let own = keys::Own::load(whole.key.as_deref())?;
                let port = (passed.socket, own.key());
                let endpoint = bind(&settings, &parts, exporter.as_ref(), port)?;
                Some((endpoint, own))
            }
            false => None,
        };
        let took_over = bound.as_ref().is_some_and(|bound| bound.0.took_over());
        if let Some(failure) = taken.filter(|_| !took_over) {
            return Err(failure);
        }
        // The port first: whoever cannot have it leaves no device, not even for a moment.
        let links = settings
            .tun
            .as_ref()
            .map(|link| open_link(link, whole, log));
        let links = links.transpose()?;
        // Who cannot start needs no key.
        let endpoint = match bound {
            Some((endpoint, own)) => {
                own.keep_and_tell(|line| {
                    if !whole.quiet {
                        log.say(line);
                    }
                })?;
                Some(endpoint)
            }
            None => None,
        };
        let running = Self {
            args: args.clone(),
            log,
            parts,
            endpoint,
            links,
            meeting,
            settings,
        };
        running.announce();
        running.begin(exporter);
        Ok(running)
    }

    /// Has all of it at work.
    fn begin(&self, exporter: Option<Exporter>) {
        if let (Some(exporter), Some(endpoint)) = (exporter, &self.endpoint) {
            exporter.announce(|line| self.say(line));
            tokio::spawn(exporter.serve(self.source(endpoint)));
        }
        if let Some(endpoint) = &self.endpoint {
            let (parts, links) = (self.parts.clone(), self.links.clone());
            let endpoint = endpoint.clone();
            tokio::spawn(async move {
                while let Some(incoming) = endpoint.accept().await {
                    parts.take(incoming, links.as_ref());
                }
                parts.fail("the socket failed".to_owned());
            });
        }
        if let Some(links) = self.links.clone() {
            let parts = self.parts.clone();
            tokio::spawn(async move {
                let why = links.run().await;
                parts.fail(format!("the device is gone: {why}"));
            });
        }
    }

    fn say(&self, line: impl std::fmt::Display) {
        self.say_of("", line);
    }

    /// The same of a section.
    fn say_of(&self, section: &'static str, line: impl std::fmt::Display) {
        if !self.settings.whole.quiet {
            self.log.of(section).say(line);
        }
    }

    fn announce(&self) {
        if let Some(endpoint) = &self.endpoint {
            let (local, key) = (endpoint.local_addr(), endpoint.public_key());
            let host = net::reached_at(local);
            self.say(format_args!("listening on {local}"));
            self.say(format_args!("public key {key}"));
            self.say(format_args!("in words {}", phrase(&key)));
            if self.settings.recv.is_some() {
                let line = format_args!("to send: dfcp send PATH... {host} --peer-key {key}");
                self.say_of("recv", line);
            }
            if self.settings.proxy.is_some() {
                let line = "to use it: dfcp proxy --socks 1080";
                self.say_of("proxy", format_args!("{line} {host} --peer-key {key}"));
            }
            if let Some(link) = &self.settings.tun {
                for line in link.guests.invitations(&link.options, &host, &key) {
                    self.say_of("tun", line);
                }
            }
            if let Some(shortfall) = endpoint.socket_buffers().shortfall() {
                self.say(shortfall);
            }
        }
        if let Some(meeting) = &self.meeting {
            meeting.announce(|line| self.say_of("rendezvous", line));
        }
        for why in self.parts.nobody() {
            self.log.warn(why);
        }
    }

    fn source(&self, endpoint: &Endpoint) -> Source {
        let parts = self.parts.clone();
        let server = self.parts.desk.as_ref().map(|desk| desk.server.clone());
        Source {
            endpoint: endpoint.clone(),
            traffic: server.as_ref().map(|server| server.traffic().clone()),
            server,
            files: self.parts.files.as_ref().map(|files| files.tally().clone()),
            links: self.links.clone(),
            ailing: Arc::new(move || parts.ailing()),
        }
    }

    /// Lets another service begin at the port while this one ends, where it has no device that the other one
    /// could not have.
    fn hand_over(&self) {
        if let (Some(endpoint), None) = (&self.endpoint, &self.links)
            && endpoint.hand_over_port().is_ok()
        {
            self.say("another service may begin at the port meanwhile");
        }
    }
}

impl Service for Running {
    /// Waits until something cannot be served any more.
    async fn failed(&mut self) -> Failure {
        let meeting = async {
            match &mut self.meeting {
                Some(meeting) => meeting.run().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            failure = meeting => failure,
            why = self.parts.failed() => Failure::new(Kind::LocalIo, why),
        }
    }

    /// Serves by what is in the file now. What is wrong changes nothing.
    fn reload(&mut self) {
        let file = &self.args.file;
        let read = config::check_no_pipe(file).and_then(|()| {
            let settings = Settings::read(file)?;
            let terms = self.parts.read(&settings)?;
            Ok((settings, terms))
        });
        let (settings, terms) = match read {
            Ok(read) => read,
            Err(failure) => {
                notify::status(&format!(
                    "the file has a mistake, nothing is changed: {failure}"
                ));
                return self.log.warn(format_args!("nothing is changed: {failure}"));
            }
        };
        let mut fixed = self.settings.fixed(&settings);
        let (news, others_fixed) = self.parts.apply(terms, self.links.as_ref());
        fixed.extend(others_fixed);
        for line in news {
            self.log.warn(line);
        }
        if !fixed.is_empty() {
            let names = fixed.join("`, `");
            self.say(format_args!("`{names}` will count after another start"));
        }
        self.settings.whole.drain = settings.whole.drain;
        let line = format!("read {} again", file.display());
        notify::status(&line);
        self.say(line);
    }

    fn drain(&self) -> Duration {
        self.settings.whole.drain
    }

    fn begin_end(&mut self) -> bool {
        // Nobody answers there any more: the port is free for the next service.
        if let Some(meeting) = self.meeting.take() {
            self.log.of("rendezvous").say(meeting.summary());
        }
        self.parts.end();
        self.parts.open_now() != (0, 0)
    }

    fn tell_draining(&self) {
        let (carried, sessions) = self.parts.open_now();
        let seconds = self.drain().as_secs_f64();
        self.say(format_args!(
            "ends when {carried} connections and {sessions} sessions have, in {seconds} s at most"
        ));
        self.hand_over();
    }

    async fn drained(&self) {
        self.parts.drain(Duration::MAX).await;
    }

    async fn end(self) {
        if let Some(endpoint) = &self.endpoint {
            farewell(endpoint, INTERRUPTED, "the server ends").await;
        }
        // Sessions that are broken off say what they have.
        self.parts.drain(FAREWELL).await;
    }
}

/// The port of all sections, over a socket that the service manager has made, if it has, with this key.
fn bind(
    settings: &Settings,
    parts: &Arc<Parts>,
    exporter: Option<&Exporter>,
    (passed, key): (Option<std::net::UdpSocket>, &StaticKey),
) -> Result<Endpoint, Failure> {
    let transport = settings.transport()?;
    let transport = match exporter {
        Some(exporter) => exporter.observe(transport),
        None => transport,
    };
    let whole = &settings.whole;
    let links = settings
        .tun
        .as_ref()
        .map_or(0, |link| link.guests.connections());
    let config = |address| {
        let parts = parts.clone();
        let config = EndpointConfig::server(key.clone(), address)
            .transport(transport.clone())
            // Links have places of their own.
            .max_connections(whole.max_connections as usize + links)
            .authorize(move |key| parts.admission(key));
        match settings.memory() {
            Some(memory) => config.memory(memory),
            None => config,
        }
    };
    match passed {
        Some(socket) => {
            let address = socket.local_addr()?;
            Ok(Endpoint::over(config(address), socket)?)
        }
        None => {
            let listen = whole.listen.unwrap_or_default();
            listen.bind(|address| Endpoint::bind(config(address)))
        }
    }
}

fn open_link(link: &Link, whole: &Whole, log: Log) -> Result<dfcp_tun::Server, Failure> {
    let log = log.of("tun");
    let report = parts::report_links(log, whole);
    let config = link.guests.server_config(&link.options, report, |line| {
        if !whole.quiet {
            log.say(line);
        }
    });
    Ok(dfcp_tun::Server::new(config?))
}
