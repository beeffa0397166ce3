//! The application's calls.

use super::{Channel, Connection, Control, Event};
use crate::block::{
    BlockSizes, ChannelId, ChannelKind, Credit, Cutter, RecvChannel, SendChannel, Source, charge,
    square,
};
use crate::config::Payload;
use crate::scheduler::Room;
use crate::time::Instant;
use crate::wire::VarInt;
use std::ops::Range;

/// Bytes that a channel takes beyond what is being sent: enough that a driver's wake-up does not
/// leave the link idle, little enough that a stream's data stay fresh.
const MAX_UNSENT: u64 = 2 << 20;

/// Bytes of a stream that may wait while half of the send buffer waits: a third of the largest block of
/// `auto`, which codes still well. The other half gives ever less, with the square of what is left of it, so
/// that it lasts however many wait for ever: 256 leave half of 32 MiB's.
const MIN_UNSENT: u64 = 64 << 10;

/// Code of a channel whose reader left without giving one.
const NO_REASON: VarInt = VarInt::from_u32(0);

/// Why a call on a channel did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// It is not open, or not open in this direction.
    #[error("the channel is closed")]
    Closed,
    /// The peer or the application ended it early.
    #[error("the channel was reset (code {0})")]
    Reset(VarInt),
    /// The call is for the other kind of payload ([`Payload`]).
    #[error("the call is for the other kind of payload")]
    Payload,
}

/// A buffer, and where in it what was read is.
pub type ChunkBuffer = (Vec<u8>, Range<usize>);

/// What a read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// This many bytes.
    Data(usize),
    /// The peer gave up the next bytes, so many: what is read next comes after them.
    Gap(u64),
    /// Nothing now.
    Blocked,
    /// The end was read before.
    End,
}

impl Connection {
    /// Opens a channel, if the peer allows one more; else [`Event::ChannelRoom`] says when it does.
    pub fn open(&mut self, kind: ChannelKind) -> Option<ChannelId> {
        let params = self.peer_params.as_ref()?;
        let open = self.channels.opened_by(self.role);
        if !self.is_established() {
            return None;
        }
        if open >= params.max_channels {
            self.wants_open = self.wants_open.saturating_add(1);
            return None;
        }
        let id = ChannelId::new(self.role, kind, self.next_local[kind as usize]);
        let send = Some(self.new_sender(id, params.max_stream_data));
        self.next_local[kind as usize] += 1;
        let recv = id
            .can_receive(self.role)
            .then(|| RecvChannel::new(id, &self.config));
        self.channels.insert(id, Channel { send, recv });
        Some(id)
    }

    /// A channel to send on, as far as the peer has room.
    pub(super) fn new_sender(&self, id: ChannelId, limit: u64) -> SendChannel {
        let mut send = SendChannel::new(id, limit, self.config.reliability);
        send.withhold(self.out.withheld);
        if let Some(avail_win) = self.out.receive_window {
            let sent_since = 0;
            send.allow(self.out.redundancy.scheduler.allowance(&Room {
                avail_win,
                sent_since,
            }));
        }
        send
    }

    fn send_half(&mut self, id: ChannelId) -> Result<&mut SendChannel, ChannelError> {
        self.channels.sender(id).ok_or(ChannelError::Closed)
    }

    fn expect_payload(&self, payload: Payload) -> Result<(), ChannelError> {
        let same = self.config.payload == payload;
        same.then_some(()).ok_or(ChannelError::Payload)
    }

    /// Writes what fits of `data`; 0 means wait for the channel's [`Event::Writable`].
    pub fn write(
        &mut self,
        now: Instant,
        id: ChannelId,
        data: &[u8],
    ) -> Result<usize, ChannelError> {
        self.expect_payload(Payload::Real)?;
        let taken = self.write_source(now, id, Source::Bytes(data))?;
        Ok(taken as usize)
    }

    /// [`Connection::write`] for `len` bytes of virtual payload.
    pub fn write_virtual(
        &mut self,
        now: Instant,
        id: ChannelId,
        len: u64,
    ) -> Result<u64, ChannelError> {
        self.expect_payload(Payload::Virtual)?;
        self.write_source(now, id, Source::Length(len))
    }

    /// How large the blocks of a channel are.
    pub fn block_sizes(&self, id: ChannelId) -> BlockSizes {
        BlockSizes::new(id, self.cut())
    }

