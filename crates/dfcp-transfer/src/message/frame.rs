//! How messages go over a stream: each after its length, 32 bits, big-endian.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dfcp::RecvStream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::Error;

/// Longest message, in bytes.
pub const MAX_MESSAGE: usize = 64 << 10;

/// Writes a message.
///
/// # Errors
/// When it is too long, or the stream fails.
pub async fn write<W: AsyncWrite + Unpin>(
    stream: &mut W,
    message: &impl Serialize,
) -> Result<(), Error> {
    let json = serde_json::to_vec(message).map_err(std::io::Error::other)?;
    if json.len() > MAX_MESSAGE {
        return Err(Error::protocol("a message is too long"));
    }
    let mut framed = (json.len() as u32).to_be_bytes().to_vec();
    framed.extend(json);
    Ok(stream.write_all(&framed).await?)
}

/// The message of a text.
pub(crate) fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|error| Error::Protocol(format!("not a message: {error}")))
}

/// Reads messages.
#[derive(Debug)]
pub struct Reader<R = RecvStream> {
    stream: R,
    buffer: Vec<u8>,
    started: bool,
    /// Bytes of whole messages that were read.
    taken: Arc<AtomicU64>,
    /// Whether others had no turn since the last message.
    is_due: bool,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Reads from `stream`.
    pub fn new(stream: R) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            started: false,
            taken: Arc::default(),
            is_due: false,
        }
    }

    /// Whether anything has arrived.
    pub fn has_started(&self) -> bool {
        self.started
    }

    /// Bytes of the messages that were read so far.
    pub fn bytes_of_messages(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// The same, for who looks at it meanwhile.
    pub(crate) fn taken(&self) -> Arc<AtomicU64> {
        self.taken.clone()
    }

    /// The next message; `None` at the end of the stream. May be cancelled and called again.
    ///
    /// # Errors
    /// When what comes is no such message, or the stream fails.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Error> {
        let text = self.next_text().await?;
        text.map(|text| read(&text)).transpose()
    }

    /// The text of the next message. May be cancelled and called again.
    pub(crate) async fn next_text(&mut self) -> Result<Option<Vec<u8>>, Error> {
        // Who sends many at a time keeps no other session waiting for longer than one takes.
        if std::mem::take(&mut self.is_due) {
            tokio::task::yield_now().await;
        }
        loop {
            if let Some(message) = self.take()? {
                self.is_due = true;
                return Ok(Some(message));
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk).await? {
                0 if self.buffer.is_empty() => return Ok(None),
                0 => return Err(Error::protocol("a message is cut short")),
                n => self.buffer.extend_from_slice(&chunk[..n]),
            }
            self.started = true;
        }
    }

    /// Some of the bytes that follow a message and are none; 0 at the end of the stream. May be
    /// cancelled and called again.
    ///
    /// # Errors
    /// When the stream fails.
    pub async fn bytes(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        if self.buffer.is_empty() {
            return Ok(self.stream.read(out).await?);
        }
        let n = self.buffer.len().min(out.len());
        out[..n].copy_from_slice(&self.buffer[..n]);
        self.buffer.drain(..n);
        Ok(n)
    }

    fn take(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let Some((&length, rest)) = self.buffer.split_first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_MESSAGE {
            return Err(Error::protocol("a message is too long"));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let message = rest[..length].to_vec();
        self.buffer.drain(..4 + length);
        self.taken.fetch_add(length as u64, Ordering::Relaxed);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_that_is_too_long_is_refused_by_its_length_alone() {
        let text = "x".repeat(MAX_MESSAGE - 2);
        let mut longest = Vec::new();
        write(&mut longest, &text).await.unwrap();
        let mut reader = Reader::new(&longest[..]);
        assert_eq!(reader.next::<String>().await.unwrap(), Some(text.clone()));
        assert_eq!(reader.next::<String>().await.unwrap(), None);
        assert!(write(&mut Vec::new(), &(text + "x")).await.is_err());
        for length in [MAX_MESSAGE as u32 + 1, u32::MAX] {
            // Nothing of it has come, and nothing of it will.
            let (mut sender, receiver) = tokio::io::duplex(16);
            sender.write_all(&length.to_be_bytes()).await.unwrap();
            let refused = Reader::new(receiver).next::<String>().await;
            assert!(matches!(refused, Err(Error::Protocol(_))), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn bytes_that_follow_a_message_are_none_of_it() {
        let mut stream = Vec::new();
        write(&mut stream, &"word").await.unwrap();
        stream.extend(b"bytes");
        let mut reader = Reader::new(&stream[..]);
        assert!(!reader.has_started());
        assert_eq!(reader.next::<String>().await.unwrap().unwrap(), "word");
        assert!(reader.has_started());
        let mut out = [0; 3];
        assert_eq!(reader.bytes(&mut out).await.unwrap(), 3);
        assert_eq!(&out, b"byt");
        assert_eq!(reader.bytes(&mut out).await.unwrap(), 2);
        assert_eq!(&out[..2], b"es");
        assert_eq!(reader.bytes(&mut out).await.unwrap(), 0);
        // A message that is cut short is none.
        let mut reader = Reader::new(&stream[..5]);
        assert!(reader.next::<String>().await.is_err());
    }
}
