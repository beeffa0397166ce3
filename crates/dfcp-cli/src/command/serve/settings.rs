//! The file of a service: what it is made of, and how each part is set.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dfcp::TransportConfig;
use dfcp_command::{Failure, Profile, units};

use crate::command::proxy::desk::Grants;
use crate::command::proxy::place::Place;
use crate::command::proxy::{fits, sealed};
use crate::command::recv::Taking;
use crate::command::{FILES_MEMORY, rendezvous, transport, tun};
use crate::config::Text;
use crate::log::Form;
use crate::net::Listen;

/// Names of the sections.
const RECV: &str = "recv";
const PROXY: &str = "proxy";
const TUN: &str = "tun";
const RENDEZVOUS: &str = "rendezvous";

/// What counts for all sections.
#[derive(Clone, Debug, clap::Args)]
pub struct Whole {
    /// Address, port or both to listen on; all addresses at port 4433 unless given
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<Listen>,
    /// This side's key [default: $XDG_CONFIG_HOME/dfcp/key or ~/.config/dfcp/key]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Transport of what this side sends; the other side follows
    #[arg(long, value_parser = dfcp_command::profile::parser_of(fits), default_value = "auto")]
    pub profile: Profile,
    /// Silence after which the other side is given up
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::patience)]
    pub timeout: Duration,
    /// How long what is open may go on after SIGTERM; nobody new is served meanwhile
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    pub drain: Duration,
    /// Connections of clients at once, in all sections
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub max_connections: u32,
    /// Answer Prometheus at this port, of this machine unless an address is given: /metrics, /healthz
    #[arg(long, value_name = "[ADDR:]PORT")]
    pub metrics: Option<Place>,
    /// How the log is written
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub log: Form,
    /// Tell of each connection
    #[arg(long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Say nothing but errors
    #[arg(long)]
    pub quiet: bool,
}

/// The section `[tun]`.
#[derive(Clone, Debug, clap::Args)]
pub struct Link {
    #[command(flatten)]
    pub guests: tun::serve::Guests,
    #[command(flatten)]
    pub options: tun::LinkOptions,
}

/// All that is in a file.
pub struct Settings {
    pub whole: Whole,
    pub recv: Option<Taking>,
    pub proxy: Option<Grants>,
    pub tun: Option<Link>,
    pub rendezvous: Option<rendezvous::Options>,
}

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong in it, and on which line.
    pub fn read(file: &Path) -> Result<Self, Failure> {
        let text = Text::open(file)?;
        let mut sections = text.sections(&[RECV, PROXY, TUN, RENDEZVOUS])?;
        let settings = Self {
            whole: sections.above()?,
            recv: sections.section(RECV)?,
            proxy: sections.section(PROXY)?,
            tun: sections.section(TUN)?,
            rendezvous: sections.section(RENDEZVOUS)?,
        };
        let wrong = |what: &str| Failure::usage(format!("{}: {what}", file.display()));
        if settings.names().is_empty() {
            return Err(wrong(
                "nothing is to be served: write [recv], [proxy], [tun] or [rendezvous], and its \
                 settings below",
            ));
        }
        if settings.whole.metrics.is_some() && settings.names() == [RENDEZVOUS] {
            return Err(wrong("[rendezvous] alone has no metrics"));
        }
        let port = settings.whole.listen.unwrap_or_default();
        if let Some(meeting) = &settings.rendezvous
            && settings.names() != [RENDEZVOUS]
            && port.overlaps(meeting.address())
        {
            return Err(wrong(
                "[rendezvous] needs a port of its own: `listen` there is the one of all others",
            ));
        }
        if let Some(taking) = &settings.recv {
            // A service has no directory that it was started in, and no standard output to speak of.
            let directory = taking.target.directory();
            if !directory.is_absolute() {
                return Err(wrong(
                    "[recv] needs output-dir = \"/…\", the directory for files, from the root on",
                ));
            }
        }
        if let Some(link) = &settings.tun {
            let failed = |failure: Failure| wrong(&format!("[tun] {failure}"));
            link.options.check().map_err(failed)?;
            link.guests.clients().map_err(failed)?;
        }
        sealed(settings.whole.profile)?;
        Ok(settings)
    }

    /// The sections that there are.
    pub fn names(&self) -> Vec<&'static str> {
        let there = [
            (RECV, self.recv.is_some()),
            (PROXY, self.proxy.is_some()),
            (TUN, self.tun.is_some()),
            (RENDEZVOUS, self.rendezvous.is_some()),
        ];
        let there = there.into_iter().filter(|(_, there)| *there);
        there.map(|(name, _)| name).collect()
    }

    /// Settings that differ from those of `other` and count from the start only.
    pub fn fixed(&self, other: &Self) -> Vec<&'static str> {
        let (own, others) = (&self.whole, &other.whole);
        let differs = |own: &dyn std::fmt::Debug, other: &dyn std::fmt::Debug| {
            format!("{own:?}") != format!("{other:?}")
        };
        let fixed = [
            ("listen", own.listen != others.listen),
            ("key", own.key != others.key),
            ("profile", own.profile != others.profile),
            ("timeout", own.timeout != others.timeout),
            (
                "max-connections",
                own.max_connections != others.max_connections,
            ),
            ("metrics", own.metrics != others.metrics),
            ("log", own.log != others.log),
            ("verbose", own.verbose != others.verbose),
            ("quiet", own.quiet != others.quiet),
            ("[recv]", self.recv.is_some() != other.recv.is_some()),
            ("[proxy]", self.proxy.is_some() != other.proxy.is_some()),
            ("[tun]", differs(&self.tun, &other.tun)),
            ("[rendezvous]", differs(&self.rendezvous, &other.rendezvous)),
        ];
        let differ = fixed.into_iter().filter(|(_, differ)| *differ);
        differ.map(|(name, _)| name).collect()
    }

    /// The transport of a port that all sections share: what one of them needs the others have, too.
    ///
    /// # Errors
    /// A profile that is not for it.
    pub fn transport(&self) -> Result<TransportConfig, Failure> {
        let shared = transport(self.whole.timeout).profile(sealed(self.whole.profile)?);
        let shared = match (&self.proxy, &self.recv) {
            (Some(_), _) => dfcp_proxy::transport(shared),
            (None, Some(_)) => shared,
            (None, None) => dfcp_tun::transport(shared),
        };
        Ok(match self.tun {
            Some(_) => dfcp_tun::beside_others(shared),
            None => shared,
        })
    }

    /// What all connections of the port together may hold of what they receive, if it is not what any endpoint
    /// lets them hold.
    pub fn memory(&self) -> Option<u64> {
        let files_alone = self.recv.is_some() && self.proxy.is_none();
        files_alone.then_some(FILES_MEMORY)
    }
}
