//! What `dfcp cp` and the `dfcp agent` that it starts through ssh say to each other over that pipe.
//!
//! The agent begins with a line of its own, [`GREETING`], after whatever the login prints. From then
//! on both ways carry frames: a byte for the kind, the length as a big-endian `u32`, the content.
//! Control messages are JSON; datagrams are those of the transport, where UDP does not get through.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use dfcp::PublicKey;
use dfcp_command::{Failure, Kind};
use dfcp_transfer::LeftOut;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// First line of an agent; the number is the version of what follows.
pub const GREETING: &str = "DFCP-AGENT 4";
/// Longest frame: a list of many paths.
const MAX_FRAME: u32 = 16 << 20;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message as JSON.
    Control(Vec<u8>),
    /// A datagram of the transport.
    Datagram(Vec<u8>),
}

/// What the agent is to do, and how it reaches who asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The asking side's key for this one copy.
    pub key: String,
    /// Its UDP port, and addresses that it may be reached at.
    pub port: u16,
    pub addresses: Vec<IpAddr>,
    /// UDP ports that the agent may use; any unless given.
    pub ports: Option<(u16, u16)>,
    /// Most that an agent that sends may take of the path, UDP payload bits per second.
    pub bwlimit_bps: Option<u64>,
    /// Whether only what others leave of the path may be taken.
    pub background: bool,
    /// Silence after which either gives up, milliseconds.
    pub timeout_ms: u64,
    /// What to do.
    pub work: Work,
}

/// Which way the files go.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Send what is at these paths.
    Send {
        paths: Vec<String>,
        choice: super::Choice,
        /// The name that the one thing sent gets; its own unless given.
        name: Option<String>,
        /// Whether something has one of these names at the target.
        #[serde(default)]
        there: bool,
    },
    /// Receive at `path`.
    Receive {
        path: String,
        /// Whether it must be a directory, since more than one thing is copied.
        several: bool,
        choice: super::Choice,
        /// Whether to remove at the end what the sender has not.
        delete: bool,
        /// Whether that was asked for, and is not to be done since not everything could be read.
        #[serde(default)]
        deletes_nothing: bool,
        /// The names that go there.
        #[serde(default)]
        names: Vec<String>,
    },
}

/// The agent's answer to a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Its key for this one copy.
    pub key: String,
    /// Its UDP port, and addresses that it may be reached at.
    pub port: u16,
    pub addresses: Vec<IpAddr>,
    /// The name that the one thing copied gets at the target; its own unless given.
    pub name: Option<String>,
    /// What an agent that sends leaves out, and why.
    pub left_out: Vec<LeftOut>,
    /// Whether something has one of the names that go there.
    #[serde(default)]
    pub there: bool,
    /// Whether it goes on with a copy that broke off.
    #[serde(default)]
    pub goes_on: bool,
}

/// What an agent says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromAgent {
    Ready(Ready),
    /// It goes on with what takes long.
    Busy,
    /// It cannot.
    Failed(Failure),
    /// What `sync` removed at the end, or would; the list goes on if `more`.
    Removed {
        paths: Vec<String>,
        more: bool,
    },
}

/// Paths in a message: of 4,000 bytes at most, as many as fit into a frame.
const LISTED: usize = 2000;

impl FromAgent {
    /// A list of what was removed, in messages that fit into frames.
    pub fn removed(paths: &[String]) -> Vec<Self> {
        let parts = paths.len().div_ceil(LISTED).max(1);
        let part = |i: usize| Self::Removed {
            paths: paths
                .iter()
                .skip(i * LISTED)
                .take(LISTED)
                .cloned()
                .collect(),
            more: i + 1 < parts,
        };
        (0..parts).map(part).collect()
    }
}

/// What an agent is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToAgent {
    Job(Job),
    /// Which of the connections to use, by key material of it that is exported.
    Use {
        connection: String,
    },
    /// UDP does not get through: the transport's datagrams come as frames.
    Tunnel,
}

