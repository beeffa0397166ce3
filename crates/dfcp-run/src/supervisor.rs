//! Answers the calls of programs.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use dfcp_proxy::{Client, Dialed, Host, Status, Target};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::address::{self, Peer, canonical};
use crate::datagrams::is_udp;
use crate::gate::{Gate, is_under_way, leaves_device};
use crate::names::{self, Names};
use crate::process;
use crate::program::start;
use crate::relays::{Port, Relays};
use crate::routes::Routes;
use crate::sys::{self, Answer, Call, Calls};
use crate::table::{Entry, State, Table};

/// Something that a person wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// A process may not be looked into, and its connections are not carried; its number, and why. Told of
    /// the first one.
    Unseen(i32, String),
    /// A program sends datagrams that are not of UDP, such as those of `ping`: its process's number, and
    /// where the first one goes, from here. Told of the first one.
    Foreign(i32, SocketAddr),
    /// A program asks for io_uring, which is not there for it: its process's number. Told of the first one.
    Uring(i32),
}

/// How long what ends with its program may take to do so, as what it has started.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Carries what programs connect to; clones share it.
#[derive(Clone)]
pub struct Supervisor {
    inner: Arc<Inner>,
    started: Arc<Mutex<Vec<Started>>>,
}

/// Where the calls of a program come from, and of whatever it starts, and who answers them.
struct Started {
    calls: Arc<Calls>,
    answers: JoinHandle<()>,
}

pub(crate) struct Inner {
    client: Client,
    pub routes: Arc<Routes>,
    names: Arc<Names>,
    gate: Gate,
    pub relays: Arc<Relays>,
    table: Mutex<Table>,
    /// Of what network this machine's addresses are.
    pub network: Option<u64>,
    pub runtime: Handle,
    pub note: Box<dyn Fn(Note) + Send + Sync>,
    has_unseen: AtomicBool,
    pub has_foreign: AtomicBool,
    has_uring: AtomicBool,
    /// Whether there was a datagram with an address that is carried.
    pub has_unconnected: AtomicBool,
}

impl Supervisor {
    /// One without programs, which carries over `client` what `routes` say, and tells `note` of what people
    /// want to know. Call within a tokio runtime.
    ///
    /// # Errors
    /// When this machine has no ports left.
    pub fn new(
        client: Client,
        routes: Routes,
        note: impl Fn(Note) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let gate = Gate::open()?;
        let routes = Arc::new(routes);
        let names = Arc::new(Names::new(routes.clone()));
        let relays = Arc::new(Relays::new(names.clone()));
        let (carrier, port) = (client.clone(), Port(relays.clone()));
        tokio::spawn(async move { carrier.serve_datagrams(port).await });
        let inner = Arc::new(Inner {
            client,
            routes,
            names,
            network: gate.network(),
            gate,
            relays,
            table: Mutex::default(),
            runtime: Handle::current(),
            note: Box::new(note),
            has_unseen: AtomicBool::new(false),
            has_foreign: AtomicBool::new(false),
            has_uring: AtomicBool::new(false),
            has_unconnected: AtomicBool::new(false),
        });
        let started = Arc::default();
        Ok(Self { inner, started })
    }

    /// Whether names are resolved by the far end.
    pub fn resolves(&self) -> bool {
        self.inner.routes.has_names()
    }

    /// Starts a program, whose connections, and those of whatever it starts, are carried until
    /// [`Supervisor::leave`].
    ///
    /// # Errors
    /// When it cannot be started, or the system knows no supervision.
    pub fn start(&self, command: Command) -> io::Result<Child> {
        let (child, calls) = start(command)?;
        let (inner, calls) = (self.inner.clone(), Arc::new(calls));
        let asked = calls.clone();
        let answer = move || {
            while let Some(call) = asked.next() {
                if let Some(answer) = inner.decide(&asked, &call) {
                    asked.answer(call.id, answer);
                }
            }
        };
        let named = std::thread::Builder::new().name("calls".into());
        let answers = named.spawn(answer)?;
        self.started().push(Started { calls, answers });
        Ok(child)
    }

