//! Runs the kernel's TCP between two hosts of a lab, over the demo's path.
//!
//! Every transfer has hosts of its own, so the kernel's memory of earlier connections
//! (`tcp_metrics`) helps none. All of it is gone when this process ends.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Instant;

use dfcp_lab::worker::{self, Job, Load, Received, Report, Sent, Side, Sink, TcpSource};
use dfcp_lab::{FlowPorts, Lab, LabOptions, run};
use dfcp_proto::{Duration, Rate};
use dfcp_sim::scenario::Scenario;
use nix::sys::signal::Signal;

use super::path::PathConfig;
use super::tcp::{TcpArgs, TcpProgress, TcpResult, Unavailable};

/// How often it is said how much has arrived.
const INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);

/// In the order in which they are shown; those that the kernel does not offer are left out.
const CONGESTION_CONTROLS: [&str; 3] = ["cubic", "bbr", "reno"];

/// Runs a transfer with each congestion control.
pub(super) fn run(
    args: &TcpArgs,
    each: &mut dyn FnMut(TcpResult),
    seen: &(dyn Fn(TcpProgress) + Sync),
) -> Result<(), Unavailable> {
    dfcp_lab::isolate().map_err(|reason| Unavailable::new(reason.to_string()))?;
    // Whoever is interrupted while waiting for the results leaves nothing running.
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    let offered = run::congestion_controls();
    if offered.is_empty() {
        return Err(Unavailable::new("cannot list congestion controls"));
    }
    for control in CONGESTION_CONTROLS {
        if offered.iter().any(|other| other == control) {
            let result = transfer(control, args, seen)
                .map_err(|error| Unavailable::new(format!("TCP {control}: {error}")))?;
            each(result);
        }
    }
    Ok(())
}

/// The demo's path as a scenario whose only flow is TCP's.
fn scenario(path: &PathConfig) -> Result<Scenario, String> {
    let text = format!(
        "schema = 1\n\
         [run]\n\
         seed = {}\n\
         [link.path]\n\
         between = [\"client\", \"server\"]\n\
         rate = \"{} bit/s\"\n\
         delay = \"{} ns\"\n\
         loss = {:?}\n\
         queue = {{ limit = \"{} packets\" }}\n\
         [[flow]]\n\
         protocol = \"tcp-cubic\"\n\
         from = \"client\"\n\
         to = \"server\"\n",
        path.seed,
        path.rate.as_bps(),
        (path.rtt / 2).as_nanos(),
        path.loss,
        path.queue_packets,
    );
    Scenario::from_toml(&text, "the demo's path").map_err(|error| error.to_string())
}

fn transfer(
    control: &str,
    args: &TcpArgs,
    seen: &(dyn Fn(TcpProgress) + Sync),
) -> Result<TcpResult, String> {
    let text = |error: std::io::Error| error.to_string();
    let lab = Lab::start(&scenario(&args.path())?, &LabOptions::default())
        .map_err(|error| error.to_string())?;
    let (source, sink) = lab.flow_hosts(0);
    let server = SocketAddr::from((sink.ipv4(), FlowPorts::of(0).server));
    let limit_ns = u64::try_from(args.limit().as_nanos()).unwrap_or(u64::MAX);
    let patience = Duration::from_secs(10);
    let arriving = tempfile::NamedTempFile::new().map_err(text)?;
    let stop_ns = lab.now_ns().saturating_add(limit_ns);
    let takes = Job::TcpSink(Sink {
        listen: server,
        until_ns: stop_ns,
        output: Some(arriving.path().to_owned()),
    });
    let gives = Job::TcpSource(TcpSource {
        connect: server,
        congestion: Some(control.into()),
        load: Load::Bytes(args.size()),
        time: Side {
            start_ns: 0,
            stop_ns,
        },
    });
    let start = |host, job| worker::command(host, job)?.spawn();
    let mut sink = start(sink, &takes).map_err(text)?;
    worker::wait_ready(&mut sink, Instant::now() + patience)?;
    let source = start(source, &gives).map_err(text)?;
    let deadline = Instant::now() + args.limit() + patience;
    let name = format!("tcp-{control}");
    let ended = watched(&name, arriving.path(), seen, || sink.wait(deadline));
    let received = match worker::report(&ended)? {
        Report::Received(received) => received,
        _ => return Err("the receiver reports something else".into()),
    };
    // A path that lets no handshake through leaves the sender without a report.
    let sent = match worker::report(&source.wait(deadline)) {
        Ok(Report::Sent(sent)) => sent,
        _ => Sent::default(),
    };
    Ok(result(control, args, &received, &sent))
}

/// Says how a file grows while `wait` waits.
fn watched<T>(
    name: &str,
    file: &Path,
    seen: &(dyn Fn(TcpProgress) + Sync),
    wait: impl FnOnce() -> T,
) -> T {
    let (end, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let arrived = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
                seen(TcpProgress {
                    protocol: name.to_owned(),
                    arrived,
                });
            }
        });
        let waited = wait();
        drop(end);
        waited
    })
}

fn result(control: &str, args: &TcpArgs, received: &Received, sent: &Sent) -> TcpResult {
    let complete = received.bytes >= args.size();
    let since = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from));
    let end = match complete {
        true => since(sent.start_ns, received.last_ns),
        false => args.limit(),
    };
    let tenth = match received.bytes {
        0 => 0,
        _ => received.bytes_at(received.tenth_ns),
    };
    let rate = |bytes, time: Duration| match bytes {
        0 => 0,
        _ => Rate::from_transfer(bytes, time).as_bps(),
    };
    let steady = since(received.tenth_ns, received.last_ns);
    TcpResult {
        protocol: format!("tcp-{control}"),
        goodput_bps: rate(received.bytes, end),
        steady_bps: rate(received.bytes - tenth, steady),
        seconds: end.as_secs_f64(),
        complete,
        bytes: received.bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_a_scenario() {
        let path = PathConfig {
            loss: 1e-7,
            ..PathConfig::default()
        };
        let scenario = scenario(&path).unwrap();
        assert_eq!(scenario.rtt(&scenario.flows[0]), path.rtt);
        assert_eq!(scenario.links[0].config.loss, path.loss.into());
    }
}
