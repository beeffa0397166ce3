//! What is shown while a session runs: a bar for people, and events for programs. Both count what the
//! receiver has, and apart from that what the path costs.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dfcp::Connection;
use dfcp::published::Monitor;
use dfcp_command::text::printable;
use dfcp_command::{print_json, units};
use dfcp_transfer::{Meter, Outcome, Settled};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::AbortHandle;

use crate::command::Output;
use crate::report::Report;

/// When to show a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Show {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How often the bar is drawn.
const INTERVAL: Duration = Duration::from_millis(200);
/// Draws from one event about progress to the next: a second.
const EVENT: u32 = 5;
/// Goodput is that of so many draws, five seconds: shorter, the time that is left jumps; longer, a
/// change of the path does not show.
const WINDOW: usize = 25;

/// Columns that the whole line needs; on fewer it is a short one.
const WIDE: usize = 80;
/// Characters of a file's name that are shown: its end, by which files differ.
const NAME: usize = 24;

/// Bars of all sessions, a line each, and what is said above them.
static BARS: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));

/// Says something to people, above the bars.
pub fn say(line: &str) {
    BARS.suspend(|| dfcp_command::tell!("dfcp: {}", printable(line)));
}

/// Columns of the terminal that the bars are on, if they are on one.
fn bar_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    Some(size.ws_col.into()).filter(|columns| *columns > 0)
}

/// What a session has cost so far.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    rtt_ms: f64,
    /// Share of packets lost, recently.
    loss: f64,
    /// Bytes of IP packets; 0 where they are not known.
    wire_bytes: u64,
}

/// Where the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    /// Nothing has arrived.
    Waiting,
    /// They arrive.
    Moving,
    /// All have arrived; not all are in their place.
    Verifying,
}

/// A line of `--json=stream`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// What the session is about.
    Offer {
        remote: Option<SocketAddr>,
        files: usize,
        bytes: u64,
    },
    /// What became of a file.
    File {
        path: &'a str,
        size: u64,
        status: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        blake3: Option<dfcp_transfer::message::Hash>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
    },
    /// How far it is.
    Progress {
        remote: Option<SocketAddr>,
        phase: Phase,
        bytes: u64,
        total: u64,
        goodput_bps: u64,
        eta_seconds: Option<f64>,
        loss: f64,
        rtt_ms: f64,
        wire_bytes: u64,
    },
    /// The last line: what the session was like.
    End(&'a Report),
}

/// Prints the last event.
///
/// # Errors
/// When it cannot be written.
pub fn print_end(report: &Report) -> Result<(), dfcp_command::Failure> {
    print_json(&Event::End(report))
}

/// A session that is shown, until this is dropped.
#[derive(Debug)]
pub struct Bar(Option<(AbortHandle, Arc<Mutex<Shown>>)>);

impl Bar {
    /// Shows how `meter` advances, as far as that is wanted.
    pub fn start(
        output: &Output,
        connection: &Connection,
        remote: SocketAddr,
        meter: &Arc<Meter>,
    ) -> Self {
        let connection = connection.clone();
        let cost = move || {
            let mut report = Report::new("");
            report.add_connection(&connection, remote);
            Cost {
                rtt_ms: report.rtt_ms,
                loss: connection.stats().loss,
                wire_bytes: report.wire_bytes.max(report.wire_bytes_received),
            }
        };
        Self::show(output, Some(remote), meter, cost)
    }

    /// The same for a connection of DFCP as published.
    pub fn start_published(output: &Output, monitor: &Monitor, meter: &Arc<Meter>) -> Self {
        let monitor = monitor.clone();
        Self::show(output, None, meter, move || {
            monitor.stats().map_or(Cost::default(), |stats| Cost {
                rtt_ms: stats.srtt.unwrap_or_default().as_secs_f64() * 1e3,
                loss: stats.loss,
                wire_bytes: 0,
            })
        })
    }

