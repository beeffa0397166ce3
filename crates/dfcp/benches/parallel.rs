//! What connections of one endpoint take from each other: one busy connection on one core, beside two on
//! two cores, and beside one among many idle ones, over loopback, taking turns.
//!
//! Each run is a process of one endpoint that connects to itself, so that both ends of every
//! busy connection are the endpoint's, and is allowed so many cores. Each busy connection moves a stream
//! of the same length. Only ratios within a round mean something on a machine that does other things too.
//!
//! `cargo bench -p dfcp --bench parallel -- [--bytes N] [--rounds N] [--connections N] [--idle N]
//! [--json FILE]`

use bytes::Bytes;
use dfcp::{CloseCode, Connection, Endpoint, EndpointConfig, Error, TransportConfig, generate_key};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bytes of each write: about a block.
const WRITE: usize = 160_000;
/// Idle connections from one address, which may begin 50 a second.
const IDLE_OF_ADDRESS: usize = 250;
/// Handshakes at a time from one address.
const AT_ONCE: usize = 8;

/// What a process does.
#[derive(Clone, Copy)]
struct Load {
    cores: usize,
    busy: usize,
    idle: usize,
    bytes: usize,
}

/// What it came to.
#[derive(Clone, Copy)]
struct Outcome {
    gigabytes_per_second: f64,
    /// Processor time for a gigabyte, both ends together.
    seconds_per_gigabyte: f64,
}

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
    let load = Load {
        cores: number("--cores", 0)?,
        busy: number("--connections", 2)?,
        idle: number("--idle", 10_000)?,
        bytes: number("--bytes", 500_000_000)?,
    };
    match load.cores {
        0 => parent(load, number("--rounds", 7)?, get("--json")),
        _ => run(load),
    }
}

fn parent(load: Load, rounds: usize, json: Option<&String>) -> Result<()> {
    let Load { busy, idle, .. } = load;
    let mut rows = Vec::new();
    println!(
        "| {} bytes each | 1 on 1 core, GB/s | {busy} on {busy} cores, GB/s | ratio | \
         1 alone, CPU s/GB | among {idle} idle | ratio |",
        load.bytes
    );
    println!("|---|---|---|---|---|---|---|");
    for round in 0..rounds {
        let (cores, busy) = (busy, busy);
        let alone = measure(Load {
            cores: 1,
            busy: 1,
            idle: 0,
            ..load
        })?;
        let many = measure(Load {
            cores,
            busy,
            idle: 0,
            ..load
        })?;
        let among = measure(Load {
            cores: 1,
            busy: 1,
            ..load
        })?;
        let row = [
            alone.gigabytes_per_second,
            many.gigabytes_per_second,
            many.gigabytes_per_second / alone.gigabytes_per_second,
            alone.seconds_per_gigabyte,
            among.seconds_per_gigabyte,
            among.seconds_per_gigabyte / alone.seconds_per_gigabyte,
        ];
        print_row(&round.to_string(), &row);
        rows.push(row);
    }
    let median = |column: usize| {
        let mut values: Vec<f64> = rows.iter().map(|row| row[column]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    print_row("median", &std::array::from_fn(median));
    if let Some(path) = json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                serde_json::json!({
                    "bytes": load.bytes, "connections": busy, "idle": idle,
                    "one_gb_per_s": row[0], "all_gb_per_s": row[1],
                    "alone_cpu_s_per_gb": row[3], "among_idle_cpu_s_per_gb": row[4],
                })
            })
            .collect();
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(())
}

fn print_row(name: &str, row: &[f64; 6]) {
    let [one, all, speedup, alone, among, cost] = row;
    println!(
        "| {name} | {one:.3} | {all:.3} | {speedup:.2} | {alone:.2} | {among:.2} | {cost:.2} |"
    );
}

