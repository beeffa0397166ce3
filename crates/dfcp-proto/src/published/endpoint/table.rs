//! The connections of an endpoint, found by ports.

use super::super::connection::Connection;
use crate::host::ConnectionHandle;
use crate::table::{self, Member};
use crate::time::{Duration, Instant};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What a packet says about whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ports {
    /// Address of the carrier.
    pub remote: SocketAddr,
    /// Port of the peer.
    pub remote_port: u16,
    /// Port of this side.
    pub local_port: u16,
}

impl Member for Connection {
    fn next_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    /// Its timers are the reports' own: they say nothing of when packets arrived.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) connections: table::Table<ConnectionHandle, Connection>,
    ports: BTreeMap<Ports, ConnectionHandle>,
    next: u64,
}

fn ports_of(connection: &Connection) -> Ports {
    let (local_port, remote_port) = connection.ports();
    Ports {
        remote: connection.remote(),
        remote_port,
        local_port,
    }
}

impl Table {
    /// Adds a connection, touched.
    pub fn insert(&mut self, connection: Connection) -> ConnectionHandle {
        let handle = ConnectionHandle(self.next);
        self.next += 1;
        self.ports.insert(ports_of(&connection), handle);
        self.connections.insert(handle, connection);
        handle
    }

    pub fn find(&self, ports: &Ports) -> Option<ConnectionHandle> {
        self.ports.get(ports).copied()
    }

    pub fn remove(&mut self, handle: ConnectionHandle) {
        self.unbind(handle);
        self.connections.remove(handle);
    }

    /// Gives the connection's ports free.
    pub fn unbind(&mut self, handle: ConnectionHandle) {
        let Some(ports) = self.connections.get(handle).map(ports_of) else {
            return;
        };
        self.free(handle, &ports);
    }

    /// [`Table::unbind`] for a connection that is not here.
    pub fn free_ports(&mut self, handle: ConnectionHandle, connection: &Connection) {
        self.free(handle, &ports_of(connection));
    }

    fn free(&mut self, handle: ConnectionHandle, ports: &Ports) {
        if self.ports.get(ports) == Some(&handle) {
            self.ports.remove(ports);
        }
    }
}