    /// [`Connection::write`] for a buffer that is the channel's next full block
    /// ([`Connection::block_sizes`]): it is taken as it is, and `block` is a used buffer then. Any
    /// other is copied as far as it fits.
    pub fn write_block(
        &mut self,
        now: Instant,
        id: ChannelId,
        block: &mut Vec<u8>,
    ) -> Result<usize, ChannelError> {
        self.expect_payload(Payload::Real)?;
        let (cut, len) = (self.cut(), block.len());
        // The last block may go above the limits: they are no promise to anyone.
        if self.room_to_write(id)? > 0 {
            let mut cutter = Cutter {
                cut: &cut,
                buffers: &mut self.out.buffers,
            };
            let send = self.channels.sender(id).ok_or(ChannelError::Closed)?;
            let whole = send.write_block(now, block, &mut cutter);
            if whole.map_err(|_| ChannelError::Closed)? {
                self.on_written(id, len as u64);
                return Ok(len);
            }
        }
        self.write(now, id, block)
    }

    fn write_source(
        &mut self,
        now: Instant,
        id: ChannelId,
        source: Source<'_>,
    ) -> Result<u64, ChannelError> {
        let cut = self.cut();
        let room = self.room_to_write(id)?;
        let mut cutter = Cutter {
            cut: &cut,
            buffers: &mut self.out.buffers,
        };
        let send = self.channels.sender(id).ok_or(ChannelError::Closed)?;
        // A geometry error would be ours; the channel is unusable then.
        let taken = send
            .write(now, source, room, &mut cutter)
            .map_err(|_| ChannelError::Closed)?;
        if taken < source.len() {
            if send.is_at_limit() {
                send.fit(&mut self.out.buffers);
            }
            self.wants_write.insert(id);
            self.is_buffer_full |= taken >= self.free_buffer();
        }
        self.on_written(id, taken);
        Ok(taken)
    }

    /// Bytes that a channel takes now. Of what waits to be sent, one half of the buffer is for who comes first,
    /// the other for a few bytes of each stream: those whose readers have stopped give nothing back. What is in
    /// flight leaves the buffer soon, and is not counted there.
    fn room_to_write(&mut self, id: ChannelId) -> Result<u64, ChannelError> {
        if !self.is_established() {
            return Err(ChannelError::Closed);
        }
        let free = self.free_buffer();
        let half = self.config.send_buffer / 2;
        let left = self.config.send_buffer.saturating_sub(self.out.unsent);
        let send = self.send_half(id)?;
        if send.is_finished() {
            return Err(ChannelError::Closed);
        }
        let unsent = send.unsent_bytes();
        let first_half = left.saturating_sub(half);
        let waiting = first_half.clamp(MIN_UNSENT, MAX_UNSENT);
        let most = MAX_UNSENT.saturating_sub(unsent).min(send.room(waiting));
        // An object waits for whole blocks, and for no reader of its own.
        if id.kind() == ChannelKind::Object {
            return Ok(free.min(most));
        }
        let share = square(MIN_UNSENT, left.min(half), half).saturating_sub(unsent);
        Ok(free.min(most).min(first_half.max(share)))
    }

    fn free_buffer(&self) -> u64 {
        self.config.send_buffer.saturating_sub(self.out.buffered)
    }

    fn on_written(&mut self, id: ChannelId, bytes: u64) {
        self.out.buffered += bytes;
        self.out.unsent += bytes;
        if bytes > 0 {
            self.activate(id);
        }
    }

    /// No more bytes follow on the channel.
    pub fn finish_channel(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        let policy = self.out.redundancy.policy();
        let send = self.channels.sender(id);
        let send = send.ok_or(ChannelError::Closed)?;
        if !send.is_finished() {
            send.finish();
            send.refresh_all(policy);
            self.out.control.push_back(Control::Fin(id));
            self.activate(id);
        }
        Ok(())
    }

    /// Channels of a higher priority (0 unless set) send before all of a lower one; those of one
    /// priority take turns.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] if nothing more is sent on the channel.
    pub fn set_priority(&mut self, id: ChannelId, priority: i32) -> Result<(), ChannelError> {
        let is_over = self.send_half(id)?.is_abandoned();
        if is_over {
            return Err(ChannelError::Closed);
        }
        self.out.queue.set_priority(id, priority);
        Ok(())
    }

    /// Reads stream bytes in order.
    pub fn read(
        &mut self,
        now: Instant,
        id: ChannelId,
        out: &mut [u8],
    ) -> Result<Read, ChannelError> {
        self.expect_payload(Payload::Real)?;
        self.read_with(now, id, |recv, credit| recv.read(out, credit))
    }

