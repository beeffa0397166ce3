//! From a target to a TCP connection, as far as rules allow.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::here::is_here;
use crate::rules::Rules;
use crate::status::{Refusal, Status};
use crate::target::{Host, Target};

/// How long resolving and connecting may take together: a SYN is repeated after 1, 3 and 7 s (RFC 6298
/// §2), and the last of these has as long as the one before to be answered.
const LIMIT: Duration = Duration::from_secs(11);
/// After which the next address is tried beside those that have not answered (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;

/// Questions for names that one asker may have open at once. The system's resolver takes a thread for each, for
/// half a minute where no name server answers, and of threads for such there are 512 (tokio): who asks for
/// names of dead zones should not keep all others from theirs.
const QUESTIONS: usize = 128;
/// Of those threads, for all who ask: the others are for what else waits for disks and processors, such as
/// files that are received at the same port.
const THREADS: usize = 384;

static ALL: Semaphore = Semaphore::const_new(THREADS);

/// The questions for names of one asker. Clones share their number.
#[derive(Clone, Debug)]
pub(crate) struct Questions(Arc<Semaphore>);

impl Default for Questions {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(QUESTIONS)))
    }
}

impl Questions {
    /// Those of somebody whom nobody answers.
    #[cfg(test)]
    pub fn of_dead_names() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Has `question` answered on another thread, when it is its turn. That goes on, and counts, if nobody waits
    /// for the answer any more.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let turn = self.0.clone().acquire_owned().await;
        let turn = turn.map_err(io::Error::other)?;
        let thread = ALL.acquire().await.map_err(io::Error::other)?;
        let asked = spawn_blocking(move || {
            let answer = question();
            drop((turn, thread));
            answer
        });
        asked.await?
    }
}

/// Connects to `target`.
///
/// # Errors
/// Why there is no connection.
pub(crate) async fn dial(
    target: &Target,
    rules: &Rules,
    questions: &Questions,
) -> Result<TcpStream, Refusal> {
    let attempt = async {
        let addresses = resolve(target, questions).await?;
        let allowed: Vec<_> = addresses.into_iter().filter(|a| rules.allow(*a)).collect();
        match allowed.is_empty() {
            true => Err(forbidden(target)),
            false => connect(target, take_turns(allowed), rules).await,
        }
    };
    let late = || Refusal::new(Status::TimedOut, format_args!("{target} does not answer"));
    let stream = timeout(LIMIT, attempt).await.map_err(|_| late())??;
    prepare(&stream);
    Ok(stream)
}

pub(crate) fn forbidden(target: &Target) -> Refusal {
    let why = format!("the server's rules do not allow {target}");
    Refusal::new(Status::Forbidden, why)
}

/// What the kernel takes of a carried connection ahead of what it has sent, bytes: two pieces, one of which is
/// written while the other one leaves. Without it Linux takes up to 4 MB (the most of `tcp_wmem`) for a program
/// that does not read, which the path carries in place of what others wait for.
#[cfg(target_os = "linux")]
const MOST_UNSENT: u32 = 2 * crate::relay::CHUNK as u32;

/// What every carried connection wants: small messages go at once, a host that is gone is noticed, and who does
/// not read holds back the far end soon.
pub(crate) fn prepare(stream: &TcpStream) {
    let socket = socket2::SockRef::from(stream);
    // Without these the connection works all the same.
    let _ = stream.set_nodelay(true);
    let _ = socket.set_keepalive(true);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_notsent_lowat(MOST_UNSENT);
}

/// The addresses of `target`.
pub(crate) async fn resolve(
    target: &Target,
    questions: &Questions,
) -> Result<Vec<SocketAddr>, Refusal> {
    let name = match &target.host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, target.port)]),
        Host::Name(name) => name.clone(),
    };
    let asked = (name.clone(), target.port);
    let found = questions.ask(move || match asked.to_socket_addrs() {
        Ok(found) => Ok(found.collect::<Vec<_>>()),
        // That there are no open files to ask with, the resolver tells as a name that is not known.
        Err(error) => Err(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .err()
            .unwrap_or(error)),
    });
    let unknown = |why: String| {
        let message = format!("the server knows no address of {name}{why}");
        Refusal::new(Status::HostUnreachable, message)
    };
    let addresses = found.await.map_err(|error| match Status::of(&error) {
        Status::Limit => Refusal::of(&error, target),
        _ => unknown(format!(": {error}")),
    })?;
    match addresses.is_empty() {
        true => Err(unknown(String::new())),
        false => Ok(addresses),
    }
}

