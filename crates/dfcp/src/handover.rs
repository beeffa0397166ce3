//! Two endpoints at one port: one that ends keeps the packets of its connections, while another of the same
//! user, which begins, gets all others (Linux).
//!
//! Sockets of UDP may share a port if all of them say so (SO_REUSEPORT, socket(7)); a program that one of them
//! gives the kernel says which gets a packet. A socket says so only while it is bound, and once it is handed
//! over. Two names in the abstract namespace keep endpoints that mean to stay from having one port by mistake:
//! who hands over holds the one as long as it lives, so that who comes next knows when it has the port alone;
//! and the other is held by the one that binds, until it has the port alone. Who does not get that name binds
//! as if nobody could share.

use dfcp_proto::wire::ConnectionId;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// How often it is looked whether the endpoint before has ended.
#[cfg(target_os = "linux")]
const LOOK: std::time::Duration = std::time::Duration::from_secs(1);

/// That an endpoint hands its port over, for as long as it has packets of its own there.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// Nothing is sent to it: its name is what counts.
    #[cfg(target_os = "linux")]
    _name: std::os::unix::net::UnixDatagram,
}

/// That an endpoint comes to a port that another one hands over, until it has it alone.
pub(crate) type Arrival = Mutex<Option<Arriving>>;

/// Meanwhile no third one may.
#[derive(Debug)]
pub(crate) struct Arriving {
    #[cfg(target_os = "linux")]
    _name: std::os::unix::net::UnixDatagram,
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use nix::libc;
    use nix::sys::socket::{setsockopt, sockopt};
    use std::net::UdpSocket;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr as Name, UnixDatagram};
    use std::sync::{MutexGuard, PoisonError};

    fn leaving(at: SocketAddr) -> io::Result<Name> {
        Name::from_abstract_name(format!("dfcp leaves {at}"))
    }

    impl Leaving {
        /// # Errors
        /// [`io::ErrorKind::AddrInUse`] while another endpoint hands this port over.
        fn of(at: SocketAddr) -> io::Result<Self> {
            let _name = UnixDatagram::bind_addr(&leaving(at)?)?;
            Ok(Self { _name })
        }
    }

    impl Arriving {
        /// # Errors
        /// [`io::ErrorKind::AddrInUse`] while another endpoint comes to this port.
        fn at(at: SocketAddr) -> io::Result<Self> {
            let name = Name::from_abstract_name(format!("dfcp comes to {at}"))?;
            let _name = UnixDatagram::bind_addr(&name)?;
            Ok(Self { _name })
        }
    }

    /// Whether an endpoint hands the port over now.
    fn is_left(at: SocketAddr) -> bool {
        // To be connected to a name takes it from nobody.
        let connected = UnixDatagram::unbound().and_then(|socket| {
            socket.connect_addr(&leaving(at)?)?;
            Ok(())
        });
        connected.is_ok()
    }

    /// Binds `socket`, so that it may hand its port over some day; also to a port that is handed over now,
    /// and then says so: [`watch`] is to see to the rest.
    pub(crate) fn bind(socket: &socket2::Socket, at: SocketAddr) -> io::Result<Option<Arriving>> {
        // Any port is one that nobody has.
        let arriving = match at.port() {
            0 => None,
            _ => Arriving::at(at).ok(),
        };
        let Some(arriving) = arriving else {
            socket.bind(&at.into())?;
            return Ok(None);
        };
        setsockopt(socket, sockopt::ReusePort, &true)?;
        socket.bind(&at.into())?;
        if is_left(at) {
            return Ok(Some(arriving));
        }
        setsockopt(socket, sockopt::ReusePort, &false)?;
        Ok(None)
    }

    /// Lets nobody else bind to the port of `socket` any more, once it has it alone.
    pub(crate) fn watch(
        socket: &Arc<UdpSocket>,
        at: SocketAddr,
        arrival: &Arc<Arrival>,
    ) -> io::Result<()> {
        let (socket, arrival) = (Arc::downgrade(socket), Arc::downgrade(arrival));
        let wait = move || {
            while let (Some(socket), Some(arrival)) = (socket.upgrade(), arrival.upgrade()) {
                let mut arrival = lock(&arrival);
                // It may have been handed on meanwhile.
                if arrival.is_some() && !is_left(at) {
                    let _ = setsockopt(&*socket, sockopt::ReusePort, &false);
                    *arrival = None;
                }
                if arrival.is_none() {
                    return;
                }
                drop((arrival, socket));
                std::thread::park_timeout(LOOK);
            }
        };
        // A thread, since it is not worth a task that everybody who binds would have to run.
        std::thread::Builder::new()
            .name("port".into())
            .spawn(wait)?;
        Ok(())
    }

    fn lock(arrival: &Arrival) -> MutexGuard<'_, Option<Arriving>> {
        arrival.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on another endpoint may bind to the port, and gets all packets but those for `own`.
    pub(crate) fn hand_over(
        socket: &Arc<UdpSocket>,
        own: &[ConnectionId],
        arrival: &Arrival,
    ) -> io::Result<Leaving> {
        let mut arrival = lock(arrival);
        let leaving = Leaving::of(socket.local_addr()?)?;
        let mut program = program(own);
        let program = libc::sock_fprog {
            len: program.len().try_into().map_err(io::Error::other)?,
            filter: program.as_mut_ptr(),
        };
        setsockopt(&**socket, sockopt::AttachReusePortCbpf, &program)?;
        setsockopt(&**socket, sockopt::ReusePort, &true)?;
        *arrival = None;
        Ok(leaving)
    }

    /// Which socket gets a packet: the first, which is this one, those whose connection is in `own`, and the
    /// second all others. By the first half of an ID, which is drawn at random, in packets that are sealed.
    fn program(own: &[ConnectionId]) -> Vec<libc::sock_filter> {
        let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
        let end = |socket| step(RETURN, socket, 0, 0);
        let mut program = vec![
            step(LOAD_BYTE, 0, 0, 0),
            step(AND, !SEALED_KEY, 0, 0),
            step(IF_EQUAL, SEALED, 1, 0),
            end(1),
            step(LOAD_WORD, 1, 0, 0),
        ];
        for ConnectionId(id) in own {
            let half = u32::from_be_bytes([id[0], id[1], id[2], id[3]]);
            program.extend([step(IF_EQUAL, half, 0, 1), end(0)]);
        }
        program.push(end(1));
        program
    }

    // Instructions (linux/bpf_common.h).
    const LOAD_BYTE: u16 = 0x30; // BPF_LD | BPF_B | BPF_ABS
    const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
    const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    /// First byte of a sealed packet, and the bits in it that number its key (docs/spec/wire.md).
    const SEALED: u32 = 0x40;
    const SEALED_KEY: u32 = 0x03;
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{bind, hand_over, watch};

/// Elsewhere a port has one endpoint at a time.
#[cfg(not(target_os = "linux"))]
pub(crate) fn bind(socket: &socket2::Socket, at: SocketAddr) -> io::Result<Option<Arriving>> {
    socket.bind(&at.into())?;
    Ok(None)
}

/// See above.
#[cfg(not(target_os = "linux"))]
pub(crate) fn watch(
    _: &Arc<std::net::UdpSocket>,
    _: SocketAddr,
    _: &Arc<Arrival>,
) -> io::Result<()> {
    Ok(())
}

/// See above.
#[cfg(not(target_os = "linux"))]
pub(crate) fn hand_over(
    _: &Arc<std::net::UdpSocket>,
    _: &[ConnectionId],
    _: &Arrival,
) -> io::Result<Leaving> {
    Err(io::ErrorKind::Unsupported.into())
}
