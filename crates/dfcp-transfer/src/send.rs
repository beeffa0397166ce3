//! The sender's side of a session.
//!
//! Nothing waits for the receiver's consent: the files follow their list at once, and a receiver
//! that does not want them says so meanwhile. A few files are read at a time; many may be on
//! their way, until the receiver has told what became of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use dfcp::{Connection, Progress, SendStream};
use tokio::io::AsyncRead;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::message::{self, FromReceiver, FromSender, Outcome, Reader};
use crate::offer;
use crate::source::{Source, Sources};
use crate::{Error, MAX_PENDING};

/// Files that are read at a time.
const MAX_ACTIVE: usize = 4;
/// What the receiver said became of the files.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// By place in the offer; directories only when they failed.
    pub outcomes: BTreeMap<u64, Outcome>,
    /// Goodput after the first tenth of the bytes, as the receiver saw it.
    pub steady_bps: Option<u64>,
}

/// Sends the files and waits for the receiver's word on all of them; `progress` counts the bytes that
/// arrive. Closing the connection is left to the caller.
///
/// # Errors
/// What ends the session as a whole; a file that fails is among the outcomes.
pub async fn send(
    connection: &Connection,
    sources: &Sources,
    progress: &Progress,
) -> Result<Sent, Error> {
    let (mut control, replies) = connection.open_bi().await?;
    for part in offer::split(&sources.entries()) {
        message::write(&mut control, &part).await?;
    }
    let (say, said) = mpsc::unbounded_channel();
    let pending_files = Semaphore::new(MAX_PENDING);
    let files = Files {
        connection: connection.clone(),
        progress: progress.clone(),
        say,
    };
    let work = async {
        tokio::try_join!(
            files.send_all(sources, &pending_files),
            write_all(control, said)
        )
    };
    let replies = read_replies(Reader::new(replies), sources, || {
        pending_files.add_permits(1);
    });
    tokio::select! {
        biased;
        sent = replies => sent,
        failure = async {
            match work.await {
                Err(failure) => failure,
                Ok(_) => pending().await,
            }
        } => Err(failure),
    }
}

async fn write_all(
    mut control: SendStream,
    mut said: UnboundedReceiver<FromSender>,
) -> Result<(), Error> {
    while let Some(message) = said.recv().await {
        message::write(&mut control, &message).await?;
    }
    control.finish()?;
    control.delivered().await?;
    Ok(())
}

/// Reads what the receiver says to the end; calls `on_file` for every file whose outcome it tells.
pub(crate) async fn read_replies<R: AsyncRead + Unpin>(
    mut replies: Reader<R>,
    sources: &Sources,
    on_file: impl Fn(),
) -> Result<Sent, Error> {
    let mut sent = Sent::default();
    let violation = |what| Error::Protocol(format!("the receiver {what}"));
    while let Some(reply) = replies.next().await? {
        match reply {
            FromReceiver::Accept => {}
            FromReceiver::Reject(rejection) => return Err(Error::Rejected(rejection)),
            FromReceiver::File { index, outcome } => {
                let source = usize::try_from(index)
                    .ok()
                    .and_then(|i| sources.list.get(i));
                let source = source.ok_or_else(|| violation("speaks of files that are not"))?;
                if sent.outcomes.insert(index, outcome).is_some() {
                    return Err(violation("speaks of a file twice"));
                }
                if !source.entry.directory {
                    on_file();
                }
            }
            FromReceiver::Summary { steady_bps } => {
                sent.steady_bps = steady_bps;
                return Ok(sent);
            }
        }
    }
    Err(violation("ended the session early"))
}

struct Files {
    connection: Connection,
    progress: Progress,
    say: UnboundedSender<FromSender>,
}

impl Files {
    async fn send_all(self, sources: &Sources, pending_files: &Semaphore) -> Result<(), Error> {
        let active = Arc::new(Semaphore::new(MAX_ACTIVE));
        let mut sending = JoinSet::new();
        let ended = || Error::Task("a task ended early".to_owned());
        for (index, source) in (0..).zip(&sources.list) {
            if source.entry.directory {
                continue;
            }
            let permit = active.clone().acquire_owned().await;
            let permit = permit.map_err(|_| ended())?;
            let pending = pending_files.acquire().await;
            // Given back with the receiver's word on the file.
            pending.map_err(|_| ended())?.forget();
            let mut file = Box::pin(self.send_one(index, source, permit));
            // The first poll opens the object: objects are opened in the order of the offer.
            match poll_once(&mut file).await {
                Some(result) => result?,
                None => drop(sending.spawn(file)),
            }
            while let Some(result) = sending.try_join_next() {
                result.map_err(|_| ended())??;
            }
        }
        while let Some(result) = sending.join_next().await {
            result.map_err(|_| ended())??;
        }
        Ok(())
    }

    /// Sends a file and tells its hash, or why there is none.
    fn send_one(
        &self,
        index: u64,
        source: &Source,
        permit: OwnedSemaphorePermit,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let failed = move |reason: &str, source: &Source| FromSender::Failed {
            index,
            message: format!("sender: {}: {reason}", source.path.display()),
        };
        let (connection, progress, say) = (
            self.connection.clone(),
            self.progress.clone(),
            self.say.clone(),
        );
        let source = source.clone();
        async move {
            // Nobody listens any more only when the session is over.
            let (file, watched) = match source.open() {
                Ok(opened) => opened,
                Err(reason) => {
                    let _ = say.send(failed(&reason, &source));
                    // An empty object keeps its place in the order.
                    let nothing = File::open("/dev/null")?;
                    let sent = connection.send_object(nothing, 0, &progress, |_| {}).await;
                    return stopped_is_fine(sent.map(|_| ()));
                }
            };
            let on_read = {
                let (say, source) = (say.clone(), source.clone());
                move |summary: dfcp::ObjectSummary| {
                    drop(permit);
                    let _ = say.send(match watched.check() {
                        Err(reason) => failed(&reason, &source),
                        Ok(()) => FromSender::Sent {
                            index,
                            size: summary.size,
                            blake3: blake3::Hash::from_bytes(summary.hash).to_hex().to_string(),
                        },
                    });
                }
            };
            let size = source.entry.size;
            match connection.send_object(file, size, &progress, on_read).await {
                Err(error @ (dfcp::Error::SourceChanged(_) | dfcp::Error::Io(_))) => {
                    let _ = say.send(failed(&error.to_string(), &source));
                    Ok(())
                }
                other => stopped_is_fine(other.map(|_| ())),
            }
        }
    }
}

/// A receiver that wants no more of a file says why on the control stream.
fn stopped_is_fine(result: Result<(), dfcp::Error>) -> Result<(), Error> {
    match result {
        Err(dfcp::Error::Reset(_)) => Ok(()),
        other => Ok(other?),
    }
}

async fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