    fn show(
        output: &Output,
        remote: Option<SocketAddr>,
        meter: &Arc<Meter>,
        cost: impl Fn() -> Cost + Send + 'static,
    ) -> Self {
        let wanted = match output.progress() {
            Show::Auto => std::io::stderr().is_terminal(),
            Show::Always => true,
            Show::Never => false,
        };
        if !wanted && !output.events() {
            return Self(None);
        }
        let shown = Shown {
            bar: wanted.then(bar),
            files: output.events().then(|| meter.diary().listen()),
            remote,
            meter: meter.clone(),
            cost: Box::new(cost),
            samples: VecDeque::new(),
            offered: false,
            draws: 0,
        };
        let shown = Arc::new(Mutex::new(shown));
        let drawn = shown.clone();
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                drawn.lock().unwrap_or_else(PoisonError::into_inner).draw();
            }
        });
        Self(Some((task.abort_handle(), shown)))
    }
}

/// A new line among the bars.
fn bar() -> ProgressBar {
    let bar = BARS.add(ProgressBar::no_length());
    // Without a terminal a bar that is wanted all the same is taken to be on a usual one.
    let template = match bar_columns().is_none_or(|columns| columns >= WIDE) {
        true => "{bar:12} {percent:>3}% {wide_msg}",
        false => "{percent:>3}% {wide_msg}",
    };
    // A wrong template would be a mistake of ours; the default one serves then.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some((task, shown)) = self.0.take() {
            task.abort();
            let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            // What happened since it was last drawn is an event, too.
            shown.tell_files();
            if let Some(bar) = &shown.bar {
                bar.finish_and_clear();
                BARS.remove(bar);
            }
        }
    }
}

struct Shown {
    bar: Option<ProgressBar>,
    /// If events are wanted.
    files: Option<UnboundedReceiver<Settled>>,
    remote: Option<SocketAddr>,
    meter: Arc<Meter>,
    cost: Box<dyn Fn() -> Cost + Send>,
    /// How many bytes there were when.
    samples: VecDeque<(Instant, u64)>,
    offered: bool,
    draws: u32,
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shown").finish_non_exhaustive()
    }
}

impl Shown {
    fn draw(&mut self) {
        let (bytes, total) = (self.meter.progress().bytes(), self.meter.total());
        let goodput = self.goodput(bytes);
        let left = total.saturating_sub(bytes);
        let eta = match goodput {
            0 => None,
            bps => Some(left as f64 * 8.0 / bps as f64),
        };
        let phase = match bytes {
            0 => Phase::Waiting,
            _ if total > 0 && left == 0 => Phase::Verifying,
            _ => Phase::Moving,
        };
        let cost = (self.cost)();
        if let Some(bar) = &self.bar {
            match total {
                0 => {}
                total => bar.set_length(total),
            }
            bar.set_position(bytes);
            let name = self.meter.diary().begun();
            let name = name.as_deref().map_or(String::new(), tail);
            let mut message = line(phase, (bytes, goodput, eta), &cost, &name);
            // A receiver has several.
            if let Some(remote) = self.remote {
                message += &format!(", {remote}");
            }
            bar.set_message(message);
        }
        self.tell_files();
        self.draws += 1;
        if self.files.is_some() && self.draws.is_multiple_of(EVENT) {
            // Whether it can be written the last event tells.
            let _ = print_json(&Event::Progress {
                remote: self.remote,
                phase,
                bytes,
                total,
                goodput_bps: goodput,
                eta_seconds: eta,
                loss: cost.loss,
                rtt_ms: cost.rtt_ms,
                wire_bytes: cost.wire_bytes,
            });
        }
    }

    /// Bits per second over the last draws.
    fn goodput(&mut self, bytes: u64) -> u64 {
        let now = Instant::now();
        self.samples.push_back((now, bytes));
        if self.samples.len() > WINDOW {
            self.samples.pop_front();
        }
        let (since, before) = self.samples[0];
        match bytes.saturating_sub(before) {
            0 => 0,
            came => dfcp::Rate::from_transfer(came, now - since).as_bps(),
        }
    }

