//! Bodies of messages on their way: so many bytes, chunks, or all to the end of the connection.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::Reader;
use crate::account::{Turn, Way};
use crate::http::message::Body;
use crate::relay::Toll;

/// Longest line that tells the length of a chunk, with extensions, which are dropped.
const MAX_CHUNK_LINE: usize = 4096;
/// Bytes of trailers that are read, and dropped.
const MAX_TRAILERS: usize = 16 << 10;

/// Which side ended a body before its time.
pub(super) enum Cut {
    From,
    To,
}

pub(super) async fn pay(toll: Toll<'_>, way: Way, bytes: usize) -> Result<(), Cut> {
    toll.pay(way, bytes, Turn::First).await.map_err(|_| Cut::To)
}

pub(super) async fn write_to(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), Cut> {
    to.write_all(bytes).await.map_err(|_| Cut::To)
}

/// Passes a body on, with whether one of chunks goes in chunks, or as what it carries.
pub(super) async fn pass<R, W>(
    from: &mut Reader<'_, R>,
    to: &mut W,
    (body, in_chunks): (Body, bool),
    toll: (Way, Toll<'_>),
) -> Result<(), Cut>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match body {
        Body::Nothing => Ok(()),
        Body::Bytes(n) => pass_bytes(from, to, n, toll).await,
        Body::Rest => loop {
            let bytes = from.some(u64::MAX).await.map_err(|_| Cut::From)?;
            if bytes.is_empty() {
                return Ok(());
            }
            pay(toll.1, toll.0, bytes.len()).await?;
            write_to(to, &bytes).await?;
        },
        Body::Chunks => pass_chunks(from, to, in_chunks, toll).await,
    }
}

/// Passes on what chunks carry, in chunks or not. They are made anew, of what is there before more is waited
/// for: many small ones cost one write.
async fn pass_chunks<R, W>(
    from: &mut Reader<'_, R>,
    to: &mut W,
    in_chunks: bool,
    (way, toll): (Way, Toll<'_>),
) -> Result<(), Cut>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut gathered = Vec::new();
    loop {
        if !from.bytes.contains(&b'\n') {
            write_gathered(to, &mut gathered, in_chunks).await?;
        }
        let mut left = chunk_size(from).await?;
        if left == 0 {
            break;
        }
        while left > 0 {
            if from.bytes.is_empty() {
                write_gathered(to, &mut gathered, in_chunks).await?;
            }
            let bytes = from.some(left).await.map_err(|_| Cut::From)?;
            if bytes.is_empty() {
                return Err(Cut::From);
            }
            left -= bytes.len() as u64;
            pay(toll, way, bytes.len()).await?;
            gathered.extend_from_slice(&bytes);
        }
        if from.bytes.len() < 2 {
            write_gathered(to, &mut gathered, in_chunks).await?;
        }
        match from.line(2).await {
            Ok(line) if line.is_empty() => {}
            _ => return Err(Cut::From),
        }
    }
    write_gathered(to, &mut gathered, in_chunks).await?;
    pass_over_trailers(from).await?;
    match in_chunks {
        true => write_to(to, b"0\r\n\r\n").await,
        false => Ok(()),
    }
}

/// Writes what was gathered, if anything, and lets go of its buffer.
async fn write_gathered<W: AsyncWrite + Unpin>(
    to: &mut W,
    gathered: &mut Vec<u8>,
    in_chunks: bool,
) -> Result<(), Cut> {
    let bytes = std::mem::take(gathered);
    if bytes.is_empty() {
        return Ok(());
    }
    match in_chunks {
        true => {
            let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
            chunk.extend(bytes);
            chunk.extend(b"\r\n");
            write_to(to, &chunk).await
        }
        false => write_to(to, &bytes).await,
    }
}

/// How long the next chunk is; the last has nothing.
async fn chunk_size<R: AsyncRead + Unpin>(from: &mut Reader<'_, R>) -> Result<u64, Cut> {
    let mut line = from.line(MAX_CHUNK_LINE).await.map_err(|_| Cut::From)?;
    // A line without digits would be taken for the last chunk: half of a body would look whole.
    if !line.first().is_some_and(u8::is_ascii_hexdigit) {
        return Err(Cut::From);
    }
    line.extend_from_slice(b"\r\n");
    match httparse::parse_chunk_size(&line) {
        Ok(httparse::Status::Complete((_, size))) => Ok(size),
        _ => Err(Cut::From),
    }
}

/// Trailers are for who asked for them by TE, which was not passed on.
async fn pass_over_trailers<R: AsyncRead + Unpin>(from: &mut Reader<'_, R>) -> Result<(), Cut> {
    let mut trailers = 0;
    loop {
        let line = from.line(MAX_CHUNK_LINE).await.map_err(|_| Cut::From)?;
        trailers += line.len();
        match line.is_empty() {
            true => return Ok(()),
            false if trailers > MAX_TRAILERS => return Err(Cut::From),
            false => {}
        }
    }
}

async fn pass_bytes<R, W>(
    from: &mut Reader<'_, R>,
    to: &mut W,
    mut left: u64,
    (way, toll): (Way, Toll<'_>),
) -> Result<(), Cut>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    while left > 0 {
        let bytes = from.some(left).await.map_err(|_| Cut::From)?;
        if bytes.is_empty() {
            return Err(Cut::From);
        }
        left -= bytes.len() as u64;
        pay(toll, way, bytes.len()).await?;
        write_to(to, &bytes).await?;
    }
    Ok(())
}