/// Reads the next frame; `None` at the end.
pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    let kind = match from.read_u8().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        kind => kind?,
    };
    let length = from.read_u32().await?;
    if length > MAX_FRAME {
        return Err(invalid(format!("a frame of {length} bytes")));
    }
    let mut content = Vec::new();
    // Allocated as it arrives, not as it is announced.
    from.take(length.into()).read_to_end(&mut content).await?;
    if content.len() != length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match kind {
        0 => Ok(Some(Frame::Control(content))),
        1 => Ok(Some(Frame::Datagram(content))),
        kind => Err(invalid(format!("a frame of kind {kind}"))),
    }
}

/// Waits for what an agent says other than that it is busy, `limit` at most in silence; `None` when it
/// ended.
pub async fn answer(
    host: &str,
    limit: Duration,
    mut next: impl AsyncFnMut() -> io::Result<Option<FromAgent>>,
) -> Result<Option<FromAgent>, Failure> {
    loop {
        let message = tokio::time::timeout(limit, next()).await.map_err(|_| {
            let message = format!("{host}: dfcp says nothing there (--timeout)");
            Failure::new(Kind::Unreachable, message)
        })?;
        match message {
            Ok(Some(FromAgent::Busy)) => {}
            Ok(message) => return Ok(message),
            Err(error) => {
                let message = format!("{host}: what answers there is no dfcp agent: {error}");
                return Err(Failure::new(Kind::Failure, message));
            }
        }
    }
}

/// Reads the next message; datagrams before it are late ones.
pub async fn message<T: for<'a> Deserialize<'a>>(
    from: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<T>> {
    loop {
        match read(from).await? {
            Some(Frame::Control(text)) => {
                return serde_json::from_slice(&text)
                    .map(Some)
                    .map_err(|error| invalid(error.to_string()));
            }
            Some(Frame::Datagram(_)) => {}
            None => return Ok(None),
        }
    }
}

/// Writes a message.
pub async fn say(to: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message).map_err(|error| invalid(error.to_string()))?;
    let mut frame = Vec::new();
    append(&Frame::Control(text), &mut frame)?;
    to.write_all(&frame).await?;
    to.flush().await
}

/// Appends a frame to what is to be written.
pub fn append(frame: &Frame, to: &mut Vec<u8>) -> io::Result<()> {
    let (kind, content) = match frame {
        Frame::Control(text) => (0, text),
        Frame::Datagram(datagram) => (1, datagram),
    };
    let length = u32::try_from(content.len())
        .ok()
        .filter(|length| *length <= MAX_FRAME)
        .ok_or_else(|| invalid(format!("a message of {} bytes", content.len())))?;
    to.push(kind);
    to.extend_from_slice(&length.to_be_bytes());
    to.extend_from_slice(content);
    Ok(())
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads a key that the other side sent.
pub fn key(text: &str) -> Result<PublicKey, Failure> {
    text.parse()
        .map_err(|error| Failure::new(Kind::Failure, format!("the other side's key: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn frames_come_back_and_damaged_ones_are_errors() {
        let mut wire = Vec::new();
        say(&mut wire, &ToAgent::Tunnel).await.unwrap();
        let xyz = Frame::Datagram(b"xyz".to_vec());
        append(&xyz, &mut wire).unwrap();
        let mut from = &wire[..];
        assert!(matches!(
            message::<ToAgent>(&mut from).await.unwrap(),
            Some(ToAgent::Tunnel)
        ));
        assert_eq!(read(&mut from).await.unwrap(), Some(xyz));
        assert_eq!(read(&mut from).await.unwrap(), None);
        for damaged in [
            &wire[..3],
            &wire[..wire.len() - 1],
            b"\x02\0\0\0\0",
            b"\0\xff\xff\xff\xff",
        ] {
            let mut from = damaged;
            while let Ok(frame) = read(&mut from).await {
                assert!(frame.is_some(), "{damaged:?}: taken for the end");
            }
        }
    }
}
