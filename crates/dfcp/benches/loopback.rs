//! Processor time to move a file over loopback, dfcp beside quinn, each side in a process of its
//! own, both with datagrams of 1472 bytes, taking turns in one run.
//!
//! `cargo bench -p dfcp --bench loopback -- [--bytes N] [--rounds N] [--json FILE]`

use bytes::Bytes;
use dfcp::{CloseCode, Endpoint, EndpointConfig, Progress, PublicKey, generate_key};
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const DATAGRAM: u16 = 1472;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let get = |name: &str| {
        args.iter()
            .position(|a| a == name)
            .and_then(|i| args.get(i + 1))
    };
    if let Some(role) = get("--role") {
        let path = get("--path").ok_or("--path")?.clone();
        let bind = get("--bind").map_or("127.0.0.1", String::as_str).parse()?;
        let peer = get("--peer").map_or("", String::as_str);
        return child(
            role,
            &Ends {
                path: &path,
                bind,
                peer,
            },
        );
    }
    let bytes: u64 = get("--bytes").map_or(Ok(1_000_000_000), |b| b.parse())?;
    let rounds: usize = get("--rounds").map_or(Ok(5), |r| r.parse())?;
    parent(bytes, rounds, get("--json").map(String::as_str))
}

/// One transfer's figures.
#[derive(Clone, Copy, Debug)]
struct Figures {
    seconds: f64,
    sender_cpu: f64,
    receiver_cpu: f64,
}

fn parent(bytes: u64, rounds: usize, json: Option<&str>) -> Result<()> {
    let folder = tempfile::tempdir_in(if std::path::Path::new("/dev/shm").is_dir() {
        "/dev/shm"
    } else {
        "/tmp"
    })?;
    let source = folder.path().join("source");
    make_file(&source, bytes)?;
    let mut all = vec![("dfcp", Vec::new()), ("quinn", Vec::new())];
    for _ in 0..rounds {
        for (name, figures) in &mut all {
            figures.push(transfer(name, folder.path(), bytes)?);
        }
    }
    println!(
        "| {bytes} bytes over loopback, median of {rounds} | GB/s | GB per CPU-second, sender | receiver |"
    );
    println!("|---|---|---|---|");
    let gb = bytes as f64 / 1e9;
    let median = |figures: &[Figures], f: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = figures.iter().map(f).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let rows: Vec<[f64; 3]> = all
        .iter()
        .map(|(_, figures)| {
            [
                gb / median(figures, |f| f.seconds),
                gb / median(figures, |f| f.sender_cpu),
                gb / median(figures, |f| f.receiver_cpu),
            ]
        })
        .collect();
    for ((name, _), row) in all.iter().zip(&rows) {
        println!("| {name} | {:.3} | {:.2} | {:.2} |", row[0], row[1], row[2]);
    }
    let ratio: Vec<f64> = rows[0].iter().zip(&rows[1]).map(|(a, b)| a / b).collect();
    println!(
        "| dfcp ÷ quinn | {:.2} | {:.2} | {:.2} |",
        ratio[0], ratio[1], ratio[2]
    );
    if let Some(path) = json {
        let raw: Vec<_> = all
            .iter()
            .flat_map(|(name, figures)| figures.iter().map(move |f| (name, f)))
            .map(|(name, f)| {
                serde_json::json!({"protocol": name, "bytes": bytes, "seconds": f.seconds,
                    "sender_cpu_seconds": f.sender_cpu, "receiver_cpu_seconds": f.receiver_cpu})
            })
            .collect();
        std::fs::write(path, serde_json::to_vec_pretty(&raw)?)?;
    }
    Ok(())
}

fn make_file(path: &std::path::Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let mut output = blake3::Hasher::new().finalize_xof();
    let mut buffer = vec![0; 1 << 20];
    let mut left = bytes as usize;
    while left > 0 {
        let n = left.min(buffer.len());
        output.fill(&mut buffer[..n]);
        file.write_all(&buffer[..n])?;
        left -= n;
    }
    Ok(())
}