    /// Prints what became of files.
    fn tell_files(&mut self) {
        let Some(files) = &mut self.files else {
            return;
        };
        let entries = self.meter.diary().entries();
        if !self.offered && !entries.is_empty() {
            self.offered = true;
            let _ = print_json(&Event::Offer {
                remote: self.remote,
                files: entries.iter().filter(|entry| entry.is_file()).count(),
                bytes: entries.iter().map(|entry| entry.size).sum(),
            });
        }
        while let Ok(settled) = files.try_recv() {
            let index = usize::try_from(settled.index).ok();
            let Some(entry) = index.and_then(|index| entries.get(index)) else {
                continue;
            };
            let (status, message) = match &settled.outcome {
                Outcome::Done => ("done", None),
                Outcome::There => ("there", None),
                Outcome::Skipped => ("skipped", None),
                Outcome::Error(problem) => ("error", Some(problem.message.as_str())),
            };
            let _ = print_json(&Event::File {
                path: &entry.path,
                size: entry.size,
                status,
                blake3: settled.hash,
                message,
            });
        }
    }
}

/// The end of a name, as it may be shown.
fn tail(name: &str) -> String {
    let name = printable(name);
    let count = name.chars().count();
    match count > NAME {
        false => name.into_owned(),
        true => "…"
            .chars()
            .chain(name.chars().skip(count - NAME + 1))
            .collect(),
    }
}

/// What is said beside the bar, what matters most first: narrow terminals cut the end off.
fn line(phase: Phase, so_far: (u64, u64, Option<f64>), cost: &Cost, name: &str) -> String {
    let (bytes, goodput, eta) = so_far;
    match phase {
        Phase::Waiting => return "waiting for the other side".to_owned(),
        Phase::Verifying => return "verifying at the receiver".to_owned(),
        Phase::Moving => {}
    }
    let eta = match eta {
        None => "--".to_owned(),
        Some(seconds) => clock(seconds),
    };
    let rate = dfcp::Rate::from_bps(goodput);
    let mut line = format!("{rate} eta {eta} {name}, {}", units::bytes(bytes));
    line += &format!(
        ", loss {:.1} %, rtt {:.0} ms",
        cost.loss * 100.0,
        cost.rtt_ms
    );
    if cost.wire_bytes > 0 {
        line += &format!(", {:.2} sent/byte", cost.wire_bytes as f64 / bytes as f64);
    }
    line
}

/// Seconds as people read them: `42s`, `3m05s`, `2h10m`.
fn clock(seconds: f64) -> String {
    match seconds.ceil() as u64 {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        s @ 3600..360_000 => format!("{}h{:02}m", s / 3600, s / 60 % 60),
        _ => "days".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_begins_with_what_a_narrow_terminal_has_room_for() {
        let cost = Cost {
            rtt_ms: 60.0,
            loss: 0.05,
            wire_bytes: 11_000_000,
        };
        let so_far = (10_000_000, 80_000_000, Some(12.3));
        let shown = line(Phase::Moving, so_far, &cost, "data/a.tar");
        assert!(
            shown.starts_with("80.00 Mbit/s eta 13s data/a.tar"),
            "{shown}"
        );
        assert!(
            shown.ends_with("loss 5.0 %, rtt 60 ms, 1.10 sent/byte"),
            "{shown}"
        );
        assert_eq!(
            line(Phase::Verifying, so_far, &cost, "x"),
            "verifying at the receiver"
        );
    }

    #[test]
    fn names_and_times_fit() {
        assert_eq!(tail("a/b"), "a/b");
        let long = tail(&"é/".repeat(100));
        assert_eq!(long.chars().count(), NAME);
        assert!(!tail("a\x1b[2Jb").contains('\x1b'));
        let shown = [0.0, 0.1, 59.5, 185.0, 7800.0, 1e12, f64::INFINITY].map(clock);
        assert_eq!(
            shown,
            ["0s", "1s", "1m00s", "3m05s", "2h10m", "days", "days"]
        );
    }
}
