//! The dfcp program: files from here to there.

mod allowed;
mod ask;
mod command;
mod config;
mod door;
mod files;
mod key_list;
mod keys;
mod known_hosts;
mod lab;
mod log;
mod meet;
mod memory;
mod metrics;
mod net;
mod notify;
mod phrase;
mod probe;
mod progress;
mod published;
mod refusals;
mod report;
mod tally;
mod unfinished;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use dfcp_command::{Failure, Kind};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

#[derive(Parser)]
#[command(name = "dfcp", version, about, after_help = short_help(), after_long_help = long_help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Sends files and directories to a receiver
    Send(Box<command::send::Args>),
    /// Receives files from senders
    Recv(Box<command::recv::Args>),
    /// Copies files to and from machines that ssh reaches
    Cp(Box<command::cp::Args>),
    /// Makes a directory here or there like another one, sending only what differs
    ///
    /// DST itself becomes like SRC, with or without a slash at the end of either, where rsync without a
    /// slash at SRC makes DST/SRC.
    #[command(mut_arg("places", |arg| arg.help(command::cp::SYNC_PLACES).long_help(None)))]
    Sync(Box<command::cp::SyncArgs>),
    /// Carries TCP and UDP of other programs: SOCKS5, HTTP, forwards
    Proxy(Box<command::proxy::Args>),
    /// Runs a program whose connections are carried, without its knowing
    #[cfg(target_os = "linux")]
    Run(Box<command::run::Args>),
    /// Keeps an IP link to another site over a path that loses packets
    Tun(command::tun::Args),
    /// Runs a service: receives files, serves proxies, links and codes at one port, by one file
    Serve(command::serve::Args),
    /// Says what is wrong here, and on the way to a host, and what to do
    Doctor(command::doctor::DoctorArgs),
    /// Measures the way to a host: rate, loss and queue, both ways
    Probe(command::doctor::ProbeArgs),
    /// Lets the two sides of a code find each other; anyone can run one
    Rendezvous(command::rendezvous::Args),
    /// Makes a key
    Keygen(command::keygen::Args),
    /// Shows this side's key
    Key(command::key::Args),
    /// Prints completions of the command line for a shell
    Completions(command::manual::CompletionsArgs),
    /// Writes the man pages
    #[command(hide = true)]
    Manual(command::manual::ManualArgs),
    /// The other side of `dfcp cp`, started by it
    #[command(hide = true)]
    Agent,
    /// What is left of `dfcp run` where its program left others behind
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    LeftBehind,
}

fn main() -> ExitCode {
    dfcp_command::panic::ends_the_process();
    dfcp_command::output::attended(|| match raise_stack_limit() {
        Ok(()) => run(),
        Err(failure) => dfcp_command::fail(&failure),
    })
}

/// Bytes of stack that the first thread has at least. A copy needs 200 KiB, with debug assertions 700.
const STACK: u64 = 1 << 20;

/// Makes a lower limit (`ulimit -s`) this high: overflowing the stack ends a program without a sentence.
fn raise_stack_limit() -> Result<(), Failure> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_STACK).map_err(std::io::Error::from)?;
    if soft >= STACK || setrlimit(Resource::RLIMIT_STACK, STACK, hard.max(STACK)).is_ok() {
        return Ok(());
    }
    let message = format!(
        "a program's stack may have {} KiB here, and this one needs {}: raise the limit (`ulimit -s`)",
        soft >> 10,
        STACK >> 10
    );
    Err(Failure::new(Kind::Failure, message))
}

/// Not a part of `main`, whose own stack frame is needed before the limit is raised.
#[inline(never)]
fn run() -> ExitCode {
    if let Some(code) = lab::hand_on() {
        return code;
    }
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&with_hint(error)),
    };
    match cli.command {
        Command::Send(args) => command::send::run(*args),
        Command::Recv(args) => command::recv::run(*args),
        Command::Cp(args) => command::cp::run(*args),
        Command::Sync(args) => command::cp::run_sync(*args),
        Command::Proxy(args) => command::proxy::run(*args),
        #[cfg(target_os = "linux")]
        Command::Run(args) => command::run::run(*args),
        Command::Tun(args) => command::tun::run(args),
        Command::Serve(args) => command::serve::run(args),
        Command::Agent => command::cp::agent::run(),
        #[cfg(target_os = "linux")]
        Command::LeftBehind => command::run::left_behind(),
        Command::Doctor(args) => command::doctor::run(args),
        Command::Probe(args) => command::doctor::run_probe(args),
        Command::Rendezvous(args) => command::rendezvous::run(args),
        Command::Keygen(args) => command::keygen::run(args),
        Command::Key(args) => command::key::run(args),
        Command::Completions(args) => command::manual::completions(&args, Cli::command()),
        Command::Manual(args) => command::manual::manual(&args, Cli::command()),
    }
}

