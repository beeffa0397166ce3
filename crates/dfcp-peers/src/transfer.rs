//! A file over one QUIC stream, by quinn: from a file, to a file.
//!
//! Datagrams are of 1472 bytes, which fill 1500-byte IPv4 packets, and socket buffers of 4 MiB as
//! dfcp asks for. Flow-control windows are quinn's defaults unless stated: with larger ones
//! transfers over lossy paths die with "too many gaps in stream buffer".

use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::{Endpoint, EndpointConfig, TransportConfig};
use serde_json::{Value, json};

use crate::brutal::BrutalConfig;
use crate::certificate;
use crate::progress::{Progress, now_ns};

const DATAGRAM: u16 = 1472;
const SOCKET_BUFFER: usize = 4 << 20;
/// How long the end of a connection may take.
const FAREWELL: Duration = Duration::from_millis(200);
const READ: usize = 256 << 10;

/// Congestion controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Control {
    /// quinn's CUBIC
    Cubic,
    /// quinn's BBR
    Bbr,
    /// Our rendition of hysteria2's rate control: a told rate, whatever is lost
    Brutal,
}

/// How to send.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Sending {
    /// Congestion control
    #[arg(long, value_enum, default_value_t = Control::Cubic)]
    control: Control,
    /// Rate that brutal is told, bits of UDP payload a second
    #[arg(long, value_name = "BITS", required_if_eq("control", "brutal"))]
    rate: Option<u64>,
}

/// Flow control, for both sides.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Windows {
    /// Flow-control window in bytes [default: quinn's]
    #[arg(long, value_name = "BYTES")]
    window: Option<u32>,
}

impl Windows {
    fn transport(self) -> TransportConfig {
        let mut transport = TransportConfig::default();
        transport
            .initial_mtu(DATAGRAM)
            .min_mtu(DATAGRAM)
            .mtu_discovery_config(None);
        if let Some(window) = self.window {
            transport
                .stream_receive_window(window.into())
                .receive_window(window.into())
                .send_window(window.into());
        }
        transport
    }
}

fn endpoint(
    local: SocketAddr,
    server: Option<quinn::ServerConfig>,
) -> anyhow::Result<quinn::Endpoint> {
    let socket = std::net::UdpSocket::bind(local).with_context(|| local.to_string())?;
    let buffers = socket2::SockRef::from(&socket);
    buffers.set_recv_buffer_size(SOCKET_BUFFER)?;
    buffers.set_send_buffer_size(SOCKET_BUFFER)?;
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(DATAGRAM)?;
    let runtime = quinn::default_runtime().ok_or_else(|| anyhow!("no runtime"))?;
    Ok(Endpoint::new(config, server, socket, runtime)?)
}

/// Receives one file. `ready` is called once it listens; `limit` ends it early, with what came.
pub async fn receive(
    listen: SocketAddr,
    certificate: &Path,
    target: &Path,
    windows: Windows,
    limit: Duration,
    ready: impl FnOnce(),
) -> anyhow::Result<Value> {
    let (chain, key) = certificate::publish(certificate)?;
    let mut config = quinn::ServerConfig::with_single_cert(vec![chain], key.into())?;
    config.transport_config(Arc::new(windows.transport()));
    let endpoint = endpoint(listen, Some(config))?;
    ready();
    let mut progress = Progress::default();
    let whole = tokio::time::timeout(limit, receive_from(&endpoint, target, &mut progress));
    if let Ok(result) = whole.await {
        result?;
    }
    Ok(progress.report())
}

async fn receive_from(
    endpoint: &Endpoint,
    target: &Path,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let incoming = endpoint.accept().await.context("no client")?;
    let connection = incoming.await?;
    let mut stream = connection.accept_uni().await?;
    let file = File::create(target).with_context(|| target.display().to_string())?;
    let (sender, mut chunks) = tokio::sync::mpsc::channel::<(u64, Bytes)>(256);
    let writer = tokio::task::spawn_blocking(move || -> std::io::Result<()> {
        while let Some((offset, bytes)) = chunks.blocking_recv() {
            file.write_all_at(&bytes, offset)?;
        }
        Ok(())
    });
    while let Some(chunk) = stream.read_chunk(1 << 20, false).await? {
        progress.add(now_ns()?, chunk.bytes.len() as u64);
        sender.send((chunk.offset, chunk.bytes)).await?;
    }
    drop(sender);
    writer.await??;
    // The sender ends the connection; that it does may be lost on the way.
    let _ = tokio::time::timeout(FAREWELL, connection.closed()).await;
    Ok(())
}

/// Sends one file; done when the receiver has acknowledged all of its stream.
pub async fn send(
    to: SocketAddr,
    certificate: &Path,
    source: &Path,
    windows: Windows,
    sending: Sending,
) -> anyhow::Result<Value> {
    let mut file = File::open(source).with_context(|| source.display().to_string())?;
    let bytes = file.metadata()?.len();
    let start_ns = now_ns()?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate::read(certificate)?)?;
    let mut config = quinn::ClientConfig::with_root_certificates(Arc::new(roots))?;
    let mut transport = windows.transport();
    transport.congestion_controller_factory(sending.factory());
    config.transport_config(Arc::new(transport));
    let endpoint = endpoint((Ipv4Addr::UNSPECIFIED, 0).into(), None)?;
    let connection = endpoint
        .connect_with(config, to, certificate::NAME)?
        .await?;
    let mut stream = connection.open_uni().await?;
    let (sender, mut chunks) = tokio::sync::mpsc::channel::<std::io::Result<Bytes>>(4);
    tokio::task::spawn_blocking(move || {
        loop {
            let mut buffer = vec![0; READ];
            let chunk = file.read(&mut buffer).map(|len| {
                buffer.truncate(len);
                Bytes::from(buffer)
            });
            let end = !matches!(&chunk, Ok(chunk) if !chunk.is_empty());
            if sender.blocking_send(chunk).is_err() || end {
                break;
            }
        }
    });
    while let Some(chunk) = chunks.recv().await {
        stream.write_chunk(chunk?).await?;
    }
    stream.finish()?;
    let stopped = stream.stopped().await?;
    anyhow::ensure!(stopped.is_none(), "the receiver stopped the stream");
    let done_ns = now_ns()?;
    connection.close(0u32.into(), b"");
    let _ = tokio::time::timeout(FAREWELL, endpoint.wait_idle()).await;
    Ok(json!({"bytes": bytes, "start_ns": start_ns, "done_ns": done_ns}))
}

impl Sending {
    fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self.control {
            Control::Cubic => Arc::new(CubicConfig::default()),
            Control::Bbr => Arc::new(BbrConfig::default()),
            Control::Brutal => Arc::new(BrutalConfig {
                bytes_per_second: self.rate.unwrap_or_default() as f64 / 8.0,
            }),
        }
    }
}
