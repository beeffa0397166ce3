//! The subcommands.

pub mod code;
pub mod cp;
pub mod doctor;
pub mod key;
pub mod keygen;
pub mod manual;
pub mod peer;
pub mod proxy;
pub mod recv;
pub mod rendezvous;
#[cfg(target_os = "linux")]
pub mod run;
pub mod send;
pub mod serve;
mod service;
pub mod tun;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use dfcp::published::Config;
use dfcp::{Application, Endpoint, Profile, Rate, SchemeId, TransportConfig};
use dfcp_command::{Failure, block_on, enough, output};

use crate::log::{Fields, Level, Log};
use crate::progress::{self, Show};
use crate::report::Report;
use crate::tally::Tally;
use send::RAPTORQ_SYMBOLS;

/// What all transfers take.
#[derive(Clone, Debug, clap::Args)]
pub struct Output {
    /// Print one JSON object on standard output at the end, also on failure; with =stream a line for
    /// each event: offer, file, progress, end
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_missing_value = "object")]
    json: Option<Json>,
    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// When to show a progress bar
    #[arg(long, value_enum, default_value_t = Show::Auto)]
    progress: Show,
    /// Silence after which the other side is given up
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = dfcp_command::units::patience)]
    timeout: Duration,
    /// Directory for a log of what each connection does, as qlog, for viewers such as qvis
    #[arg(long, value_name = "DIR")]
    qlog: Option<PathBuf>,
    /// End with the process that started this one
    #[arg(long, hide = true)]
    with_parent: bool,
    /// Of a service: who hears what is said.
    #[arg(skip)]
    service: Option<Log>,
    /// What receivers count.
    #[arg(skip)]
    tally: Tally,
}

/// What programs are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Json {
    /// One object at the end
    Object,
    /// A line for each event; the object is the last one
    Stream,
}

impl Output {
    /// Whether standard output is for JSON.
    pub fn is_json(&self) -> bool {
        self.json.is_some()
    }

    /// Whether every event is told.
    pub fn events(&self) -> bool {
        self.json == Some(Json::Stream)
    }

    /// When to show a progress bar.
    pub fn progress(&self) -> Show {
        match self.quiet {
            true => Show::Never,
            false => self.progress,
        }
    }

    /// That of a service, whose sessions have no terminal.
    pub fn of_service(service: Log, quiet: bool, timeout: Duration) -> Self {
        Self {
            json: None,
            quiet,
            progress: Show::Never,
            timeout,
            qlog: None,
            with_parent: false,
            service: Some(service),
            tally: Tally::default(),
        }
    }

    /// Says something to people.
    pub fn say(&self, message: impl std::fmt::Display) {
        match (self.quiet, &self.service) {
            (true, _) => {}
            (false, Some(log)) => log.say(message),
            (false, None) => progress::say(&message.to_string()),
        }
    }

    /// Says why it is tried again; once, as long as that stays the same.
    pub fn say_again(&self, said: &mut String, why: String) {
        if *said != why {
            self.say(format_args!("{why}; trying again"));
            *said = why;
        }
    }

    /// Prints a report, and its lines for people, and waits until who reads JSON has it. The exit code: that of
    /// the report, unless it could not be written.
    pub async fn report(&self, report: &Report) -> u8 {
        self.tally.add(report);
        if let Some(log) = &self.service {
            drop(output::ERR.room().await);
            self.log_report(*log, report);
            return report.exit_code;
        }
        for line in report.lines() {
            if !self.quiet || report.error.is_some() {
                progress::say(&line);
            }
        }
        let line = match self.json {
            None => return report.exit_code,
            Some(Json::Object) => output::json(report),
            Some(Json::Stream) => progress::end(report),
        };
        let printed = match line {
            Ok(line) => output::print_line(line).await,
            Err(failure) => Err(failure),
        };
        match (printed, report.exit_code) {
            (Ok(()), code) => code,
            (Err(failure), code) => {
                progress::say(&failure.message);
                if code == 0 { failure.kind as u8 } else { code }
            }
        }
    }

    /// The same at a command's end: a signal ends the wait.
    pub fn report_at_end(&self, report: &Report) -> ExitCode {
        let printed = block_on(async {
            tokio::select! {
                code = self.report(report) => Ok(code),
                failure = enough() => Err(failure),
            }
        });
        let (Ok(code) | Err(code)) = printed.map_err(|failure| failure.kind as u8);
        ExitCode::from(code)
    }

