//! The transport's datagrams over ssh's pipe, where UDP does not get through: a socket on loopback
//! stands for the other side.
//!
//! Nothing is dropped that can wait. What the endpoint sends is taken off the socket by a thread that
//! does nothing else, and waits in memory until the pipe takes it. The transport sees that as delay, to
//! which its rate controller settles; a short queue that drops would be a path that loses half of its
//! packets whenever the transport looks for its rate. The sender's buffer bounds what waits. Beyond that
//! the thread waits too, the socket's buffer fills, and the system drops.
//!
//! This does not hold up acknowledgements. Those of what is sent come by the other half of the pipe,
//! whose task waits for nothing of this one. Those of what is received wait behind what is sent, as at
//! any bottleneck, and a copy sends little else in that direction.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use dfcp_command::Failure;
use nix::sys::socket::{setsockopt, shutdown, sockopt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::control::{self, Frame};

/// Datagrams that wait for the pipe: 64 MiB of the smallest full ones (1200 bytes), twice the 32 MiB
/// that a connection keeps unacknowledged (`TransportConfig::send_buffer`), for it repeats some. Fewer
/// would drop what could wait, more would never be used.
const MAX_WAITING: usize = (64 << 20) / 1200;
/// Bytes that are written to the pipe, or read from it, at once: as many as it holds (64 KiB on Linux).
const BATCH: usize = 64 << 10;
/// Bytes that come out of the pipe before the endpoint gets its turn to read them: less than any
/// socket's buffer holds (`net.core.rmem_default`, 208 KiB, which counts a packet of 1500 bytes as
/// 2304).
const TURN: usize = 64 << 10;
/// What is asked for as buffer of the socket, for moments at which the thread does not run; the system
/// may give less.
const SOCKET_BUFFER: usize = 4 << 20;
/// Messages that wait to be read. They come when all is sent, so that nothing waits behind them.
const MAX_MESSAGES: usize = 4;
/// Largest datagram.
const MAX_DATAGRAM: usize = 65_535;

/// A socket on loopback whose other end is at the other end of the pipe.
#[derive(Debug)]
pub struct Tunnel {
    /// Where the other side seems to be.
    pub address: SocketAddr,
    socket: Arc<UdpSocket>,
    say: mpsc::Sender<Frame>,
    said: mpsc::Receiver<Vec<u8>>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        // The thread that reads it ends.
        let _ = shutdown(self.socket.as_raw_fd(), nix::sys::socket::Shutdown::Both);
    }
}

impl Tunnel {
    /// Says something to the other end.
    pub async fn say(&self, message: &impl Serialize) {
        if let Ok(text) = serde_json::to_vec(message) {
            // An end that is gone hears nothing.
            let _ = self.say.send(Frame::Control(text)).await;
        }
    }

    /// Returns when the pipe has ended; what the other end still says is lost.
    pub async fn ended(&mut self) {
        while self.said.recv().await.is_some() {}
    }

    /// The next message of the other end.
    pub async fn message<T: DeserializeOwned>(&mut self) -> Option<T> {
        serde_json::from_slice(&self.said.recv().await?).ok()
    }

    /// Carries datagrams between the endpoint at `port` of this machine and the pipe.
    pub async fn start(
        port: u16,
        from: impl AsyncRead + Unpin + Send + 'static,
        to: impl AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, Failure> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        // What other programs of this machine send to it is not for the other side.
        socket.connect((Ipv4Addr::LOCALHOST, port))?;
        let _ = setsockopt(&socket, sockopt::RcvBuf, &SOCKET_BUFFER);
        let socket = Arc::new(socket);
        let (wait, waiting) = mpsc::channel(MAX_WAITING);
        let (tell, said) = mpsc::channel(MAX_MESSAGES);
        let (say, collected) = (wait.clone(), socket.clone());
        std::thread::Builder::new()
            .name("tunnel".to_owned())
            .spawn(move || collect(&collected, &wait))?;
        Ok(Self {
            address: socket.local_addr()?,
            say,
            said,
            tasks: [
                tokio::spawn(carry_in(from, socket.clone(), tell)),
                tokio::spawn(carry_out(waiting, to)),
            ],
            socket,
        })
    }
}

