//! A service with a file of settings, from its start to its end: signals ask it, and the service manager is
//! told how far it is.

use std::future::Future;

use dfcp_command::{Failure, Kind, Request, Requests};
use tokio::time::{Instant, sleep_until};

use crate::notify;

/// What runs until it is told to end.
pub trait Service {
    /// Waits until it cannot serve any more. May be cancelled.
    async fn failed(&mut self) -> Failure;

    /// Serves by what is in its file now; what is wrong there changes nothing.
    fn reload(&mut self);

    /// Ends as it was asked to, without waiting for anything once somebody is in a `hurry`.
    async fn end(self, kind: Kind, hurry: impl Future<Output = ()>);
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
    let hurry = async {
        loop {
            tokio::select! {
                request = requests.next() => if let Request::End(_) = request {
                    return;
                },
                () = watchdog.alive() => {}
            }
        }
    };
    service.end(failure.kind, hurry).await;
    failure
}

/// Tells the service manager that the service works, as often as it wants to hear it.
struct Watchdog {
    every: Option<std::time::Duration>,
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