    /// A session of a service: one event, with all figures for programs.
    fn log_report(&self, log: Log, report: &Report) {
        let (level, status) = match &report.error {
            None => (Level::Info, "done"),
            Some(_) => (Level::Error, "failed"),
        };
        if self.quiet && level == Level::Info {
            return;
        }
        let fields = Fields {
            peer: report.peer.clone(),
            from: report.remote.map(|remote| remote.to_string()),
            status: Some(status),
            report: serde_json::to_string(report).ok(),
            ..Fields::default()
        };
        log.tell(level, &fields, report.lines().join("; "));
    }

    /// What sessions with this output have brought.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Silence after which the other side is given up.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The transport's settings as far as they follow from these.
    fn transport(&self) -> TransportConfig {
        transport(self.timeout)
    }

    /// `transport` with the logs that were asked for.
    fn observed(&self, transport: TransportConfig) -> Result<TransportConfig, Failure> {
        match &self.qlog {
            Some(directory) => {
                dfcp::qlog_to(transport, directory).map_err(|error| no_log(directory, &error))
            }
            None => Ok(transport),
        }
    }

    /// The same for DFCP as published.
    pub fn observed_published(&self, config: Config) -> Result<Config, Failure> {
        match &self.qlog {
            Some(directory) => dfcp::qlog::published_qlog_to(config, directory)
                .map_err(|error| no_log(directory, &error)),
            None => Ok(config),
        }
    }

    fn prepare(&self) {
        #[cfg(target_os = "linux")]
        if self.with_parent {
            // Without it the process merely outlives a killed parent.
            let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// Why there is no place for logs.
fn no_log(directory: &Path, error: &std::io::Error) -> Failure {
    match directory.exists() && !directory.is_dir() {
        true => Failure::io(
            directory,
            "a file, not a directory; --qlog names a directory for logs",
        ),
        false => Failure::io(directory, error),
    }
}

/// Settings of a connection that lasts while nothing is said: silence of `timeout` ends it, pings keep it, a
/// session whose disk is slow or whose question is open as well as the entry of an address translator.
fn lasting(timeout: Duration) -> TransportConfig {
    TransportConfig::default()
        .idle_timeout(timeout)
        .keep_alive(Some(pings(timeout)))
}

/// After how much silence a connection says that it is there.
fn pings(timeout: Duration) -> Duration {
    (timeout / 4).min(Duration::from_secs(10))
}

/// A profile that gives way to everybody else if it is to, and takes at most `cap` of the path.
fn bounded(profile: Profile, cap: Option<Rate>, gives_way: bool) -> Profile {
    let profile = match gives_way {
        true => profile.yielding(),
        false => profile,
    };
    match cap {
        Some(cap) => profile.with_rate_cap(cap),
        None => profile,
    }
}

/// Two round trips and more of 1 Gbit/s at 200 ms, 25 MB each: a block from which packets are lost is open for two.
const FILE_CREDIT: u64 = 64 << 20;
/// What all that bring files have of a server's memory. One alone has a quarter of it and its floor ahead, three
/// quarters of [`FILE_CREDIT`].
const FILES_MEMORY: u64 = 192 << 20;

/// The transport's settings for files; silence of `timeout` ends a connection.
fn transport(timeout: Duration) -> TransportConfig {
    lasting(timeout)
        .application(Application::FILES)
        .receive_budget(FILE_CREDIT)
        .send_buffer(FILE_CREDIT)
        .datagram_buffer(0) // files need none
        // What `dfcp send` makes; the rest is but work for a stranger to ask for.
        .accept_schemes(&[SchemeId::Dense, SchemeId::Rlnc, SchemeId::RaptorQ])
        .max_block_symbols(RAPTORQ_SYMBOLS)
}

/// Each connection that is carried, and each file that comes, takes an open file: as many as the system lets this
/// user have.
pub fn take_open_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // With fewer some wait or fail, and it is said.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Said where who ends a receiver does not wait for who reads it.
pub const REPORTS_LOST: &str = "nobody reads the reports of the last sessions, which are lost";

/// How long the farewell may take.
pub const FAREWELL: Duration = Duration::from_secs(1);

/// Lets the endpoint tell its peers that it ends.
pub async fn farewell(endpoint: &Endpoint, code: dfcp::CloseCode, reason: &str) {
    let _ = tokio::time::timeout(FAREWELL, endpoint.close(code, reason)).await;
}

/// The same of a client, with how it ended.
pub async fn leave(endpoint: &Endpoint, result: &Result<(), Failure>) {
    let code = match result {
        Err(failure) if failure.kind.is_interruption() => dfcp_transfer::INTERRUPTED,
        _ => dfcp::CloseCode::NO_ERROR,
    };
    farewell(endpoint, code, "the client ends").await;
}
