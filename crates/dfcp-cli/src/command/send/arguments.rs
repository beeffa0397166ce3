//! What `dfcp send` is asked for, and what follows from it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use dfcp::{ChameleonParameters, FlowControl, Profile, Rate, SchemeId, StaticKey, TransportConfig};
use dfcp_command::{Failure, Profile as Choice, units};
use dfcp_transfer::{Keep, Links, Scan, Sources, Wishes};

use crate::command::peer::PeerOptions;
use crate::command::{Output, bounded, code};
use crate::files;
use crate::meet;
use crate::net::Host;
use crate::published;
use crate::published::options::{Options, no_keys};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(override_usage = "dfcp send [OPTIONS] PATH... [HOST]")]
pub struct Args {
    /// Files and directories, - alone is standard input; and then the receiver: HOST or HOST:PORT, IPv6
    /// addresses in brackets; without one, a code is printed for the other side to type
    // One list, for options may stand between its parts.
    #[arg(required = true, value_name = "PATH", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    operands: Vec<PathBuf>,
    #[command(flatten)]
    meet: meet::MeetingOptions,
    /// Words of a code, from 2 to 8; two are 16 bits, which three guesses are allowed for
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=8))]
    words: u8,
    /// How long a code is good, ten minutes at most
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = code::lifetime)]
    code_time: Duration,
    #[command(flatten)]
    pub(super) peer: PeerOptions,
    /// Take this much of the path at most, in bits per second, such as 20M for 20 Mbit/s; as fast as the path allows below it
    #[arg(short, long, value_name = "BITS", value_parser = units::typed_limit, conflicts_with = "fixed_rate")]
    pub(super) bwlimit: Option<Rate>,
    /// Take only what everybody else leaves of the path
    #[arg(long, conflicts_with = "fixed_rate")]
    background: bool,
    /// Send at this rate whatever the path says, such as 200M, or as fast as the host can: max. For paths
    /// that are yours alone; slows down only after two seconds in which more than half is lost
    #[arg(long, value_name = "BITS", value_parser = fixed_rate)]
    fixed_rate: Option<FixedRate>,
    /// What it was called
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "", value_parser = renamed_rate)]
    rate: Option<FixedRate>,
    /// What its maximum was called
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "", value_parser = renamed_max_rate)]
    max_rate: Option<FixedRate>,
    /// Erasure code [default: the profile's; dense for auto]
    #[arg(long, value_enum)]
    code: Option<Code>,
    /// What standard input is called at the receiver [default: stdin]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Send symbolic links as links, where they lead to somewhere in the tree that they are in
    #[arg(short = 'l', long)]
    links: bool,
    /// Send what symbolic links lead to
    #[arg(short = 'L', long, conflicts_with = "links")]
    copy_links: bool,
    #[command(flatten)]
    kept: files::Kept,
    /// What to do where names are taken by other files, as far as the receiver lets senders decide
    #[arg(long, value_enum)]
    on_conflict: Option<files::OnConflict>,
    /// Send from the beginning what the receiver has a part of
    #[arg(long)]
    no_resume: bool,
    /// Where the receiver lets files be replaced: send all of a large one that it has in another version,
    /// instead of comparing both and sending the parts (of 64 KiB, or a 4096th of the file) that differ
    #[arg(short = 'W', long)]
    whole_file: bool,
    /// Compare what the receiver has by content, also where size and time are the same
    #[arg(short, long)]
    checksum: bool,
    /// When the receiver falls silent or restarts, or the path is gone, try again for so long, such as
    /// 10m, and go on where it was; wants a host, as a code is good for one session
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(super) retry: Option<Duration>,
    /// Transport; the receiver follows the encrypted ones without being told
    #[arg(long, value_parser = dfcp_command::profile::parser(), default_value = "auto")]
    profile: Choice,
    /// With --profile chameleon: as published, have no more packets on their way than the receiver
    /// reports room for, which bounds the rate to its window each round trip (64 packets unless the
    /// receiver says otherwise)
    #[arg(long)]
    avail_win: bool,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    published: Options,
}

/// A rate that does not follow the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FixedRate {
    /// In UDP payload bits.
    At(Rate),
    /// What the host can.
    Max,
}

