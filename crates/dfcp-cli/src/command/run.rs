//! `dfcp run HOST -- PROGRAM`: a program whose connections are carried, without its knowing.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use dfcp::{CloseCode, Endpoint, EndpointConfig};
use dfcp_command::{Failure, Kind, block_on, fail};
use dfcp_proxy::{Client, ClientConfig, FastOpen, Target};
use dfcp_run::{Note, Program, Route, Routes, Supervisor, let_go_on};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::farewell;
use super::peer::{PeerOptions, no_contact};
use super::proxy::Common;
use super::proxy::client::{SERVE, admits, introduce};
use super::proxy::place::{Forward, each_its_own};
use super::take_open_files;
use crate::config;
use crate::net::Host;

/// How long what a program has said may be on its way after it ended: as long as a server lets connections go
/// on that ends.
const DRAIN: Duration = Duration::from_secs(10);

/// What shells end with where a program cannot be run, and where there is none (POSIX, "Command Search and
/// Execution").
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The server, which runs `dfcp proxy serve`: HOST or HOST:PORT, IPv6 addresses in brackets
    #[arg(value_name = "HOST")]
    host: Host,
    /// The program, and its arguments; -- may stand before it
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
    #[command(flatten)]
    rules: RuleOptions,
    /// Take --carry and --direct from this file of TOML: direct = ["10.0.0.0/8", "*.corp"]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["carry", "direct"])]
    rules_file: Option<PathBuf>,
    /// Carry what comes to this port there to a host that is connected to from here, such as the program
    #[arg(short = 'R', long, value_name = "[ADDR:]PORT:HOST:PORT")]
    remote: Vec<Forward>,
    #[command(flatten)]
    peer: PeerOptions,
    #[command(flatten)]
    common: Common,
}

/// What is carried, and what is not.
#[derive(Clone, Debug, Default, clap::Args)]
struct RuleOptions {
    /// What is carried, such as internet:80,443, 10.0.0.0/8:22, db.example.org or *.example.org [default:
    /// everything but this machine]
    #[arg(long, value_name = "NET[:PORTS]|NAME")]
    carry: Vec<Route>,
    /// What of that is not, and is connected to from here
    #[arg(long, value_name = "NET[:PORTS]|NAME")]
    direct: Vec<Route>,
}

/// Runs the program to its end.
pub fn run(args: Args) -> ExitCode {
    match block_on(carry(args)) {
        Ok(code) => code,
        Err(failure) => fail(&failure),
    }
}

/// What is said to who has left the server out.
pub const HOST_FIRST: &str =
    "the server comes before the program: dfcp run HOST -- PROGRAM [ARGUMENTS]";

/// Whether the server was left out of a command line, so that the program's name passed for it: there is no
/// server behind `--`.
fn lacks_server(args: &Args, mut line: impl Iterator<Item = OsString>) -> bool {
    line.by_ref().find(|word| word == "--");
    line.count() == args.program.len() + 1
}