/// Runs receiver and sender as processes; they print what the other needs and their CPU time.
fn transfer(name: &str, folder: &std::path::Path, bytes: u64) -> Result<Figures> {
    let target = folder.join("target");
    let spawn = |role: &str, path: &std::path::Path, peer: &str| {
        Command::new(std::env::current_exe()?)
            .args(["--role", &format!("{name}-{role}"), "--path"])
            .arg(path)
            .args(["--peer", peer])
            .stdout(Stdio::piped())
            .spawn()
    };
    let mut receiver = spawn("recv", &target, "")?;
    let mut lines = BufReader::new(receiver.stdout.take().ok_or("stdout")?).lines();
    let peer = lines.next().ok_or("the receiver says where it is")??;
    let start = Instant::now();
    let sender = spawn("send", &folder.join("source"), &peer)?.wait_with_output()?;
    let receiver_cpu: f64 = lines
        .next()
        .ok_or("the receiver ends with its CPU time")??
        .parse()?;
    let seconds = start.elapsed().as_secs_f64();
    receiver.wait()?;
    if std::fs::metadata(&target)?.len() != bytes {
        return Err("not everything arrived".into());
    }
    let sender_cpu = String::from_utf8(sender.stdout)?.trim().parse()?;
    Ok(Figures {
        seconds,
        sender_cpu,
        receiver_cpu,
    })
}

/// A child's file, the address it takes, and how it reaches the other one.
struct Ends<'a> {
    path: &'a str,
    bind: IpAddr,
    peer: &'a str,
}

fn child(role: &str, ends: &Ends<'_>) -> Result<()> {
    let Ends { path, bind, peer } = *ends;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match role {
            "dfcp-recv" => dfcp_recv(path, bind).await,
            "dfcp-send" => dfcp_send(path, peer).await,
            "quinn-recv" => quinn_recv(path, bind, quinn_transport()).await,
            "quinn-send" => quinn_send(path, bind, peer, quinn_transport()).await,
            "quinn-bbr-recv" => quinn_recv(path, bind, quinn_bbr()).await,
            "quinn-bbr-send" => quinn_send(path, bind, peer, quinn_bbr()).await,
            _ => Err("unknown role".into()),
        }
    })?;
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)?;
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    println!(
        "{}",
        seconds(usage.user_time()) + seconds(usage.system_time())
    );
    Ok(())
}

fn create(path: &str) -> Result<File> {
    Ok(File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?)
}

async fn dfcp_recv(path: &str, bind: IpAddr) -> Result<()> {
    let endpoint = Endpoint::bind(EndpointConfig::server(generate_key()?, (bind, 0).into()))?;
    println!("{} {}", endpoint.local_addr(), endpoint.public_key());
    let connection = endpoint.accept().await.ok_or("no client")?.accept();
    let mut object = connection.accept_object().await?;
    object
        .recv_object(create(path)?, u64::MAX, &Progress::default())
        .await?;
    connection.closed().await;
    Ok(())
}

async fn dfcp_send(path: &str, peer: &str) -> Result<()> {
    let (address, key) = peer.split_once(' ').ok_or("peer")?;
    let endpoint = Endpoint::bind(EndpointConfig::client(generate_key()?))?;
    let connection = endpoint.connect(address, key.parse::<PublicKey>()?).await?;
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    connection
        .send_object(file, size, &Progress::default())
        .await?;
    connection.close(CloseCode::NO_ERROR, "");
    drop(connection);
    endpoint.wait_idle().await;
    Ok(())
}

fn quinn_transport() -> Arc<quinn::TransportConfig> {
    let mut transport = quinn::TransportConfig::default();
    transport
        .initial_mtu(DATAGRAM)
        .mtu_discovery_config(None)
        .stream_receive_window((32u32 << 20).into())
        .receive_window((32u32 << 20).into())
        .send_window(32 << 20);
    Arc::new(transport)
}

