//! What no crate here wraps: the only unsafe code of this crate.

#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::{c_int, c_ulong, c_void, sock_filter};
use socket2::Socket;
use tokio::io::unix::AsyncFd;

// linux/seccomp.h; not all of it is in `libc`.
const SET_MODE_FILTER: libc::c_uint = 1;
const NEW_LISTENER: c_ulong = 1 << 3;
const CONTINUE: u32 = 1;
/// `SECCOMP_IOCTL_NOTIF_RECV`, `_SEND`, `_ID_VALID`: `_IOWR('!', 0, struct seccomp_notif)` and so on. The
/// last one in its first form, which all kernels know.
const RECEIVE: u32 = 0xc050_2100;
const SEND: u32 = 0xc018_2101;
const IS_VALID: u32 = 0x8008_2102;

/// `struct seccomp_notif`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RawCall {
    id: u64,
    pid: u32,
    flags: u32,
    number: c_int,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct RawAnswer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// A system call that waits for what becomes of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Names it; another one has another.
    pub id: u64,
    /// The thread that made it.
    pub thread: i32,
    /// Its number.
    pub number: libc::c_long,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It goes on as if nobody had asked.
    GoOn,
    /// It has succeeded.
    Done,
    /// It has succeeded, with this number.
    Returned(usize),
    /// It has failed with this number.
    Failed(i32),
}

/// Where calls come from.
#[derive(Debug)]
pub(crate) struct Calls {
    listener: OwnedFd,
    /// Those that have no answer yet.
    open: Mutex<BTreeSet<u64>>,
    /// What is shut down at the one end is heard at the other by who waits for a call.
    stop: (UnixStream, UnixStream),
}

impl Calls {
    /// Those of a listener.
    ///
    /// # Errors
    /// When there are no open files left.
    pub fn of(listener: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            listener,
            open: Mutex::default(),
            stop: UnixStream::pair()?,
        })
    }

    /// Waits for the next one; `None` when no program is left that could make one, or after [`Calls::stop`].
    pub fn next(&self) -> Option<Call> {
        loop {
            if !self.wait() {
                return None;
            }
            match self.receive() {
                Ok(call) => {
                    self.open().insert(call.id);
                    return Some(call);
                }
                // Whoever made it was interrupted, or this thread was.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits until there is a call; false if there will be none.
    fn wait(&self) -> bool {
        let watched = [self.listener.as_raw_fd(), self.stop.1.as_raw_fd()];
        let mut polls = watched.map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        loop {
            // SAFETY: two structures are read and written, which outlive the call.
            let ready = unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) };
            let [listener, stop] = polls.map(|poll| poll.revents);
            match ready {
                _ if ready > 0 => return stop == 0 && listener & libc::POLLIN != 0,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return false,
            }
        }
    }

    /// Has nobody wait for calls any more.
    pub fn stop(&self) {
        // A pair that was never closed shuts down.
        let _ = self.stop.0.shutdown(Shutdown::Both);
    }

    /// Whether nobody is left who could call, after `limit` at most.
    pub fn is_over(&self, limit: Duration) -> bool {
        let mut poll = libc::pollfd {
            fd: self.listener.as_raw_fd(),
            events: 0,
            revents: 0,
        };
        let limit = limit.as_millis().try_into().unwrap_or(c_int::MAX);
        // SAFETY: one structure is read and written, which outlives the call.
        unsafe { libc::poll(&raw mut poll, 1, limit) > 0 && poll.revents & libc::POLLHUP != 0 }
    }

    /// Lets all calls go on that wait, and hands out where others come from.
    pub fn let_go(&self) -> io::Result<OwnedFd> {
        let open = std::mem::take(&mut *self.open());
        for id in open {
            self.answer(id, Answer::GoOn);
        }
        self.listener.try_clone()
    }

    fn open(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self) -> io::Result<Call> {
        let mut raw = RawCall::default();
        // SAFETY: the request reads and writes one `struct seccomp_notif`, all bytes zero before, whose size
        // is in the request's number, and which outlives the call.
        let done = unsafe { libc::ioctl(self.listener.as_raw_fd(), RECEIVE as _, &raw mut raw) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Call {
            id: raw.id,
            thread: raw.pid as i32,
            number: raw.number.into(),
            arguments: raw.arguments,
        })
    }

    /// Whether the call still waits: then its thread is the one that made it.
    pub fn waits(&self, call: &Call) -> bool {
        let mut id = call.id;
        // SAFETY: the request reads one number of 64 bits, which outlives the call.
        unsafe { libc::ioctl(self.listener.as_raw_fd(), IS_VALID as _, &raw mut id) == 0 }
    }

    /// Answers a call; whether it still waits: it may have been interrupted, or have ended.
    pub fn answer(&self, id: u64, answer: Answer) -> bool {
        self.open().remove(&id);
        let (value, error, flags) = match answer {
            Answer::GoOn => (0, 0, CONTINUE),
            Answer::Done => (0, 0, 0),
            Answer::Returned(value) => (value as i64, 0, 0),
            Answer::Failed(errno) => (0, -errno, 0),
        };
        let mut raw = RawAnswer {
            id,
            value,
            error,
            flags,
        };
        // SAFETY: the request reads one `struct seccomp_notif_resp`, which outlives the call.
        unsafe { libc::ioctl(self.listener.as_raw_fd(), SEND as _, &raw mut raw) == 0 }
    }
}

