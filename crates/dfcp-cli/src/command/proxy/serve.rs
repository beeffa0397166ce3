//! `dfcp proxy serve`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use dfcp::{CloseCode, Endpoint, EndpointConfig, PublicKey, Rate};
use dfcp_command::{Failure, Kind, Request, Requests, interrupted, units};
use dfcp_proxy::{Limits, Quota, Rule, Rules, Server, ServerConfig, Settings};
use dfcp_transfer::INTERRUPTED;
use tokio::task::JoinHandle;

use super::Common;
use crate::allowed::{Allowed, Who, quota};
use crate::command::farewell;
use crate::config;
use crate::keys;
use crate::metrics::Source;
use crate::net::{self, Listen};
use crate::notify;

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
    /// How long connections may go on after SIGTERM; new ones are refused meanwhile
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    drain: Duration,
    /// Take all settings from this file of TOML, whose keys are the names of these options: permit =
    /// ["internet:443"]. SIGHUP reads it again
    #[arg(long, value_name = "FILE", exclusive = true)]
    config: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// What may change while it serves.
struct Terms {
    allowed: Allowed,
    limits: Limits,
}

/// Terms that are read where clients come, and changed where a file is read anew.
type Current = Arc<RwLock<Arc<Terms>>>;

fn current(terms: &Current) -> Arc<Terms> {
    let terms = terms.read();
    terms.unwrap_or_else(PoisonError::into_inner).clone()
}

impl Terms {
    /// Instead of those of `before`.
    fn new(args: &Args, before: &Allowed) -> Result<Self, Failure> {
        let allowed = Allowed::after(&args.allow, before)?;
        let limits = Limits {
            streams: args.max_streams,
            associations: args.max_associations,
            rate: args.rate,
            quota: args.quota,
        };
        for mistake in allowed.mistakes() {
            args.common.say(mistake);
        }
        Ok(Self { allowed, limits })
    }

    /// Why nobody is served, if that is so.
    fn nobody(&self) -> Option<Failure> {
        let why = self.allowed.nobody()?;
        let message = format!(
            "nobody would be served: {why}. Allow a client by the key that `dfcp key show` prints on \
             its machine: dfcp proxy serve --allow KEY, or a line in authorized_keys"
        );
        Some(Failure::new(Kind::Authentication, message))
    }

    /// What `key` may have: what the list of keys says of it, or else what counts for all.
    fn limits(&self, key: &PublicKey) -> Limits {
        let own = self.allowed.options(key);
        Limits {
            streams: own.max_streams.unwrap_or(self.limits.streams),
            associations: own.max_associations.unwrap_or(self.limits.associations),
            rate: own.rate.or(self.limits.rate),
            quota: own.quota.or(self.limits.quota),
        }
    }
}

impl Args {
    fn settings(&self) -> Settings {
        let listen = !self.permit_listen.is_empty();
        Settings {
            rules: Rules::new(self.permit.clone(), self.refuse.clone()),
            listen: listen.then(|| Rules::new(self.permit_listen.clone(), Vec::new())),
        }
    }

    /// Settings that differ from those of `other` and count from the start only.
    fn fixed(&self, other: &Self) -> Vec<&'static str> {
        let (own, others) = (&self.common, &other.common);
        let fixed = [
            ("listen", self.listen != other.listen),
            ("key", self.key != other.key),
            ("profile", own.profile != others.profile),
            ("timeout", own.timeout != others.timeout),
            ("metrics", own.metrics != others.metrics),
            ("verbose", own.verbose != others.verbose),
            ("quiet", own.quiet != others.quiet),
        ];
        let differ = fixed.into_iter().filter(|(_, differ)| *differ);
        differ.map(|(name, _)| name).collect()
    }
}

/// A server that runs.
struct Service {
    args: Args,
    terms: Current,
    endpoint: Endpoint,
    server: Server,
    serving: JoinHandle<()>,
}

