//! Silence: when it has lasted too long, and what keeps it from lasting.
//!
//! Only what is heard counts for the idle timeout, so pings keep no connection to a peer that is
//! gone.

use super::*;

/// An idle timeout has room for so many pings: some may be lost.
const PINGS: u32 = 3;

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

    /// When to show that this side lives, and ask whether the other does. A server leaves it to
    /// its clients for how long they stay, but while a channel is open somebody waits.
    pub(super) fn keep_alive_time(&self) -> Option<Instant> {
        let wanted = self.role == Role::Client || !self.channels.is_empty();
        let interval = self.config.keep_alive.filter(|_| wanted)?;
        let quiet = self.inc.last_heard.max(self.out.last_sent);
        Some(quiet + interval.min(self.idle_timeout() / PINGS))
    }

    /// Pings if it is time.
    pub(super) fn keep_alive(&mut self, now: Instant) {
        let due = self.keep_alive_time().is_some_and(|at| at <= now);
        if due {
            self.ping();
        }
    }
}
