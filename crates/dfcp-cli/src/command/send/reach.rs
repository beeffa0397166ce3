//! From a host's name to a connection with the receiver there, and why there is none.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dfcp::{Connection, ConnectionError, Endpoint, Error, PublicKey};
use dfcp_command::{Failure, Kind};

use super::Args;
use crate::command::peer::{NOT_TAKEN, OVER};
use crate::door::invitation;
use crate::files;
use crate::known_hosts::{self, KnownHosts};
use crate::net::Host;
use crate::probe::reach::{Doubt, Obstacle, is_without_route};

/// How long reaching a receiver may take in all.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Connects to a receiver that proves the right key; `asked` is how long a person was asked about it.
pub(super) async fn connect(
    args: &Args,
    host: &Host,
    endpoint: &Endpoint,
    own: &PublicKey,
    asked: &mut Duration,
) -> Result<(Connection, SocketAddr), Failure> {
    let known_hosts = match args.peer.peer_key {
        Some(_) => None,
        None => Some(args.peer.known_hosts()?),
    };
    let known = match &known_hosts {
        Some(known_hosts) => known_hosts.find(host)?,
        None => args.peer.peer_key,
    };
    let addresses = host.resolve(args.peer.family()).await;
    // The last of several names is the host's: a mistake in a file's name ends up here, too.
    let addresses = addresses.map_err(|mut failure| {
        failure.message = format!("no file of this name is here, and {}", failure.message);
        failure
    })?;
    args.check_network(&addresses)?;
    if is_without_route(&addresses) {
        return Err(silent(host, Obstacle::NoRoute));
    }
    let mut why = Doubt::start(addresses.clone());
    let answer = tokio::time::timeout(CONNECT_LIMIT, endpoint.connect(&addresses[..], known));
    let reached = why.answer(answer).await;
    let reached = reached.map_err(|obstacle| silent(host, obstacle))?;
    let connection = match reached {
        Ok(Ok(connection)) => connection,
        Err(_) | Ok(Err(Error::Connection(ConnectionError::Unreachable))) => {
            return Err(silent(host, why.found().await));
        }
        Ok(Err(error)) => return Err(explain(error, host, own, known, known_hosts.as_ref())),
    };
    let gone = || {
        Failure::new(
            Kind::Unreachable,
            format!("{host} answered and fell silent: try again, or give --retry 10m"),
        )
    };
    let remote = connection.remote_address().ok_or_else(gone)?;
    if let (Some(known_hosts), None) = (&known_hosts, known) {
        let (name, key, start) = (host.clone(), connection.peer(), Instant::now());
        let answer = tokio::task::spawn_blocking(move || known_hosts::ask(&name, &key)).await;
        *asked = start.elapsed();
        answer.map_err(std::io::Error::other)??;
        known_hosts.add(host, &key)?;
        args.output
            .say(format!("added {host} to {}", known_hosts.path().display()));
    }
    Ok((connection, remote))
}

fn silent(host: &Host, why: Obstacle) -> Failure {
    let message = why.explain(&host.to_string(), host.port());
    Failure::new(
        Kind::Unreachable,
        format!("{message}. `dfcp doctor {host}` says more"),
    )
}

/// Says what to do when the receiver does not know this side's key.
pub(super) fn refused_or(error: Error, own: &PublicKey) -> Failure {
    match error {
        Error::Connection(ConnectionError::Refused) => {
            let message = format!("the receiver {NOT_TAKEN}; there: {}", invitation(own));
            Failure::new(Kind::Authentication, message)
        }
        Error::Connection(ConnectionError::Expired) => {
            Failure::new(Kind::Authentication, format!("the receiver {OVER}"))
        }
        error => files::broken(error),
    }
}

fn explain(
    error: Error,
    host: &Host,
    own: &PublicKey,
    known: Option<PublicKey>,
    known_hosts: Option<&KnownHosts>,
) -> Failure {
    match (error, known, known_hosts) {
        (Error::Connection(ConnectionError::WrongKey { found }), Some(known), Some(file)) => {
            file.changed(host, &known, &found)
        }
        (error @ Error::Connection(ConnectionError::WrongKey { .. }), ..) => Failure::new(
            Kind::Authentication,
            format!("{host}: {error}; nothing was sent"),
        ),
        (error, ..) => refused_or(error, own),
    }
}
