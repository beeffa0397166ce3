//! `dfcp recv`.

mod session;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use dfcp::feedback::EachRoundTrip;
use dfcp::{Application, Endpoint, EndpointConfig, StaticKey, TransportConfig};
use dfcp_command::{Failure, Kind, Profile, block_on, enough, fail, interrupted};
use dfcp_meet::Code;
use dfcp_transfer::{DONE, INTERRUPTED};
use tokio::task::JoinSet;

use super::proxy::place::Place as PortPlace;
use super::{FILES_MEMORY, Output, REPORTS_LOST, code, farewell, take_open_files};
use crate::allowed::{Allowed, Who};
use crate::config;
use crate::door::Door;
use crate::files::Target;
use crate::keys;
use crate::meet;
use crate::metrics::{Exporter, Source};
use crate::net::{self, Listen};
use crate::notify;
use crate::phrase::phrase;
use crate::published;
use crate::published::options::{Common, no_keys};
use crate::report::Report;
pub use session::{Ending, MAX_SESSIONS, Place, session, turn_away};

/// Whom files are taken from, and where they go.
#[derive(Clone, Debug, clap::Args)]
pub struct Taking {
    #[command(flatten)]
    pub target: Target,
    /// Public key of a sender that may send, or a file with a key at the beginning of each line;
    /// without any, those in authorized_keys beside the default key, and at a terminal those that
    /// you agree to when asked
    #[arg(long, value_name = "KEY|FILE")]
    pub allow: Vec<Who>,
    /// Take files from anyone who reaches this address
    #[arg(long, conflicts_with = "allow")]
    pub allow_any: bool,
}

impl Taking {
    /// Who may send, instead of those of `before`.
    ///
    /// # Errors
    /// When a list cannot be used.
    pub fn allowed(&self, before: &Allowed) -> Result<Allowed, Failure> {
        match self.allow_any {
            true => Ok(Allowed::anyone()),
            false => Allowed::after(&self.allow, before),
        }
    }
}

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The code that the sender was given, such as 7-otter-lamp: takes its files and ends
    #[arg(conflicts_with_all = ["listen", "allow", "allow_any"])]
    code: Option<Code>,
    #[command(flatten)]
    meet: meet::MeetingOptions,
    /// Address, port or both to listen on, such as 5000, 10.0.0.2, [::1]:5000 or fe80::1%eth0; all
    /// addresses at port 4433 unless given
    #[arg(long, value_name = "ADDR")]
    listen: Option<Listen>,
    #[command(flatten)]
    taking: Taking,
    /// This side's key [default: $XDG_CONFIG_HOME/dfcp/key or ~/.config/dfcp/key]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// End after the first session, with its exit code
    #[arg(long)]
    once: bool,
    /// Answer Prometheus at this port, of this machine unless an address is given: /metrics, /healthz
    #[arg(long, value_name = "[ADDR:]PORT", conflicts_with = "code")]
    metrics: Option<PortPlace>,
    /// Take all settings from this file of TOML, whose keys are the names of these options: allow =
    /// ["/etc/dfcp/senders"]
    #[arg(long, value_name = "FILE", exclusive = true)]
    config: Option<PathBuf>,
    /// Transport; without it, senders of every encrypted one are taken
    #[arg(long, value_parser = dfcp_command::profile::parser(), default_value = "auto")]
    profile: Profile,
    /// Packets of Chameleon's receive window, for senders with --avail-win [default: 64]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u8).range(1..))]
    avail_win: Option<u8>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    published: Common,
}

impl Args {
    /// Settings of a receiver.
    fn transport(&self) -> TransportConfig {
        let transport = self.output.transport();
        match self.avail_win {
            Some(packets) => transport.answer_with(move || Box::new(EachRoundTrip::new(packets))),
            None => transport,
        }
    }

    /// Receiving over DFCP as published, if that is what is wanted.
    fn published(&self) -> Result<Option<published::recv::Job<'_>>, Failure> {
        // What comes is of the sender's choosing; little goes back.
        if self.profile.sealed().is_some() {
            return self.published.check_unused().map(|()| None);
        }
        no_keys(&[
            (self.key.is_some(), "--key"),
            (!self.taking.allow.is_empty(), "--allow"),
            (self.code.is_some(), "a code"),
            (self.avail_win.is_some(), "--avail-win"),
            (self.metrics.is_some(), "--metrics"),
        ])?;
        if !self.taking.allow_any {
            return Err(Failure::usage(
                "published profiles know no keys: whoever reaches this address may send. If that \
                 is what you want, say --allow-any",
            ));
        }
        Ok(Some(published::recv::Job {
            listen: self.listen.map(|listen| listen.addresses().0),
            target: &self.taking.target,
            once: self.once,
            profile: self.profile,
            options: &self.published,
            output: &self.output,
        }))
    }
}

/// Receives until it is told to end.
pub fn run(args: Args) -> ExitCode {
    let args = match args.config.as_deref().map(config::read::<Args>) {
        Some(Ok(args)) => args,
        Some(Err(failure)) => return fail(&failure),
        None => args,
    };
    take_open_files();
    args.output.prepare();
    let result = match args.published() {
        Ok(Some(job)) => return published::recv::run(job),
        Ok(None) => block_on(async {
            match &args.code {
                Some(code) => by_code(&args, code).await,
                None => serve(&args).await,
            }
        }),
        Err(failure) => Err(failure),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            // A session that was interrupted has reported already; here is why nothing else did.
            let mut report = Report::new("recv");
            report.conclude(Some(failure));
            args.output.report_at_end(&report)
        }
    }
}

