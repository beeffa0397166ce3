//! `dfcp proxy`: TCP and UDP of other programs, over a path that they would not get on with.

pub(super) mod client;
pub mod desk;
pub mod place;
mod serve;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use dfcp::{Endpoint, TransportConfig};
use dfcp_command::text::printable;
use dfcp_command::{Failure, Profile, block_on, fail};
use dfcp_proxy::{Client, Event, Report};
use place::Place;

use crate::memory;
use crate::metrics::{Exporter, Source};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[group(skip)] // its parts have one
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    client: client::Args,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Serves: connects to where the keys that are allowed ask for
    Serve(Box<serve::Args>),
}

/// What both sides take.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Common {
    /// Transport of what this side sends; the other side follows
    #[arg(long, value_parser = dfcp_command::profile::parser_of(fits), default_value = "auto")]
    profile: Profile,
    /// Silence after which the other side is given up; a client that has had no connection yet ends after
    /// as long, one that has had one tries for another without end
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = dfcp_command::units::patience)]
    pub(super) timeout: Duration,
    /// Answer Prometheus at this port, of this machine unless an address is given: /metrics, /healthz
    #[arg(long, value_name = "[ADDR:]PORT")]
    metrics: Option<Place>,
    /// Tell of each connection
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// The parts of a profile that a proxy can use.
///
/// # Errors
/// Why it cannot.
pub fn sealed(profile: Profile) -> Result<dfcp::Profile, Failure> {
    let Some(sealed) = profile.sealed() else {
        let why = "published profiles carry one stream in clear, and no proxy; --profile auto, \
                   ctcp, chameleon and the like do";
        return Err(Failure::usage(why));
    };
    if !profile.gives_way() {
        let why = "a proxy is for networks that others use too, where this profile gives way to \
                   nobody; --profile auto, ctcp and chameleon do";
        return Err(Failure::usage(why));
    }
    Ok(sealed)
}

/// Whether a proxy can use `profile`: many streams, sealed, on networks that others use too.
pub fn fits(profile: Profile) -> bool {
    profile.sealed().is_some() && profile.gives_way()
}

impl Common {
    /// Shows what a client of a proxy carries to whoever asks for it.
    pub(super) fn show(&self, exporter: Exporter, client: &Client, endpoint: &Endpoint) {
        exporter.announce(|line| self.say(line));
        let watched = client.clone();
        let source = Source {
            endpoint: endpoint.clone(),
            traffic: Some(client.traffic().clone()),
            server: None,
            files: None,
            links: None,
            ailing: Arc::new(move || watched.why_down().map(|why| why.to_string())),
        };
        tokio::spawn(exporter.serve(source));
    }

    pub(super) fn transport(
        &self,
        exporter: Option<&Exporter>,
    ) -> Result<TransportConfig, Failure> {
        let profile = sealed(self.profile)?;
        let transport = TransportConfig::default()
            .idle_timeout(self.timeout)
            .profile(profile);
        let transport = dfcp_proxy::transport(transport);
        Ok(match exporter {
            Some(exporter) => exporter.observe(transport),
            None => transport,
        })
    }

    /// Where it is asked for what is counted, if anywhere.
    pub(super) async fn exporter(&self) -> Result<Option<Exporter>, Failure> {
        match self.metrics {
            Some(Place(at)) => Ok(Some(Exporter::bind(at).await?)),
            None => Ok(None),
        }
    }

    pub(super) fn say(&self, message: impl std::fmt::Display) {
        if !self.quiet {
            dfcp_command::tell!("dfcp: {}", printable(&message.to_string()));
        }
    }

    /// Tells of what happens: of single connections if that is wanted.
    pub(super) fn report(&self) -> Report {
        let common = self.clone();
        Arc::new(move |event| {
            if common.verbose || !is_single(&event) {
                common.say(event);
            }
        })
    }
}

/// Whether an event is that of one carried connection, of which there may be many.
pub(super) fn is_single(event: &Event) -> bool {
    match event {
        Event::Of(_, event) => is_single(event),
        Event::Opened(_) | Event::Failed { .. } | Event::Misled(_) | Event::Unassociated(_) => true,
        _ => false,
    }
}

/// Runs a client or a server until it is told to end.
pub fn run(args: Args) -> ExitCode {
    super::take_open_files();
    let result = block_on(async {
        tokio::spawn(memory::give_back());
        match args.command {
            Some(Command::Serve(serve)) => serve::serve(*serve).await,
            None => client::carry(args.client).await,
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}
