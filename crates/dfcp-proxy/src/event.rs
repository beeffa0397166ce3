//! What a client or a server has to say.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dfcp::{PublicKey, Rate};
use tokio::time::Instant;

use crate::status::{Refusal, Status};
use crate::target::Target;

/// Takes events; called where it must not block.
pub type Report = Arc<dyn Fn(Event) + Send + Sync>;

/// What recurs is told once, until it has not been for so long: near a limit each connection that ends lets one
/// other in, and the next one meets it again.
const RECOVERED: Duration = Duration::from_secs(60);

/// When something that recurs was so last.
#[derive(Debug, Default)]
pub(crate) struct Recurring(Option<Instant>);

impl Recurring {
    /// Whether it is worth telling that it is so at `now`.
    pub fn is_news(&mut self, now: Instant) -> bool {
        let before = self.0.replace(now);
        before.is_none_or(|before| now.duration_since(before) > RECOVERED)
    }
}

/// Something that happened. `Display` puts it in words.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A client's connection to its server is there.
    Connected(SocketAddr),
    /// It is lost; another one is tried for.
    Lost(String),
    /// There is none, and why; it is tried again.
    Unreachable(String),
    /// The server listens for a forward.
    Listening {
        /// Where, at the server.
        at: String,
        /// Where what comes goes to.
        to: Target,
    },
    /// The server does not listen for a forward, and why; it is asked again.
    NotListening {
        /// Where it should.
        at: Target,
        /// Why it does not.
        why: String,
    },
    /// A client came to a server.
    Came {
        /// Its key.
        peer: PublicKey,
        /// From where.
        from: SocketAddr,
    },
    /// It left, or was lost.
    Left(PublicKey),
    /// What a key carries is slowed to its rate.
    Slowed {
        /// The key.
        peer: PublicKey,
        /// Its rate, each way.
        rate: Rate,
    },
    /// A key carries nothing any more for a while, and why.
    Exhausted {
        /// The key.
        peer: PublicKey,
        /// What it has used up, and when there is more.
        why: String,
    },
    /// A connection is carried to there.
    Opened(Target),
    /// None is, and why.
    Failed {
        /// Where it should have gone.
        target: Target,
        /// Why it does not.
        refusal: Refusal,
    },
    /// A program that came to a local port asked for nothing that can be given.
    Misled(String),
    /// A program may not send datagrams, and why.
    Unassociated(Refusal),
    /// A local port refuses everybody just now, as when there are too many open files.
    Stuck(String),
    /// A server refuses its clients something that it lacks just now, as open files.
    Lacking(String),
    /// At a server: what happened was for the client with this key.
    Of(PublicKey, Box<Event>),
}

impl Event {
    /// How an attempt to connect ended, if it tells of one.
    pub(crate) fn outcome(&self) -> Option<Status> {
        match self {
            Self::Opened(_) => Some(Status::Connected),
            Self::Failed { refusal, .. } | Self::Unassociated(refusal) => Some(refusal.status),
            Self::Of(_, event) => event.outcome(),
            _ => None,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected(remote) => write!(f, "connected to {remote}"),
            Self::Lost(why) => write!(f, "the connection to the server is lost: {why}"),
            Self::Unreachable(why) => write!(f, "no connection to the server: {why}; trying again"),
            Self::Listening { at, to } => write!(f, "the server listens at {at} for {to}"),
            Self::NotListening { at, why } => {
                write!(f, "the server does not listen at {at}: {why}; trying again")
            }
            Self::Came { peer, from } => write!(f, "{from} connected, {peer}"),
            Self::Left(peer) => write!(f, "{peer} left"),
            Self::Slowed { peer, rate } => {
                write!(
                    f,
                    "{peer} is slowed to its {} bit/s each way",
                    rate.as_bps()
                )
            }
            Self::Exhausted { peer, why } => write!(f, "{peer} is refused: {why}"),
            Self::Opened(target) => write!(f, "connected to {target}"),
            Self::Failed { target, refusal } => write!(f, "not connected to {target}: {refusal}"),
            Self::Misled(why) => write!(f, "a program at a local port was refused: {why}"),
            Self::Unassociated(refusal) => {
                write!(f, "datagrams of a program are not carried: {refusal}")
            }
            Self::Stuck(why) => write!(f, "programs are refused at a local port now: {why}"),
            Self::Lacking(why) => write!(f, "clients are refused connections now: {why}"),
            Self::Of(peer, event) => write!(f, "{peer}: {event}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_for_long_is_told_once() {
        let (mut stuck, mut now) = (Recurring::default(), Instant::now());
        assert!(stuck.is_news(now));
        for _ in 0..10_000 {
            now += RECOVERED / 600;
            assert!(!stuck.is_news(now));
        }
        assert!(stuck.is_news(now + 2 * RECOVERED));
    }
}