    /// Answers no more calls. Those of processes that were left behind wait for somebody who does, or fail
    /// once nobody has the files any more that are returned: they are for [`let_go_on`]. Waits a moment for
    /// those that are about to end; not for an async context.
    ///
    /// # Errors
    /// When there are no open files left.
    pub fn leave(&self) -> io::Result<Vec<OwnedFd>> {
        let mut left = Vec::new();
        for Started { calls, answers } in std::mem::take(&mut *self.started()) {
            let is_over = calls.is_over(LAST_MOMENT);
            calls.stop();
            let _ = answers.join();
            if !is_over {
                left.push(calls.let_go()?);
            }
        }
        Ok(left)
    }

    fn started(&self) -> MutexGuard<'_, Vec<Started>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the calls of processes that were left behind go on as if nobody had asked, until they have ended.
///
/// # Errors
/// When there are no open files left.
pub fn let_go_on(listener: OwnedFd) -> io::Result<()> {
    let calls = Calls::of(listener)?;
    while let Some(call) = calls.next() {
        calls.answer(call.id, Answer::GoOn);
    }
    Ok(())
}

/// What a program hears where the system gave no number: its own of input and output that failed.
pub(crate) const UNKNOWN: i32 = libc::EIO;

/// What a program hears of an attempt that the server made, as if it had made it itself.
fn error_of(status: Status) -> i32 {
    match status {
        Status::Refused => libc::ECONNREFUSED,
        Status::NetworkUnreachable => libc::ENETUNREACH,
        Status::HostUnreachable => libc::EHOSTUNREACH,
        Status::TimedOut => libc::ETIMEDOUT,
        // As of a firewall of this machine.
        Status::Forbidden => libc::EACCES,
        Status::Limit => libc::ENOBUFS,
        _ => libc::ECONNABORTED,
    }
}

/// A socket that a program connects.
pub(crate) struct Attempt {
    /// The number of its call.
    pub id: u64,
    pub socket: Socket,
    /// The kernel's number of it.
    pub cookie: u64,
    /// What the program gave.
    pub given: Vec<u8>,
    pub to: SocketAddr,
}

impl Inner {
    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of a call; nothing if it is answered later.
    fn decide(self: &Arc<Self>, calls: &Arc<Calls>, call: &Call) -> Option<Answer> {
        let decided = match call.number {
            libc::SYS_connect => self.connect(calls, call),
            libc::SYS_getpeername => self.peer_name(calls, call).map(Some),
            libc::SYS_getsockopt => self.last_error(calls, call).map(Some),
            libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_sendmmsg => {
                self.send(calls, call).map(Some)
            }
            libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg => {
                self.receive(calls, call)
            }
            libc::SYS_io_uring_setup => Ok(Some(self.refuse_uring(call))),
            _ => Ok(Some(Answer::GoOn)),
        };
        decided.unwrap_or_else(|error| Some(without(call.number, &error)))
    }

