//! A local port that programs come to.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::dial::prepare;
use crate::event::{Event, Report};

/// Pause after the port took nobody: what was missing, such as open files, may be there then.
pub(crate) const STUCK_PAUSE: Duration = Duration::from_millis(100);
/// A port that takes nobody is told of once, until it has worked for so long: near a limit each
/// connection that ends lets one other in, and the next is stuck again.
const RECOVERED: Duration = Duration::from_secs(60);

/// See the module's text.
pub(crate) struct Door {
    listener: TcpListener,
    report: Report,
    last_stuck: Option<Instant>,
}

impl Door {
    pub fn new(listener: TcpListener, report: Report) -> Self {
        let last_stuck = None;
        Self {
            listener,
            report,
            last_stuck,
        }
    }

    /// The next program's connection, and where it comes from.
    pub async fn next(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((tcp, from)) => {
                    prepare(&tcp);
                    return (tcp, from);
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    let now = Instant::now();
                    if self.is_news(now) {
                        (self.report)(Event::Stuck(error.to_string()));
                    }
                    sleep(STUCK_PAUSE).await;
                }
            }
        }
    }

    /// Whether being stuck at `now` is worth telling.
    fn is_news(&mut self, now: Instant) -> bool {
        let before = self.last_stuck.replace(now);
        before.is_none_or(|before| now.duration_since(before) > RECOVERED)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_port_that_is_stuck_for_long_says_so_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut door = Door::new(listener, Arc::new(|_| {}));
        let mut now = Instant::now();
        assert!(door.is_news(now));
        for _ in 0..10_000 {
            now += STUCK_PAUSE;
            assert!(!door.is_news(now));
        }
        assert!(door.is_news(now + 2 * RECOVERED));
    }
}
