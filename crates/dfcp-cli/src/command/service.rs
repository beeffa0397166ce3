//! A service with a file of settings, from its start to its end: signals ask it, and the service manager is
//! told how far it is.

use std::time::Duration;

use dfcp_command::{Failure, Kind, Request, Requests};
use tokio::time::{Instant, sleep, sleep_until};

use crate::notify;

/// What runs until it is told to end.
pub trait Service {
    /// Waits until it cannot serve any more. May be cancelled.
    async fn failed(&mut self) -> Failure;

    /// Serves by what is in its file now; what is wrong there changes nothing.
    fn reload(&mut self);

    /// How long what is open may go on at most once it is to end.
    fn drain(&self) -> Duration;

    /// Takes nobody new. Whether there is something that it should wait for.
    fn begin_end(&mut self) -> bool;

    /// Says what it waits for, and for how long at most.
    fn tell_draining(&self);

    /// Waits until what is open has ended. May be cancelled.
    async fn drained(&self);

    /// Ends.
    async fn end(self);
}

/// Attends to a service that has started; why it ended.
pub async fn attend(mut service: impl Service, mut requests: Requests) -> Failure {
    notify::ready();
    let mut watchdog = Watchdog::start();
    let failure = loop {
        let request = tokio::select! {
            request = requests.next() => request,
            failure = service.failed() => return failure,
            () = watchdog.alive() => continue,
        };
        match request {
            Request::Reload => {
                notify::reloading();
                service.reload();
                notify::ready();
            }
            Request::End(failure) => break failure,
        }
    };
    wind_down(service, failure.kind, async || requests.next().await).await;
    failure
}

/// Ends a service: asked by SIGTERM once what is open has ended, or no time is left for it, or somebody asks again.
pub async fn wind_down(
    mut service: impl Service,
    kind: Kind,
    request: impl AsyncFnMut() -> Request,
) {
    let begun = Instant::now();
    notify::stopping_within(service.drain());
    let has_open = service.begin_end();
    if has_open && kind == Kind::Terminated && !service.drain().is_zero() {
        service.tell_draining();
        wait_for_end(&mut service, begun, request).await;
    }
    service.end().await;
}

/// Waits until what is open has ended, for no longer than it may, counted from when it `begun`; or until somebody asks
/// for the end again.
async fn wait_for_end(
    service: &mut impl Service,
    begun: Instant,
    mut request: impl AsyncFnMut() -> Request,
) {
    let mut watchdog = Watchdog::start();
    loop {
        let left = service.drain().saturating_sub(begun.elapsed());
        let request = tokio::select! {
            request = request() => request,
            () = service.drained() => return,
            () = sleep(left) => return,
            () = watchdog.alive() => continue,
        };
        match request {
            // Who is not allowed any more goes on no longer, and there may be less time.
            Request::Reload => {
                service.reload();
                let left = service.drain().saturating_sub(begun.elapsed());
                notify::stopping_within(left);
            }
            Request::End(_) => return,
        }
    }
}

/// Tells the service manager that the service works, as often as it wants to hear it.
struct Watchdog {
    every: Option<Duration>,
    next: Option<Instant>,
}

impl Watchdog {
    fn start() -> Self {
        let every = notify::watchdog();
        let next = every.map(|every| Instant::now() + every);
        Self { every, next }
    }

    /// Waits until it is time, and tells. May be cancelled.
    async fn alive(&mut self) {
        match self.next {
            Some(next) => sleep_until(next).await,
            None => std::future::pending().await,
        }
        notify::alive();
        self.next = self.every.map(|every| Instant::now() + every);
    }
}