    /// A copy of the socket that is a call's first argument.
    pub fn socket_of(&self, calls: &Calls, call: &Call) -> io::Result<Socket> {
        let found = process::socket(call, call.arguments[0]);
        let socket = found.inspect_err(|error| self.unseen(call, error))?;
        // Else the thread may be another one by now.
        match calls.waits(call) {
            true => Ok(socket),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn unseen(&self, call: &Call, error: &io::Error) {
        let refused = error.kind() == io::ErrorKind::PermissionDenied;
        if refused && !self.has_unseen.swap(true, Ordering::Relaxed) {
            (self.note)(Note::Unseen(call.thread, error.to_string()));
        }
    }

    /// As on a system without: nobody is asked about what is done through it.
    fn refuse_uring(&self, call: &Call) -> Answer {
        if !self.has_uring.swap(true, Ordering::Relaxed) {
            (self.note)(Note::Uring(call.thread));
        }
        Answer::Failed(libc::ENOSYS)
    }

    fn connect(self: &Arc<Self>, calls: &Arc<Calls>, call: &Call) -> io::Result<Option<Answer>> {
        let len = call.arguments[2] as u32 as usize;
        if len > address::MAX_LEN {
            return Ok(Some(Answer::GoOn));
        }
        let given = process::read(call.thread, call.arguments[1], len);
        let given = given.inspect_err(|error| self.unseen(call, error))?;
        let to = match address::decode(&given) {
            Peer::Ip(to) => to,
            Peer::Nobody => return self.part(calls, call).map(Some),
            Peer::Path(path) if self.routes.has_names() => {
                let is_service = names::SERVICES.contains(&&path[..]);
                return Ok(Some(match is_service {
                    true => Answer::Failed(libc::ECONNREFUSED),
                    false => Answer::GoOn,
                }));
            }
            _ => return Ok(Some(Answer::GoOn)),
        };
        let (target, way) = (self.target(canonical(to)), self.way(to));
        if target.is_none() && way.is_none() {
            return Ok(Some(Answer::GoOn));
        }
        let socket = self.socket_of(calls, call)?;
        if sys::network_of(std::os::fd::AsFd::as_fd(&socket)) != self.network {
            return Ok(Some(Answer::GoOn));
        }
        // Of another family the system says that it is.
        let is_own_kind = socket.domain()? == Domain::for_address(to);
        let cookie = socket.cookie()?;
        let attempt = Attempt {
            id: call.id,
            socket,
            cookie,
            given,
            to,
        };
        match (target, way) {
            (Some(target), _) if is_own_kind && is_tcp(&attempt.socket)? => {
                self.connect_stream(calls, call, attempt, target)
            }
            // Those of IPv6 send to IPv4, too.
            (_, Some(way)) if (is_own_kind || to.is_ipv4()) && is_udp(&attempt.socket)? => {
                self.lead(attempt, way)
            }
            _ => Ok(Some(Answer::GoOn)),
        }
    }

    /// A socket is to be connected no more, or was connecting: what its program connects it to next has nothing
    /// to do with that.
    fn part(&self, calls: &Calls, call: &Call) -> io::Result<Answer> {
        if self.table().is_empty() {
            return Ok(Answer::GoOn);
        }
        let socket = self.socket_of(calls, call)?;
        if is_tcp(&socket)? {
            let cookie = socket.cookie()?;
            let mut table = self.table();
            let entry = table.get(cookie);
            let waiting = entry.map_or_else(Vec::new, |entry| std::mem::take(&mut entry.waiting));
            table.forget(cookie);
            for id in waiting {
                calls.answer(id, Answer::Failed(libc::ECONNABORTED));
            }
        }
        Ok(Answer::GoOn)
    }

    /// Whom a connection to `at` is for, if it is carried.
    pub fn target(&self, at: SocketAddr) -> Option<Target> {
        if let Some(name) = self.names.of(at.ip()) {
            return Some(Target {
                host: Host::Name(name.to_string()),
                port: at.port(),
            });
        }
        self.routes.carries(at).then(|| Target::from(at))
    }

    /// Has a socket of TCP connect, until the server has connected.
    fn connect_stream(
        self: &Arc<Self>,
        calls: &Arc<Calls>,
        call: &Call,
        attempt: Attempt,
        target: Target,
    ) -> io::Result<Option<Answer>> {
        let Attempt { socket, cookie, .. } = &attempt;
        let mut table = self.table();
        // Asked for here, because `settle` changes it for a moment.
        let waits = !socket.nonblocking()?;
        let before = match table.get(*cookie) {
            Some(entry) if matches!(entry.state, State::Connecting(_)) => {
                if !waits {
                    return Ok(Some(Answer::Failed(libc::EALREADY)));
                }
                entry.waiting.push(call.id);
                self.give_up_in_time(calls, call.id, socket, libc::EALREADY);
                return Ok(None);
            }
            // A call that a signal interrupts is begun again, also where its answer was just on its way.
            Some(entry) if entry.state == State::Open && entry.given == attempt.given => {
                return Ok(Some(Answer::Done));
            }
            entry => entry.map(|entry| entry.state),
        };
        sys::connect_at_once(std::os::fd::AsFd::as_fd(socket));
        if !leaves_device(socket) {
            return Ok(Some(Answer::Failed(libc::EHOSTUNREACH)));
        }
        match self.gate.knock(socket, attempt.to) {
            // It is connected already.
            Ok(()) => return Ok(Some(Answer::Done)),
            Err(error) if is_under_way(&error) => {}
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
                return Ok(Some(Answer::Failed(match before {
                    Some(State::Failed(why)) if errno == libc::ECONNREFUSED => {
                        table.forget(*cookie);
                        why
                    }
                    _ => errno,
                })));
            }
        }
        let waiting = waits.then_some(call.id);
        let waiting = waiting.into_iter().collect();
        let entry = Entry::new(
            attempt.given.clone(),
            State::Connecting(attempt.id),
            waiting,
        );
        table.put(*cookie, entry);
        drop(table);
        if waits {
            self.give_up_in_time(calls, call.id, socket, libc::EINPROGRESS);
        }
        let (inner, calls) = (self.clone(), calls.clone());
        self.runtime
            .spawn(async move { inner.establish(&calls, attempt, target).await });
        Ok((!waits).then_some(Answer::Failed(libc::EINPROGRESS)))
    }

    /// Ends a call that waits when the program's own limit is over (SO_SNDTIMEO), with what Linux ends it with:
    /// the first one with EINPROGRESS, later ones with EALREADY.
    fn give_up_in_time(&self, calls: &Arc<Calls>, id: u64, socket: &Socket, errno: i32) {
        if let Ok(Some(limit)) = socket.write_timeout() {
            let calls = calls.clone();
            self.runtime.spawn(async move {
                sleep(limit).await;
                calls.answer(id, Answer::Failed(errno));
            });
        }
    }

    async fn establish(&self, calls: &Calls, attempt: Attempt, target: Target) {
        let opened = self.open(&attempt, target).await;
        let state = match &opened {
            Ok(_) => State::Open,
            Err(errno) => State::Failed(*errno),
        };
        let cookie = attempt.cookie;
        if !self.settle(calls, attempt, state) {
            return;
        }
        if let Ok((dialed, tcp)) = opened {
            dialed.carry(tcp).await;
        }
        self.table().is_over(cookie);
    }

    /// Lets a socket know how its attempt ended; whether its program still wants to. What is left of it then is
    /// the program's.
    fn settle(&self, calls: &Calls, attempt: Attempt, state: State) -> bool {
        let Attempt { socket, to, .. } = &attempt;
        let mut table = self.table();
        let entry = table.get(attempt.cookie);
        let Some(entry) = entry.filter(|entry| entry.state == State::Connecting(attempt.id)) else {
            return false;
        };
        entry.state = state;
        let waiting = std::mem::take(&mut entry.waiting);
        let answer = match state {
            State::Failed(errno) => {
                self.gate.refuse(socket, *to);
                Answer::Failed(errno)
            }
            _ => {
                let _ = self.gate.conclude(socket, *to);
                Answer::Done
            }
        };
        let mut heard = false;
        for id in waiting {
            heard |= calls.answer(id, answer);
        }
        // Whoever was interrupted asks again, or polls. After an answer the system is told that there was one, before
        // the program's next call about this socket is looked at.
        if heard && let State::Failed(_) = state {
            let _ = self.gate.knock(socket, *to);
            table.forget(attempt.cookie);
        }
        true
    }

    async fn open(&self, attempt: &Attempt, target: Target) -> Result<(Dialed, TcpStream), i32> {
        let dialed = self.client.dial(target).await;
        let dialed = dialed.map_err(|refusal| error_of(refusal.status))?;
        let is_wanted = {
            let mut table = self.table();
            let entry = table.get(attempt.cookie);
            entry.is_some_and(|entry| entry.state == State::Connecting(attempt.id))
        };
        if !is_wanted {
            return Err(libc::ECONNABORTED);
        }
        let tcp = self.gate.let_in(&attempt.socket, attempt.to).await;
        // The program gave up, or there are no open files left.
        let tcp = tcp.map_err(|error| error.raw_os_error().unwrap_or(libc::ETIMEDOUT))?;
        Ok((dialed, tcp))
    }

    /// `getpeername`: whom the program connected to, and not where that led.
    fn peer_name(&self, calls: &Calls, call: &Call) -> io::Result<Answer> {
        if self.table().is_empty() {
            return Ok(Answer::GoOn);
        }
        let socket = self.socket_of(calls, call)?;
        let Some(peer) = socket.peer_addr()?.as_socket().map(canonical) else {
            return Ok(Answer::GoOn);
        };
        if !self.gate.is(peer) && self.relays.host_of(peer).is_none() {
            return Ok(Answer::GoOn);
        }
        let Some(given) = self.given(socket.cookie()?) else {
            return Ok(Answer::GoOn);
        };
        let [_, at, len_at, ..] = call.arguments;
        put(call, (at, len_at), &given)?;
        Ok(Answer::Done)
    }

    fn given(&self, cookie: u64) -> Option<Vec<u8>> {
        let mut table = self.table();
        table.get(cookie).map(|entry| entry.given.clone())
    }

    /// `getsockopt` of `SO_ERROR`: why the server could not connect.
    fn last_error(&self, calls: &Calls, call: &Call) -> io::Result<Answer> {
        if self.table().is_empty() {
            return Ok(Answer::GoOn);
        }
        let socket = self.socket_of(calls, call)?;
        let mut table = self.table();
        let state = table.get(socket.cookie()?).map(|entry| entry.state);
        let Some(State::Failed(errno)) = state else {
            return Ok(Answer::GoOn);
        };
        // It is told once.
        let errno = socket.take_error()?.map_or(0, |_| errno);
        drop(table);
        let [_, _, _, at, len_at, ..] = call.arguments;
        put(call, (at, len_at), &errno.to_ne_bytes())?;
        Ok(Answer::Done)
    }
}

/// What becomes of a call that nothing could be done about. Of what cannot be looked at the system says what is
/// wrong with it; but what this process has no files or ports left for fails, for it would go where it should be
/// carried to, and not be carried.
fn without(number: libc::c_long, error: &io::Error) -> Answer {
    let is_sent = matches!(
        number,
        libc::SYS_connect | libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_sendmmsg
    );
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::EADDRINUSE | libc::EADDRNOTAVAIL) if is_sent => {
            Answer::Failed(libc::ENOBUFS)
        }
        Some(errno @ (libc::ENOMEM | libc::ENOBUFS)) if is_sent => Answer::Failed(errno),
        _ => Answer::GoOn,
    }
}

