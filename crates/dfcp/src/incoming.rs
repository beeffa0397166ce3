//! Clients that proved their keys, before they are accepted.

use crate::connection::Connection;
use dfcp_proto::{Application, CloseCode, PublicKey};
use std::net::SocketAddr;

/// A client that has completed its handshake: its address was validated and its key is proved, for
/// nothing is kept of a client before. A decision that needs no more than the key is cheaper in
/// [`EndpointConfig::authorize`](crate::EndpointConfig::authorize), which comes earlier.
///
/// While it waits it takes one of
/// [`EndpointConfig::max_connections`](crate::EndpointConfig::max_connections), and what it sends is
/// held, as far as the budget goes; also when the client has left meanwhile, for what it sent can
/// still be read. So no more than these ever wait, and who accepts nobody for long lets nobody new in.
/// Dropping it refuses the client.
#[derive(Debug)]
pub struct Incoming {
    connection: Option<Connection>,
}

impl Incoming {
    pub(crate) fn new(connection: Connection) -> Self {
        let connection = Some(connection);
        Self { connection }
    }

    fn connection(&self) -> &Connection {
        let connection = self.connection.as_ref();
        connection.expect("only what consumes an Incoming takes its connection")
    }

    /// The key that the client proved.
    pub fn peer(&self) -> PublicKey {
        self.connection().peer()
    }

    /// What the client is there for, if it said so ([`TransportConfig::application`](crate::TransportConfig)).
    pub fn application(&self) -> Option<Application> {
        self.connection().application()
    }

    /// The client's address now; `None` once the endpoint ended.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.connection().remote_address()
    }

    /// Whether the client has shown that it receives at this address: so it was at the handshake; one
    /// that moved since has yet to.
    pub fn is_validated(&self) -> bool {
        let handle = &self.connection().handle;
        handle.look(|connection, _| connection.is_validated()) == Some(true)
    }

    /// Takes the connection.
    pub fn accept(mut self) -> Connection {
        let connection = self.connection.take();
        connection.expect("only what consumes an Incoming takes its connection")
    }

    /// Closes the connection: the client learns
    /// [`ConnectionError::Refused`](crate::ConnectionError::Refused), whatever it has sent so far.
    pub fn refuse(self) {
        drop(self);
    }

    /// The same, where the key was accepted for a time that is over:
    /// [`ConnectionError::Expired`](crate::ConnectionError::Expired).
    pub fn expired(mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close(CloseCode::EXPIRED, "the key's time is over");
        }
    }

    /// Closes the connection since the client is there for something else than is served: it learns
    /// [`ConnectionError::NotOffered`](crate::ConnectionError::NotOffered) with `what` is.
    pub fn not_offered(mut self, what: &str) {
        if let Some(connection) = self.connection.take() {
            connection.close(CloseCode::NOT_OFFERED, what);
        }
    }

    /// Forgets the client without a word: it hears nothing more, not even that the connection is
    /// unknown here, until its own timeouts end it.
    pub fn ignore(mut self) {
        let connection = self.connection.take();
        if let Some(connection) = connection {
            let ignore = |now, core: &mut dfcp_proto::Endpoint, id| core.ignore(now, id);
            connection.handle.dismiss(ignore);
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close(CloseCode::REFUSED, "not accepted");
        }
    }
}