    /// [`Connection::read`] for at most `most` bytes of virtual payload.
    pub fn read_virtual(
        &mut self,
        now: Instant,
        id: ChannelId,
        most: usize,
    ) -> Result<Read, ChannelError> {
        self.expect_payload(Payload::Virtual)?;
        self.read_with(now, id, |recv, credit| recv.skip(most, credit))
    }

    /// [`Connection::read`] of at most `most` bytes that come with their buffer, and where in it they
    /// are: a whole block is not copied.
    pub fn read_chunk(
        &mut self,
        now: Instant,
        id: ChannelId,
        most: usize,
    ) -> Result<(Read, Option<ChunkBuffer>), ChannelError> {
        self.expect_payload(Payload::Real)?;
        let mut chunk = None;
        let read = self.read_with(now, id, |recv, credit| {
            chunk = recv.read_chunk(most, credit);
            chunk.as_ref().map_or(0, |(_, part)| part.len())
        })?;
        Ok((read, chunk))
    }

    fn read_with(
        &mut self,
        now: Instant,
        id: ChannelId,
        read: impl FnOnce(&mut RecvChannel, &mut Credit) -> usize,
    ) -> Result<Read, ChannelError> {
        let channel = self.channels.get_mut(id).ok_or(ChannelError::Closed)?;
        let recv = channel.recv.as_mut().ok_or(ChannelError::Closed)?;
        if let Some(code) = recv.ended() {
            return Err(ChannelError::Reset(code));
        }
        let n = read(recv, &mut self.inc.credit);
        recv.on_read(now, self.out.path.rtt.smoothed());
        let gap = match n {
            0 => recv.read_gap(&mut self.inc.credit),
            _ => None,
        };
        let drained = recv.is_drained();
        if recv.new_limit(&mut self.inc.credit).is_some() {
            self.out.control.push_back(Control::MaxStreamData(id));
        }
        self.offer_credit(now);
        if n > 0 || gap.is_some() {
            self.offer_room(now, id);
        }
        Ok(match (n, gap) {
            (0, Some(bytes)) => Read::Gap(bytes),
            (0, None) if drained => {
                self.end_recv(id);
                Read::End
            }
            (0, None) => Read::Blocked,
            (n, _) => Read::Data(n),
        })
    }

    /// Takes a complete block of an object: its offset and bytes. `Ok(None)` means none now; see
    /// [`Connection::is_drained`] for the end. The block counts as held, and the peer may send so much
    /// less, until [`Connection::recycle`] or [`Connection::release`] says otherwise.
    pub fn take_block(
        &mut self,
        now: Instant,
        id: ChannelId,
    ) -> Result<Option<(u64, Vec<u8>)>, ChannelError> {
        self.expect_payload(Payload::Real)?;
        let block = self.take_ready(now, id)?;
        Ok(block.map(|(offset, _, bytes)| (offset, bytes)))
    }

    /// [`Connection::take_block`] with virtual payload: the block's offset and length. There is
    /// nothing to give back.
    pub fn take_virtual_block(
        &mut self,
        now: Instant,
        id: ChannelId,
    ) -> Result<Option<(u64, u64)>, ChannelError> {
        self.expect_payload(Payload::Virtual)?;
        let block = self.take_ready(now, id)?;
        Ok(block.map(|(offset, len, _)| {
            self.release(now, len);
            (offset, len)
        }))
    }

    fn take_ready(
        &mut self,
        now: Instant,
        id: ChannelId,
    ) -> Result<Option<(u64, u64, Vec<u8>)>, ChannelError> {
        let channel = self.channels.get_mut(id).ok_or(ChannelError::Closed)?;
        let recv = channel.recv.as_mut().ok_or(ChannelError::Closed)?;
        if let Some(code) = recv.ended() {
            return Err(ChannelError::Reset(code));
        }
        let block = recv.take_block(&mut self.inc.credit);
        if block.is_some() {
            self.offer_room(now, id);
        }
        Ok(block)
    }

    /// Gives a block that was taken back, as long as it was: its memory is used again.
    pub fn recycle(&mut self, now: Instant, block: Vec<u8>) {
        self.release(now, block.len() as u64);
        self.inc.credit.recycle(block);
    }

    /// The application is done with a block of `len` bytes that was taken, or takes it into its own
    /// account.
    pub fn release(&mut self, now: Instant, len: u64) {
        let credit = &mut self.inc.credit;
        credit.freed = (credit.freed + charge(len)).min(credit.used);
        self.offer_credit(now);
    }

    /// The channel's final size, once the peer said it.
    pub fn final_size(&self, id: ChannelId) -> Option<u64> {
        self.channels
            .peek_receiver(id)
            .and_then(RecvChannel::final_size)
    }