/// Has `command` put itself under `filter` once it is a process of its own, tell its number and that of its
/// listener through `channel` (two numbers of 32 bits), and wait for a byte before it becomes the program.
pub(crate) fn confine(command: &mut Command, filter: Vec<sock_filter>, channel: UnixStream) {
    let own = move || {
        let listener = install(&filter)?;
        // SAFETY: getpid has no conditions.
        let pid = unsafe { libc::getpid() };
        let mut told = [0; 8];
        told[..4].copy_from_slice(&pid.to_ne_bytes());
        told[4..].copy_from_slice(&listener.as_raw_fd().to_ne_bytes());
        let fd = channel.as_raw_fd();
        // SAFETY: the bytes are ours for as long as the call takes.
        let wrote = unsafe { libc::write(fd, told.as_ptr().cast(), told.len()) };
        let mut byte = 0_u8;
        // SAFETY: as before; one byte is written to.
        let read = unsafe { libc::read(fd, (&raw mut byte).cast(), 1) };
        match wrote == 8 && read == 1 {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: what runs between fork and exec allocates nothing and takes no lock: system calls alone, on
    // memory that was there before. The listener closes with exec.
    unsafe { command.pre_exec(own) };
}

/// Puts this thread, and what it starts, under `filter`; async-signal-safe.
fn install(filter: &[sock_filter]) -> io::Result<OwnedFd> {
    let program = libc::sock_fprog {
        len: filter.len() as u16, // some dozens
        filter: filter.as_ptr().cast_mut(),
    };
    let install = || {
        let program = (&raw const program).cast::<c_void>();
        // SAFETY: the program is read during the call, and is there that long.
        unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, NEW_LISTENER, program) }
    };
    let mut fd = install();
    if fd < 0 {
        // Who does not rule this machine gives up what set-user-ID programs would have more.
        let zero: c_ulong = 0;
        // SAFETY: this option takes numbers alone.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as c_ulong, zero, zero, zero) };
        fd = install();
    }
    match fd {
        // SAFETY: the call made the descriptor, and nobody else has it.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until somebody has connected to a socket that listens, a second at most.
///
/// # Errors
/// When nobody has.
pub(crate) fn wait_for_input(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut poll = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure is read and written, which outlives the call.
    match unsafe { libc::poll(&raw mut poll, 1, 1000) } {
        1.. => Ok(()),
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Number of the namespace of a socket's network (since Linux 5.14), to tell it from others.
pub(crate) fn network_of(socket: BorrowedFd<'_>) -> Option<u64> {
    const SO_NETNS_COOKIE: c_int = 71; // asm-generic/socket.h
    let (mut cookie, mut len) = (0_u64, 8 as libc::socklen_t);
    // SAFETY: the option writes as many bytes as `len` says, to a number that has them.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    (done == 0).then_some(cookie)
}

/// Sends a message as `sendmsg` does: to an address as the system writes it, with what is said beside it.
///
/// # Errors
/// What the system says.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    name: &[u8],
    payload: &[u8],
    control: &[u8],
    flags: c_int,
) -> io::Result<usize> {
    let mut part = libc::iovec {
        iov_base: payload.as_ptr().cast_mut().cast(),
        iov_len: payload.len(),
    };
    // SAFETY: of numbers and pointers, for which nothing but zeros is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    if !name.is_empty() {
        message.msg_name = name.as_ptr().cast_mut().cast();
        message.msg_namelen = name.len() as libc::socklen_t;
    }
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !control.is_empty() {
        message.msg_control = control.as_ptr().cast_mut().cast();
        message.msg_controllen = control.len() as _;
    }
    // SAFETY: what the message points to is only read, and outlives the call.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// A message that came.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// What there was room for.
    pub payload: Vec<u8>,
    /// How long it is, as the call says.
    pub len: usize,
    /// Whom it is from, as the system writes it.
    pub name: Vec<u8>,
    pub control: Vec<u8>,
    pub flags: c_int,
}

/// Receives a message as `recvmsg` does, with room for so much of it and of what is said beside it.
///
/// # Errors
/// What the system says.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    (payload, control): (usize, usize),
    flags: c_int,
) -> io::Result<Received> {
    let (mut payload, mut control) = (vec![0_u8; payload], vec![0_u8; control]);
    let mut name = vec![0_u8; size_of::<libc::sockaddr_storage>()];
    let mut part = libc::iovec {
        iov_base: payload.as_mut_ptr().cast(),
        iov_len: payload.len(),
    };
    // SAFETY: as in `send`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = name.len() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control.len() as _;
    // SAFETY: all that the message points to is ours, has the lengths that it says, and outlives the call.
    let came = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let len = usize::try_from(came).map_err(|_| io::Error::last_os_error())?;
    payload.truncate(len);
    name.truncate(message.msg_namelen as usize);
    control.truncate(message.msg_controllen as usize);
    Ok(Received {
        payload,
        len,
        name,
        control,
        flags: message.msg_flags,
    })
}

/// Watches for what comes to a socket, which may be one that waits. Call within a tokio runtime.
///
/// # Errors
/// What the system says.
pub(crate) fn watched(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    // SAFETY: `Socket` owns its descriptor, which nobody replaces or closes while it is watched.
    Ok(unsafe { AsyncFd::register(socket)? })
}

/// Has `connect` of a socket of TCP connect, instead of waiting for what is sent first.
pub(crate) fn connect_at_once(socket: BorrowedFd<'_>) {
    let off: c_int = 0;
    // SAFETY: the option reads one `int`. Where it is not known nothing waits.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_FASTOPEN_CONNECT,
            (&raw const off).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
}
