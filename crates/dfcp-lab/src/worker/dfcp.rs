//! The protocols of this workspace, through the library that applications use: one stream from the
//! source to the sink, with the settings that the simulator gives a flow.

use std::future::Future;
use std::net::SocketAddr;

use dfcp::published;
use dfcp::published::rate::Restrained;
use dfcp::{CloseCode, Connection, Endpoint, EndpointConfig, Rate};
use dfcp_proto::Instant;
use dfcp_sim::LinkRate;
use dfcp_sim::engine::{DfcpConfig, DfcpPayload, PublishedConfig, Reader, Traffic};
use dfcp_sim::scenario::{ControlLaw, ControlSpec, FlowSpec, ProtocolSpec, Scenario};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Duration, interval, timeout};

use super::job::{DfcpJob, Ready};
use super::progress::{Meter, Received, Sent};
use super::{in_time, print_line, sleep_until};
use crate::path::clock::monotonic_ns;

/// Bytes written or read at once.
const CHUNK: usize = 1 << 16;

/// Bytes that a published connection may hold; the simulator, which holds none, knows no limit.
const PUBLISHED_BUFFER: u64 = 256 << 20;

/// How long a farewell is waited for.
const FAREWELL: Duration = Duration::from_secs(1);

/// A flow's protocol with its settings.
enum Protocol {
    Sealed(Box<DfcpConfig>),
    Published(Box<PublishedConfig>),
}

impl Protocol {
    fn of(scenario: &Scenario, flow: &FlowSpec) -> Result<Self, String> {
        match dfcp_sim::traffic(&on_a_real_path(scenario, flow)?) {
            Traffic::Dfcp(config) => Ok(Self::Sealed(config)),
            Traffic::Published(mut config) => {
                for end in [&mut config.client, &mut config.server] {
                    end.send_buffer = end.send_buffer.min(PUBLISHED_BUFFER);
                    end.receive_budget = end.receive_budget.min(PUBLISHED_BUFFER);
                }
                Ok(Self::Published(config))
            }
            _ => Err(format!("{} is none of our protocols", flow.protocol.name())),
        }
    }
}

/// The flow with real bytes, and with a rate instead of "line rate": a real sender does not see the
/// first link of its path, so it is told that link's rate, of what full packets carry below their
/// headers.
///
/// # Errors
/// What of its settings is only possible in simulation.
pub(crate) fn on_a_real_path(scenario: &Scenario, flow: &FlowSpec) -> Result<FlowSpec, String> {
    let mut flow = flow.clone();
    let first = flow
        .forward
        .first()
        .map(|link| &scenario.links[link.0].config);
    // What a link adds to a packet takes its time too.
    let packet = 1500 + first.map_or(0, |config| u128::from(config.framing));
    let first = match first.map(|config| &config.rate) {
        Some(LinkRate::Constant(rate)) => *rate,
        _ => Rate::from_bps(1_000_000_000),
    };
    const SEALED: u64 = 1472;
    let fix = |control: &mut ControlSpec, carried: u64| match control.law {
        ControlLaw::Ordered if carried == SEALED => {
            Err("a network controller's orders reach protocols dfcp and rc-udp only")
        }
        ControlLaw::BlockWait => Err("\"block-wait\" exists in simulation only"),
        ControlLaw::LineRate => {
            let bps = u128::from(first.as_bps()) * u128::from(carried) / packet;
            control.law = ControlLaw::Fixed(Rate::from_bps(bps as u64));
            Ok(())
        }
        _ => Ok(()),
    };
    if !flow.clock.is_exact() || !flow.sender_clock.is_exact() {
        return Err("clocks that are off exist in simulation only".into());
    }
    match &mut flow.protocol {
        ProtocolSpec::Dfcp(spec) => {
            spec.payload = DfcpPayload::Real;
            fix(&mut spec.control, SEALED)?;
        }
        ProtocolSpec::Published(spec) => {
            spec.payload = DfcpPayload::Real;
            fix(&mut spec.control, 1480)?;
        }
        ProtocolSpec::RcUdp(spec) => {
            spec.payload = DfcpPayload::Real;
            fix(&mut spec.control, 1480)?;
        }
        ProtocolSpec::Coded(_) => return Err("network coding exists in simulation only".into()),
        ProtocolSpec::Tcp(_) | ProtocolSpec::Udp(_) => {}
    }
    Ok(flow)
}

/// Runs something that is asynchronous.
fn block_on<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(work)
}

/// How often waiting looks at the time.
const TICK: Duration = Duration::from_millis(10);