/// BBR with quinn's own windows: larger ones fail on lossy paths ("too many gaps").
fn quinn_bbr() -> Arc<quinn::TransportConfig> {
    let mut transport = quinn::TransportConfig::default();
    transport
        .initial_mtu(DATAGRAM)
        .mtu_discovery_config(None)
        .congestion_controller_factory(Arc::new(quinn::congestion::BbrConfig::default()));
    Arc::new(transport)
}

fn quinn_endpoint_config() -> Result<quinn::EndpointConfig> {
    let mut config = quinn::EndpointConfig::default();
    config.max_udp_payload_size(DATAGRAM)?;
    Ok(config)
}

/// The same socket buffers as dfcp asks for.
fn udp_socket(bind: IpAddr) -> Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind((bind, 0))?;
    let reference = socket2::SockRef::from(&socket);
    reference.set_recv_buffer_size(4 << 20)?;
    reference.set_send_buffer_size(4 << 20)?;
    Ok(socket)
}

async fn quinn_recv(
    path: &str,
    bind: IpAddr,
    transport: Arc<quinn::TransportConfig>,
) -> Result<()> {
    let cert = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(cert.signing_key.serialize_der());
    let chain = vec![cert.cert.der().clone()];
    let mut config = quinn::ServerConfig::with_single_cert(chain, key.into())?;
    config.transport_config(transport);
    let runtime = quinn::default_runtime().ok_or("runtime")?;
    let endpoint = quinn::Endpoint::new(
        quinn_endpoint_config()?,
        Some(config),
        udp_socket(bind)?,
        runtime,
    )?;
    let der: String = cert.cert.der().iter().map(|b| format!("{b:02x}")).collect();
    println!("{} {der}", endpoint.local_addr()?);
    let connection = endpoint.accept().await.ok_or("no client")?.await?;
    let mut stream = connection.accept_uni().await?;
    let file = create(path)?;
    let (sender, mut chunks) = tokio::sync::mpsc::channel::<(u64, Bytes)>(256);
    let writer = tokio::task::spawn_blocking(move || -> std::io::Result<()> {
        while let Some((offset, bytes)) = chunks.blocking_recv() {
            file.write_all_at(&bytes, offset)?;
        }
        Ok(())
    });
    while let Some(chunk) = stream.read_chunk(1 << 20, false).await? {
        sender.send((chunk.offset, chunk.bytes)).await?;
    }
    drop(sender);
    writer.await??;
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

async fn quinn_send(
    path: &str,
    bind: IpAddr,
    peer: &str,
    transport: Arc<quinn::TransportConfig>,
) -> Result<()> {
    let (address, der) = peer.split_once(' ').ok_or("peer")?;
    let der: Vec<u8> = (0..der.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&der[i..i + 2], 16))
        .collect::<std::result::Result<_, _>>()?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(der.into())?;
    let mut config = quinn::ClientConfig::with_root_certificates(Arc::new(roots))?;
    config.transport_config(transport);
    let runtime = quinn::default_runtime().ok_or("runtime")?;
    let endpoint =
        quinn::Endpoint::new(quinn_endpoint_config()?, None, udp_socket(bind)?, runtime)?;
    let connection = endpoint
        .connect_with(config, address.parse::<SocketAddr>()?, "localhost")?
        .await?;
    let mut stream = connection.open_uni().await?;
    let mut file = File::open(path)?;
    let (sender, mut chunks) = tokio::sync::mpsc::channel::<std::io::Result<Bytes>>(4);
    tokio::task::spawn_blocking(move || {
        loop {
            let mut buffer = vec![0; 256 << 10];
            let chunk = file.read(&mut buffer).map(|n| {
                buffer.truncate(n);
                Bytes::from(buffer)
            });
            let end = !matches!(&chunk, Ok(c) if !c.is_empty());
            if sender.blocking_send(chunk).is_err() || end {
                break;
            }
        }
    });
    while let Some(chunk) = chunks.recv().await {
        stream.write_chunk(chunk?).await?;
    }
    stream.finish()?;
    connection.closed().await;
    endpoint.wait_idle().await;
    Ok(())
}
