//! Datagrams of programs: what they send goes to relays, and what comes from those has the address of the host
//! that each stands for.

use std::io;
use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::{Protocol, Socket, Type};
use tokio::time::{Instant, timeout};

use crate::address::{self, Peer, canonical};
use crate::gate::{leaves_device, reached_by};
use crate::message::{Message, portable};
use crate::relays::Way;
use crate::supervisor::{Attempt, Inner, Note};
use crate::sys::{self, Answer, Call, Calls, Received};
use crate::table::{Entry, State};
use crate::{names, supervisor};

/// How often it is looked whether a program still waits for a datagram: until then its socket stays open.
const LOOK: Duration = Duration::from_secs(1);

/// Where a message goes.
enum Goes {
    /// Where the program says.
    There,
    /// To a relay.
    To(SocketAddr),
}

impl Inner {
    /// What becomes of datagrams to a host; nothing if it is none of this process's business.
    pub(crate) fn way(&self, to: SocketAddr) -> Option<Way> {
        let is_question = to.port() == names::PORT && self.routes.has_names();
        match is_question {
            true => Some(Way::Questions),
            false => self.target(canonical(to)).map(Way::Carried),
        }
    }

    /// Has a socket of UDP send to the relay of the host that its program connects it to.
    pub(crate) fn lead(&self, attempt: Attempt, way: Way) -> io::Result<Option<Answer>> {
        let socket = &attempt.socket;
        let relay = self.relays.toward(attempt.to, way)?;
        if !leaves_device(socket) {
            return Ok(Some(Answer::Failed(libc::EHOSTUNREACH)));
        }
        if let Err(error) = socket.connect(&reached_by(socket, relay)?.into()) {
            let errno = error.raw_os_error().unwrap_or(libc::ENETUNREACH);
            return Ok(Some(Answer::Failed(errno)));
        }
        self.speaks(attempt.cookie, attempt.given);
        Ok(Some(Answer::Done))
    }

    /// Takes note of a socket whose datagrams are carried.
    fn speaks(&self, cookie: u64, given: Vec<u8>) {
        let mut table = self.table();
        table.put(cookie, Entry::new(given, State::Datagrams, Vec::new()));
        // When it is closed nobody tells.
        table.is_over(cookie);
    }

    /// `sendto`, `sendmsg` and `sendmmsg`: what is for a host that is carried goes to its relay.
    pub(crate) fn send(&self, calls: &Calls, call: &Call) -> io::Result<Answer> {
        let (messages, flags) = messages(call, false)?;
        let mut hosts = Vec::with_capacity(messages.len());
        for message in &messages {
            hosts.push(match address::decode(&message.1.address(call)?) {
                Peer::Ip(to) => self.way(to).map(|way| (to, way)),
                _ => None,
            });
        }
        let Some((first, _)) = hosts.iter().flatten().next().cloned() else {
            return Ok(Answer::GoOn);
        };
        let socket = self.socket_of(calls, call)?;
        if sys::network_of(socket.as_fd()) != self.network || socket.r#type()? == Type::STREAM {
            return Ok(Answer::GoOn);
        }
        if !is_udp(&socket)? {
            if !self.has_foreign.swap(true, Ordering::Relaxed) {
                (self.note)(Note::Foreign(call.thread, first));
            }
            return Ok(Answer::GoOn);
        }
        if !leaves_device(&socket) {
            return Ok(Answer::Failed(libc::EHOSTUNREACH));
        }
        let cookie = socket.cookie()?;
        if self.table().get(cookie).is_none() {
            self.speaks(cookie, Vec::new());
        }
        self.has_unconnected.store(true, Ordering::Relaxed);
        let mut sent = 0;
        for ((at, message), host) in messages.iter().zip(hosts) {
            let goes = match host {
                Some((to, way)) => Goes::To(self.relays.toward(to, way)?),
                None => Goes::There,
            };
            match send_one(&socket, call, message, &goes, flags) {
                Ok(len) if call.number == libc::SYS_sendmmsg => {
                    Message::note_length(call, *at, len)?;
                    sent += 1;
                }
                Ok(len) => return Ok(Answer::Returned(len)),
                Err(_) if sent > 0 => break,
                Err(error) => return Ok(failed(&error)),
            }
        }
        Ok(Answer::Returned(sent))
    }

    /// `recvfrom`, `recvmsg` and `recvmmsg`: a datagram of a relay is its host's.
    pub(crate) fn receive(
        self: &Arc<Self>,
        calls: &Arc<Calls>,
        call: &Call,
    ) -> io::Result<Option<Answer>> {
        // Most who ask with `recvmsg` do so of other sockets; those of UDP that are connected know from whom
        // they hear.
        let may_be = match call.number {
            libc::SYS_recvfrom => !self.relays.is_empty(),
            _ => self.has_unconnected.load(Ordering::Relaxed),
        };
        let flags = flags_of(call);
        if !may_be || flags & libc::MSG_ERRQUEUE != 0 {
            return Ok(Some(Answer::GoOn));
        }
        let socket = self.socket_of(calls, call)?;
        let state = self.table().get(socket.cookie()?).map(|entry| entry.state);
        if state != Some(State::Datagrams) {
            return Ok(Some(Answer::GoOn));
        }
        let (messages, _) = messages(call, true)?;
        match self.take(&socket, call, &messages) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if socket.nonblocking()? || flags & libc::MSG_DONTWAIT != 0 {
                    return Ok(Some(Answer::Failed(libc::EAGAIN)));
                }
                let (inner, calls, call) = (self.clone(), calls.clone(), *call);
                self.runtime.spawn(async move {
                    let taken = inner.take_later(socket, &calls, &call, &messages).await;
                    if let Some(answer) = taken.unwrap_or_else(|error| Some(failed(&error))) {
                        calls.answer(call.id, answer);
                    }
                });
                Ok(None)
            }
            Err(error) => Ok(Some(failed(&error))),
            Ok(answer) => Ok(Some(answer)),
        }
    }

    /// Waits for the first message; nothing if the program does so no more.
    async fn take_later(
        &self,
        socket: Socket,
        calls: &Calls,
        call: &Call,
        messages: &[(u64, Message)],
    ) -> io::Result<Option<Answer>> {
        let end = socket.read_timeout()?.map(|limit| Instant::now() + limit);
        let socket = sys::watched(socket)?;
        loop {
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
            let came = timeout(left.min(LOOK), socket.readable()).await;
            if !calls.waits(call) {
                return Ok(None);
            }
            match self.take(socket.get_ref(), call, messages) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                taken => return taken.map(Some),
            }
            if let Ok(ready) = came {
                let mut ready = ready?;
                if ready.ready().is_read_closed() {
                    // Which no call empties.
                    return tell_end(call, messages).map(Some);
                }
                ready.clear_ready();
            } else if end.is_some_and(|end| end <= Instant::now()) {
                return Ok(Some(Answer::Failed(libc::EAGAIN)));
            }
        }
    }

    /// Takes what has come, without waiting.
    fn take(
        &self,
        socket: &Socket,
        call: &Call,
        messages: &[(u64, Message)],
    ) -> io::Result<Answer> {
        let flags = flags_of(call) & !libc::MSG_WAITFORONE | libc::MSG_DONTWAIT;
        let mut taken = 0;
        for (at, message) in messages {
            let room = (message.len(), message.control_len());
            let came = match sys::receive(socket.as_fd(), room, flags) {
                Ok(came) => came,
                Err(_) if taken > 0 => break,
                Err(error) => return Err(error),
            };
            message.fill(call, &came, &self.source(&came.name))?;
            if call.number != libc::SYS_recvmmsg {
                return Ok(Answer::Returned(came.len));
            }
            Message::note_length(call, *at, came.len)?;
            taken += 1;
        }
        Ok(Answer::Returned(taken))
    }

    /// Whose address a program is told instead of a relay's.
    fn source(&self, name: &[u8]) -> Vec<u8> {
        let Peer::Ip(from) = address::decode(name) else {
            return name.to_vec();
        };
        match (self.relays.host_of(from), from) {
            (None, _) => name.to_vec(),
            (Some(SocketAddr::V4(host)), SocketAddr::V6(_)) => {
                let ip = host.ip().to_ipv6_mapped();
                address::encode(SocketAddrV6::new(ip, host.port(), 0, 0).into())
            }
            (Some(host), _) => address::encode(host),
        }
    }
}