async fn carry(args: Args) -> Result<ExitCode, Failure> {
    if lacks_server(&args, std::env::args_os()) {
        return Err(Failure::usage(HOST_FIRST));
    }
    let rules = match &args.rules_file {
        Some(file) => config::read(file)?,
        None => args.rules.clone(),
    };
    if args.remote.iter().any(|forward| forward.udp) {
        return Err(Failure::usage("-R carries TCP connections only"));
    }
    let taken = args.remote.iter().map(|forward| (forward.place, false));
    each_its_own(&taken.collect::<Vec<_>>(), "there")?;
    let key = args.peer.own_key()?;
    let own = key.public();
    let exporter = args.common.exporter().await?;
    let transport = args.common.transport(exporter.as_ref())?;
    let endpoint = Endpoint::bind(EndpointConfig::client(key).transport(transport))?;
    let server_key = match args.peer.known_key(&args.host)? {
        Some(key) => key,
        None => introduce(&args.peer, &args.host, &endpoint).await?,
    };
    let client = Client::start(ClientConfig {
        endpoint: endpoint.clone(),
        resolve: args.peer.resolver(&args.host),
        server_key,
        fast_open: FastOpen::Never,
        report: args.common.report(),
    });
    if let Some(exporter) = exporter {
        args.common.show(exporter, &client, &endpoint);
    }
    let limit = args.common.timeout;
    let met = tokio::select! {
        // A wrong key is why there is no connection.
        biased;
        why = client.turned_away() => {
            Err(args.peer.explain(why, &args.host, &server_key, &admits(&own)))
        }
        met = client.ready(limit) => met.map_err(|why| no_contact(&why, &args.host, limit, SERVE)),
        failure = dfcp_command::interrupted() => Err(failure),
    };
    let ended = match met {
        Ok(()) => supervise(&args, rules, &client).await,
        Err(failure) => Err(failure),
    };
    let ended = match ended {
        Ok((code, supervisor)) => {
            let _ = timeout(DRAIN, client.traffic().idle()).await;
            if let Err(error) = leave(&args, supervisor).await {
                args.common.say(format_args!(
                    "what the program left behind can connect no more, as nobody looks after it: {error}"
                ));
            }
            Ok(code)
        }
        Err(failure) => Err(failure),
    };
    farewell(&endpoint, CloseCode::NO_ERROR, "the program ended").await;
    ended
}

/// Has a process of its own look after those that the program left behind, if it did: nobody can take the filter
/// off them, and what it stops would fail without an answer, down to messages between them.
async fn leave(args: &Args, supervisor: Supervisor) -> io::Result<()> {
    let left = tokio::task::spawn_blocking(move || supervisor.leave()).await;
    for listener in left?? {
        let mut keeper = std::process::Command::new("/proc/self/exe");
        keeper
            .arg0("dfcp")
            .arg("left-behind")
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(listener))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        keeper.spawn()?;
        args.common.say(
            "the program left others behind: what they connect to from now on, they connect to from here",
        );
    }
    Ok(())
}

/// Looks after what a program left behind, to its end. Where its calls come from is standard input.
pub fn left_behind() -> ExitCode {
    let listener = io::stdin().as_fd().try_clone_to_owned();
    match listener.and_then(let_go_on) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.into()),
    }
}

/// Starts the program and waits for its end. Says who still answers for what it left behind.
async fn supervise(
    args: &Args,
    rules: RuleOptions,
    client: &Client,
) -> Result<(ExitCode, Supervisor), Failure> {
    let common = args.common.clone();
    let note = move |note: Note| {
        match note {
            Note::Unseen(process, why) => common.say(format_args!(
                "process {process} may not be looked into ({why}): what it connects to is not carried"
            )),
            Note::Foreign(process, to) => common.say(format_args!(
                "process {process} sends datagrams to {to} that are not of UDP, as ping does: such go from here"
            )),
            Note::Uring(process) => common.say(format_args!(
                "process {process} asks for io_uring, which is not there for it: it would connect past the server"
            )),
            _ => {}
        }
    };
    let supervisor = Supervisor::new(client.clone(), Routes::new(rules.carry, rules.direct), note)?;
    for Forward { place, target, .. } in args.remote.clone() {
        let (client, place) = (client.clone(), Target::from(place));
        tokio::spawn(async move { client.reverse(place, target).await });
    }
    let Some((name, rest)) = args.program.split_first() else {
        return Err(Failure::usage("which program?"));
    };
    warn(args, Path::new(name));
    let mut command = std::process::Command::new(name);
    command.args(rest);
    if std::env::var_os("LOCALDOMAIN").is_none() && supervisor.resolves() {
        // This side's search domains are not the far one's.
        command.env("LOCALDOMAIN", "");
    }
    let mut signals = Signals::listen()?;
    let child = match supervisor.start(command) {
        Ok(child) => child,
        Err(error) => {
            let code = cannot_start(Path::new(name), &error)?;
            return Ok((code, supervisor));
        }
    };
    take_open_files();
    let status = signals.pass_on(child).await?;
    dfcp_command::forget_signals();
    Ok((ExitCode::from(code(status)), supervisor))
}

