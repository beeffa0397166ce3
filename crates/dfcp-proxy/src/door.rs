//! A local port that programs come to.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use crate::dial::prepare;
use crate::event::{Event, Recurring, Report};

/// Pause after the port took nobody: what was missing, such as open files, may be there then.
pub(crate) const STUCK_PAUSE: Duration = Duration::from_millis(100);

/// See the module's text.
pub(crate) struct Door {
    listener: TcpListener,
    report: Report,
    stuck: Recurring,
    /// An open file for when there are no more.
    spare: Option<File>,
}

impl Door {
    pub fn new(listener: TcpListener, report: Report) -> Self {
        let stuck = Recurring::default();
        Self {
            listener,
            report,
            stuck,
            spare: spare(),
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
                    if self.stuck.is_news(Instant::now()) {
                        (self.report)(Event::Stuck(error.to_string()));
                    }
                    if !self.turn_away().await {
                        sleep(STUCK_PAUSE).await;
                    }
                }
            }
        }
    }

    /// Resets the connection of who has come, instead of leaving it in the port's queue without a word. Whether
    /// there was an open file for that.
    async fn turn_away(&mut self) -> bool {
        let had_one = self.spare.take().is_some();
        if had_one && let Ok(Ok((tcp, _))) = timeout(Duration::ZERO, self.listener.accept()).await {
            let _ = tcp.set_zero_linger();
        }
        self.spare = spare();
        had_one
    }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}
