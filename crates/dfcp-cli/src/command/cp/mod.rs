//! `dfcp cp`: files to and from machines that ssh reaches. ssh starts [`agent`] there and carries one
//! message each way with keys made for this copy; the files go over UDP, whichever side can be
//! reached, and over ssh's pipe where UDP does not get through.

mod across;
mod again;
pub mod agent;
mod attempt;
mod choice;
mod control;
mod filter;
mod heard;
mod link;
mod login;
mod pattern;
mod place;
pub mod plan;
mod reach;
mod shell;
mod sync;
mod target;
mod tunnel;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use dfcp::Rate;
use dfcp_command::text::printable;
use dfcp_command::{Failure, block_on, units};
use dfcp_transfer::{Change, Diary, Entry, LeftOut, Outcome};

use super::Output;
use crate::files::{EMPTY_NAME, OnConflict};
use crate::report::Report;
use again::Told;
use choice::Choice;
use control::{Job, Work};
use place::Place;
use plan::Plan;
use reach::Side;
use shell::Shell;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(override_usage = "dfcp cp [OPTIONS] SRC... DST")]
pub struct Args {
    /// Files and directories, PATH here or [USER@]HOST:PATH; and last where to: a directory, or the new
    /// name of the one thing copied
    // One list, for options may stand between its parts.
    #[arg(required = true, num_args = 1.., value_names = ["SRC", "DST"], value_parser = Place::read_value())]
    places: Vec<Place>,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    shell: Shell,
    /// Take this much of the path at most, in bits per second, such as 20M for 20 Mbit/s
    #[arg(short, long, value_name = "BITS", value_parser = units::typed_limit)]
    bwlimit: Option<Rate>,
    /// Take only what everybody else leaves of the path
    #[arg(long)]
    background: bool,
    /// When the path falls silent or the other side is gone after it has begun, log in again for so long,
    /// such as 10m, and go on where it was
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    retry: Option<Duration>,
    /// UDP ports that the other side may use, as 5000-5010
    #[arg(long, value_name = "FIRST-LAST", value_parser = ports)]
    port_range: Option<(u16, u16)>,
    /// Sources here are of another machine's user: patterns, and paths from the home directory.
    #[arg(long, hide = true)]
    expand: bool,
    /// Whether what the source has not is removed, as `dfcp sync --delete` has it.
    #[arg(skip)]
    delete: bool,
    /// What to do where UDP does not get through
    #[arg(long, value_enum, default_value_t)]
    fallback: Fallback,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Fallback {
    /// Go on over ssh's own connection
    #[default]
    Ssh,
    /// Give up, with exit code 5
    Fail,
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| match text.trim().parse() {
        Ok(0) | Err(_) => Err(format!("not a port: {text:?}")),
        Ok(port) => Ok(port),
    };
    let (first, last) = (port(first)?, port(last)?);
    match first <= last {
        true => Ok((first, last)),
        false => Err(format!("{first} is above {last}")),
    }
}

/// What `dfcp sync` takes where `dfcp cp` takes many.
pub const SYNC_PLACES: &str =
    "A directory, PATH here or [USER@]HOST:PATH; and what becomes like it";

/// Arguments of `dfcp sync`.
#[derive(Clone, Debug, clap::Args)]
#[command(override_usage = "dfcp sync [OPTIONS] SRC DST")]
pub struct SyncArgs {
    /// Remove what is in DST and not in SRC, if all else went well; what --exclude names stays
    #[arg(long)]
    delete: bool,
    /// Let --delete clear a home directory, or one that it lies in, of what is not in SRC
    #[arg(long, requires = "delete")]
    allow_home: bool,
    #[command(flatten)]
    removal: choice::Removal,
    #[command(flatten)]
    cp: Args,
}

/// Makes a directory like another one.
pub fn run_sync(args: SyncArgs) -> ExitCode {
    let mut cp = args.cp;
    cp.choice.recursive = true;
    cp.choice.links |= !cp.choice.copy_links;
    cp.choice.sync = true;
    cp.choice.allow_home = args.allow_home;
    cp.choice.removal = args.removal;
    cp.delete = args.delete;
    run(cp)
}

/// What is copied which way.
enum Direction<'a> {
    Push {
        paths: Vec<PathBuf>,
        host: &'a str,
        target: &'a str,
    },
    Pull {
        host: &'a str,
        paths: Vec<String>,
        target: &'a Path,
    },
    /// From one machine straight to another.
    Across { host: &'a str },
}

/// Copies.
pub fn run(mut args: Args) -> ExitCode {
    args.output.prepare();
    if args.expand {
        across::end_with_input();
    }
    let role = if args.choice.sync { "sync" } else { "cp" };
    let mut told = Told::new(role);
    let contents = args.means_contents();
    args.choice.contents = matches!(contents, Ok(true));
    let result = contents.and_then(|_| args.way()).and_then(|way| match way {
        Direction::Across { host } => block_on(args.across(host)).map(Some),
        _ => block_on(again::attempts(&args, &mut told)).map(|()| None),
    });
    let mut report = told.report;
    let failure = match result {
        Ok(Some(code)) => return ExitCode::from(code),
        Ok(None) => None,
        Err(failure) => Some(args.with_hint(failure)),
    };
    let plan = report.plan.as_ref().filter(|_| !args.output.is_json());
    let shown = plan.map_or(Ok(()), |plan| say_all(&plan.lines()));
    if let Some(plan) = plan {
        args.output.say(plan.summary());
    }
    report.conclude(failure.or(shown.err()));
    args.output.report_at_end(&report)
}

impl Args {
    /// The failure, with advice where what was taken for a host with a path is a file's name.
    fn with_hint(&self, mut failure: Failure) -> Failure {
        let mut places = self.places.iter();
        let file = places.find_map(|place| match place {
            Place::Here(_) => None,
            Place::There { host, path } => {
                let text = format!("{host}:{path}");
                Path::new(&text).exists().then_some(text)
            }
        });
        if let Some(file) = file {
            failure.message += &format!("; {file} is a file here, too: ./{file} names that");
        }
        failure
    }