/// Whether `socket` is of TCP alone: that of several paths (MPTCP) has connections of its own kind.
fn is_tcp(socket: &Socket) -> io::Result<bool> {
    Ok(socket.r#type()? == Type::STREAM && socket.protocol()? == Some(Protocol::TCP))
}

/// Gives a program what it asked for at an address, with the length at another, where it has written how much
/// there is room for.
fn put(call: &Call, (at, len_at): (u64, u64), bytes: &[u8]) -> io::Result<()> {
    let room = process::read(call.thread, len_at, 4)?;
    let room = i32::from_ne_bytes([room[0], room[1], room[2], room[3]]);
    let room = usize::try_from(room).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    process::write(call.thread, at, &bytes[..bytes.len().min(room)])?;
    let len = (bytes.len() as u32).to_ne_bytes();
    process::write(call.thread, len_at, &len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_are_no_files_for_does_not_go_around() {
        let without = |number, errno| without(number, &io::Error::from_raw_os_error(errno));
        for number in [libc::SYS_connect, libc::SYS_sendto, libc::SYS_sendmmsg] {
            for errno in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS] {
                assert_eq!(without(number, errno), Answer::Failed(libc::ENOBUFS));
            }
            // What the system will say itself, and what nobody may look into.
            for errno in [libc::EBADF, libc::EFAULT, libc::EPERM, libc::ESRCH] {
                assert_eq!(without(number, errno), Answer::GoOn);
            }
        }
        assert_eq!(without(libc::SYS_recvmsg, libc::EMFILE), Answer::GoOn);
    }
}
