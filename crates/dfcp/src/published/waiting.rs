//! The driver's side of a published connection: how it ended, and who waits for what.

use crate::shared::{News, Waiting};
use crate::wait_list::WaitList;
use dfcp_proto::Instant;
use dfcp_proto::published::{Connection, Endpoint, Error, Event, Read, State as Phase};

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    /// Nothing more will be written.
    pub(super) finished: bool,
    /// Why it is over; nothing if it ended in order.
    pub(super) end: Option<Option<Error>>,
    phase: Option<Phase>,
    /// Waits for a change of phase or the end.
    pub(super) waiting: WaitList,
    pub(super) readers: WaitList,
    pub(super) writers: WaitList,
}

impl Waiting for ConnectionState {
    type Core = Endpoint;

    fn collect(&mut self, connection: &mut Connection, is_held: bool) -> News {
        let mut news = News::default();
        while let Some(event) = connection.poll_event() {
            match event {
                // The peer must not go on for ever.
                Event::Readable if !is_held => news.unwanted = true,
                Event::Readable | Event::PeerFinished => self.readers.wake(),
                Event::Writable => self.writers.wake(),
                Event::Closed(why) => {
                    self.end = Some(why);
                    self.wake();
                }
                _ => self.waiting.wake(),
            }
        }
        if self.phase.replace(connection.state()) != self.phase {
            self.waiting.wake();
            news.milestone = true;
        }
        news
    }

    /// What was written and finished still arrives; otherwise the peer must not believe that it has
    /// everything, or that it is heard.
    fn release(&mut self, now: Instant, connection: &mut Connection) {
        let unread = matches!(connection.read(now, &mut [0]), Ok(Read::Data(_)));
        if self.end.is_none() && (unread || !self.finished) {
            connection.abort(now);
        }
    }

    fn is_over(&self, _connection: &Connection) -> bool {
        self.end.is_some()
    }

    /// Over, but for answers to late segments. Unless somebody holds it, what ended stays until
    /// its last packet is sent.
    fn is_idle(&self, is_held: bool) -> bool {
        (self.end.is_some() && is_held) || self.phase == Some(Phase::TimeWait)
    }

    fn wake(&mut self) {
        self.waiting.wake();
        self.readers.wake();
        self.writers.wake();
    }
}
