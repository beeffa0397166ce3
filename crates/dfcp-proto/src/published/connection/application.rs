//! What the application calls.

use super::*;

impl Connection {
    /// Takes bytes to send; returns how many fit (0: wait for [`Event::Connected`] or
    /// [`Event::Writable`]).
    ///
    /// # Errors
    /// [`Error::Closed`] after [`finish`](Self::finish), [`Error::Message`] beyond the end of the
    /// message, or why the connection ended.
    pub fn write(&mut self, _now: Instant, data: &[u8]) -> Result<usize, Error> {
        self.write_by(data.len() as u64, |sender| sender.write(data) as u64)
            .map(|n| n as usize)
    }

    /// As [`write`](Self::write) for virtual payload: a length.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_virtual(&mut self, _now: Instant, len: u64) -> Result<u64, Error> {
        self.write_by(len, |sender| sender.write_virtual(len))
    }

    fn write_by(&mut self, len: u64, write: impl FnOnce(&mut Sender) -> u64) -> Result<u64, Error> {
        self.check()?;
        if len > 0 && self.halves.as_ref().is_some_and(|h| h.sender.left() == 0) {
            return Err(Error::Message);
        }
        let taken = self.halves.as_mut().map_or(0, |h| write(&mut h.sender));
        self.blocked |= taken < len && self.halves.is_some();
        Ok(taken)
    }

    /// Sends what is written though it fills no block: it is padded.
    pub fn flush(&mut self, _now: Instant) {
        if let Some(halves) = &mut self.halves {
            halves.sender.flush();
        }
    }

    /// Nothing more will be written: once everything is acknowledged the connection is closed in
    /// this direction. A message that is not complete ends the connection with [`Error::Message`].
    pub fn finish(&mut self, now: Instant) {
        let lacking = self.halves.as_ref().is_some_and(|h| h.sender.lacks_some());
        if lacking && !self.finishing {
            return self.fail(now, Error::Message);
        }
        self.finishing = true;
        self.flush(now);
        self.close_if_done(now);
    }

    /// Ends the connection at once with RST.
    pub fn abort(&mut self, now: Instant) {
        self.step(now, Input::Abort, None);
    }

    /// Reads in-order bytes.
    ///
    /// # Errors
    /// Why the connection ended, once everything in order was read.
    pub fn read(&mut self, now: Instant, out: &mut [u8]) -> Result<Read, Error> {
        self.read_by(|receiver| match receiver.read(now, out) {
            0 => None,
            n => Some(n),
        })
    }

    /// Takes all readable in-order virtual bytes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_virtual(&mut self, now: Instant) -> Result<Read, Error> {
        self.read_by(|receiver| match receiver.read_virtual(now) {
            0 => None,
            n => Some(usize::try_from(n).unwrap_or(usize::MAX)),
        })
    }

    fn read_by(
        &mut self,
        read: impl FnOnce(&mut Receiver) -> Option<usize>,
    ) -> Result<Read, Error> {
        self.readable_told = false;
        if let Some(halves) = &mut self.halves {
            if let Some(n) = read(&mut halves.receiver) {
                return Ok(Read::Data(n));
            }
            if halves.receiver.is_finished() {
                return Ok(Read::Finished);
            }
        }
        match &self.ended {
            Some(error) => Err(error.clone().unwrap_or(Error::Closed)),
            None => Ok(Read::Blocked),
        }
    }

    /// A block to be solved; run it anywhere and give it to [`finish_solve`](Self::finish_solve).
    pub fn take_solve_job(&mut self) -> Option<SolveJob> {
        self.halves.as_mut()?.receiver.take_solve_job()
    }

    /// Takes back a job that was run.
    pub fn finish_solve(&mut self, now: Instant, job: SolveJob) {
        if let Some(halves) = &mut self.halves {
            halves.receiver.finish_solve(now, job);
            if halves.receiver.is_unsolvable() {
                return self.fail(now, Error::Unsolvable);
            }
        }
        self.after_data(now);
    }

    /// A network controller allows this rate (DFCP-J §7.6); controllers that obey one follow it.
    pub fn order_rate(&mut self, now: Instant, rate: Rate) {
        if let Some(halves) = &mut self.halves {
            halves.sender.order_rate(now, rate);
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Bytes that the connecting side said it will send, S_m; known once connected.
    pub fn message(&self) -> Option<u64> {
        self.birth.offer.message.map(|m| m.bytes)
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.machine.state()
    }

    /// Address of the peer's carrier.
    pub fn remote(&self) -> SocketAddr {
        self.birth.remote
    }

    /// DFCP ports, of this side and of the peer.
    pub fn ports(&self) -> (u16, u16) {
        (self.birth.local_port, self.birth.remote_port)
    }

    /// Its counters.
    pub fn stats(&self) -> Stats {
        let Some(halves) = &self.halves else {
            return Stats::default();
        };
        let (sent, received) = (halves.sender.stats(), halves.receiver.stats());
        Stats {
            data_packets: sent.packets,
            extra_packets: sent.extra_packets,
            needed_packets: sent.needed_packets,
            blocks_acked: sent.blocks_acked,
            srtt: sent.srtt,
            loss: sent.loss,
            rate: sent.rate,
            blocks_received: received.blocks,
            bytes_received: received.bytes,
            decode_failures: received.decode_failures,
            late_packets: received.late_packets,
            duplicate_packets: received.duplicates,
            blocks_skipped: received.skipped,
            blocks_reopened: sent.reopened,
        }
    }
}