/// Serves until it is told to end.
pub async fn serve(args: Args) -> Result<(), Failure> {
    let Some(file) = args.config.clone() else {
        let mut service = Service::start(args).await?;
        notify::ready();
        let failure = tokio::select! {
            failure = interrupted() => failure,
            failure = service.failed() => return Err(failure),
        };
        return Err(service.end(failure, interrupted()).await);
    };
    let mut requests = Requests::listen()?;
    let mut service = Service::start(config::read(&file)?).await?;
    notify::ready();
    let failure = loop {
        let request = tokio::select! {
            request = requests.next() => request,
            failure = service.failed() => return Err(failure),
        };
        match request {
            Request::Reload => service.reload(&file),
            Request::End(failure) => break failure,
        }
    };
    let hurry = async {
        loop {
            if let Request::End(failure) = requests.next().await {
                return failure;
            }
        }
    };
    Err(service.end(failure, hurry).await)
}

impl Service {
    async fn start(args: Args) -> Result<Self, Failure> {
        let key = keys::load_or_create(args.key.as_deref())?;
        let terms = Terms::new(&args, &Allowed::default())?;
        if let Some(failure) = terms.nobody() {
            return Err(failure);
        }
        let terms = Current::new(RwLock::new(Arc::new(terms)));
        let exporter = args.common.exporter().await?;
        let transport = args.common.transport(exporter.as_ref())?;
        let endpoint = args.listen.unwrap_or_default().bind(|address| {
            let terms = terms.clone();
            let config = EndpointConfig::server(key.clone(), address)
                .transport(transport.clone())
                .authorize(move |key| current(&terms).allowed.contains(key));
            Endpoint::bind(config)
        })?;
        announce(&args, &endpoint);
        let limits = terms.clone();
        let server = Server::new(ServerConfig {
            settings: args.settings(),
            limits: Arc::new(move |key| current(&limits).limits(key)),
            report: args.common.report(),
        });
        if let Some(exporter) = exporter {
            exporter.announce(|line| args.common.say(line));
            let ending = server.clone();
            let source = Source {
                endpoint: endpoint.clone(),
                traffic: Some(server.traffic().clone()),
                server: Some(server.clone()),
                ailing: Arc::new(move || ending.is_ending().then(|| "it ends".to_owned())),
            };
            tokio::spawn(exporter.serve(source));
        }
        let (serving, socket) = (server.clone(), endpoint.clone());
        let serving = tokio::spawn(async move { serving.serve(socket).await });
        Ok(Self {
            args,
            terms,
            endpoint,
            server,
            serving,
        })
    }

    /// Waits until it cannot serve any more.
    async fn failed(&mut self) -> Failure {
        let _ = (&mut self.serving).await;
        Failure::new(Kind::LocalIo, "the socket failed")
    }

    /// Serves by what is in the file now. What is wrong changes nothing.
    fn reload(&mut self, file: &Path) {
        let read = config::read::<Args>(file).and_then(|args| {
            let terms = Terms::new(&args, &current(&self.terms).allowed)?;
            Ok((args, terms))
        });
        let (args, terms) = match read {
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
        *self.terms.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(terms);
        self.server.apply(args.settings());
        // Whose key is not there any more is not served any longer, also where that is everybody.
        let terms = current(&self.terms);
        if let Some(failure) = terms.nobody() {
            self.args.common.say(failure);
        } else if terms.allowed.is_named() {
            for why in terms.allowed.unusable() {
                self.args.common.say(why);
            }
        }
        for (_, connection) in self.server.traffic().connections() {
            if !terms.allowed.contains(&connection.peer()) {
                connection.close(CloseCode::NO_ERROR, "the key is not allowed any more");
            }
        }
        let what = format_args!("read {} again", file.display());
        self.args.common.say(what);
    }

    /// Ends: asked by SIGTERM, once the connections that it carries have ended, or no time is left for
    /// them, or somebody is in a `hurry`.
    async fn end(self, failure: Failure, hurry: impl Future<Output = Failure>) -> Failure {
        notify::stopping();
        let (carried, limit) = (
            self.server.traffic().counts().open_connections,
            self.args.drain,
        );
        if failure.kind == Kind::Terminated && carried > 0 && !limit.is_zero() {
            let seconds = limit.as_secs_f64();
            self.args.common.say(format_args!(
                "ends when {carried} connections have, in {seconds} s at most"
            ));
            tokio::select! {
                _ = self.server.drain(limit) => {}
                _ = hurry => {}
            }
        }
        farewell(&self.endpoint, INTERRUPTED, "the server ends").await;
        failure
    }
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
