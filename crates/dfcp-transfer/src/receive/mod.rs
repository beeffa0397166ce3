//! The receiver's side of a session.
//!
//! First the receiver says what it has of the offer. Then one task reads the control stream, pairs
//! what it announces with the objects that come, and hands them to tasks of their own. A failed file
//! does not end the session.

mod files;
mod listing;
mod pipe;
mod session;
pub(crate) mod silence;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::ledger::{Ledger, Received};
use crate::message::{self, Entry, FromReceiver, Reader, Rejection, Wishes};
use crate::meter::Meter;
use crate::space::Claim;
use crate::store::{Store, Survey};
use crate::tenants::Tenant;
use crate::turns::Going;
use crate::{Error, FAILED};
use dfcp::{Connection, SendStream};
pub(crate) use listing::read_offer;
pub use pipe::receive_into;
pub(crate) use session::MAX_ACTIVE;
use session::Session;
use silence::Seen;
use tokio::io::AsyncWriteExt;

/// How long the sender may take from the handshake to its offer, and for each further part of that:
/// 64 kB in ten seconds are 52 kbit/s. Who has nothing to send gives his place to others.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the sender may take to close when all is said and its acknowledgement has come. It closes
/// when it has read the last word, and may end before it knows that its own was heard.
const CLOSING: Duration = Duration::from_secs(1);
/// After the last word, how much shorter than [`Crowd::give_way`](silence::Crowd::give_way) lets it be nothing
/// may come of the sender before it is taken for gone: after 10 s of 300. Connections survive shorter outages.
const GONE: u32 = 30;
/// How long the sender may take to hear that its offer was rejected.
const REJECTING: Duration = Duration::from_secs(5);

/// What is known of files of an offer before anything has come, by place.
pub(crate) type Known = Vec<(u64, Survey)>;

/// How much a sender offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Files, without directories.
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

impl Offered {
    fn of(entries: &[Entry]) -> Self {
        Self {
            files: entries.iter().filter(|entry| !entry.directory).count() as u64,
            bytes: entries.iter().map(|entry| entry.size).sum(),
        }
    }
}

/// Receives into `store` what the peer offers; `None` if it left without a word, or said none in ten
/// seconds. A sender that was agreed to and then brings nothing for minutes ends only where somebody else
/// found no place at the endpoint ([`Connection::turned_away`]). `meter` sees the bytes arrive. Returns when the connection is closed.
///
/// `consent` is asked when the offer is known and within the store's limits, and nothing is
/// written before it agrees. It may take its time. What it says against the offer is told to the
/// sender.
pub async fn receive(
    connection: &Connection,
    store: Arc<Store>,
    meter: &Meter,
    consent: impl AsyncFnOnce(Offered) -> Result<(), Rejection>,
) -> Option<Received> {
    // Of two sessions of a sender the one that begins later goes on, however long either is looked at.
    let tenant = Tenant::new(store.owner.unwrap_or(connection.peer().0));
    let (mut control, mut reader) = open(connection).await?;
    let alive = store.sessions.begin();
    let agree = async {
        let going = alive.going();
        let offer = read_offer(&mut reader, store.limits, &store.offers, &going);
        let (listed, wishes) = offer.await?;
        store.check_wanted(&listed.entries)?;
        let store = store.for_session(wishes, &listed.people, listed.refused)?;
        let (entries, held) = (Arc::new(listed.entries), listed.holding);
        let offered = Offered::of(&entries);
        tokio::select! {
            agreed = timed(consent(offered), meter) => agreed?,
            error = connection.closed() => return Err(Error::from(dfcp::Error::from(error))),
        }
        let (known, claim) = prepare(&store, &entries, wishes, (meter, going)).await?;
        Ok::<_, Error>((store, entries, known, (offered, wishes), (claim, held)))
    };
    let (store, entries, known, (offered, wishes), (claim, _held)) = match agree.await {
        Ok(agreed) => agreed,
        Err(failure) => {
            reject(connection, &mut control, &failure).await;
            return Some(Received {
                failure: Some(failure),
                ..Received::default()
            });
        }
    };
    meter.expect(offered.bytes);
    let ledger = Ledger::new(store, entries, control);
    let (crowd, quiet) = (ledger.store.crowd.clone(), ledger.store.quiet);
    let mut session = Session::new(connection, ledger, meter, (tenant, wishes, claim), alive);
    let (work, messages) = (session.work(), reader.taken());
    let look = || Seen {
        bytes: meter.progress().bytes(),
        messages: messages.load(Ordering::Relaxed),
        is_ours: work.is_under_way(),
        turned_away: connection.turned_away(),
    };
    let run = async {
        match wishes.dry_run {
            true => session.run_dry(known).await,
            false => session.run(&mut reader, known).await,
        }
    };
    let result = tokio::select! {
        result = run => result,
        () = crowd.give_way(quiet, look) => Err(Error::Silent),
    };
    Some(session.end(result.err()).await)
}