    /// Whether all of the channel was taken: what arrived, and the gaps
    /// ([`Connection::take_gap`]).
    pub fn is_drained(&self, id: ChannelId) -> bool {
        self.channels
            .peek_receiver(id)
            .is_none_or(RecvChannel::is_drained)
    }

    /// Ends the receiving half of a channel that is drained or reset, or that nobody reads any
    /// more; then the peer is asked to stop. Every channel must come here or to [`Read::End`].
    pub fn end_recv(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        if let Some(recv) = &mut channel.recv {
            let stop = recv.ended().is_none() && !recv.is_complete();
            recv.end(NO_REASON, None, &mut self.inc.credit);
            recv.discarded = true;
            if stop {
                self.out.control.push_back(Control::Stop(id, NO_REASON));
            }
            channel.recv.take_if(|recv| recv.is_settled());
        }
        self.forget_if_over(id);
    }

    /// Drops a channel whose both halves are over. If that leaves room for another one, whoever found
    /// none is told: one for each.
    pub(super) fn forget_if_over(&mut self, id: ChannelId) {
        let is_ours = self.channels.forget_if_over(id) && id.opener() == self.role;
        if is_ours && self.wants_open > 0 {
            self.wants_open -= 1;
            self.events.push_back(Event::ChannelRoom);
        }
    }

    /// Gives the sending half up; the peer learns `code`.
    pub fn reset_channel(&mut self, id: ChannelId, code: VarInt) {
        self.abandon_send(id, code);
    }

    /// False if there was nothing (more) to give up.
    pub(super) fn abandon_send(&mut self, id: ChannelId, code: VarInt) -> bool {
        let Some(send) = self.send_half(id).ok().filter(|s| !s.is_abandoned()) else {
            return false;
        };
        let unsent = send.unsent_bytes();
        let freed = send.abandon();
        self.out.unsent = self.out.unsent.saturating_sub(unsent);
        self.out.let_go(freed);
        self.out.queue.forget(id);
        self.out
            .control
            .retain(|c| !matches!(*c, Control::Fin(of) | Control::Skip(of, _) if of == id));
        self.out.control.push_back(Control::Reset(id, code));
        self.notify_writable(id);
        self.notify_buffer_room();
        true
    }

    /// Wants no more of what the peer sends on the channel.
    pub fn stop_channel(&mut self, now: Instant, id: ChannelId, code: VarInt) {
        let recv = self.channels.receiver(id);
        if let Some(recv) = recv.filter(|r| r.ended().is_none() && !r.is_complete()) {
            recv.end(code, None, &mut self.inc.credit);
            self.out.control.push_back(Control::Stop(id, code));
            self.inc.policy.on_urgent(now);
        }
    }

    /// Something changed for `id`: who waits to write there is told if there is room. True if somebody was.
    pub(super) fn notify_writable(&mut self, id: ChannelId) -> bool {
        // Where it is closed, the next write says so.
        let tells = self.wants_write.contains(&id) && self.room_to_write(id).unwrap_or(1) > 0;
        if tells {
            self.wants_write.remove(&id);
            self.events.push_back(Event::Writable(id));
        }
        tells
    }

    /// The same for those who wait, where the buffer was full and has room for what each may have.
    pub(super) fn notify_buffer_room(&mut self) {
        if self.is_buffer_full && self.free_buffer() >= MIN_UNSENT {
            self.notify_waiting();
        }
    }

    /// Tells as many of those who wait as there is room for, in turn: thousands that are told of the same room find
    /// none. Who is told need not write, so the others are told once nothing is in flight any more: until then
    /// there is an ACK to come, or a loss, and each looks here again.
    pub(super) fn notify_waiting(&mut self) {
        let served = match self.out.sent.any_in_flight() {
            true => self.free_buffer() / MIN_UNSENT,
            false => u64::MAX,
        };
        let turn = self.next_to_write;
        let waiting = self.wants_write.range(turn..);
        let waiting = waiting.chain(self.wants_write.range(..turn));
        let waiting: Vec<ChannelId> = waiting.copied().collect();
        let mut told = 0;
        for id in waiting {
            if told >= served {
                (self.is_buffer_full, self.next_to_write) = (true, id);
                return;
            }
            told += u64::from(self.notify_writable(id));
        }
        self.is_buffer_full = false;
    }

    /// Credit that the peer has used and the application has not freed: never above the budget.
    pub fn credit_in_use(&self) -> u64 {
        self.inc.credit.used - self.inc.credit.freed
    }

    /// Bytes written that are not known to have arrived.
    pub fn unacknowledged(&self) -> u64 {
        self.out.buffered
    }
}