impl FixedRate {
    pub(super) fn rate(self) -> Rate {
        match self {
            Self::At(rate) => rate,
            Self::Max => Rate::MAX,
        }
    }
}

fn fixed_rate(text: &str) -> Result<FixedRate, String> {
    match text {
        "max" => Ok(FixedRate::Max),
        text => units::rate(text).map(FixedRate::At),
    }
}

fn renamed_rate(text: &str) -> Result<FixedRate, String> {
    let rate = if text.is_empty() { "BITS" } else { text };
    Err(format!(
        "this is --fixed-rate {rate} now; --bwlimit only bounds the rate that is found"
    ))
}

fn renamed_max_rate(_: &str) -> Result<FixedRate, String> {
    Err("this is --fixed-rate max now".into())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Code {
    /// Dense code over GF(256), small blocks
    Dense,
    /// RaptorQ (RFC 6330), large blocks
    Raptorq,
}

/// Source symbols of a RaptorQ block: where its speed is best.
pub const RAPTORQ_SYMBOLS: u32 = 1000;

impl Args {
    /// Settings of a transport with the parts of `profile`.
    pub(super) fn transport(&self, profile: Profile) -> TransportConfig {
        let profile = match self.code {
            None => profile,
            Some(Code::Dense) => profile.with_scheme(SchemeId::Dense, 0),
            Some(Code::Raptorq) => profile.with_scheme(SchemeId::RaptorQ, RAPTORQ_SYMBOLS),
        };
        let profile = match self.fixed_rate {
            Some(FixedRate::At(rate)) => profile.with_fixed_rate(rate),
            Some(FixedRate::Max) => profile.with_max_rate(),
            None => profile,
        };
        let profile = bounded(profile, self.bwlimit, self.background);
        self.output.transport().profile(profile)
    }

    /// The parts of an encrypted transport; `None` for what is in clear.
    pub(super) fn sealed(&self) -> Option<Profile> {
        if self.profile == Choice::Chameleon && self.avail_win {
            return Some(Profile::chameleon_with(ChameleonParameters {
                flow_control: FlowControl::AvailWin,
                ..ChameleonParameters::for_any_path()
            }));
        }
        self.profile.sealed()
    }

    /// A transfer over a published protocol in clear, which is wanted if no profile is encrypted.
    pub(super) fn published<'a>(
        &'a self,
        job: &'a Job,
    ) -> Result<published::send::Job<'a>, Failure> {
        no_keys(&[
            (self.peer.peer_key.is_some(), "--peer-key"),
            (self.peer.key.is_some(), "--key"),
            (self.peer.known_hosts.is_some(), "--known-hosts"),
            (self.code.is_some(), "--code"),
            (self.bwlimit.is_some(), "--bwlimit"),
            (self.background, "--background"),
            (self.avail_win, "--avail-win"),
        ])?;
        if job.paths.iter().any(|path| path.as_os_str() == "-") {
            return Err(Failure::usage(
                "published profiles say the size of a file before it, and that of standard input (-) \
                 is not known: send a file, or use --profile auto",
            ));
        }
        self.published
            .check_rate(self.fixed_rate.map(FixedRate::rate))?;
        self.published.check_for(self.profile)?;
        Ok(published::send::Job {
            paths: &job.paths,
            host: job.host.as_ref().ok_or_else(|| {
                Failure::usage("published profiles know no keys, and so no codes: name the host")
            })?,
            family: self.peer.family(),
            rate: match self.fixed_rate {
                Some(FixedRate::At(rate)) => Some(rate),
                _ => None,
            },
            profile: self.profile,
            options: &self.published,
            output: &self.output,
        })
    }

    pub(super) fn what_and_where(&self) -> Result<Job, Failure> {
        let mut paths = self.operands.clone();
        if paths.iter().any(|path| path.as_os_str().is_empty()) {
            return Err(Failure::usage(files::EMPTY_NAME));
        }
        let host_is_meant = self.peer.peer_key.is_some() || self.peer.known_hosts.is_some();
        let host = code::split_host(&mut paths, host_is_meant)?;
        if paths.len() > 1 && paths.iter().any(|path| path.as_os_str() == "-") {
            let why = "standard input (-) is sent alone; a file of this name is ./-";
            return Err(Failure::usage(why));
        }
        Ok(Job { paths, host })
    }

    /// Refuses what encrypted profiles do not know. What does not give way wants the user's word, too: by
    /// a code at once, for a host when it is known where that is.
    pub(super) fn check_options(&self, job: &Job) -> Result<(), Failure> {
        if self.background && self.profile != Choice::Auto {
            return Err(Failure::usage("--background is for --profile auto"));
        }
        if self.avail_win && self.profile != Choice::Chameleon {
            return Err(Failure::usage("--avail-win is for --profile chameleon"));
        }
        if self.retry.is_some() && job.host.is_none() {
            return Err(Failure::usage(
                "--retry wants a host: a code is good for one session. Who sends again, by a new code, goes on \
                 where it was",
            ));
        }
        let mut published = self.published.clone();
        if self.unyielding().is_some() {
            if job.host.is_none() {
                self.check_network(&[])?;
            }
            published.common.i_own_this_network = false;
        }
        published.check_unused()
    }

    /// What was asked for that does not give way, and its rate.
    pub(super) fn unyielding(&self) -> Option<(String, FixedRate)> {
        let profile = || format!("--profile {}", self.profile.name());
        match (self.fixed_rate, self.profile.gives_way()) {
            (Some(rate), _) => Some(("--fixed-rate".to_owned(), rate)),
            (None, false) => Some((profile(), FixedRate::Max)),
            (None, true) => None,
        }
    }

    /// Refuses what does not give way beyond this machine, unless the user vouches for the network.
    pub(super) fn check_network(&self, addresses: &[SocketAddr]) -> Result<(), Failure> {
        let near = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
        let is_near = !addresses.is_empty() && addresses.iter().all(near);
        let vouched = self.published.common.i_own_this_network;
        match self.unyielding().filter(|_| !is_near && !vouched) {
            None => Ok(()),
            Some((what, _)) => Err(Failure::usage(format!(
                "{what} does not give way: beyond this machine it pushes others aside. Without it \
                 the rate is found; --bwlimit bounds that. On a network that is yours alone, add \
                 --i-own-this-network"
            ))),
        }
    }

    /// What is to be sent, and how the receiver is to take it.
    pub(super) fn sources(&self, paths: &[PathBuf]) -> Result<Sources, Failure> {
        let links = match (self.links, self.copy_links) {
            (_, true) => Links::Follow,
            (true, _) => Links::Keep,
            _ => Links::LeaveOut,
        };
        let mut sources = match paths {
            [pipe] if pipe.as_os_str() == "-" => {
                if self.retry.is_some() {
                    let why = "a pipe cannot be read again: --retry wants files";
                    return Err(Failure::usage(why));
                }
                Sources::pipe(self.name.as_deref().unwrap_or("stdin")).map_err(files::failure)?
            }
            _ if self.name.is_some() => {
                let why = "--name is for standard input (-); files keep their names";
                return Err(Failure::usage(why));
            }
            paths => {
                let keep = Keep {
                    holes: true,
                    ..self.kept.keep()
                };
                let how = Scan {
                    links,
                    keep,
                    ..Scan::default()
                };
                files::scan(paths, how)?
            }
        };
        sources.wishes = self.wishes(sources.wishes);
        Ok(sources)
    }

    /// What is asked of the receiver beyond what follows from the files.
    fn wishes(&self, known: Wishes) -> Wishes {
        Wishes {
            checksum: self.checksum,
            anew: self.no_resume,
            whole: self.whole_file,
            dry_run: false,
            on_conflict: self.on_conflict.map(Into::into),
            ..known
        }
    }

    /// What sending by a code takes.
    pub(super) fn sending<'a>(&'a self, key: &'a StaticKey, bytes: u64) -> code::Sending<'a> {
        code::Sending {
            options: &self.meet,
            words: usize::from(self.words),
            lifetime: self.code_time,
            family: self.peer.family(),
            key,
            bytes,
            output: &self.output,
        }
    }
}

/// What is to be sent, and where to.
pub(super) struct Job {
    pub(super) paths: Vec<PathBuf>,
    /// `None` for whoever is told the code.
    pub(super) host: Option<Host>,
}

impl Job {
    /// Whether standard input is sent.
    pub(super) fn is_pipe(&self) -> bool {
        matches!(&self.paths[..], [path] if path.as_os_str() == "-")
    }
}
