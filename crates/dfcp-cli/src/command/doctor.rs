//! `dfcp doctor` and `dfcp probe`: what is wrong here and on the way to a host, and what to do.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use dfcp::{Connection, ConnectionError, Endpoint, EndpointConfig, Error, Profile, PublicKey};
use dfcp_command::text::printable;
use dfcp_command::{Failure, Kind, block_on, interrupted, output, units};
use dfcp_transfer::INTERRUPTED;
use serde::Serialize;

use super::peer::{OVER, PeerOptions};
use super::{farewell, transport};
use crate::door::invitation;
use crate::net::Host;
use crate::probe::finding::{Finding, Grade, findings};
use crate::probe::near::{self, Path};
use crate::probe::reach::{Doubt, Obstacle, is_without_route};
use crate::probe::system;

/// Arguments of `dfcp doctor`.
#[derive(Clone, Debug, clap::Args)]
pub struct DoctorArgs {
    /// A host that runs `dfcp recv` and takes files from this key: the way to it is measured too
    host: Option<Host>,
    #[command(flatten)]
    options: Options,
}

/// Arguments of `dfcp probe`.
#[derive(Clone, Debug, clap::Args)]
pub struct ProbeArgs {
    /// A host that runs `dfcp recv` and takes files from this key
    host: Host,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Debug, clap::Args)]
struct Options {
    #[command(flatten)]
    peer: PeerOptions,
    /// How long measuring may take; it takes what the path carries meanwhile, 400 MB at most each way
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = measuring_time)]
    time: Duration,
    /// Print one JSON object on standard output, also on failure
    #[arg(long)]
    json: bool,
}

/// Shorter than two seconds nothing can be said of a path; a receiver measures ten each way.
fn measuring_time(text: &str) -> Result<Duration, String> {
    match units::duration(text)? {
        time if (2..=30).contains(&time.as_secs()) => Ok(time),
        _ => Err("between 2s and 30s".into()),
    }
}

/// What was found out.
#[derive(Clone, Debug, Serialize)]
struct Diagnosis {
    role: &'static str,
    host: Option<String>,
    remote: Option<SocketAddr>,
    /// The other side's key.
    peer: Option<String>,
    /// Whether something answered over UDP.
    reachable: Option<bool>,
    /// How long the handshake took, and with it the first answer.
    handshake_ms: Option<f64>,
    path: Option<Path>,
    findings: Vec<Finding>,
    error: Option<Failure>,
    exit_code: u8,
}

impl Diagnosis {
    fn new(role: &'static str, host: Option<&Host>) -> Self {
        Self {
            role,
            host: host.map(Host::to_string),
            remote: None,
            peer: None,
            reachable: None,
            handshake_ms: None,
            path: None,
            findings: Vec::new(),
            error: None,
            exit_code: 0,
        }
    }

    /// Prints it.
    fn show(mut self, json: bool, result: Result<(), Failure>) -> ExitCode {
        self.error = result.err();
        self.exit_code = self.error.as_ref().map_or(0, |error| error.kind as u8);
        let mut lines = String::new();
        for finding in &self.findings {
            let mark = match finding.grade {
                Grade::Good => "ok  ",
                Grade::Note => "note",
                Grade::Bad => "BAD ",
            };
            let found = printable(&finding.found);
            lines += &format!("{mark} {:<14} {found}\n", finding.subject);
            if let Some(advice) = &finding.advice {
                lines += &format!("     {:<14} -> {}\n", "", printable(advice));
            }
        }
        let printed = match json {
            true => output::json(&self)
                .and_then(|line| output::print_at_end(move || dfcp_command::print_whole(line))),
            // As where nobody answers a probe.
            false if lines.is_empty() => Ok(()),
            false => output::print_at_end(move || dfcp_command::print(lines.trim_end())),
        };
        if let Some(error) = &self.error {
            dfcp_command::tell!("dfcp: {}", printable(&error.message));
        }
        match printed {
            // What went wrong before that is the better answer.
            Err(failure) if self.exit_code == 0 => dfcp_command::fail(&failure),
            Err(_) | Ok(()) => ExitCode::from(self.exit_code),
        }
    }
}

/// Runs `dfcp doctor`.
pub fn run(args: DoctorArgs) -> ExitCode {
    let mut diagnosis = Diagnosis::new("doctor", args.host.as_ref());
    let result = block_on(async {
        let key = dfcp::generate_key()?;
        let endpoint = Endpoint::bind(EndpointConfig::client(key))?;
        diagnosis.findings = system::findings(endpoint.socket_buffers());
        match &args.host {
            Some(host) => examine(host, &args.options, &mut diagnosis).await,
            None => Ok(()),
        }
    });
    diagnosis.show(args.options.json, result)
}

