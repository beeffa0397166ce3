//! Datagrams: messages that come whole or not at all, in any order, once. Nothing repeats them; they
//! keep to window and pacing as all data do. They leave before channels' data, unless both wait and
//! datagrams have had more than half of the bytes since: neither starves the other (RFC 9221 §5 leaves
//! the order to the sender). Those that wait for too long make room for newer ones, at both ends.

use super::transmit::{Batch, Contents};
use super::{Connection, Event};
use crate::config::Payload;
use crate::host::MAX_BATCH;
use crate::time::Instant;
use crate::wire::{Frame, SEALED_HEADER_LEN, TAG_LEN, datagram_overhead};
use std::collections::VecDeque;

/// What a waiting datagram counts for beyond its bytes: about what remembering it takes, so that empty
/// ones are bounded too.
const OVERHEAD: usize = 64;

/// Full packets that may wait in any case while there is room: on slow paths one leaves, and the next
/// ones are there before whoever adds more has done so.
const MIN_ROOM: u64 = 4;

/// Why a datagram was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatagramError {
    /// The connection is not established, or over.
    #[error("the connection is closed")]
    Closed,
    /// It is longer than a packet, or all datagrams that may wait.
    #[error("longer than the {0} bytes that a datagram may have now")]
    TooLarge(usize),
    /// Virtual payload has no datagrams.
    #[error("the call is for the other kind of payload")]
    Payload,
}

/// A message that nothing repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    bytes: Vec<u8>,
    is_apart: bool,
}

impl From<Vec<u8>> for Datagram {
    fn from(bytes: Vec<u8>) -> Self {
        let is_apart = false;
        Self { bytes, is_apart }
    }
}

impl Datagram {
    /// One that begins a packet: whatever became of those before it, it is not lost with them, as what is
    /// to make up for one of them must not be.
    pub fn apart(bytes: Vec<u8>) -> Self {
        let is_apart = true;
        Self { bytes, is_apart }
    }
}

/// Datagrams that wait, the oldest first.
#[derive(Debug, Default)]
pub(super) struct DatagramQueue {
    waiting: VecDeque<Datagram>,
    held: usize,
    /// Bytes by which datagrams are ahead of symbols since both wait; within a batch.
    lead: i64,
    /// Somebody waits for room.
    is_awaited: bool,
}

/// Most that either is ahead.
const MAX_LEAD: i64 = MAX_BATCH as i64;

impl DatagramQueue {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Channels have sent so many bytes.
    pub fn on_symbols_sent(&mut self, bytes: usize) {
        self.lead = match self.is_empty() {
            true => 0,
            false => (self.lead - bytes as i64).max(-MAX_LEAD),
        };
    }

    /// Datagrams have sent so many bytes, while channels waited or not.
    fn on_sent(&mut self, bytes: usize, channels_wait: bool) {
        self.lead = match channels_wait {
            true => (self.lead + bytes as i64).min(MAX_LEAD),
            false => 0,
        };
    }

    /// Adds a datagram, and drops the oldest until all hold at most `most` bytes; says how many.
    fn push(&mut self, datagram: Datagram, most: usize) -> u64 {
        self.held += datagram.bytes.len() + OVERHEAD;
        self.waiting.push_back(datagram);
        let mut dropped = 0;
        while self.held > most && self.pop().is_some() {
            dropped += 1;
        }
        dropped
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let Datagram { bytes, .. } = self.waiting.pop_front()?;
        self.held -= bytes.len() + OVERHEAD;
        Some(bytes)
    }

    /// The oldest, if it may follow another one in a packet that has room for `most` bytes.
    fn pop_beside(&mut self, most: usize) -> Option<Vec<u8>> {
        let next = self.waiting.front()?;
        let fits = next.bytes.len() <= most && !next.is_apart;
        fits.then(|| self.pop()).flatten()
    }
}

impl Connection {
    /// Longest datagram that a packet carries now, bytes; it follows the path's MTU.
    pub fn max_datagram_size(&self) -> usize {
        let head = SEALED_HEADER_LEN + TAG_LEN;
        let packet = self.mtu - head - datagram_overhead(self.mtu);
        packet.min(self.config.datagram_buffer.saturating_sub(OVERHEAD))
    }

