//! Signals that ask a program to end, or a service to read its settings again.
//!
//! The first who waits for one takes them from the system, which would end the process. From then on they are
//! heard also while nobody waits: one that comes between two waits is told to the next.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{Failure, Kind, block_on};

/// What the process has heard, and been told of.
static EAR: Mutex<Ear> = Mutex::new(Ear {
    listeners: Vec::new(),
    heard: 0,
    told: 0,
    last: None,
});

/// How long who reads what is written at the end has for it, where the signal was there before that was waited for:
/// as long as a peer has for a farewell.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Waits for Ctrl-C, a request to terminate, or the end of the terminal or session. One that came between two waits
/// and that nobody was told of counts; whoever waits at the same time is told of the same.
pub async fn interrupted() -> Failure {
    let told = ear().told;
    let failure = later_than(told).await;
    forget_signals();
    failure
}

/// Waits for a signal that ends the wait for who reads what is written at the end. One that was there before asked
/// for the end of something else: it leaves a second, which is enough for a reader who is there.
pub async fn enough() -> Failure {
    let (told, heard) = {
        let ear = ear();
        (ear.told, ear.heard)
    };
    let earlier = async {
        let failure = later_than(told).await;
        tokio::time::sleep(LAST_WORDS).await;
        failure
    };
    let failure = tokio::select! {
        failure = later_than(heard) => failure,
        failure = earlier => failure,
    };
    forget_signals();
    failure
}

/// Nobody is told of what came so far: it was for somebody else, such as a program that is run.
pub fn forget_signals() {
    let mut ear = EAR.lock().unwrap_or_else(PoisonError::into_inner);
    ear.listen();
    ear.told = ear.heard;
}

/// Waits until more than `count` signals were heard.
async fn later_than(count: u64) -> Failure {
    // They wake this, whoever else waits. What came before them was heard.
    let mut own = listeners();
    loop {
        let last = {
            let ear = ear();
            ear.last.filter(|_| ear.heard > count)
        };
        match last {
            Some(kind) => return failure(kind),
            None => poll_fn(|context| next(&mut own, context).map(drop)).await,
        }
    }
}

/// Kept for as long as the process runs.
struct Ear {
    listeners: Vec<(Kind, Signal)>,
    /// Signals, of which several of a kind may count as one.
    heard: u64,
    /// How many of them somebody was told of.
    told: u64,
    last: Option<Kind>,
}

impl Ear {
    /// Counts what came.
    fn listen(&mut self) {
        // Who waits has listeners that wake it.
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(kind) = next(&mut self.listeners, &mut context) {
            self.heard += 1;
            self.last = Some(kind);
        }
    }
}

/// What was heard so far; from the first call on there is somebody who listens. Within a runtime.
fn ear() -> MutexGuard<'static, Ear> {
    let mut ear = EAR.lock().unwrap_or_else(PoisonError::into_inner);
    if ear.listeners.is_empty() {
        ear.listeners = listeners();
    }
    ear.listen();
    ear
}

fn listeners() -> Vec<(Kind, Signal)> {
    let wanted = [
        Some((Kind::Interrupted, SignalKind::interrupt())),
        Some((Kind::Terminated, SignalKind::terminate())),
        (!ignores_hangup()).then(|| (Kind::HungUp, SignalKind::hangup())),
    ];
    let heard = wanted.into_iter().flatten();
    heard
        .filter_map(|(kind, number)| Some((kind, signal(number).ok()?)))
        .collect()
}

fn next(listeners: &mut [(Kind, Signal)], context: &mut Context<'_>) -> Poll<Kind> {
    for (kind, signal) in listeners {
        if signal.poll_recv(context).is_ready() {
            return Poll::Ready(*kind);
        }
    }
    Poll::Pending
}

fn failure(kind: Kind) -> Failure {
    match kind {
        Kind::Terminated => Failure::new(kind, "terminated"),
        Kind::HungUp => Failure::new(kind, "the terminal or session ended"),
        _ => Failure::interrupted(),
    }
}

/// Whether who started this process wants it to outlive its terminal, as `nohup` does: a signal that is
/// listened to here would not be ignored any more. Linux tells; elsewhere the signal is left alone.
fn ignores_hangup() -> bool {
    const SIGHUP: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask & SIGHUP != 0)
}

/// Becomes true at the first Ctrl-C, or request to terminate; the second ends the process. For programs
/// that run no future.
pub fn watch_interrupts() -> Arc<AtomicBool> {
    let heard = Arc::new(AtomicBool::new(false));
    let flag = heard.clone();
    std::thread::spawn(move || {
        let wait = || block_on(async { Ok(interrupted().await) });
        if let Ok(failure) = wait() {
            flag.store(true, Ordering::Relaxed);
            let _ = wait();
            std::process::exit(failure.kind as i32);
        }
    });
    heard
}

/// What a service is asked for by signals.
#[derive(Debug)]
pub enum Request {
    /// To read its settings anew (SIGHUP).
    Reload,
    /// To end (SIGINT, SIGTERM).
    End(Failure),
}

/// Listens for the signals of a service that has no terminal.
#[derive(Debug)]
pub struct Requests {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Requests {
    /// From now on they are not what the system makes of them. Call within a tokio runtime.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next one. May be cancelled.
    pub async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.interrupt.recv() => Request::End(failure(Kind::Interrupted)),
            _ = self.terminate.recv() => Request::End(failure(Kind::Terminated)),
            _ = self.hangup.recv() => Request::Reload,
        }
    }
}