/// Runs `dfcp probe`.
pub fn run_probe(args: ProbeArgs) -> ExitCode {
    let mut diagnosis = Diagnosis::new("probe", Some(&args.host));
    let result = block_on(examine(&args.host, &args.options, &mut diagnosis));
    diagnosis.show(args.options.json, result)
}

/// How long reaching a host may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Silence in which a path is given up.
const SILENCE: Duration = Duration::from_secs(5);

async fn examine(host: &Host, options: &Options, said: &mut Diagnosis) -> Result<(), Failure> {
    let key = options.peer.own_key()?;
    let own = key.public();
    let known = options.peer.known_key(host)?;
    let addresses = host.resolve(options.peer.family()).await?;
    let endpoint = |profile| {
        let config = EndpointConfig::client(key.clone());
        Endpoint::bind(config.transport(transport(SILENCE).profile(profile)))
    };
    let (first, mut slow) = (endpoint(Profile::auto())?, None);
    let work = async {
        let (connection, remote) = reach(host, &addresses, &first, known, said, &own).await?;
        if known.is_none() {
            said.findings.push(Finding::note(
                "key",
                format!("{} is not known here", connection.peer()),
                "compare it with what `dfcp recv` prints there; `dfcp send` asks and remembers it",
            ));
        }
        let peer = connection.peer();
        let again = async |profile| {
            let endpoint = slow.insert(endpoint(profile)?);
            Ok(endpoint.connect(remote, peer).await?)
        };
        let path = near::measure(options.time, &connection, again).await;
        let path = path.map_err(|failure| match failure.kind {
            Kind::Authentication => stranger(&own),
            _ => failure,
        })?;
        said.findings.extend(findings(&path));
        said.path = Some(path);
        Ok(())
    };
    let result = tokio::select! {
        result = work => result,
        failure = interrupted() => Err(failure),
    };
    // A receiver measures for one at a time: it is told that this is over.
    for endpoint in [Some(&first), slow.as_ref()].into_iter().flatten() {
        farewell(endpoint, INTERRUPTED, "").await;
    }
    result
}

/// Connects, or says why that cannot be.
async fn reach(
    host: &Host,
    addresses: &[SocketAddr],
    endpoint: &Endpoint,
    known: Option<PublicKey>,
    said: &mut Diagnosis,
    own: &PublicKey,
) -> Result<(Connection, SocketAddr), Failure> {
    let unreachable = |why: Obstacle| {
        let why = why.explain(&host.to_string(), host.port());
        Failure::new(Kind::Unreachable, why)
    };
    if is_without_route(addresses) {
        said.reachable = Some(false);
        return Err(unreachable(Obstacle::NoRoute));
    }
    let (start, mut why) = (Instant::now(), Doubt::start(addresses.to_vec()));
    let answer = tokio::time::timeout(CONNECT_LIMIT, endpoint.connect(addresses, known));
    let connected = match why.answer(answer).await {
        Ok(connected) => connected,
        Err(obstacle) => {
            said.reachable = Some(false);
            return Err(unreachable(obstacle));
        }
    };
    let taken = start.elapsed();
    let silent = matches!(
        connected,
        Err(_)
            | Ok(Err(
                Error::Connection(ConnectionError::Unreachable) | Error::Io(_)
            ))
    );
    said.reachable = Some(!silent);
    if silent {
        return Err(unreachable(why.found().await));
    }
    said.handshake_ms = Some(taken.as_secs_f64() * 1e3);
    said.findings.push(Finding::good(
        "reachable",
        format!(
            "answers over UDP; handshake in {:.1} ms",
            taken.as_secs_f64() * 1e3
        ),
    ));
    match connected {
        Ok(Ok(connection)) => {
            said.peer = Some(connection.peer().to_string());
            let gone = || Failure::new(Kind::Unreachable, "it answered and fell silent");
            let remote = connection.remote_address().ok_or_else(gone)?;
            said.remote = Some(remote);
            Ok((connection, remote))
        }
        Ok(Err(Error::Connection(ConnectionError::Refused))) => Err(stranger(own)),
        Ok(Err(Error::Connection(ConnectionError::Expired))) => Err(Failure::new(
            Kind::Authentication,
            format!("it answers, so UDP gets through, but {OVER}"),
        )),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Failure::new(Kind::Unreachable, "no answer")),
    }
}

/// What to do where the other side does not know this one's key.
fn stranger(own: &PublicKey) -> Failure {
    Failure::new(
        Kind::Authentication,
        format!(
            "it answers, so UDP gets through, but only senders that it knows are measured; there: {}",
            invitation(own)
        ),
    )
}
