//! Whether the other side of a copy is still there when ssh, which would have said so, is gone.

use std::time::{Duration, Instant};

use dfcp::Connection;

/// How long the other side may be silent once ssh is gone: pings come every two seconds.
pub const SILENCE: Duration = Duration::from_secs(5);

/// How often it is looked whether it is.
const LOOKING: Duration = Duration::from_millis(200);

/// How many packets have come, and when it was last seen that there were more.
pub struct Heard {
    connection: Connection,
    packets: u64,
    since: Instant,
}

impl Heard {
    pub fn of(connection: &Connection) -> Self {
        Self {
            packets: connection.stats().packets_received,
            connection: connection.clone(),
            since: Instant::now(),
        }
    }

    /// How long nothing has come, at the last look.
    pub fn silence(&self) -> Duration {
        self.since.elapsed()
    }

    /// Looks a little later.
    pub async fn look(&mut self) {
        tokio::time::sleep(LOOKING).await;
        let packets = self.connection.stats().packets_received;
        if packets != self.packets {
            (self.packets, self.since) = (packets, Instant::now());
        }
    }

    /// Returns when nothing has come for [`SILENCE`].
    pub async fn end(&mut self) {
        while self.silence() < SILENCE {
            self.look().await;
        }
    }
}
