//! `dfcp proxy serve`.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dfcp::{Admission, Endpoint, EndpointConfig, PublicKey};
use dfcp_command::{Failure, Kind, Request, Requests, interrupted, units};
use dfcp_transfer::INTERRUPTED;
use tokio::task::JoinHandle;

use super::Common;
use super::desk::{Desk, Grants};
use super::place::Place;
use crate::command::farewell;
use crate::command::service::{Service, attend, wind_down};
use crate::config::{self, Text};
use crate::keys;
use crate::metrics::{Exporter, Source};
use crate::net::{self, Listen};
use crate::notify;
use crate::refusals::Refusals;

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
    grants: Grants,
    /// How long connections may go on after SIGTERM; new ones are refused meanwhile
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    drain: Duration,
    /// Connections of clients at once, of which one key, and one network, has a quarter at most, or eight
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_connections: u32,
    /// Take all settings from this file of TOML, whose keys are the names of these options: permit =
    /// ["internet:443"]. SIGHUP reads it again
    #[arg(long, value_name = "FILE", exclusive = true)]
    config: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Args {
    /// Settings that differ from those of `other` and count from the start only.
    fn fixed(&self, other: &Self) -> Vec<&'static str> {
        let (own, others) = (&self.common, &other.common);
        let fixed = [
            ("listen", self.listen != other.listen),
            ("key", self.key != other.key),
            ("profile", own.profile != others.profile),
            ("timeout", own.timeout != others.timeout),
            (
                "max-connections",
                self.max_connections != other.max_connections,
            ),
            ("metrics", own.metrics != others.metrics),
            ("verbose", own.verbose != others.verbose),
            ("quiet", own.quiet != others.quiet),
        ];
        let differ = fixed.into_iter().filter(|(_, differ)| *differ);
        differ.map(|(name, _)| name).collect()
    }
}

/// A server that runs.
struct Running {
    args: Args,
    /// What its settings are from, as it was read last.
    file: Option<Text>,
    desk: Desk,
    endpoint: Endpoint,
    serving: JoinHandle<()>,
    refusals: Arc<Refusals>,
}

/// Serves until it is told to end.
pub async fn serve(args: Args) -> Result<(), Failure> {
    let Some(file) = args.config.clone() else {
        // The terminal that it was started at may end it.
        let mut running = Running::start(args, None).await?;
        notify::ready();
        let failure = tokio::select! {
            failure = interrupted() => failure,
            failure = running.failed() => return Err(failure),
        };
        let again = async || Request::End(interrupted().await);
        wind_down(running, failure.kind, again).await;
        return Err(failure);
    };
    let requests = Requests::listen()?;
    let text = Text::open(&file)?;
    let running = Running::start(text.whole()?, Some(text)).await?;
    Err(attend(running, requests).await)
}

impl Running {
    async fn start(args: Args, file: Option<Text>) -> Result<Self, Failure> {
        let desk = Desk::open(&args.grants, args.common.report())?;
        if let Some(failure) = desk.terms.get().nobody() {
            return Err(failure);
        }
        for mistake in desk.terms.get().allowed.mistakes() {
            args.common.say(mistake);
        }
        let (exporter, taken) = match args.common.metrics {
            Some(Place(at)) => {
                let (exporter, taken) = Exporter::bind_or_wait(at).await;
                (Some(exporter), taken)
            }
            None => (None, None),
        };
        let transport = args.common.transport(exporter.as_ref())?;
        // Who cannot start needs no key.
        let own = keys::Own::load(args.key.as_deref())?;
        let refusals = Arc::new(Refusals::default());
        let endpoint = args.listen.unwrap_or_default().bind(|address| {
            let (terms, common) = (desk.terms.clone(), args.common.clone());
            let refusals = refusals.clone();
            let opens_to = move |key: &PublicKey| {
                let terms = terms.get();
                let admission = terms.allowed.admission(key);
                if admission != Admission::Welcome
                    && let Some(line) = refusals.news(key, || terms.allowed.why_not(key))
                {
                    common.say(line);
                }
                admission
            };
            let config = EndpointConfig::server(own.key().clone(), address)
                .transport(transport.clone())
                .max_connections(args.max_connections as usize)
                .authorize(opens_to);
            Endpoint::bind(config)
        })?;
        // Only who leaves the other port as well leaves that.
        if let Some(failure) = taken.filter(|_| !endpoint.took_over()) {
            return Err(failure);
        }
        own.keep()?;
        let say = |line: &dyn Display| args.common.say(line);
        net::announce(&endpoint, say, |host, key| {
            let line = format!("to use it: dfcp proxy --socks 1080 {host} --peer-key {key}");
            vec![line]
        });
        if let Some(exporter) = exporter {
            exporter.announce(|line| args.common.say(line));
            let ending = desk.server.clone();
            let source = Source {
                endpoint: endpoint.clone(),
                traffic: Some(desk.server.traffic().clone()),
                server: Some(desk.server.clone()),
                ailing: Arc::new(move || ending.is_ending().then(|| "it ends".to_owned())),
                files: None,
                links: None,
            };
            tokio::spawn(exporter.serve(source));
        }
        let server = desk.server.clone();
        let (serving, socket) = (server, endpoint.clone());
        let serving = tokio::spawn(async move { serving.serve(socket).await });
        Ok(Self {
            args,
            file,
            desk,
            endpoint,
            serving,
            refusals,
        })
    }
}

impl Service for Running {
    /// Waits until it cannot serve any more.
    async fn failed(&mut self) -> Failure {
        let _ = (&mut self.serving).await;
        Failure::new(Kind::LocalIo, "the socket failed")
    }

    /// Serves by what is in the file now. What is wrong changes nothing.
    fn reload(&mut self) {
        let Some(before) = &self.file else { return };
        let read = config::check_no_pipe(before.path()).and_then(|()| {
            let file = Text::open(before.path())?;
            file.check_after(before)?;
            let args = file.whole::<Args>()?;
            let terms = self.desk.read(&args.grants)?;
            Ok((file, args, terms))
        });
        let (file, args, terms) = match read {
            Ok(read) => read,
            Err(failure) => {
                let what = format_args!("nothing is changed: {failure}");
                return self.args.common.say(what);
            }
        };
        let fixed = self.args.fixed(&args);
        if !fixed.is_empty() {
            let names = fixed.join("`, `");
            let what = format_args!("`{names}` will count after another start");
            self.args.common.say(what);
        }
        self.args.drain = args.drain;
        self.refusals.begin_anew();
        for news in self.desk.apply(terms) {
            self.args.common.say(news);
        }
        let what = format_args!("read {} again", file.path().display());
        self.args.common.say(what);
        self.file = Some(file);
    }

    fn drain(&self) -> Duration {
        self.args.drain
    }

    fn begin_end(&mut self) -> bool {
        self.desk.server.traffic().counts().open_connections > 0
    }

    fn tell_draining(&self) {
        let carried = self.desk.server.traffic().counts().open_connections;
        let seconds = self.args.drain.as_secs_f64();
        self.args.common.say(format_args!(
            "ends when {carried} connections have, in {seconds} s at most"
        ));
        if self.endpoint.hand_over_port().is_ok() {
            let what = "another server may begin at the port meanwhile";
            self.args.common.say(what);
        }
    }

    async fn drained(&self) {
        self.desk.server.drain(Duration::MAX).await;
    }

    async fn end(self) {
        farewell(&self.endpoint, INTERRUPTED, "the server ends").await;
    }
}
