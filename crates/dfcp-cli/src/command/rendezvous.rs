//! `dfcp rendezvous`: the server where the two sides of a code find each other.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use dfcp_command::{Failure, block_on, fail, interrupted, units};
use dfcp_meet::{Action, Asker, RelayLimits, Server, ServerConfig};
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use tokio::io::Interest;

use crate::meet::{self, Clock, DEFAULT_PORT};

/// What a server is like.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Address to listen on: ADDRESS:PORT, :PORT or PORT [default: all addresses at port 4435]
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Carry the data of those who cannot reach each other; they are sealed end to end
    #[arg(long)]
    relay: bool,
    /// Most bytes that are relayed for one pair, such as 10G
    #[arg(long, value_name = "SIZE", default_value = "10G", value_parser = units::count)]
    relay_bytes: u64,
    /// Longest time that is relayed for one pair
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = units::age)]
    relay_time: Duration,
    /// Most pairs that are relayed at a time
    #[arg(long, value_name = "N", default_value_t = 64)]
    relay_sessions: usize,
}

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// Reads `ADDRESS:PORT`, `:PORT` and `PORT`.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok((Ipv6Addr::UNSPECIFIED, port).into());
    }
    text.parse()
        .map_err(|_| format!("not an address: {text:?}; write ADDRESS:PORT, :PORT or PORT"))
}

/// Runs the server until it is told to end.
pub fn run(args: Args) -> ExitCode {
    match block_on(serve(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn bind(args: &Options) -> Result<tokio::net::UdpSocket, Failure> {
    let address = args.address();
    let bound = std::net::UdpSocket::bind(address).or_else(|error| match address.ip() {
        // A system may have no IPv6 at all.
        IpAddr::V6(ip) if ip.is_unspecified() && error.kind() != io::ErrorKind::AddrInUse => {
            std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, address.port()))
        }
        _ => Err(error),
    });
    let socket = bound.and_then(|socket| {
        socket.set_nonblocking(true)?;
        widen(&socket);
        tokio::net::UdpSocket::from_std(socket)
    });
    socket.map_err(|error| {
        let failure = Failure::from(error);
        Failure::new(
            failure.kind,
            format!("cannot listen on {address}: {failure}"),
        )
    })
}

/// Relayed data come in bursts. What the system gives is enough for the rest.
fn widen(socket: &std::net::UdpSocket) {
    use nix::sys::socket::{setsockopt, sockopt};
    const BYTES: usize = 4 << 20;
    let _ = setsockopt(socket, sockopt::RcvBuf, &BYTES);
    let _ = setsockopt(socket, sockopt::SndBuf, &BYTES);
}

async fn serve(args: &Args) -> Result<(), Failure> {
    let say = |line: String| {
        if !args.quiet {
            dfcp_command::tell!("dfcp: {line}");
        }
    };
    let mut meeting = Meeting::open(&args.options)?;
    meeting.announce(say);
    let ended = tokio::select! {
        failure = meeting.run() => Err(failure),
        failure = interrupted() => Err(failure),
    };
    say(meeting.summary());
    ended
}

/// A server that is bound.
pub struct Meeting {
    options: Options,
    socket: tokio::net::UdpSocket,
    clock: Clock,
    server: Server,
}

impl Meeting {
    /// Binds; call within a tokio runtime.
    ///
    /// # Errors
    /// When the port is taken, or the system has no randomness.
    pub fn open(options: &Options) -> Result<Self, Failure> {
        let socket = bind(options)?;
        let config = ServerConfig {
            relay: options.limits(),
            max_relays: options.relay_sessions,
            ..ServerConfig::default()
        };
        let clock = Clock::start();
        let server = Server::new(config, meet::generator()?, clock.now());
        Ok(Self {
            options: options.clone(),
            socket,
            clock,
            server,
        })
    }

    /// Says where it is, and what it does.
    pub fn announce(&self, say: impl Fn(String)) {
        if let Ok(at) = self.socket.local_addr() {
            say(format!("listening on {at}"));
        }
        say(match self.options.limits() {
            Some(relay) => format!(
                "relaying up to {} and {} s for each of {} pairs",
                units::bytes(relay.bytes),
                relay.seconds,
                self.options.relay_sessions
            ),
            None => "relaying nothing: who cannot reach each other is told so (--relay)".to_owned(),
        });
    }

    /// Answers until the socket fails; says why.
    pub async fn run(&mut self) -> Failure {
        match answer(&self.socket, self.clock, &mut self.server).await {
            Ok(()) => Failure::new(dfcp_command::Kind::LocalIo, "the socket failed"),
            Err(failure) => failure,
        }
    }

    /// What it has done.
    pub fn summary(&self) -> String {
        let stats = self.server.stats();
        format!(
            "{} codes, {} letters, {} relayed, {} requests refused",
            stats.opened,
            stats.letters,
            units::bytes(stats.relayed_bytes),
            stats.refused
        )
    }
}

impl Options {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        let everywhere = (Ipv6Addr::UNSPECIFIED, DEFAULT_PORT).into();
        self.listen.unwrap_or(everywhere)
    }

    fn limits(&self) -> Option<RelayLimits> {
        self.relay.then(|| RelayLimits {
            bytes: self.relay_bytes,
            seconds: u32::try_from(self.relay_time.as_secs()).unwrap_or(u32::MAX),
        })
    }
}