    /// Sends a datagram as soon as window and pacing let it go. The oldest that wait make room for it
    /// ([`ConnectionStats::datagrams_dropped`](super::ConnectionStats::datagrams_dropped)).
    ///
    /// # Errors
    /// [`DatagramError::TooLarge`] above [`Connection::max_datagram_size`]; closed, or virtual payload.
    pub fn send_datagram(&mut self, datagram: impl Into<Datagram>) -> Result<(), DatagramError> {
        let datagram = datagram.into();
        if self.config.payload == Payload::Virtual {
            return Err(DatagramError::Payload);
        }
        if !self.is_established() {
            return Err(DatagramError::Closed);
        }
        let most = self.max_datagram_size();
        if datagram.bytes.len() > most {
            return Err(DatagramError::TooLarge(most));
        }
        let buffer = self.config.datagram_buffer;
        self.stats.datagrams_dropped += self.out.datagrams.push(datagram, buffer);
        Ok(())
    }

    /// Bytes of datagrams, each counted with 64 more, that may be added while few wait to be sent: what
    /// leaves in two of the groups that packets leave in. An application that keeps what it sends in a
    /// queue of its own, and adds to this one only so much, decides itself what is dropped, and the path
    /// is used all the same. If it is zero, [`Event::DatagramRoom`] says when it is not.
    pub fn datagram_room(&mut self) -> u64 {
        let room = self.free_room();
        self.out.datagrams.is_awaited = room == 0;
        room
    }

    fn free_room(&self) -> u64 {
        let group = self.out.path.coalescing_delay();
        let groups = self.out.path.pacing().bytes_in(group * 2);
        let most = self.config.datagram_buffer as u64 / 2;
        let limit = groups.max(MIN_ROOM * self.mtu as u64).min(most);
        limit.saturating_sub(self.out.datagrams.held as u64)
    }

    /// Tells who waits for room that there is some.
    fn tell_room(&mut self) {
        if self.out.datagrams.is_awaited && self.free_room() > 0 {
            self.out.datagrams.is_awaited = false;
            self.events.push_back(Event::DatagramRoom);
        }
    }

    /// The oldest datagram that came and was not taken yet; [`Event::Datagram`] says that there is one.
    pub fn take_datagram(&mut self) -> Option<Vec<u8>> {
        self.inc.datagrams.pop()
    }

    pub(super) fn on_datagram(&mut self, datagram: &[u8]) {
        self.stats.datagrams_received += 1;
        let was_empty = self.inc.datagrams.is_empty();
        let buffer = self.config.datagram_buffer;
        let dropped = self.inc.datagrams.push(datagram.to_vec().into(), buffer);
        self.stats.datagrams_dropped += dropped;
        if was_empty && !self.inc.datagrams.is_empty() {
            self.events.push_back(Event::Datagram);
        }
    }

    /// Whether datagrams are to leave before symbols now.
    pub(super) fn is_turn_of_datagrams(&self) -> bool {
        self.out.datagrams.lead <= 0 || !self.out.has_symbols_ready()
    }

    /// A packet of datagrams, as many as fit, if there are any and one may leave.
    pub(super) fn transmit_datagrams(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Batch> {
        if self.out.datagrams.is_empty() {
            self.tell_room();
            return None;
        }
        // The path may have become narrower since they were taken.
        let most = self.max_datagram_size();
        while let Some(next) = self.out.datagrams.waiting.front()
            && next.bytes.len() > most
        {
            self.out.datagrams.pop();
            self.stats.datagrams_dropped += 1;
        }
        self.tell_room();
        let may_leave = self.has_window_room() && self.out.path.may_depart(now);
        if self.out.datagrams.is_empty() || !may_leave {
            return None;
        }
        let start = out.len();
        let pn = self.begin_packet(now, out);
        let room = |out: &Vec<u8>, mtu: usize| {
            let used = out.len() - start + TAG_LEN;
            mtu.saturating_sub(used + datagram_overhead(mtu))
        };
        // The first one has room: those that have not are gone.
        let mut next = self.out.datagrams.pop();
        while let Some(datagram) = next {
            Frame::Datagram(&datagram).emit(out);
            self.stats.datagrams_sent += 1;
            next = match room(out, self.mtu) {
                0 => None,
                room => self.out.datagrams.pop_beside(room),
            };
        }
        let contents = Contents {
            ack_eliciting: true,
            ..Contents::default()
        };
        self.finish_packet(now, pn, start, out, contents);
        let size = out.len() - start;
        self.out.path.on_data_sent(now, size as u64);
        let channels_wait = self.out.has_symbols_ready();
        self.out.datagrams.on_sent(size, channels_wait);
        self.tell_room();
        Some(Batch::from(size))
    }
}