/// The resolver's order, but families in turn (RFC 8305 §4): where one of them does not work, little
/// time is lost.
fn take_turns(addresses: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|a| a.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut turns = VecDeque::new();
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            break;
        }
        turns.extend(pair.into_iter().flatten());
    }
    turns.truncate(MAX_ADDRESSES);
    turns
}

/// The first address that answers (Happy Eyeballs, RFC 8305 §5).
async fn connect(
    target: &Target,
    mut waiting: VecDeque<SocketAddr>,
    rules: &Rules,
) -> Result<TcpStream, Refusal> {
    let mut attempts = JoinSet::new();
    let mut worst = None;
    loop {
        if let Some(address) = waiting.pop_front() {
            let (target, here_too) = (target.clone(), rules.allow_here(address));
            attempts.spawn(async move {
                let failed = |error| Refusal::of(&error, &target);
                if !here_too && is_here(address).map_err(failed)? {
                    return Err(forbidden(&target));
                }
                TcpStream::connect(address).await.map_err(failed)
            });
        }
        let ended = tokio::select! {
            ended = attempts.join_next() => ended,
            () = sleep(ATTEMPT_DELAY), if !waiting.is_empty() => continue,
        };
        match ended {
            Some(Ok(Ok(stream))) => return Ok(stream),
            Some(Ok(Err(refusal))) => worst = Some(telling(worst, refusal)),
            // A panic is the program's to report.
            Some(Err(_)) => {}
            None if waiting.is_empty() => {
                let silent = || Refusal::new(Status::Failed, format_args!("{target} failed"));
                return Err(worst.unwrap_or_else(silent));
            }
            None => {}
        }
    }
}

/// Of two failures the one that says more about the host: it refused, rather than nobody knows a way.
fn telling(before: Option<Refusal>, now: Refusal) -> Refusal {
    let rank = |refusal: &Refusal| match refusal.status {
        Status::Refused => 3,
        Status::TimedOut => 2,
        Status::HostUnreachable => 1,
        _ => 0,
    };
    match before {
        Some(before) if rank(&before) >= rank(&now) => before,
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_beginning_with_the_resolvers_first() {
        let read = |text: &str| text.parse().unwrap();
        let (a, b, c) = (read("[::1]:1"), read("[::2]:1"), read("1.1.1.1:1"));
        assert_eq!(take_turns(vec![a, b, c]), [a, c, b]);
        assert_eq!(take_turns(vec![c, a, b]), [c, a, b]);
        assert_eq!(take_turns(vec![a; 20]).len(), MAX_ADDRESSES);
    }

    #[tokio::test]
    async fn who_asks_for_dead_names_keeps_nobody_else_from_theirs() {
        let (hostile, other) = (Questions::default(), Questions::default());
        let (answer, silent) = std::sync::mpsc::channel::<()>();
        let silent = Arc::new(std::sync::Mutex::new(silent));
        let mut asked = JoinSet::new();
        for _ in 0..1000 {
            let (hostile, silent) = (hostile.clone(), silent.clone());
            let wait = move || Ok(silent.lock().map(|silent| silent.recv().is_err()).is_ok());
            asked.spawn(async move { hostile.ask(wait).await });
        }
        while hostile.0.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let found = timeout(Duration::from_secs(60), other.ask(|| Ok(7))).await;
        // What is given up by who asked still counts: its thread is busy.
        asked.abort_all();
        while asked.join_next().await.is_some() {}
        let left = hostile.0.available_permits();
        drop(answer);
        assert_eq!((found.unwrap().unwrap(), left), (7, 0));
        assert!(hostile.ask(|| Ok(true)).await.unwrap());
    }

    #[tokio::test]
    async fn whoever_asks_for_dead_names_leaves_threads_for_other_work() {
        let (answer, silent) = std::sync::mpsc::channel::<()>();
        let silent = Arc::new(std::sync::Mutex::new(silent));
        let mut asked = JoinSet::new();
        let askers: Vec<_> = (0..8).map(|_| Questions::default()).collect();
        for asker in askers.iter().cycle().take(8 * QUESTIONS) {
            let (asker, silent) = (asker.clone(), silent.clone());
            let wait = move || Ok(silent.lock().map(|silent| silent.recv().is_err()).is_ok());
            asked.spawn(async move { asker.ask(wait).await });
        }
        while askers.iter().any(|asker| asker.0.available_permits() > 0) {
            tokio::task::yield_now().await;
        }
        let work = timeout(Duration::from_secs(60), spawn_blocking(|| 7)).await;
        drop(answer);
        assert_eq!(work.unwrap().unwrap(), 7);
        while let Some(answered) = asked.join_next().await {
            assert!(answered.unwrap().unwrap());
        }
    }
}
