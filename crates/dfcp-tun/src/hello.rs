//! What both sides of a link tell each other, beside the packets: the version, and which addresses are
//! the client's. Specified in `docs/spec/tun.md`.

use std::net::IpAddr;
use std::time::Duration;

use dfcp::{Connection, Error, RecvStream, VarInt};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::nets::Net;
use crate::site::Site;

/// Version of the format.
const VERSION: u8 = 1;
/// Longest answer that is read.
const MAX_ANSWER: usize = 64 << 10;
/// How long a question and its answer may take.
const LIMIT: Duration = Duration::from_secs(10);
/// A stream that asks for nothing known.
const MALFORMED: VarInt = VarInt::from_u32(2);

/// Asks the server which of `addresses` it does not take packets from, and what it takes; `None` if it
/// is no server of links.
///
/// # Errors
/// [`Error::Connection`].
pub async fn ask(
    connection: &Connection,
    addresses: &[Net],
) -> Result<Option<(Vec<Net>, String)>, Error> {
    let (mut send, mut recv) = connection.open_bi().await?;
    let asked = async {
        send.write_all(&[VERSION]).await?;
        send.shutdown().await
    };
    let answer = async {
        // What cannot be asked is not answered.
        let _ = asked.await;
        read_to_end(&mut recv, MAX_ANSWER).await
    };
    let answer = match timeout(LIMIT, answer).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error @ (Error::Connection(_) | Error::EndpointClosed))) => return Err(error),
        Ok(Err(_)) | Err(_) => return Ok(None),
    };
    let Some((&VERSION, text)) = answer.split_first() else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(text);
    let allowed: Vec<Net> = text
        .split_whitespace()
        .filter_map(|net| net.parse().ok())
        .collect();
    let has = |ip: IpAddr| allowed.iter().any(|net| net.contains(ip));
    let foreign = addresses
        .iter()
        .filter(|net| !has(net.ip))
        .copied()
        .collect();
    let shown: Vec<String> = allowed.iter().map(Net::to_string).collect();
    Ok(Some((foreign, shown.join(", "))))
}

/// Answers what the peer asks. Ends with the connection.
pub async fn answer(site: &Site, number: usize, connection: &Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        // One after the other: who asks slowly is cut off, and none may ask much.
        let asked = timeout(LIMIT, read_to_end(&mut recv, 1)).await;
        if !matches!(asked, Ok(Ok(question)) if question == [VERSION]) {
            send.reset(MALFORMED);
            continue;
        }
        let mut answer = vec![VERSION];
        for net in site.table.of(number) {
            answer.extend_from_slice(net.to_string().as_bytes());
            answer.push(b'\n');
        }
        let answered = async {
            send.write_all(&answer).await?;
            send.shutdown().await
        };
        if !matches!(timeout(LIMIT, answered).await, Ok(Ok(()))) {
            send.reset(MALFORMED);
        }
    }
}

/// All of a stream that has at most `most` bytes; what is longer is cut.
async fn read_to_end(recv: &mut RecvStream, most: usize) -> Result<Vec<u8>, Error> {
    let mut all = Vec::new();
    let mut buffer = [0; 1024];
    while all.len() <= most {
        match recv.read(&mut buffer).await? {
            0 => return Ok(all),
            n => all.extend_from_slice(&buffer[..n]),
        }
    }
    all.truncate(most + 1);
    Ok(all)
}