/// Takes what the endpoint sends off the socket, until that is shut down or nobody wants it.
fn collect(socket: &UdpSocket, wait: &mpsc::Sender<Frame>) {
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        match socket.recv(&mut buffer) {
            // No datagram of the transport is empty.
            Ok(0) => return,
            Ok(length) => {
                let datagram = Frame::Datagram(buffer[..length].to_vec());
                if wait.blocking_send(datagram).is_err() {
                    return;
                }
            }
            // The endpoint was not there for a packet, or a signal came.
            Err(error) if is_passing(&error) => {}
            Err(_) => return,
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    let passing = [io::ErrorKind::ConnectionRefused, io::ErrorKind::Interrupted];
    passing.contains(&error.kind())
}

/// Hands what comes out of the pipe to the endpoint.
async fn carry_in(
    from: impl AsyncRead + Unpin,
    socket: Arc<UdpSocket>,
    tell: mpsc::Sender<Vec<u8>>,
) {
    // Each read of a standard input goes to another thread and back.
    let mut from = BufReader::with_capacity(BATCH, from);
    let mut turn = 0;
    while let Ok(Some(frame)) = control::read(&mut from).await {
        match frame {
            Frame::Datagram(datagram) => {
                turn += datagram.len();
                // Loopback takes it at once. What the system refuses is lost, as on any path.
                let _ = socket.send(&datagram);
            }
            Frame::Control(message) => {
                // Nobody may want to hear it.
                let _ = tell.send(message).await;
            }
        }
        if turn >= TURN {
            turn = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Writes what waits to the pipe, as much at once as it takes.
async fn carry_out(mut waiting: mpsc::Receiver<Frame>, mut to: impl AsyncWrite + Unpin) {
    let mut batch = Vec::new();
    while let Some(frame) = waiting.recv().await {
        let mut next = Ok(frame);
        while let Ok(frame) = next {
            // What is too long for a frame could not be read either.
            let _ = control::append(&frame, &mut batch);
            next = match batch.len() < BATCH {
                true => waiting.try_recv(),
                false => break,
            };
        }
        let written = async {
            to.write_all(&batch).await?;
            to.flush().await
        };
        if written.await.is_err() {
            return;
        }
        batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_a_slow_pipe_does_not_take_yet_waits_for_it() {
        const DATAGRAMS: usize = 3000;
        let endpoint = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (pipe, mut other) = tokio::io::duplex(64 << 10);
        let port = endpoint.local_addr().unwrap().port();
        let tunnel = Tunnel::start(port, tokio::io::empty(), pipe).await.unwrap();
        let waiting = || tunnel.say.max_capacity() - tunnel.say.capacity();
        for n in 0..DATAGRAMS as u32 {
            let mut datagram = [7; 1400];
            datagram[..4].copy_from_slice(&n.to_be_bytes());
            endpoint.send_to(&datagram, tunnel.address).unwrap();
            // Nobody reads the pipe, which holds two batches; a socket holds a hundred of these.
            let taken = async {
                while waiting() + 2 * BATCH / 1400 + 32 < n as usize {
                    tokio::task::yield_now().await;
                }
            };
            let taken = tokio::time::timeout(Duration::from_secs(20), taken).await;
            taken.unwrap_or_else(|_| panic!("{n} were sent, and {} wait", waiting()));
        }
        for n in 0..DATAGRAMS as u32 {
            let frame = control::read(&mut other);
            let frame = tokio::time::timeout(Duration::from_secs(20), frame).await;
            match frame.expect("it comes").unwrap() {
                Some(Frame::Datagram(datagram)) => assert_eq!(datagram[..4], n.to_be_bytes()),
                other => panic!("{other:?}"),
            }
        }
    }
}
