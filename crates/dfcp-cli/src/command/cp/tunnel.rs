//! The transport's datagrams over ssh's pipe, where UDP does not get through: a socket on loopback
//! stands for the other side.

use std::net::{Ipv4Addr, SocketAddr};

use dfcp_command::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::control::{self, Frame};

/// Datagrams that wait for the pipe; more are dropped, as a router would.
const MAX_WAITING: usize = 256;
/// Messages that wait to be read.
const MAX_MESSAGES: usize = 4;
/// Largest datagram.
const MAX_DATAGRAM: usize = 65_535;

/// A socket on loopback whose other end is at the other end of the pipe.
#[derive(Debug)]
pub struct Tunnel {
    /// Where the other side seems to be.
    pub address: SocketAddr,
    say: mpsc::Sender<Frame>,
    said: mpsc::Receiver<Vec<u8>>,
    tasks: [JoinHandle<()>; 3],
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
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
        mut from: impl AsyncRead + Unpin + Send + 'static,
        mut to: impl AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, Failure> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = socket.local_addr()?;
        let socket = std::sync::Arc::new(socket);
        let endpoint = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (wait, mut waiting) = mpsc::channel::<Frame>(MAX_WAITING);
        let (tell, said) = mpsc::channel::<Vec<u8>>(MAX_MESSAGES);
        let say = wait.clone();
        let inward = socket.clone();
        let into = tokio::spawn(async move {
            while let Ok(Some(frame)) = control::read(&mut from).await {
                match frame {
                    // What the system refuses is lost, as on any path.
                    Frame::Datagram(datagram) => {
                        let _ = inward.send_to(&datagram, endpoint).await;
                    }
                    Frame::Control(message) => {
                        let _ = tell.try_send(message);
                    }
                }
            }
        });
        let collect = tokio::spawn(async move {
            let mut buffer = vec![0; MAX_DATAGRAM];
            loop {
                match socket.recv_from(&mut buffer).await {
                    Ok((length, source)) if source.port() == port => {
                        let _ = wait.try_send(Frame::Datagram(buffer[..length].to_vec()));
                    }
                    Ok(_) => {} // of another program on this machine
                    Err(_) => return,
                }
            }
        });
        let out = tokio::spawn(async move {
            while let Some(frame) = waiting.recv().await {
                if control::write(&mut to, &frame).await.is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            address,
            say,
            said,
            tasks: [into, collect, out],
        })
    }
}
