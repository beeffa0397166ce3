//! A receiver that was killed says nothing, as does a path that is interrupted: neither is known from the other, and
//! the sender waits as long for both. Who looks on is told what for.

use std::convert::Infallible;
use std::time::Duration;

use dfcp::Connection;

use super::{Args, LOOK};
use crate::command::pings;
use crate::progress::STALLED;

/// What comes from the other side, as it is looked at again and again.
#[derive(Debug, Default)]
struct Silence {
    heard: u64,
    lasted: Duration,
    said: bool,
}

impl Silence {
    /// Another look later, when so many packets have come. Whether it is to be said that none came for so `long`: once.
    fn look(&mut self, heard: u64, long: Duration) -> bool {
        if heard != self.heard {
            *self = Self {
                heard,
                ..Self::default()
            };
            return false;
        }
        // Looks are counted, not time: this program may have been stopped.
        self.lasted += LOOK;
        self.lasted >= long && !std::mem::replace(&mut self.said, true)
    }
}

/// Says when nothing comes from the receiver, and how long that is waited for. Does not end.
pub async fn told(args: &Args, connection: &Connection) -> Infallible {
    let timeout = args.output.timeout();
    // A connection is silent by itself from one sign of life to the next.
    let long = pings(timeout) + STALLED;
    let mut silence = Silence::default();
    loop {
        tokio::time::sleep(LOOK).await;
        let heard = connection.stats().packets_received;
        let left = timeout.saturating_sub(long).as_secs();
        if silence.look(heard, long) && left > 0 {
            args.output.say(format_args!(
                "nothing has come from the receiver for {} s: it was ended, or the path is interrupted; it is given \
                 up in {left} s (--timeout)",
                long.as_secs()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_said_once_until_something_comes() {
        let mut silence = Silence::default();
        let mut looks = |heard, count| (0..count).filter(|_| silence.look(heard, 3 * LOOK)).count();
        // The first look only learns what had come.
        assert_eq!(looks(7, 3), 0);
        assert_eq!(looks(7, 1), 1);
        assert_eq!(looks(7, 100), 0);
        assert_eq!(looks(8, 3), 0);
        assert_eq!(looks(8, 100), 1);
    }
}
