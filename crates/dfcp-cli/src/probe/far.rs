//! The side that answers: a receiver.

use std::sync::Arc;
use std::time::Duration;

use dfcp::{Connection, RecvStream};
use dfcp_command::Failure;
use tokio::sync::Semaphore;

use super::trace::{drain, fill};
use super::{Answer, MAX_TIME, Request, VERSION, clock_ms, hear, say};

/// How long the asking side may take to say what it wants, and to leave when it has it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Measures for one at a time: two would only see each other.
#[derive(Clone, Debug)]
pub struct Instrument(Arc<Semaphore>);

impl Default for Instrument {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Instrument {
    /// Answers who asked by `stream`; returns when it has left, or has taken too long.
    ///
    /// # Errors
    /// Why there is no answer; it is for the other side.
    pub async fn answer(
        &self,
        connection: &Connection,
        mut stream: RecvStream,
    ) -> Result<(), Failure> {
        let Ok(_place) = self.0.try_acquire() else {
            let busy = "the receiver is measuring another path; try again in ten seconds";
            return Err(Failure::new(dfcp_command::Kind::Failure, busy));
        };
        let silent = |_| Failure::new(dfcp_command::Kind::Unreachable, "nothing is asked");
        let request = tokio::time::timeout(PATIENCE, hear::<Request>(&mut stream));
        let request = request.await.map_err(silent)??;
        if request.version != VERSION {
            return Err(super::nonsense());
        }
        let there = drain(connection, &mut stream, MAX_TIME).await;
        drop(stream);
        let mut answer = connection.open_uni().await?;
        let (version, clock_ms) = (VERSION, clock_ms());
        let said = Answer {
            version,
            there,
            clock_ms,
        };
        say(&mut answer, &said).await?;
        answer.finish()?;
        let back = Duration::from_millis(request.back_ms).min(MAX_TIME);
        if !back.is_zero() {
            let mut filled = connection.open_uni().await?;
            let sent = fill(connection, &mut filled, back).await;
            let mut last = connection.open_uni().await?;
            say(&mut last, &sent).await?;
            last.finish()?;
        }
        // Who asked closes when all is there.
        let _ = tokio::time::timeout(PATIENCE, connection.closed()).await;
        Ok(())
    }
}
