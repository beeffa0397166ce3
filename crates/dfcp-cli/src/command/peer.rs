//! Which receiver is meant, and with which key it is asked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dfcp::{ConnectionError, Error, PublicKey, StaticKey};
use dfcp_command::{Failure, Kind};
use dfcp_proxy::{Down, Resolve};

use crate::keys;
use crate::known_hosts::KnownHosts;
use crate::net::{Family, Host};

/// What the other side does that does not know this side's key, and that had it in a list.
pub const NOT_TAKEN: &str = "does not take this key";
pub const OVER: &str =
    "does not take this key any more: the day in `until=` of its line there is over";

/// Options of the subcommands that go to a receiver, or to a server.
#[derive(Clone, Debug, clap::Args)]
pub struct PeerOptions {
    /// The other side's public key; without it, known hosts are asked
    #[arg(long, value_name = "KEY")]
    pub peer_key: Option<PublicKey>,
    /// This side's key [default: $XDG_CONFIG_HOME/dfcp/key or ~/.config/dfcp/key]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Keys of known hosts [default: known_hosts beside the default key]
    #[arg(long, value_name = "FILE")]
    pub known_hosts: Option<PathBuf>,
    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6')]
    ipv6: bool,
}

impl PeerOptions {
    /// Finds the addresses of `host` that may be used, as often as it is asked.
    pub fn resolver(&self, host: &Host) -> Resolve {
        let (family, name) = (self.family(), host.clone());
        Arc::new(move || {
            let name = name.clone();
            Box::pin(async move {
                let found = name.resolve(family).await;
                found.map_err(|failure| failure.message)
            })
        })
    }

    /// Why the two sides do not get together, and what to do: the known key of `host`, and the command there
    /// that takes this side's.
    pub fn explain(&self, why: Down, host: &Host, known: &PublicKey, admits: &str) -> Failure {
        let message = match why {
            Down::Connection(ConnectionError::Refused) => {
                format!("the server {NOT_TAKEN}; there: {admits}")
            }
            Down::Connection(ConnectionError::Expired) => format!("the server {OVER}"),
            Down::Connection(ConnectionError::WrongKey { found }) if self.peer_key.is_none() => {
                match self.known_hosts() {
                    Ok(file) => return file.changed(host, known, &found),
                    Err(failure) => return failure,
                }
            }
            Down::Connection(error) => return Failure::from(Error::Connection(error)),
            why => why.to_string(),
        };
        Failure::new(Kind::Authentication, message)
    }

    /// Which addresses may be used.
    pub fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }

    /// This side's key, which is made if there is none.
    ///
    /// # Errors
    /// When it cannot be read or made.
    pub fn own_key(&self) -> Result<StaticKey, Failure> {
        keys::load_or_create(self.key.as_deref())
    }

    /// The receivers that are known.
    ///
    /// # Errors
    /// When there is no home directory to look for them in.
    pub fn known_hosts(&self) -> Result<KnownHosts, Failure> {
        let path = self.known_hosts.clone();
        let path = path.map_or_else(|| keys::config_file("known_hosts"), Ok)?;
        Ok(KnownHosts::new(path))
    }

    /// The key that `host` must prove, if one is known.
    ///
    /// # Errors
    /// When known hosts cannot be read.
    pub fn known_key(&self, host: &Host) -> Result<Option<PublicKey>, Failure> {
        match self.peer_key {
            Some(_) => Ok(self.peer_key),
            None => self.known_hosts()?.find(host),
        }
    }
}

/// Why there was no first connection to a server, and what to do; `serve` should run there.
pub fn no_contact(why: &Down, host: &Host, limit: Duration, serve: &str) -> Failure {
    let seconds = limit.as_secs_f64();
    let mut message = format!("{host}: {why}; gave up after {seconds} s (--timeout)");
    // Who is there and says why needs no doctor.
    if !matches!(why, Down::Connection(ConnectionError::PeerClosed { .. })) {
        message += &format!(
            ". Is `{serve}` running there, and UDP let through? `dfcp doctor {host}` says more"
        );
    }
    Failure::new(Kind::Unreachable, message)
}