/// Runs a process, which prints an [`Outcome`].
fn measure(load: Load) -> Result<Outcome> {
    let child = Command::new(std::env::current_exe()?)
        .args(["--cores", &load.cores.to_string()])
        .args(["--connections", &load.busy.to_string()])
        .args(["--idle", &load.idle.to_string()])
        .args(["--bytes", &load.bytes.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = String::from_utf8(child.wait_with_output()?.stdout)?;
    let mut numbers = output.split_whitespace().map(str::parse);
    let mut next = || numbers.next().ok_or("the process failed");
    Ok(Outcome {
        gigabytes_per_second: next()??,
        seconds_per_gigabyte: next()??,
    })
}

fn run(load: Load) -> Result<()> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let mut ours = CpuSet::new();
    let free = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    for cpu in free.take(load.cores) {
        ours.set(cpu)?;
    }
    sched_setaffinity(Pid::from_raw(0), &ours)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(load.cores)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async move { tokio::spawn(transfer(load)).await? })?;
    println!(
        "{} {}",
        outcome.gigabytes_per_second, outcome.seconds_per_gigabyte
    );
    Ok(())
}

async fn transfer(load: Load) -> Result<Outcome> {
    // Nothing is to happen on idle connections while others are measured.
    let transport = TransportConfig::default().idle_timeout(Duration::from_secs(600));
    let room = load.busy + load.idle;
    // With a set amount of memory, those of ten thousand connections have a window of 1 MiB each, and one
    // alone has 32: then windows are compared, not what idle connections cost.
    let config = EndpointConfig::server(generate_key()?, "127.0.0.1:0".parse()?)
        .keep_alive(None)
        .transport(transport.clone())
        .max_connections(room)
        .max_per_peer(room)
        .memory(u64::MAX);
    let endpoint = Endpoint::bind(config)?;
    let mut pairs = Vec::new();
    for _ in 0..load.busy {
        let connect = endpoint.connect(endpoint.local_addr(), endpoint.public_key());
        let (near, far) = tokio::join!(connect, endpoint.accept());
        pairs.push((near?, far.ok_or("no client")?.accept()));
    }
    let idle = idle_connections(&endpoint, &transport, load.idle).await?;

    let (begun, spent) = (Instant::now(), processor_time()?);
    let mut ends = Vec::new();
    for (near, far) in pairs {
        ends.push(tokio::spawn(send(near, load.bytes)));
        ends.push(tokio::spawn(receive(far, load.bytes)));
    }
    let mut held = Vec::new();
    for end in ends {
        held.push(end.await??);
    }
    let gigabytes = (load.busy * load.bytes) as f64 / 1e9;
    let outcome = Outcome {
        gigabytes_per_second: gigabytes / begun.elapsed().as_secs_f64(),
        seconds_per_gigabyte: (processor_time()? - spent) / gigabytes,
    };
    drop(idle);
    if load.idle == 0 {
        endpoint.close(CloseCode::NO_ERROR, "").await;
    }
    Ok(outcome)
}

/// Connections of others to `endpoint`, with their endpoints; their addresses differ because a server
/// computes only so many handshakes a second for each.
async fn idle_connections(
    endpoint: &Endpoint,
    transport: &TransportConfig,
    number: usize,
) -> Result<Vec<(Connection, Option<Connection>)>> {
    let mut clients = tokio::task::JoinSet::new();
    let (server, key) = (endpoint.local_addr(), endpoint.public_key());
    for first in (0..number).step_by(IDLE_OF_ADDRESS) {
        let config = EndpointConfig::client(generate_key()?)
            .keep_alive(None)
            .bind(format!("127.0.1.{}:0", first / IDLE_OF_ADDRESS + 1).parse()?)
            .transport(transport.clone());
        let count = IDLE_OF_ADDRESS.min(number - first);
        clients.spawn(async move {
            let client = Endpoint::bind(config)?;
            let mut connections = Vec::new();
            while connections.len() < count {
                let mut attempts = tokio::task::JoinSet::new();
                for _ in 0..AT_ONCE.min(count - connections.len()) {
                    let client = client.clone();
                    attempts.spawn(async move { client.connect(server, key).await });
                }
                // Who was turned away tries again.
                connections.extend(attempts.join_all().await.into_iter().flatten());
            }
            Ok::<_, Error>(connections)
        });
    }
    let mut held = Vec::new();
    while held.len() < number {
        held.push(endpoint.accept().await.ok_or("no client")?.accept());
    }
    let mut ends = Vec::new();
    for connections in clients.join_all().await {
        ends.extend(connections?);
    }
    let mut far = held.into_iter();
    let pairs = ends.into_iter().map(|near| (near, far.next())).collect();
    // Their handshakes' last packets.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(pairs)
}

/// Processor time of this process so far, seconds.
fn processor_time() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
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
