//! Signals that come while nobody waits for them. They are the whole process', so these tests have a binary of their
//! own, and take turns.

use std::future::ready;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dfcp_command::{Failure, Kind, block_on, enough, forget_signals, interrupted};
use nix::sys::signal::{Signal, raise};
use tokio::signal::unix::{SignalKind, signal};

/// Held while a test has the process for itself.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What has been heard already, without a wait.
async fn at_once(wait: impl Future<Output = Failure>) -> Option<Kind> {
    tokio::select! {
        biased;
        failure = wait => Some(failure.kind),
        () = ready(()) => None,
    }
}

/// Has this process get a signal, and goes on when it has been told to everybody who waits for it now.
async fn ask(to_end: Signal) {
    let mut told = signal(SignalKind::from_raw(to_end as i32)).expect("can be heard");
    raise(to_end).expect("is taken");
    told.recv().await;
}

/// As a program is after its first event: somebody has waited for a signal, and does not now.
async fn listen() {
    forget_signals();
    assert_eq!(at_once(interrupted()).await, None);
}

#[test]
fn a_signal_between_two_waits_is_told_to_the_next_and_once() {
    let _turn = turn();
    let heard = block_on(async {
        listen().await;
        ask(Signal::SIGTERM).await;
        Ok([at_once(interrupted()).await, at_once(interrupted()).await])
    });
    assert_eq!(heard.unwrap(), [Some(Kind::Terminated), None]);
}

#[test]
fn a_signal_is_told_to_a_wait_of_another_runtime() {
    let _turn = turn();
    block_on(async {
        listen().await;
        ask(Signal::SIGINT).await;
        Ok(())
    })
    .unwrap();
    let heard = block_on(async { Ok(at_once(interrupted()).await) });
    assert_eq!(heard.unwrap(), Some(Kind::Interrupted));
}

#[test]
fn who_waits_at_the_same_time_is_told_of_the_same_signal() {
    let _turn = turn();
    let heard = block_on(async {
        listen().await;
        let (mut first, mut second) = (pin!(interrupted()), pin!(interrupted()));
        assert_eq!(at_once(first.as_mut()).await, None);
        assert_eq!(at_once(second.as_mut()).await, None);
        ask(Signal::SIGTERM).await;
        Ok([at_once(first).await, at_once(second).await])
    });
    assert_eq!(heard.unwrap(), [Some(Kind::Terminated); 2]);
}

#[test]
fn a_signal_from_before_leaves_who_reads_the_end_time_and_another_one_does_not() {
    let _turn = turn();
    let heard = block_on(async {
        listen().await;
        ask(Signal::SIGTERM).await;
        let mut wait = pin!(enough());
        let before = at_once(wait.as_mut()).await;
        ask(Signal::SIGINT).await;
        Ok([before, at_once(wait).await, at_once(interrupted()).await])
    });
    assert_eq!(heard.unwrap(), [None, Some(Kind::Interrupted), None]);
}

#[test]
fn a_signal_from_before_ends_the_wait_for_a_reader_who_does_not_come() {
    let _turn = turn();
    let heard = block_on(async {
        listen().await;
        ask(Signal::SIGTERM).await;
        Ok(enough().await.kind)
    });
    assert_eq!(heard.unwrap(), Kind::Terminated);
}
