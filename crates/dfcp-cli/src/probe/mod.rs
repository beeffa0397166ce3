//! Measuring a path: what it carries and loses each way, under congestion control.
//!
//! The side that asks is a sender whose key the receiver takes files from: nobody else is measured,
//! so a receiver sends nothing to strangers that it does not send today. A session that measures
//! begins with a stream in one direction, where one that offers files begins with one in both.
//! Specified in `docs/spec/files.md`.
//!
//! [`near`] asks, [`far`] answers, [`trace`] is what both do: they fill the path, and count what
//! comes; [`finding`] says what figures mean.

pub mod far;
pub mod finding;
pub mod near;
pub mod reach;
pub mod system;
pub mod trace;

use std::time::Duration;

use dfcp::{RecvStream, SendStream};
use dfcp_command::{Failure, Kind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use trace::Carried;

/// The version of the messages below.
const VERSION: u32 = 1;
/// Longest message, bytes: all are far shorter.
const MAX_MESSAGE: usize = 4096;
/// Longest time that a receiver measures in one direction.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Most bytes that are sent in one direction: what 500 Mbit/s carry in three seconds.
const MAX_BYTES: u64 = 200_000_000;

/// What is asked for; it begins the first stream, and what fills the path follows.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Request {
    version: u32,
    /// How long the way back is to be filled, milliseconds; 0 for not at all.
    back_ms: u64,
}

/// What the answering side saw of the way there; a stream of its own. If the way back is measured, a
/// stream that fills it follows, and one with a [`trace::Sent`].
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Answer {
    version: u32,
    there: Carried,
    /// Its clock: milliseconds since 1970.
    clock_ms: i64,
}

/// Time since 1970 in milliseconds, by this machine's clock.
#[expect(clippy::disallowed_methods)] // it is the wall clock that is looked at
fn clock_ms() -> i64 {
    use std::time::{SystemTime, UNIX_EPOCH};
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

async fn say(stream: &mut SendStream, message: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_vec(message).map_err(std::io::Error::other)?;
    stream.write_u16(json.len() as u16).await?;
    stream.write_all(&json).await?;
    Ok(())
}

async fn hear<T: DeserializeOwned>(stream: &mut RecvStream) -> Result<T, Failure> {
    let length = usize::from(stream.read_u16().await?);
    if length > MAX_MESSAGE {
        return Err(nonsense());
    }
    let mut json = vec![0; length];
    stream.read_exact(&mut json).await?;
    serde_json::from_slice(&json).map_err(|_| nonsense())
}

fn nonsense() -> Failure {
    let message = "the other side measures in a way that is not known here: is it another version?";
    Failure::new(Kind::Failure, message)
}
