//! A local port that programs come to.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::dial::prepare;
use crate::event::{Event, Recurring, Report};

/// Pause after the port took nobody: what was missing, such as open files, may be there then.
pub(crate) const STUCK_PAUSE: Duration = Duration::from_millis(100);

/// See the module's text.
pub(crate) struct Door {
    listener: TcpListener,
    report: Report,
    stuck: Recurring,
}

impl Door {
    pub fn new(listener: TcpListener, report: Report) -> Self {
        let stuck = Recurring::default();
        Self {
            listener,
            report,
            stuck,
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
                    sleep(STUCK_PAUSE).await;
                }
            }
        }
    }
}