    /// Whether what is in a directory is to be copied into the target, and not the directory.
    fn means_contents(&self) -> Result<bool, Failure> {
        let sources = self
            .places
            .split_last()
            .map_or(&[][..], |(_, sources)| sources);
        let is_content = |place: &Place| match place {
            Place::Here(path) => target::is_content(&path.to_string_lossy()),
            Place::There { path, .. } => target::is_content(path),
        };
        let any = self.choice.copies_trees() && sources.iter().any(is_content);
        match any && sources.len() > 1 && !self.choice.sync {
            true => Err(Failure::usage(
                "what is in a directory (DIR/.) is copied by itself: one such source at a time",
            )),
            false => Ok(any),
        }
    }

    /// Sorts out who has what.
    fn way(&self) -> Result<Direction<'_>, Failure> {
        // A file under another name would be one that the source has not.
        if self.choice.sync && self.choice.on_conflict == OnConflict::Rename {
            return Err(Failure::usage("sync does not go with --on-conflict rename"));
        }
        if self.choice.sync && self.places.len() > 2 {
            return Err(Failure::usage(
                "sync takes one directory and where its copy is",
            ));
        }
        let is_empty =
            |place: &Place| matches!(place, Place::Here(path) if path.as_os_str().is_empty());
        if self.places.iter().any(is_empty) {
            return Err(Failure::usage(EMPTY_NAME));
        }
        // As a name, `-` is a pipe to most programs: who means that would get, or miss, a file.
        if self.places.contains(&Place::Here("-".into())) {
            return Err(Failure::usage(
                "- is no file: dfcp send - HOST --name NAME sends what a pipe gives, dfcp recv -o - writes to \
                 one; a file of this name is ./-",
            ));
        }
        let (target, sources) = match self.places.split_last() {
            Some((target, sources)) if !sources.is_empty() => (target, sources),
            _ => return Err(Failure::usage("say what to copy and where to: SRC... DST")),
        };
        let mut here = Vec::new();
        let mut there: Option<(&str, Vec<String>)> = None;
        for source in sources {
            match (source, &mut there) {
                (Place::Here(path), _) => here.push(path.clone()),
                (Place::There { host, path }, None) => there = Some((host, vec![path.clone()])),
                (Place::There { host, path }, Some((known, paths))) if known == host => {
                    paths.push(path.clone());
                }
                _ => return Err(Failure::usage("copy from one machine at a time")),
            }
        }
        match (there, target) {
            (None, Place::Here(_)) => Err(Failure::usage(
                "all of these are local paths; HOST:PATH is a path of another machine",
            )),
            (None, Place::There { host, path }) => Ok(Direction::Push {
                paths: here,
                host,
                target: path,
            }),
            (Some(_), _) if !here.is_empty() => {
                Err(Failure::usage("copy from one machine at a time"))
            }
            (Some((host, paths)), Place::Here(target)) => Ok(Direction::Pull {
                host,
                paths,
                target,
            }),
            (Some((host, _)), Place::There { host: other, .. }) if host == other => Err(
                Failure::usage(format!("both are on {host}: ssh {host} cp copies there")),
            ),
            (Some((host, _)), Place::There { .. }) => Ok(Direction::Across { host }),
        }
    }

    /// Whether to remove what the source has not: not if something of it was left out.
    fn may_delete(&self, left_out: &[LeftOut]) -> bool {
        if self.delete && !left_out.is_empty() && !self.choice.dry_run {
            self.output
                .say("nothing is removed, since not everything could be sent");
        }
        self.delete && left_out.is_empty()
    }

    /// What was removed, or would be.
    fn tell_removed(&self, removed: Vec<String>, report: &mut Report) {
        match &mut report.plan {
            Some(plan) => plan.remove = removed,
            None => {
                for path in removed {
                    self.output.say(format_args!("removed {path}"));
                }
            }
        }
    }

    /// Adds what became of the entries of an offer, or what is to be sent of them and what else would
    /// change.
    fn add_outcomes(
        &self,
        entries: &[Entry],
        (outcomes, changes): (&BTreeMap<u64, Outcome>, &BTreeMap<u64, Vec<Change>>),
        (report, diary): (&mut Report, &Diary),
    ) {
        match self.choice.dry_run {
            true => report.plan = Some(Plan::new(entries, outcomes, changes)),
            false => report.add_outcomes(entries, outcomes, diary),
        }
    }

    fn job(&self, side: &Side, work: Work) -> Job {
        Job {
            key: side.endpoint.public_key().to_string(),
            port: side.port(),
            addresses: reach::own_addresses(),
            ports: self.port_range,
            bwlimit_bps: self.bwlimit.map(Rate::as_bps),
            background: self.background,
            timeout_ms: u64::try_from(self.output.timeout().as_millis()).unwrap_or(u64::MAX),
            work,
        }
    }
}

fn say_all(lines: &[String]) -> Result<(), Failure> {
    if lines.is_empty() {
        return Ok(());
    }
    let lines: Vec<_> = lines.iter().map(|line| printable(line)).collect();
    let lines = lines.join("\n");
    dfcp_command::output::print_at_end(move || dfcp_command::print(lines))
}