/// Says of programs what will not be as they are used to.
fn warn(args: &Args, name: &Path) {
    let path = std::env::var("PATH").unwrap_or_default();
    let program = Program::look_at(name, &path);
    let name = name.display();
    if program.is_foreign {
        args.common.say(format_args!(
            "{name} is of 32 bits, or for another processor: what it connects to is not carried"
        ));
    }
    if program.is_privileged && !nix::unistd::geteuid().is_root() {
        args.common.say(format_args!(
            "{name} is set-user-ID or set-group-ID: it runs without the rights that gives"
        ));
    }
}

fn cannot_start(name: &Path, error: &io::Error) -> Result<ExitCode, Failure> {
    let name = name.display();
    let code = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        io::ErrorKind::PermissionDenied => CANNOT_RUN,
        io::ErrorKind::ResourceBusy => {
            let message = format!(
                "cannot run {name}: its calls are answered by somebody else already, such as by another dfcp \
                 run, which has started this one and carries what it connects to"
            );
            return Err(Failure::new(Kind::Failure, message));
        }
        _ => {
            let message = format!(
                "cannot run {name}: {error}. This takes Linux 5.6 or newer, and seccomp and pidfd_getfd, \
                 which containers may forbid (docker run --security-opt seccomp=unconfined)"
            );
            return Err(Failure::new(Kind::Failure, message));
        }
    };
    dfcp_command::tell!("dfcp: cannot run {name}: {error}");
    Ok(ExitCode::from(code))
}

/// What shells make of how a program ended.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

/// Signals that are for the program.
struct Signals {
    asked: Vec<(Signal, tokio::signal::unix::Signal)>,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let kinds = [
            (Signal::SIGINT, SignalKind::interrupt()),
            (Signal::SIGQUIT, SignalKind::quit()),
            (Signal::SIGTERM, SignalKind::terminate()),
            (Signal::SIGHUP, SignalKind::hangup()),
            (Signal::SIGUSR1, SignalKind::user_defined1()),
            (Signal::SIGUSR2, SignalKind::user_defined2()),
        ];
        // What is ignored here (`nohup`) is ignored by the program, too, unless somebody listens.
        let ignored = ignored_signals();
        let wanted = kinds
            .into_iter()
            .filter(|(name, _)| ignored >> (*name as i32 - 1) & 1 == 0);
        let listen = |(name, kind)| Ok((name, signal(kind)?));
        let asked = wanted.map(listen).collect::<io::Result<_>>()?;
        Ok(Self { asked })
    }

    /// Passes signals on until the program has ended. Those of the terminal's keys it has already.
    async fn pass_on(&mut self, mut child: Child) -> io::Result<ExitStatus> {
        let pid = Pid::from_raw(child.id() as i32);
        let mut ended: JoinHandle<_> = tokio::task::spawn_blocking(move || child.wait());
        loop {
            let next = std::future::poll_fn(|context| {
                for (name, signal) in &mut self.asked {
                    if signal.poll_recv(context).is_ready() {
                        return std::task::Poll::Ready(*name);
                    }
                }
                std::task::Poll::Pending
            });
            tokio::select! {
                status = &mut ended => return status.map_err(io::Error::other)?,
                name = next => {
                    let is_key = matches!(name, Signal::SIGINT | Signal::SIGQUIT);
                    if !(is_key && is_in_front()) {
                        let _ = kill(pid, name);
                    }
                }
            }
        }
    }
}

/// The signals that this process ignores, a bit each from the lowest on.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Whether the terminal's keys are for this process, and so for the program, which is of its group.
fn is_in_front() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    let front = terminal
        .ok()
        .and_then(|tty| rustix::termios::tcgetpgrp(tty).ok());
    front.is_some_and(|front| front == rustix::process::getpgrp())
}
