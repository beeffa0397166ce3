//! A session of a receiver: what one connection brings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use dfcp::{Connection, RecvStream};
use dfcp_command::Failure;
use dfcp_transfer::{FAILED, Limits, Meter, RejectionKind, Store};

use crate::command::Output;
use crate::door::Door;
use crate::progress::{Bar, Before};
use crate::report::Report;
use crate::tally::Refused;

/// Sessions at once: 64 connections, and as many that have ended and wait until their reports are read.
pub const MAX_SESSIONS: usize = 128;

/// Turns a sender away while nobody reads the reports of those before it.
pub fn turn_away(connection: &Connection) {
    let why = "the receiver is busy: nobody reads its reports of earlier sessions";
    connection.close(FAILED, why);
}

/// Where files go.
#[derive(Clone)]
pub enum Place {
    /// Into a directory.
    Directory(Arc<Store>),
    /// To standard output.
    Pipe(Limits),
}

/// Why this side ends its sessions, once it does.
pub type Ending = Arc<OnceLock<Failure>>;

/// The stream by which a session begins that measures the path instead of offering files.
async fn asked_to_measure(connection: &Connection, offered: &AtomicBool) -> Option<RecvStream> {
    loop {
        let stream = connection.accept_uni().await.ok()?;
        // Files that are being received are not given up for it.
        if !offered.load(Ordering::Relaxed) {
            return Some(stream);
        }
    }
}

/// Runs a session and reports on it; the exit code, unless the client left without a word.
pub async fn session(
    connection: Connection,
    (place, door, ending): (Place, Door, Ending),
    output: Output,
    mut report: Report,
) -> Option<u8> {
    let remote = connection.remote_address()?;
    let _inside = output.tally().enter();
    let Some(guest) = door.guest(&connection.peer()) else {
        output.tally().refuse(Refused::Key);
        connection.close(FAILED, "the receiver is busy with other unknown keys");
        return None;
    };
    let meter = Meter::start();
    // Of whom a code has found that has been said.
    if report.peer.is_none() {
        output.say(format_args!("{remote} connected, {}", connection.peer()));
    }
    let (start, mut bar) = (Instant::now(), None);
    let offered = AtomicBool::new(false);
    let consent = async |offer| {
        offered.store(true, Ordering::Relaxed);
        door.consent(&guest, &connection, offer).await?;
        // No bar is drawn over a question.
        bar = Some(Bar::start(
            &output,
            &connection,
            remote,
            (&meter, Before::default()),
        ));
        Ok(())
    };
    let received = async {
        match place {
            Place::Directory(store) => {
                dfcp_transfer::receive(&connection, store, &meter, consent).await
            }
            Place::Pipe(limits) => {
                let out = tokio::io::stdout();
                dfcp_transfer::receive_into(&connection, out, limits, &meter, consent).await
            }
        }
    };
    let received = tokio::select! {
        received = received => received,
        Some(stream) = asked_to_measure(&connection, &offered) => {
            match door.measures(&guest, &connection, stream).await {
                Ok(()) => output.say(format_args!("{remote} measured the path")),
                Err(failure) => connection.close(FAILED, &failure.message),
            }
            return None;
        }
    };
    if let Some(bar) = bar {
        bar.end().await;
    }
    let Some(received) = received else {
        output.say(format_args!("{remote} left without sending anything"));
        return None;
    };
    if let Some(dfcp_transfer::Error::Refused(rejection)) = &received.failure
        && rejection.kind == RejectionKind::Key
    {
        return None; // whoever may not send does not end `--once` either
    }
    if let Some(dfcp_transfer::Error::Refused(_)) = &received.failure {
        output.tally().refuse(Refused::Offer);
    }
    report.add_connection(&connection, remote);
    report.moved_bytes = meter.progress().bytes();
    report.kept_bytes = meter.diary().kept();
    let broke_off = received.failure.is_some();
    report.add_received(received, start, &meter);
    // Else it would only be said that the connection was closed here.
    if let Some(why) = ending.get().filter(|_| broke_off) {
        report.conclude(Some(why.clone()));
    }
    Some(output.report(&report).await)
}
