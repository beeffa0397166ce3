//! Silence: when it has lasted too long, and what keeps it from lasting.
//!
//! Only what is heard counts for the idle timeout, so pings keep no connection to a peer that is
//! gone.

use super::probe::MAX_PROBE_INTERVAL;
use super::*;

/// An idle timeout has room for so many pings: some may be lost.
const PINGS: u32 = 3;
/// Probes of a sender that may be lost in a row before its receiver takes it for cut off.
const MISSED: u32 = 3;

impl Connection {
    pub(super) fn idle_timeout(&self) -> Duration {
        let peer = self.peer_params.as_ref().map_or(0, |p| p.idle_timeout_ms);
        match peer {
            0 => self.config.idle_timeout,
            ms => self.config.idle_timeout.min(Duration::from_millis(ms)),
        }
    }

    /// When the peer is given up.
    pub(super) fn idle_time(&self) -> Instant {
        let silence = self.inc.last_heard + self.idle_timeout();
        if self.role == Role::Client || self.settled_at.is_some() {
            return silence;
        }
        // What somebody carried from another address may come packet by packet for ever, and a client that
        // does not hear us gives up itself.
        let patience = self.idle_timeout().max(self.config.handshake_timeout);
        silence.min(self.epoch + patience)
    }

    /// When a client to which data came asks whether more can come. A server that waits for acknowledgements
    /// probes: silence shows that it waits for none, or sends to an address that the client no longer has, of which
    /// nobody else can tell it. Probe timeouts repeat the question until it is answered.
    fn silence_time(&self) -> Option<Instant> {
        let asks = self.role == Role::Client && !self.channels.is_empty();
        let last = self.inc.last_data.filter(|_| asks)?;
        Some(last + MISSED * MAX_PROBE_INTERVAL.max(self.pto()))
    }

    /// When to show that this side lives, and ask whether the other does. A server leaves it to
    /// its clients for how long they stay, but while a channel is open somebody waits.
    fn patience_time(&self) -> Option<Instant> {
        let wanted = self.role == Role::Client || !self.channels.is_empty();
        let interval = self.config.keep_alive.filter(|_| wanted)?;
        let quiet = self.inc.last_heard.max(self.out.last_sent);
        Some(quiet + interval.min(self.idle_timeout() / PINGS))
    }

    /// When to ping, for either reason.
    pub(super) fn keep_alive_time(&self) -> Option<Instant> {
        let times = [self.silence_time(), self.patience_time()];
        times.into_iter().flatten().min()
    }

    /// Pings if it is time.
    pub(super) fn keep_alive(&mut self, now: Instant) {
        let due = self.keep_alive_time().is_some_and(|at| at <= now);
        if due {
            self.inc.last_data = None;
            self.ping();
        }
    }
}
