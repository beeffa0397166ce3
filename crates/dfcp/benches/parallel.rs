//! How many cores an endpoint takes: one connection on one core, beside several on as many, over
//! loopback, taking turns.
//!
//! Each run is a process of one endpoint that connects to itself, so that both ends of every
//! connection are the endpoint's, and is allowed so many cores. Each connection moves a stream of the
//! same length.
//!
//! `cargo bench -p dfcp --bench parallel -- [--bytes N] [--rounds N] [--connections N] [--json FILE]`

use bytes::Bytes;
use dfcp::{CloseCode, Connection, Endpoint, EndpointConfig, Error, generate_key};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::process::{Command, Stdio};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bytes of each write: about a block.
const WRITE: usize = 160_000;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let get = |name: &str| {
        let at = args.iter().position(|a| a == name);
        at.and_then(|i| args.get(i + 1))
    };
    let number = |name: &str, default: usize| get(name).map_or(Ok(default), |n| n.parse());
    let bytes = number("--bytes", 500_000_000)?;
    let connections = number("--connections", 2)?;
    if let Some(cores) = get("--cores") {
        return run(cores.parse()?, connections, bytes);
    }
    parent(
        bytes,
        number("--rounds", 7)?,
        connections,
        get("--json").map(String::as_str),
    )
}

fn parent(bytes: usize, rounds: usize, connections: usize, json: Option<&str>) -> Result<()> {
    let mut raw = Vec::new();
    println!(
        "| {bytes} bytes for each connection | 1 on 1 core, GB/s | {connections} on {connections} cores | ratio |"
    );
    println!("|---|---|---|---|");
    for round in 0..rounds {
        let one = goodput(1, 1, bytes)?;
        let many = goodput(connections, connections, bytes)?;
        println!("| {round} | {one:.3} | {many:.3} | {:.2} |", many / one);
        raw.push((one, many));
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let one = median(raw.iter().map(|r| r.0).collect());
    let many = median(raw.iter().map(|r| r.1).collect());
    let ratio = median(raw.iter().map(|r| r.1 / r.0).collect());
    println!("| median | {one:.3} | {many:.3} | {ratio:.2} |");
    if let Some(path) = json {
        let rows: Vec<_> = raw
            .iter()
            .map(|(one, many)| {
                serde_json::json!({"bytes": bytes, "connections": connections,
                    "one_gb_per_s": one, "all_gb_per_s": many})
            })
            .collect();
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(())
}

/// Runs a process, which prints GB/s.
fn goodput(cores: usize, connections: usize, bytes: usize) -> Result<f64> {
    let child = Command::new(std::env::current_exe()?)
        .args(["--cores", &cores.to_string()])
        .args(["--connections", &connections.to_string()])
        .args(["--bytes", &bytes.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.wait_with_output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

fn run(cores: usize, connections: usize, bytes: usize) -> Result<()> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let mut ours = CpuSet::new();
    let free = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    for cpu in free.take(cores) {
        ours.set(cpu)?;
    }
    sched_setaffinity(Pid::from_raw(0), &ours)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        .enable_all()
        .build()?;
    let seconds =
        runtime.block_on(async move { tokio::spawn(transfer(connections, bytes)).await? })?;
    println!("{}", (connections * bytes) as f64 / 1e9 / seconds);
    Ok(())
}

/// Seconds for `bytes` on each of `connections`.
async fn transfer(connections: usize, bytes: usize) -> Result<f64> {
    let bind = "127.0.0.1:0".parse()?;
    let endpoint = Endpoint::bind(EndpointConfig::server(generate_key()?, bind))?;
    let mut pairs = Vec::new();
    for _ in 0..connections {
        let connect = endpoint.connect(endpoint.local_addr(), endpoint.public_key());
        let (near, far) = tokio::join!(connect, endpoint.accept());
        pairs.push((near?, far.ok_or("no client")?.accept()));
    }
    let begun = Instant::now();
    let mut ends = Vec::new();
    for (near, far) in pairs {
        ends.push(tokio::spawn(send(near, bytes)));
        ends.push(tokio::spawn(receive(far, bytes)));
    }
    let mut held = Vec::new();
    for end in ends {
        held.push(end.await??);
    }
    let seconds = begun.elapsed().as_secs_f64();
    endpoint.close(CloseCode::NO_ERROR, "").await;
    Ok(seconds)
}

async fn send(connection: Connection, bytes: usize) -> std::result::Result<Connection, Error> {
    let mut stream = connection.open_uni().await?;
    let chunk = Bytes::from(vec![7; WRITE]);
    let mut left = bytes;
    while left > 0 {
        let part = chunk.slice(..left.min(WRITE));
        left -= part.len();
        stream.write_chunk(part).await?;
    }
    stream.finish()?;
    stream.delivered().await?;
    Ok(connection)
}

async fn receive(connection: Connection, bytes: usize) -> std::result::Result<Connection, Error> {
    let mut stream = connection.accept_uni().await?;
    let mut left = bytes;
    while left > 0 {
        match stream.read_chunk(1 << 20).await? {
            dfcp::Chunk::Data(data) => left -= data.len(),
            _ => return Err(Error::Closed),
        }
    }
    Ok(connection)
}
