//! Bars of a session that another machine runs: it tells of them on its standard error, between whatever
//! else is said there, and they are drawn here.

use dfcp_command::Failure;
use dfcp_command::output::{self, ERR};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use super::{BARS, Screen, Show};
use crate::progress::line::Line;

/// How a line with the state of a session begins.
const MARK: &[u8] = b"DFCP-PROGRESS ";
/// What is longer is said in pieces.
const LONGEST: u64 = 64 << 10;

/// Tells of a session.
pub fn tell(line: &Line) {
    if let Ok(state) = serde_json::to_string(line) {
        dfcp_command::tell!("{}{state}", String::from_utf8_lossy(MARK));
    }
}

/// What shows the sessions of another machine.
#[derive(Debug)]
pub struct Relay {
    show: Show,
    /// From the first line on.
    screen: Option<Screen>,
    draws: u32,
}

impl Relay {
    /// Shows them as `show` says, if it wants them.
    pub fn wanted(show: Show) -> Option<Self> {
        let relay = Self {
            show,
            screen: None,
            draws: 0,
        };
        match show {
            Show::Auto if !std::io::IsTerminal::is_terminal(&std::io::stderr()) => None,
            Show::Never => None,
            Show::Auto | Show::Always | Show::Relayed => Some(relay),
        }
    }

    /// Shows what `told` says until its end.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn run(mut self, mut told: impl AsyncBufRead + Unpin) -> Result<(), Failure> {
        let mut line = Vec::new();
        while (&mut told)
            .take(LONGEST)
            .read_until(b'\n', &mut line)
            .await?
            > 0
        {
            self.take(&line);
            line.clear();
        }
        Ok(())
    }

    fn take(&mut self, line: &[u8]) {
        let state = line.strip_prefix(MARK);
        match state.and_then(|state| serde_json::from_slice(state).ok()) {
            Some(state) => {
                let screen = self
                    .screen
                    .get_or_insert_with(|| Screen::wanted(self.show).unwrap_or(Screen::Log));
                screen.draw(&state, self.draws);
                self.draws += 1;
            }
            // Who does not hear it is not told of it, either.
            None => {
                let line = line.to_owned();
                ERR.offer(move || BARS.suspend(|| output::write_err(&line)));
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(screen) = self.screen.take() {
            screen.clear();
        }
    }
}
