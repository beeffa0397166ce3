//! What a driver sees of either side of a meeting.

use std::net::SocketAddr;

use dfcp_proto::{Instant, PublicKey};

use crate::wire::Gone;

/// A datagram to send, and where to.
pub type Datagram = (SocketAddr, Vec<u8>);

/// The path that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where the peer is reached.
    pub remote: SocketAddr,
    /// Whether that is the server's relay.
    pub relayed: bool,
    /// Sender: what tells the receiver that this path is taken, to be repeated until it shows that
    /// it knows, by its answer to the connection's first packets.
    pub notice: Option<Vec<u8>>,
}

/// What a driver is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Sender: the code has this number now and can be told.
    Ready(u32),
    /// Sender: the server does not answer, or takes no more; the local network is left.
    WithoutServer(Failure),
    /// The server that has the sender's number has not answered for a while: nobody elsewhere finds it.
    ServerLost,
    /// It answers again, and the number is good there.
    ServerBack,
    /// Sender: somebody used wrong words; so many guesses are left.
    WrongGuess(u8),
    /// The other side knows the words and has this key.
    Met(PublicKey),
    /// A path to it. This is the last event.
    Found(Path),
    /// It ended otherwise. This is the last event.
    Failed(Failure),
}

/// Why there is no meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Receiver: those are not the words; so many guesses are left.
    #[error("wrong code")]
    WrongCode(u8),
    /// The server says that the number leads nowhere, or the sender that its code is over.
    #[error("the code is not good any more")]
    Gone(Gone),
    /// Receiver: nobody answered to the number.
    #[error("nobody answers to this code")]
    NotFound,
    /// The server does not answer.
    #[error("the server does not answer")]
    ServerSilent,
    /// The server takes no more.
    #[error("the server is busy")]
    ServerBusy,
    /// The other side was found and fell silent.
    #[error("the other side fell silent")]
    Silent,
    /// The two do not reach each other, and the server relays nothing.
    #[error("no path between the two")]
    NoPath,
    /// The same, and the server's relay does not help either.
    #[error("no path between the two, not even over the relay")]
    NoRelay,
}

/// A side of a meeting, driven like the protocol core: datagrams and time go in, datagrams, events
/// and the time of the next timer come out.
pub trait Machine {
    /// A datagram came from `from`. Anything may be in it.
    fn handle(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]);
    /// The time that [`Machine::timeout`] said has come.
    fn on_timeout(&mut self, now: Instant);
    /// The next datagram to send.
    fn transmit(&mut self) -> Option<Datagram>;
    /// When to call [`Machine::on_timeout`].
    fn timeout(&self) -> Option<Instant>;
    /// What happened.
    fn event(&mut self) -> Option<Event>;
}