impl Args {
    /// Where the files go.
    fn place(&self, target: &Target) -> Result<Place, Failure> {
        Ok(match target.is_pipe() {
            true if self.output.is_json() => {
                return Err(Failure::usage("-o - and --json both want standard output"));
            }
            true => Place::Pipe(target.limits()),
            false => Place::Directory(target.open(&self.output)?),
        })
    }
}

/// Takes the files of the one sender who has the code.
async fn by_code(args: &Args, code: &Code) -> Result<u8, Failure> {
    let key = keys::load_or_create(args.key.as_deref())?;
    let place = args.place(&args.taking.target.by_code())?;
    let transport = args.output.observed(args.transport())?;
    let job = code::Receiving {
        code,
        options: &args.meet,
        key: &key,
        output: &args.output,
    };
    let (endpoint, sender) = code::receive(job, transport).await?;
    let door = Door::new(Allowed::new(&[Who::Key(sender)])?, &args.output)?;
    let mut report = Report::new("recv");
    report.add_buffers(endpoint.socket_buffers());
    report.peer = Some(sender.to_string());
    let incoming = code::arrival(&endpoint).await?;
    let session = session(
        incoming.accept(),
        (place, door, Ending::default()),
        args.output.clone(),
        report,
    );
    let result = tokio::select! {
        code = session => code.ok_or_else(|| {
            Failure::new(Kind::Unreachable, "the sender left without sending anything")
        }),
        failure = interrupted() => {
            farewell(&endpoint, INTERRUPTED, &failure.message).await;
            return Err(failure);
        }
    };
    farewell(&endpoint, DONE, "").await;
    result
}

fn bind(
    args: &Args,
    key: &StaticKey,
    door: &Door,
    exporter: Option<&Exporter>,
) -> Result<Endpoint, Failure> {
    let mut transport = args.output.observed(args.transport())?;
    if let Some(exporter) = exporter {
        transport = exporter.observe(transport);
    }
    args.listen.unwrap_or_default().bind(|address| {
        let door = door.clone();
        let config = EndpointConfig::server(key.clone(), address)
            .transport(transport.clone())
            .memory(FILES_MEMORY)
            .authorize(move |key| door.admission(key));
        Endpoint::bind(config)
    })
}

async fn serve(args: &Args) -> Result<u8, Failure> {
    let own = keys::Own::load(args.key.as_deref())?;
    let allowed = args.taking.allowed(&Allowed::default())?;
    let door = Door::new(allowed, &args.output)?;
    let place = args.place(&args.taking.target)?;
    let once = args.once || args.taking.target.is_pipe();
    let mut busy = false;
    let exporter = match args.metrics {
        Some(PortPlace(at)) => Some(Exporter::bind(at).await?),
        None => None,
    };
    let endpoint = bind(args, own.key(), &door, exporter.as_ref())?;
    own.keep()?;
    let say = |line: &dyn Display| args.output.say(line);
    net::announce(&endpoint, say, |host, key| {
        vec![
            format!("in words {}", phrase(key)),
            format!("to send: dfcp send PATH... {host} --peer-key {key}"),
        ]
    });
    if let Some(exporter) = exporter {
        exporter.announce(|line| args.output.say(line));
        let source = Source {
            endpoint: endpoint.clone(),
            traffic: None,
            server: None,
            files: Some(args.output.tally().clone()),
            links: None,
            ailing: Arc::new(|| None),
        };
        tokio::spawn(exporter.serve(source));
    }
    if args.taking.allow_any {
        dfcp_command::tell!(
            "dfcp: warning: anyone who reaches this address may send files (--allow-any)"
        );
    }
    notify::ready();
    let ending = Ending::default();
    let mut sessions = JoinSet::new();
    let failure = loop {
        tokio::select! {
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else {
                    break Failure::new(Kind::LocalIo, "the socket failed");
                };
                if incoming.application().is_some_and(|what| what != Application::FILES) {
                    incoming.not_offered("it receives files (`dfcp recv`)");
                    continue;
                }
                let mut report = Report::new("recv");
                report.add_buffers(endpoint.socket_buffers());
                // Two senders cannot share a pipe.
                if matches!(place, Place::Pipe(_)) && std::mem::replace(&mut busy, true) {
                    incoming.refuse();
                    continue;
                }
                let connection = incoming.accept();
                if sessions.len() >= MAX_SESSIONS {
                    turn_away(&connection);
                    continue;
                }
                let place = (place.clone(), door.clone(), ending.clone());
                sessions.spawn(session(connection, place, args.output.clone(), report));
            }
            Some(ended) = sessions.join_next() => {
                busy = false;
                if let (Ok(Some(code)), true) = (ended, once) {
                    farewell(&endpoint, DONE, "this receiver takes one session only").await;
                    return Ok(code);
                }
            }
            failure = interrupted() => break failure,
        }
    };
    notify::stopping();
    let failure = ending.get_or_init(|| failure).clone();
    farewell(&endpoint, INTERRUPTED, &failure.message).await;
    // One that had not begun says nothing. Who does not want to wait until the others' reports are read asks again.
    tokio::select! {
        reports = sessions.join_all() => match reports.iter().any(Option::is_some) {
            true => Ok(failure.kind as u8),
            false => Err(failure),
        },
        again = enough() => {
            args.output.say(REPORTS_LOST);
            Ok(again.kind as u8)
        }
    }
}
