//! Which receiver is meant, and with which key it is asked.

use std::path::PathBuf;

use dfcp::{PublicKey, StaticKey};
use dfcp_command::Failure;

use crate::keys;
use crate::known_hosts::KnownHosts;
use crate::net::{Family, Host};

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