/// Waits until the sender has the last word on `control`, or is gone: it closes when it has read that, and nobody
/// repeats its CLOSE after its process has ended.
async fn let_hear(connection: &Connection, control: &mut SendStream, quiet: Duration) {
    let mut shutdown = std::pin::pin!(control.shutdown());
    loop {
        let before = connection.stats().packets_received;
        let heard = tokio::time::timeout(quiet / GONE, &mut shutdown).await;
        if heard.is_ok() || connection.stats().packets_received == before {
            return;
        }
    }
}

/// Notes how long a person is asked.
async fn timed<T>(asked: impl Future<Output = T>, meter: &Meter) -> T {
    let start = std::time::Instant::now();
    let answer = asked.await;
    meter.diary().asks(start.elapsed());
    answer
}

/// The control stream, if the sender opens it in time.
async fn open(connection: &Connection) -> Option<(SendStream, Reader)> {
    let opened = tokio::time::timeout(PATIENCE, connection.accept_bi()).await;
    let Ok(opened) = opened else {
        connection.close(FAILED, "nothing is offered");
        return None;
    };
    let (control, stream) = opened.ok()?;
    Some((control, Reader::new(stream)))
}

/// Looks at what is there of the offer, and claims room on the disk for the rest.
pub(crate) async fn prepare(
    store: &Arc<Store>,
    entries: &Arc<Vec<Entry>>,
    wishes: Wishes,
    (meter, session): (&Meter, Going),
) -> Result<(Known, Arc<Claim>), Error> {
    let (store, entries) = (store.clone(), entries.clone());
    let progress = meter.progress().clone();
    // It may look at as many names as are offered.
    let work = move || {
        let mut known = {
            let reading = session.read();
            store.survey(&entries, wishes, || reading.go_on())
        };
        if session.is_over() {
            return Err(Error::protocol("the session is over"));
        }
        if !wishes.dry_run {
            store.settle_twins(&entries, &mut known);
        }
        let claim = store.claim(&entries, &known, &progress)?;
        if !wishes.dry_run {
            store.open_directories(&entries, &known);
        }
        Ok::<_, Error>((known, claim))
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::Task(error.to_string()))?
}

/// What the sender is told about what ends a session.
pub(crate) fn rejection(failure: &Error) -> FromReceiver {
    FromReceiver::Reject(match failure {
        Error::Refused(rejection) => rejection.clone(),
        other => Rejection::offer(other.to_string()),
    })
}

async fn reject(connection: &Connection, control: &mut SendStream, failure: &Error) {
    let said = async {
        message::write(control, &rejection(failure)).await?;
        control.finish()?;
        control.delivered().await?;
        Ok::<_, Error>(())
    };
    // Whether or not it is heard, the connection ends.
    let _ = tokio::time::timeout(REJECTING, said).await;
    connection.close(FAILED, &failure.to_string());
}