/// Buffers of a batch, each for a merged run of datagrams (GRO).
const BATCH: usize = 4;
/// Largest run.
const RUN: usize = 65_536;

/// Answers until the socket fails. What comes merged goes on merged, from the address that whom it is for asked at
/// (the machine may have several, and people know one of them), with its congestion marks.
async fn answer(
    socket: &tokio::net::UdpSocket,
    clock: Clock,
    server: &mut Server,
) -> Result<(), Failure> {
    let state = UdpSocketState::new(UdpSockRef::from(socket))?;
    let is_ipv6 = socket.local_addr()?.is_ipv6();
    let mut buffer = vec![0; BATCH * RUN];
    let mut metas = [RecvMeta::default(); BATCH];
    loop {
        socket.readable().await?;
        let mut chunks = buffer.chunks_mut(RUN).map(io::IoSliceMut::new);
        let mut slices: [io::IoSliceMut<'_>; BATCH] =
            std::array::from_fn(|_| chunks.next().expect("one chunk for each slot"));
        let receive = || state.recv(UdpSockRef::from(socket), &mut slices, &mut metas);
        let count = match socket.try_io(Interest::READABLE, receive) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) if meet::passes(&error) => continue,
            Err(error) => return Err(error.into()),
        };
        for (meta, run) in metas.iter().zip(buffer.chunks(RUN)).take(count) {
            let send = |to: Asker, contents: &[u8], segment_size: Option<usize>| {
                let destination = match to.address {
                    SocketAddr::V4(v4) if is_ipv6 => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
                    other => other,
                };
                // No more at once than the system takes: one, where it cannot split runs.
                let most = segment_size.map_or(contents.len(), |size| {
                    size * state.max_gso_segments().max(1)
                });
                for contents in contents.chunks(most.max(1)) {
                    let transmit = Transmit {
                        destination,
                        ecn: meta.ecn,
                        contents,
                        segment_size: segment_size.filter(|size| *size < contents.len()),
                        src_ip: to.at,
                    };
                    // What does not fit into the system's buffer is lost, as on any path.
                    let _ = state.try_send(UdpSockRef::from(socket), &transmit);
                }
            };
            handle_run(server, clock, meta, &run[..meta.len], send);
        }
    }
}

/// Hands the datagrams of a run to the server, and sends what it says: those in a row that go on to
/// one address together.
fn handle_run(
    server: &mut Server,
    clock: Clock,
    meta: &RecvMeta,
    run: &[u8],
    send: impl Fn(Asker, &[u8], Option<usize>),
) {
    let address = match meta.addr.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, meta.addr.port()),
        IpAddr::V6(_) => meta.addr,
    };
    let at = meta.dst_ip;
    let from = Asker { address, at };
    let (now, stride) = (clock.now(), meta.stride.max(1));
    let mut together: Option<(Asker, std::ops::Range<usize>)> = None;
    let flush = |together: &mut Option<(Asker, std::ops::Range<usize>)>| {
        if let Some((to, range)) = together.take() {
            let several = range.len() > stride;
            send(to, &run[range], several.then_some(stride));
        }
    };
    for (i, datagram) in run.chunks(stride).enumerate() {
        let range = i * stride..i * stride + datagram.len();
        match (server.handle(now, from, datagram), &mut together) {
            (Action::Forward(to), Some((known, so_far))) if to == *known => {
                so_far.end = range.end;
            }
            (Action::Forward(to), _) => {
                flush(&mut together);
                together = Some((to, range));
            }
            (action, _) => {
                flush(&mut together);
                if let Action::Send(to, answer) = action {
                    send(to, &answer, None);
                }
            }
        }
    }
    flush(&mut together);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_to_listen_are_read() {
        for (text, address) in [
            ("5000", "[::]:5000"),
            (":5000", "[::]:5000"),
            ("10.0.0.2:7", "10.0.0.2:7"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(listen_address(text).unwrap().to_string(), address);
        }
        for bad in ["", ":", "x", "10.0.0.2", ":99999"] {
            assert!(listen_address(bad).is_err(), "{bad}");
        }
    }
}
