//! One file into a pipe: its bytes in order, as they come. They are verified when all of them have
//! gone on, for nothing else has room for them; who reads learns of it by this side's exit code.

use std::sync::Arc;

use dfcp::{Connection, IncomingObject, ObjectSummary};
use tokio::io::AsyncWrite;

use super::silence::QUIET;
use super::timed;
use super::{CLOSING, Offered, let_hear, open, read_offer, reject};
use crate::ledger::{Received, violation};
use crate::memory::Memory;
use crate::message::{
    self, Entry, FromReceiver, FromSender, Hash, Outcome, Problem, ProblemKind, Reader, Rejection,
    RejectionKind,
};
use crate::meter::Meter;
use crate::offer::Limits;
use crate::turns::Sessions;
use crate::{DONE, Error};

/// Receives the one file that the peer offers into `out`; `None` if it left without a word. The rest
/// is as for [`receive`](crate::receive).
pub async fn receive_into(
    connection: &Connection,
    out: impl AsyncWrite + Unpin,
    limits: Limits,
    meter: &Meter,
    consent: impl AsyncFnOnce(Offered) -> Result<(), Rejection>,
) -> Option<Received> {
    let (mut control, mut reader) = open(connection).await?;
    let mut received = Received::default();
    let work = async {
        let alone = Sessions::default().begin().going();
        let (listed, _) = read_offer(&mut reader, limits, &Memory::default(), &alone).await?;
        let entries = listed.entries;
        let [entry] = &entries[..] else {
            return Err(only_one().into());
        };
        if !entry.is_file() {
            return Err(only_one().into());
        }
        let offered = Offered::of(&entries);
        tokio::select! {
            agreed = timed(consent(offered), meter) => agreed?,
            error = connection.closed() => return Err(Error::from(dfcp::Error::from(error))),
        }
        meter.expect(offered.bytes);
        meter.diary().offered(Arc::new(entries.clone()));
        let accept = FromReceiver::Accept {
            asked_ms: meter.diary().asked().as_millis() as u64,
            holes: false,
            changed: true,
        };
        message::write(&mut control, &accept).await?;
        let file = (entry, limits.bytes);
        let arrived = pass_on(connection, &mut reader, out, file, meter).await;
        let outcome = match arrived {
            Ok(()) => Outcome::Done,
            Err(Failed::File(problem)) => Outcome::Error(problem),
            Err(Failed::Session(error)) => return Err(error),
        };
        meter.diary().settled(0, &outcome);
        received.outcomes.insert(0, outcome.clone());
        received.entries = Arc::new(entries);
        let bytes = meter.progress().bytes();
        message::write(&mut control, &FromReceiver::Progress { bytes }).await?;
        let file = FromReceiver::File {
            index: 0,
            outcome,
            changes: Vec::new(),
        };
        message::write(&mut control, &file).await?;
        let steady_bps = meter.steady_bps();
        let summary = FromReceiver::Summary { steady_bps };
        // What happens to the connection now changes nothing.
        meter.end();
        if message::write(&mut control, &summary).await.is_ok() {
            let_hear(connection, &mut control, QUIET).await;
        }
        Ok(())
    };
    match work.await {
        Ok(()) => {
            let _ = tokio::time::timeout(CLOSING, connection.closed()).await;
            connection.close(DONE, "");
        }
        Err(failure) => {
            reject(connection, &mut control, &failure).await;
            received.failure = Some(failure);
        }
    }
    Some(received)
}

fn only_one() -> Rejection {
    Rejection::new(
        RejectionKind::Limit,
        "the receiver writes one file into a pipe: send one, or `tar c ... | dfcp send - ...`",
    )
}

/// What keeps a file from arriving.
enum Failed {
    File(Problem),
    Session(Error),
}

impl<E: Into<Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Session(error.into())
    }
}

async fn pass_on(
    connection: &Connection,
    reader: &mut Reader,
    out: impl AsyncWrite + Unpin,
    (entry, limit): (&Entry, u64),
    meter: &Meter,
) -> Result<(), Failed> {
    let problem =
        |kind, why: &str| Failed::File(Problem::new(kind, format!("{}: {why}", entry.path)));
    let (exactly, known) = match said(reader, meter).await? {
        FromSender::Failed { message, .. } => {
            return Err(Failed::File(Problem::new(ProblemKind::Source, message)));
        }
        // A pipe, or a file that is another version by now than was offered.
        FromSender::Stream { index: 0 } => {
            meter.spare(entry.size);
            (None, None)
        }
        FromSender::Part { index: 0, extents } if extents == [(0, entry.size)] => {
            (Some(entry.size), None)
        }
        FromSender::Pack { files, .. } if files.len() == 1 && files[0].0 == 0 => {
            (Some(entry.size), Some(files[0].1))
        }
        _ => return Err(violation("not the file that it offers").into()),
    };
    let object: IncomingObject = connection.accept_object().await?;
    let arrived = object
        .recv_object_into(out, exactly.unwrap_or(limit), meter.progress())
        .await;
    let arrived: ObjectSummary = match arrived {
        Ok(arrived) => arrived,
        Err(dfcp::Error::Io(error)) => {
            return Err(problem(ProblemKind::Target, &format!("receiver: {error}")));
        }
        Err(error @ dfcp::Error::TooLong(_)) => {
            return Err(problem(ProblemKind::Integrity, &error.to_string()));
        }
        // The sender gave it up, and says why.
        Err(dfcp::Error::Reset(_)) => ObjectSummary {
            size: 0,
            hash: [0; 32],
        },
        Err(error) => return Err(error.into()),
    };
    let (size, hash) = match known {
        Some(hash) => (entry.size, hash),
        None => match said(reader, meter).await? {
            FromSender::Failed { message, .. } => {
                return Err(Failed::File(Problem::new(ProblemKind::Source, message)));
            }
            FromSender::Sent {
                index: 0,
                size,
                blake3,
                ..
            } => (size, blake3),
            _ => return Err(violation("not the end of the file that it sends").into()),
        },
    };
    let is_all = arrived.size == size && exactly.is_none_or(|exactly| size == exactly);
    match is_all && Hash(arrived.hash) == hash {
        true => Ok(()),
        false => Err(problem(
            ProblemKind::Integrity,
            "what arrived is not what was sent",
        )),
    }
}

async fn said(reader: &mut Reader, meter: &Meter) -> Result<FromSender, Error> {
    let message = reader.next().await?;
    let message = message.ok_or_else(|| violation("it ends early"))?;
    meter.diary().said(&message);
    Ok(message)
}