fn parse() -> Result<Cli, clap::Error> {
    let mut command = with_negative_numbers(Cli::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// `-b -1` is a wrong value of `-b`, not an option `-1`.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let takes_value = arg.get_action().takes_values() && !arg.is_positional();
        arg.allow_negative_numbers(takes_value)
    });
    command.mut_subcommands(with_negative_numbers)
}

/// For who has just installed this: what to type first.
const FIRST: &str = "\
To begin with:
  dfcp cp -r DIR HOST:    Copies to where ssh logs in, and dfcp is installed
  dfcp send FILE...       Prints a code; on the other side: dfcp recv CODE
  dfcp doctor HOST        Says why a transfer does not work, or is slow";

/// What stands at the end of `-h`.
fn short_help() -> String {
    format!("{FIRST}\n\n{}", lab::HELP)
}

/// What stands at the end of `--help`.
fn long_help() -> String {
    let row = |(code, meaning)| format!("\n  {code:<14} {meaning}");
    let codes: String = dfcp_command::EXIT_CODES.map(row).concat();
    format!("{}\n\nExit codes:{codes}", short_help())
}

/// The command line as text: names of files may be any bytes.
fn words() -> impl Iterator<Item = String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned())
}

/// What copying programs call otherwise, and what it is here.
fn hint(option: &str) -> Option<&'static str> {
    Some(match option {
        "-P" => {
            "ssh's port is -e 'ssh -p PORT'; progress is shown, and parts are kept, in any case"
        }
        "-i" | "-J" | "-o" | "-F" | "-4" | "-6" => {
            "options of ssh stand in -e, as in -e 'ssh -J HOST'"
        }
        "-v" | "--verbose" | "--stats" | "--info" | "--human-readable" => {
            "what happens is said in any case"
        }
        "--progress" => "it is shown on a terminal in any case; leave it out",
        "--itemize-changes" => "-n lists what would change, --json=stream what did",
        "-z" | "-C" | "--compress" => "nothing is compressed here; leave it out",
        "-p" | "-t" | "--perms" | "--times" => "times are kept in any case, modes by -a",
        "-H" | "-S" | "--hard-links" | "--sparse" => {
            "hard links and holes are kept in any case; leave it out"
        }
        "--partial" | "--partial-dir" => "parts are kept in any case; leave it out",
        "-u" | "--update" => "--on-conflict newer leaves what is newer there as it is",
        "--size-only" => "what has the same size and time is not sent; --checksum compares content",
        "--backup" | "--backup-dir" => {
            "--on-conflict rename leaves what is there and gives the new file a free name"
        }
        "--exclude-from" | "--include-from" => "name the patterns: --exclude A --exclude B",
        "--ignore-existing" => "--on-conflict skip leaves what is there as it is",
        "--delete" => "`dfcp sync --delete SRC DST` removes what is not in SRC",
        "--delete-before" | "--delete-during" | "--delete-after" | "--del" => {
            "dfcp sync has --delete: what SRC has not goes when all else went well"
        }
        "--rsync-path" => "--remote-path names the program there",
        "-3" => {
            "from HOST to HOST the first one copies itself; through this machine it takes two copies"
        }
        "-R" => "-r copies directories; from HOST to HOST the first one copies itself in any case",
        "--chown" | "--chmod" => {
            "-a keeps modes and, as root, owners; what else they are to be is set there"
        }
        "--inplace" | "--append" | "--append-verify" => {
            "of a file that is there only what differs is sent; leave it out"
        }
        "--files-from" => "name the files themselves, or --include and --exclude patterns of them",
        "--remove-source-files" => "nothing is removed at the source",
        _ => return None,
    })
}

/// The advice for all options of a command line that its command does not have: who mends one at a time
/// tries as often.
fn hints(command: &str, line: &[String]) -> Vec<String> {
    let parser = Cli::command();
    let known = parser.find_subcommand(command);
    let known: Vec<_> = known
        .into_iter()
        .flat_map(|known| known.get_arguments())
        .collect();
    let letter = |letter| format!("-{letter}");
    let is_known = |option: &String| {
        let names = |arg: &&clap::Arg| {
            arg.get_short().map(letter).as_ref() == Some(option)
                || option.strip_prefix("--") == arg.get_long() && arg.get_long().is_some()
        };
        known.iter().any(names)
    };
    let options = line.iter().flat_map(|word| match word.strip_prefix('-') {
        Some(letters) if !letters.starts_with('-') => letters.chars().map(letter).collect(),
        Some(_) => word
            .split('=')
            .next()
            .map(str::to_owned)
            .into_iter()
            .collect(),
        None => Vec::new(),
    });
    let unknown = options.filter(|option| !is_known(option));
    unknown
        .filter_map(|option| Some(format!("{option}: {}", hint(&option)?)))
        .collect()
}