/// Whether `socket` is of UDP, and not of ICMP or the like, which also have datagrams.
pub(crate) fn is_udp(socket: &Socket) -> io::Result<bool> {
    Ok(socket.r#type()? == Type::DGRAM && socket.protocol()? == Some(Protocol::UDP))
}

/// The messages of a call with where their headers are, and its flags.
fn messages(call: &Call, is_received: bool) -> io::Result<(Vec<(u64, Message)>, i32)> {
    let at = call.arguments[1];
    let messages = match call.number {
        libc::SYS_sendto | libc::SYS_recvfrom => {
            vec![(at, Message::of_arguments(call, is_received)?)]
        }
        libc::SYS_sendmsg | libc::SYS_recvmsg => vec![(at, Message::of_header(call, at)?)],
        _ => Message::many(call)
            .map(|at| Ok((at, Message::of_header(call, at)?)))
            .collect::<io::Result<_>>()?,
    };
    Ok((messages, flags_of(call)))
}

fn flags_of(call: &Call) -> i32 {
    let at = match call.number {
        libc::SYS_sendmsg | libc::SYS_recvmsg => 2,
        _ => 3,
    };
    call.arguments[at] as i32
}

fn send_one(
    socket: &Socket,
    call: &Call,
    message: &Message,
    goes: &Goes,
    flags: i32,
) -> io::Result<usize> {
    let (payload, control) = (message.payload(call)?, message.control(call)?);
    // On this machine nothing waits for room.
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    match goes {
        Goes::There => {
            let name = message.address(call)?;
            sys::send(socket.as_fd(), &name, &payload, &control, flags)
        }
        Goes::To(relay) => {
            let name = address::encode(reached_by(socket, *relay)?);
            sys::send(socket.as_fd(), &name, &payload, &portable(&control), flags)
        }
    }
}

/// What is read of a socket that was shut down, as programs wake their own threads: no bytes, of nobody.
fn tell_end(call: &Call, messages: &[(u64, Message)]) -> io::Result<Answer> {
    let Some((at, message)) = messages.first() else {
        return Ok(Answer::Returned(0));
    };
    message.fill(call, &Received::default(), &[])?;
    if call.number != libc::SYS_recvmmsg {
        return Ok(Answer::Returned(0));
    }
    Message::note_length(call, *at, 0)?;
    Ok(Answer::Returned(1))
}

fn failed(error: &io::Error) -> Answer {
    Answer::Failed(error.raw_os_error().unwrap_or(supervisor::UNKNOWN))
}
