//! The driver's side of a sealed connection: its channels, and who waits for what.

use crate::shared::{News, Waiting};
use crate::wait_list::WaitList;
use dfcp_proto::{ChannelId, Connection, ConnectionError, Endpoint, Event, Instant, VarInt};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::Notify;

/// What became of a channel, beyond what the core still knows.
#[derive(Debug, Default)]
pub(crate) struct ChannelState {
    /// All that was written is accounted for; so many bytes were given up.
    pub(crate) acknowledged: Option<u64>,
    /// The peer stopped our sending with this code.
    pub(crate) stopped: Option<VarInt>,
    /// We gave our sending up.
    pub(crate) reset: bool,
    pub(crate) waiting: WaitList,
    /// Streams and objects that use it; the last one takes this state with it.
    holders: usize,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    pub(crate) error: Option<ConnectionError>,
    /// The peer knows that it is over, or had the time to learn it.
    over: bool,
    pub(crate) channels: HashMap<ChannelId, ChannelState>,
    pub(crate) opened: [VecDeque<ChannelId>; 3],
    /// Who waits for what; who waits no longer is not remembered.
    pub(crate) changes: Arc<Changes>,
    pub(crate) datagram_writers: WaitList,
}

/// What may happen to a connection that somebody waits for.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The handshake is done, or confirmed, or the connection is over.
    pub(crate) phase: Notify,
    /// The peer opened a channel, of each kind.
    pub(crate) opened: [Notify; 3],
    /// A channel more may be opened: one of those that wait is told of each.
    pub(crate) room: Notify,
    pub(crate) datagrams: Notify,
}

impl ConnectionState {
    /// A stream or object uses a channel from now on.
    pub(crate) fn hold(&mut self, id: ChannelId) {
        self.channels.entry(id).or_default().holders += 1;
    }

    /// And no longer.
    pub(crate) fn let_go(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.holders = channel.holders.saturating_sub(1);
            if channel.holders == 0 {
                self.channels.remove(&id);
            }
        }
    }

    /// Why the connection is over, if it is.
    pub(crate) fn alive(&self) -> Result<(), ConnectionError> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Has the task woken by what happens to a channel.
    pub(crate) fn wait<T>(&mut self, id: ChannelId, context: &Context<'_>) -> Poll<T> {
        let channel = self.channels.entry(id).or_default();
        channel.waiting.register(context);
        Poll::Pending
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected { .. } | Event::Confirmed => self.changes.phase.notify_waiters(),
            Event::Datagram => self.changes.datagrams.notify_waiters(),
            Event::Opened(id) => {
                self.channels.entry(id).or_default();
                let kind = id.kind() as usize;
                self.opened[kind].push_back(id);
                self.changes.opened[kind].notify_waiters();
            }
            Event::ChannelRoom => self.changes.room.notify_one(),
            // Who reads learns of a reset from the core.
            Event::Readable(id) | Event::Writable(id) | Event::Reset { channel: id, .. } => {
                self.on_channel(id, |_| {});
            }
            Event::DatagramRoom => self.datagram_writers.wake(),
            Event::Acknowledged(id) => self.on_acknowledged(id, 0),
            Event::PartlyAcknowledged { channel, abandoned } => {
                self.on_acknowledged(channel, abandoned);
            }
            Event::Stopped { channel, code } => {
                self.on_channel(channel, |channel| channel.stopped = Some(code));
            }
            Event::Closed(error) => {
                self.error = Some(error);
                self.wake();
            }
            _ => {}
        }
    }

    fn on_acknowledged(&mut self, id: ChannelId, abandoned: u64) {
        self.on_channel(id, |channel| channel.acknowledged = Some(abandoned));
    }

    /// Our sending on a channel is given up: who waits for its delivery waits no longer.
    pub(crate) fn on_reset(&mut self, id: ChannelId) {
        self.on_channel(id, |channel| channel.reset = true);
    }

    /// Something became of a channel; nobody is told if nobody holds it any more.
    fn on_channel(&mut self, id: ChannelId, change: impl FnOnce(&mut ChannelState)) {
        if let Some(channel) = self.channels.get_mut(&id) {
            change(channel);
            channel.waiting.wake();
        }
    }
}

impl Waiting for ConnectionState {
    type Core = Endpoint;

    fn collect(&mut self, connection: &mut Connection, is_held: bool) -> News {
        let mut news = News::default();
        while let Some(event) = connection.poll_event() {
            news.unwanted |= !is_held && matches!(event, Event::Opened(_));
            news.milestone |= matches!(event, Event::Connected { .. } | Event::Confirmed);
            self.on_event(event);
        }
        self.over = connection.is_closed();
        news
    }

    fn release(&mut self, now: Instant, connection: &mut Connection) {
        connection.close_when_delivered(now);
    }

    fn is_over(&self, connection: &Connection) -> bool {
        connection.is_closed()
    }

    fn is_idle(&self, _is_held: bool) -> bool {
        self.over
    }

    fn wake(&mut self) {
        let Changes {
            phase,
            opened,
            room,
            datagrams,
        } = &*self.changes;
        let each = opened.iter().chain([phase, room, datagrams]);
        each.for_each(Notify::notify_waiters);
        self.datagram_writers.wake();
        self.channels.values_mut().for_each(|c| c.waiting.wake());
    }
}