/// What `work` gives; nothing if it is not done by a time, or somebody asked to stop.
async fn by<T>(until_ns: u64, work: impl Future<Output = T>) -> Option<T> {
    let over = async {
        let mut ticks = interval(TICK);
        while in_time(until_ns) {
            ticks.tick().await;
        }
    };
    tokio::select! {
        done = work => Some(done),
        () = over => None,
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Takes one connection until its end.
pub(super) fn sink(job: &DfcpJob) -> Result<Received, String> {
    let (scenario, flow) = job.flow.open()?;
    let protocol = Protocol::of(&scenario, &flow)?;
    let until = job.time.stop_ns;
    block_on(async {
        let mut meter = Meter::default();
        // A sender that stops before the end just stops: what came counts.
        let _in_time = match protocol {
            Protocol::Sealed(config) => {
                let mut application = Application {
                    reader: Reader::new(&config.reading),
                    epoch_ns: job.time.start_ns.saturating_sub(flow.start.as_nanos()),
                };
                let key = dfcp::generate_key().map_err(text)?;
                let config = EndpointConfig::server(key, job.server).transport(config.server);
                let endpoint = Endpoint::bind(config).map_err(text)?;
                print_line(&Ready { ready: true });
                let take = take_sealed(&endpoint, &mut application, &mut meter);
                by(until, take).await.is_some()
            }
            Protocol::Published(config) => {
                let bind = SocketAddr::new(job.own, 0);
                let port = job.server.port();
                // The network is the lab's, and so are the peers: windows are those of the simulator.
                let config = published::EndpointConfig::server(bind, port, config.server);
                let config = config.own_network(true).memory(u64::MAX);
                let endpoint = published::Endpoint::bind(config).map_err(text)?;
                print_line(&Ready { ready: true });
                let take = take_published(&endpoint, &mut meter);
                by(until, take).await.is_some()
            }
        };
        Ok(meter.finish())
    })
}

/// An application that reads no faster than its scenario says.
struct Application {
    reader: Reader,
    /// When the scenario's time zero was, nanoseconds of `CLOCK_MONOTONIC`.
    epoch_ns: u64,
}

impl Application {
    /// The scenario's time.
    fn now(&self) -> Instant {
        Instant::from_nanos(monotonic_ns().saturating_sub(self.epoch_ns))
    }

    /// Waits until it may read; how much it may then. `at` is how far its time has come, which is
    /// the time at which it wanted to wake: a timer that rings late, by a millisecond at least, does
    /// not make it slower.
    async fn allowed(&mut self, at: &mut Instant) -> u64 {
        loop {
            match (self.reader.available(*at), self.reader.next()) {
                (0, Some(next)) => {
                    let wait = next.saturating_since(self.now());
                    if !wait.is_zero() {
                        tokio::time::sleep(wait).await;
                    }
                    *at = next.max(*at);
                }
                (0, None) => *at = self.now(),
                (bytes, _) => return bytes,
            }
        }
    }
}

async fn take_sealed(
    endpoint: &Endpoint,
    application: &mut Application,
    meter: &mut Meter,
) -> Result<(), dfcp::Error> {
    let Some(incoming) = endpoint.accept().await else {
        return Ok(());
    };
    let connection = incoming.accept();
    let (_send, mut recv) = connection.accept_bi().await?;
    let mut buffer = vec![0; CHUNK];
    let mut at = application.now();
    loop {
        let allowed = application.allowed(&mut at).await;
        let len = CHUNK.min(usize::try_from(allowed).unwrap_or(CHUNK));
        let mut read = std::pin::pin!(recv.read_piece(&mut buffer[..len]));
        let piece = tokio::select! {
            biased;
            piece = &mut read => piece?,
            () = std::future::ready(()) => {
                let piece = read.await?;
                // Time in which there was nothing to read is not made up for.
                at = at.max(application.now());
                piece
            }
        };
        match piece {
            dfcp::Piece::Data(len) => {
                application.reader.took(len as u64);
                if allowed == u64::MAX {
                    at = application.now();
                }
                meter.add(len as u64);
            }
            dfcp::Piece::Gap(_) => {}
            dfcp::Piece::End => break,
        }
    }
    drop((recv, _send, connection));
    let _ = timeout(FAREWELL, endpoint.wait_idle()).await;
    Ok(())
}

async fn take_published(endpoint: &published::Endpoint, meter: &mut Meter) -> std::io::Result<()> {
    let Some(mut stream) = endpoint.accept().await else {
        return Ok(());
    };
    let mut buffer = vec![0; CHUNK];
    loop {
        match stream.read(&mut buffer).await? {
            0 => break,
            len => meter.add(len as u64),
        }
    }
    let _ = timeout(FAREWELL, stream.shutdown()).await;
    let _ = timeout(FAREWELL, stream.closed()).await;
    let _ = timeout(FAREWELL, endpoint.wait_idle()).await;
    Ok(())
}

/// Sends what there is to send, or until it is to stop.
pub(super) fn source(job: &DfcpJob) -> Result<Sent, String> {
    let (scenario, flow) = job.flow.open()?;
    let protocol = Protocol::of(&scenario, &flow)?;
    let until = job.time.stop_ns;
    let mut sent = Sent::default();
    let bind = SocketAddr::new(job.own, 0);
    block_on(async {
        match protocol {
            Protocol::Sealed(config) => {
                let key = dfcp::generate_key().map_err(text)?;
                let config = EndpointConfig::client(key)
                    .bind(bind)
                    .transport(config.client);
                let endpoint = Endpoint::bind(config).map_err(text)?;
                sleep_until(job.time.start_ns);
                sent.start_ns = monotonic_ns();
                let connect = endpoint.connect(job.server, None);
                let connected = by(until, connect).await;
                let connection = connected.ok_or("the sink does not answer")?.map_err(text)?;
                let give = give_sealed(&connection, flow.size, &mut sent.bytes);
                let done = by(until, give).await;
                let stats = connection.stats();
                sent.rtt_ns = Some(stats.rtt.as_nanos() as u64);
                sent.repairs = stats.repair_symbols_sent;
                sent.done_ns = monotonic_ns();
                match done {
                    Some(result) => result.map_err(text)?,
                    None => connection.close(CloseCode::NO_ERROR, "the time is up"),
                }
                drop(connection);
                let _ = timeout(FAREWELL, endpoint.wait_idle()).await;
            }
            Protocol::Published(config) => {
                let client = follower(job, config.client);
                let config = published::EndpointConfig::client(bind, client.clone());
                let config = config.own_network(true);
                let endpoint = published::Endpoint::bind(config).map_err(text)?;
                sleep_until(job.time.start_ns);
                sent.start_ns = monotonic_ns();
                let connect = endpoint.connect(job.server, job.server.port());
                let connected = by(until, connect).await;
                let mut stream = connected.ok_or("the sink does not answer")?.map_err(text)?;
                let orders = follow(job, &client, stream.monitor()).await?;
                let give = give_published(&mut stream, flow.size, &mut sent.bytes);
                let done = by(until, give).await;
                if let Some(stats) = stream.monitor().stats() {
                    sent.rtt_ns = stats.srtt.map(|rtt| rtt.as_nanos() as u64);
                    sent.repairs = stats.extra_packets;
                }
                sent.done_ns = monotonic_ns();
                match done {
                    Some(result) => result.map_err(text)?,
                    None => stream.abort(),
                }
                if let Some(orders) = orders {
                    orders.end().await;
                }
                let _ = timeout(FAREWELL, endpoint.wait_idle()).await;
            }
        }
        Ok(sent)
    })
}

/// The settings of a sender that a controller may lie to: a flood does not last.
fn follower(job: &DfcpJob, config: published::Config) -> published::Config {
    if job.controller.is_none() {
        return config;
    }
    let ordered = std::sync::Arc::clone(&config.rate);
    config.with_rate(move || Box::new(Restrained::new(ordered())))
}

/// Follows the controller that there is, if any.
async fn follow(
    job: &DfcpJob,
    config: &published::Config,
    monitor: published::Monitor,
) -> Result<Option<published::Orders>, String> {
    let Some(controller) = &job.controller else {
        return Ok(None);
    };
    let key =
        published::OrderKey::from_hex(&controller.key).ok_or("the controller's key is none")?;
    let ends = [SocketAddr::new(job.own, 0), job.server];
    let config = published::OrderConfig::new(controller.address, key, config, ends);
    let orders = published::Orders::follow(monitor, config).await;
    orders.map(Some).map_err(text)
}

async fn give_sealed(
    connection: &Connection,
    size: Option<u64>,
    bytes: &mut u64,
) -> Result<(), String> {
    let (mut send, _recv) = connection.open_bi().await.map_err(text)?;
    give(&mut send, size, bytes).await?;
    send.shutdown().await.map_err(text)
}

async fn give_published(
    stream: &mut published::Stream,
    size: Option<u64>,
    bytes: &mut u64,
) -> Result<(), String> {
    give(stream, size, bytes).await?;
    stream.shutdown().await.map_err(text)
}

async fn give(
    out: &mut (impl tokio::io::AsyncWrite + Unpin),
    size: Option<u64>,
    bytes: &mut u64,
) -> Result<(), String> {
    let chunk = vec![0x5a; CHUNK];
    let size = size.unwrap_or(u64::MAX);
    while *bytes < size {
        let len = CHUNK.min(usize::try_from(size - *bytes).unwrap_or(CHUNK));
        *bytes += out.write(&chunk[..len]).await.map_err(text)? as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use dfcp_sim::scenario::Document;

    use super::*;

    #[test]
    fn line_rate_is_what_the_first_link_takes_with_its_framing() {
        let rate = |framing: &str| {
            let text = format!(
                "schema = 1\n[topology]\nkind = \"dumbbell\"\nrtt = \"10 ms\"\n\
                 [link.default]\nrate = \"100 Mbit/s\"\nframing = \"{framing}\"\n\
                 [[flow]]\nprotocol = \"dfcp\"\n"
            );
            let mut document = Document::parse(&text, "test").unwrap();
            document.load_files(|_| unreachable!()).unwrap();
            let scenario = document.scenario().unwrap();
            let flow = on_a_real_path(&scenario, &scenario.flows[0]).unwrap();
            match flow.protocol {
                ProtocolSpec::Published(spec) => match spec.control.law {
                    ControlLaw::Fixed(rate) => rate.as_bps(),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(rate("ip"), 100_000_000 * 1480 / 1500);
        assert_eq!(rate("ethernet"), 100_000_000 * 1480 / 1538);
    }
}