/// Whether a number stands before this word, as when `7-otter-lamp` is written without its hyphens.
fn is_code_in_words(line: &[String], word: &str) -> bool {
    let mut pairs = line.windows(2);
    pairs.any(|pair| pair[0].parse::<u32>().is_ok() && pair[1] == word)
}

/// The error, with advice for who knows `scp` and `rsync`.
fn with_hint(mut error: clap::Error) -> clap::Error {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg)
    {
        let line: Vec<_> = words().skip(1).collect();
        let hints = match line.first().map(String::as_str) {
            Some("cp" | "sync") if unknown.starts_with('-') => hints(&line[0], &line[1..]),
            Some("recv") if is_code_in_words(&line[1..], unknown) => {
                vec!["a code is one word, as 7-otter-lamp".to_owned()]
            }
            _ => Vec::new(),
        };
        if !hints.is_empty() {
            // What is only written alike would be said in place of it.
            error.remove(ContextKind::SuggestedArg);
            let hints = hints.into_iter().map(Into::into).collect();
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(hints));
        }
    }
    if error.kind() == ErrorKind::InvalidValue
        && let Some(ContextValue::String(of)) = error.get(ContextKind::InvalidArg)
        && of.starts_with("--progress ")
        && words().any(|word| word == "--progress")
        && let Some(hint) = hint("--progress")
    {
        let hint = format!("--progress: {hint}");
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![hint.into()]),
        );
    }
    // The name of a program without arguments passes for the server.
    #[cfg(target_os = "linux")]
    if error.kind() == ErrorKind::MissingRequiredArgument
        && words().nth(1).is_some_and(|word| word == "run")
        && words().any(|word| word == "--")
    {
        let hint = command::run::HOST_FIRST.into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint]));
    }
    // Of an option that stands alone clap does not say what stands beside it.
    if error.kind() == ErrorKind::ArgumentConflict
        && let Some(ContextValue::String(alone)) = error.get(ContextKind::InvalidArg)
        && alone.starts_with("--config")
    {
        let others = options_beside("--config", words());
        if !others.is_empty() {
            error.insert(ContextKind::PriorArg, ContextValue::Strings(others));
        }
    }
    error
}

/// The options of a command line but one, without their values.
fn options_beside(one: &str, line: impl Iterator<Item = String>) -> Vec<String> {
    let name = |arg: &String| arg.split('=').next().map(str::to_owned);
    let options = line.filter(|arg| arg.starts_with('-'));
    let mut names: Vec<_> = options.filter_map(|arg| name(&arg)).collect();
    names.retain(|name| name != one);
    names
}

/// Says what is wrong with the command line, or what was asked for instead of a command. Who reads
/// JSON gets an object in any case.
fn refuse(error: &clap::Error) -> ExitCode {
    // What is wrong goes to standard error: there is nobody else to tell if that cannot be written.
    // Of help, a reader that went away has what it wanted.
    if let (Err(why), false) = (error.print(), error.use_stderr())
        && why.kind() != std::io::ErrorKind::BrokenPipe
    {
        let message = format!("standard output cannot be written: {why}");
        return dfcp_command::fail(&Failure::new(Kind::LocalIo, message));
    }
    let wants_json = words().any(|arg| arg == "--json" || arg.starts_with("--json="));
    if error.use_stderr() && wants_json {
        let mut report = report::Report::new(role());
        let message = in_one_line(&error.to_string());
        report.conclude(Some(Failure::usage(message)));
        let line = match words().any(|arg| arg == "--json=stream") {
            true => progress::end(&report),
            false => dfcp_command::output::json(&report),
        };
        if let Err(failure) = line.and_then(dfcp_command::print_whole) {
            dfcp_command::fail(&failure);
        }
    }
    ExitCode::from(error.exit_code() as u8)
}

/// What reports call the command that was asked for.
fn role() -> &'static str {
    let asked = words().nth(1).unwrap_or_default();
    let named = [
        "send",
        "recv",
        "cp",
        "sync",
        "proxy",
        "run",
        "tun",
        "serve",
        "doctor",
        "probe",
        "rendezvous",
        "keygen",
        "key",
        "completions",
    ];
    let asked = named.into_iter().find(|name| *name == asked);
    asked.unwrap_or("dfcp")
}

/// What is wrong, and the advice after it, without the usage.
fn in_one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let said =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let said: Vec<_> = said.filter(|line| !line.is_empty()).collect();
    let said = said.join(" ");
    said.strip_prefix("error: ").unwrap_or(&said).to_owned()
}
