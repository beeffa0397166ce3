//! The client: one device, and a link to the server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dfcp_proxy::{Down, Link, Remote};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::device::Device;
use crate::event::{Event, Report};
use crate::hello;
use crate::nets::{Net, Table};
use crate::session;
use crate::site::{Mtu, Peer, Site};
use crate::stats::Stats;

/// What a client is made of.
pub struct ClientConfig {
    /// Where packets come out and in.
    pub device: Device,
    /// Longest packets, and how long they may be at first.
    pub mtu: (Mtu, usize),
    /// The server.
    pub remote: Remote,
    /// This side's addresses.
    pub addresses: Vec<Net>,
    /// Networks behind the server: packets to them go there, packets from others are not taken.
    pub networks: Vec<Net>,
    /// How long a repair is of use; about a round trip unless set.
    pub delay: Option<Duration>,
    /// How often it is told what connections carry; not at all unless set.
    pub tell: Option<Duration>,
    /// Hears what happens.
    pub report: Report,
}

/// A client; it ends when it is dropped.
pub struct Client {
    link: Link,
    site: Arc<Site>,
    addresses: Vec<Net>,
    tell: Option<Duration>,
    keep: AbortHandle,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.keep.abort();
    }
}

impl Client {
    /// Connects, and keeps connected; call within a tokio runtime.
    pub fn start(config: ClientConfig) -> Self {
        let peer = Peer::new(config.remote.key);
        let networks = config.networks.into_iter().map(|net| (net, 0));
        // One owner alone cannot have a network twice.
        let table = Table::new(networks).unwrap_or_else(|_| Table::default());
        let report = config.report;
        let told = report.clone();
        let of_link = Arc::new(move |event| told(Event::Connection(event)));
        let (link, keep) = Link::start(config.remote, of_link);
        let mut site = Site::new(config.device, vec![peer], table, config.mtu, report);
        site.delay = config.delay;
        Self {
            link,
            site: Arc::new(site),
            addresses: config.addresses,
            tell: config.tell,
            keep: tokio::spawn(keep).abort_handle(),
        }
    }

    /// Waits until there is a connection and the server has let this client in, `limit` at most.
    ///
    /// # Errors
    /// Why the last attempt failed; more are made all the same.
    pub async fn ready(&self, limit: Duration) -> Result<(), Down> {
        match timeout(limit, self.link.admitted()).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(self.link.why_down()),
        }
    }

    /// Waits until a key turns out to be wrong, this side's or the server's.
    pub async fn turned_away(&self) -> Down {
        self.link.turned_away().await
    }

    /// What was carried so far.
    pub fn stats(&self) -> Stats {
        self.site.peers[0].stats()
    }

    /// Carries packets over one connection after another. Ends with the device.
    ///
    /// # Errors
    /// What became of the device.
    pub async fn run(&self) -> io::Error {
        let carry = async {
            while let Some(connection) = self.link.established().await {
                tokio::join!(
                    session::carry(&self.site, 0, &connection),
                    self.check(&connection),
                );
                self.link.replaced(&connection).await;
            }
        };
        // Whoever sends packets notices every second without a link.
        let wanted = async {
            loop {
                self.site.peers[0].missed.notified().await;
                self.link.want();
            }
        };
        tokio::select! {
            () = carry => io::Error::other("the endpoint was closed"),
            () = wanted => io::Error::other("nobody sends"),
            error = self.site.forward() => error,
            () = self.site.tell(self.tell) => io::Error::other("nobody listens"),
        }
    }

    /// Asks the server whether this side's addresses are those of its key.
    async fn check(&self, connection: &dfcp::Connection) {
        match hello::ask(connection, &self.addresses).await {
            Ok(Some((addresses, allowed))) if !addresses.is_empty() => {
                (self.site.report)(Event::NotOurs { addresses, allowed });
            }
            Ok(None) => (self.site.report)(Event::NotALink),
            Ok(Some(_)) | Err(_) => {}
        }
    }
}
