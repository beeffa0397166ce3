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
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

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

/// Columns from which there is a bar; on fewer the figures need the room. A terminal that does not say
/// how wide it is has as many.
const WIDE: usize = 80;
/// Columns of the bar, of the percentage, and of the blanks after them.
const BAR: usize = 12;
const PERCENT: usize = 4;
/// Columns of a file's name that are shown: its end, by which files differ; and the fewest that tell
/// anything.
const NAME: usize = 24;
const SHORT_NAME: usize = 6;

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
    /// None arrive; both sides read files that are there in another version.
    Comparing,
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
        let screen = || match std::io::stderr().is_terminal() {
            true => Screen::Line(bar()),
            false => Screen::Log,
        };
        let shown = Shown {
            screen: wanted.then(screen),
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
    // What is drawn is composed here, for as many columns as there are just then. A wrong template
    // would be a mistake of ours; the default one serves then.
    if let Ok(style) = ProgressStyle::with_template("{msg}") {
        bar.set_style(style);
    }
    bar
}

/// Where bars go.
enum Screen {
    /// A line of a terminal, drawn over.
    Line(ProgressBar),
    /// A pipe or a file, which gets a line now and then.
    Log,
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some((task, shown)) = self.0.take() {
            task.abort();
            let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            // What happened since it was last drawn is an event, too.
            shown.tell_files();
            if let Some(Screen::Line(bar)) = &shown.screen {
                bar.finish_and_clear();
                BARS.remove(bar);
            }
        }
    }
}

struct Shown {
    screen: Option<Screen>,
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
            _ if goodput == 0 && self.meter.diary().is_comparing() => Phase::Comparing,
            0 => Phase::Waiting,
            _ if total > 0 && left == 0 => Phase::Verifying,
            _ => Phase::Moving,
        };
        let cost = (self.cost)();
        let line = |columns| {
            let line = Line {
                phase,
                bytes,
                total,
                goodput,
                eta,
                cost: &cost,
                name: self.meter.diary().begun(),
                remote: self.remote,
            };
            line.fit(columns)
        };
        match &self.screen {
            // The last column stays free: some terminals begin a new line when it is written to.
            Some(Screen::Line(bar)) => bar.set_message(line(bar_columns().map_or(WIDE, |n| n - 1))),
            Some(Screen::Log) if self.draws.is_multiple_of(EVENT) => {
                dfcp_command::tell!("dfcp: {}", line(usize::MAX));
            }
            Some(Screen::Log) | None => {}
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

/// The end of a name, as it may be shown, in so many columns.
fn tail(name: &str, columns: usize) -> String {
    let name = printable(name);
    if name.width() <= columns {
        return name.into_owned();
    }
    let (mut end, mut used) = (Vec::new(), 1);
    for c in name.chars().rev() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        end.push(c);
    }
    "…".chars().chain(end.into_iter().rev()).collect()
}

/// What is said of a session while it runs.
struct Line<'a> {
    phase: Phase,
    bytes: u64,
    total: u64,
    goodput: u64,
    eta: Option<f64>,
    cost: &'a Cost,
    /// The file that was begun last.
    name: Option<String>,
    /// A receiver has several.
    remote: Option<SocketAddr>,
}

impl Line<'_> {
    /// As much of it as `columns` hold, what matters most first; nothing is cut in two.
    fn fit(&self, columns: usize) -> String {
        let share = match self.total {
            0 => 0.0,
            total => (self.bytes as f64 / total as f64).min(1.0),
        };
        let mut line = String::new();
        if columns >= WIDE - 1 {
            let full = (share * BAR as f64) as usize;
            line = format!("{}{} ", "█".repeat(full), "░".repeat(BAR - full));
        }
        let percent = format!("{:>3}%", (share * 100.0) as u64);
        if columns >= PERCENT {
            line += &percent;
        }
        for (before, part) in self.parts(columns) {
            let room = columns.saturating_sub(line.width() + before.len());
            if part.width() > room {
                break;
            }
            line += before;
            line += &part;
        }
        line
    }

    /// What stands after the percentage, each with what stands before it.
    fn parts(&self, columns: usize) -> Vec<(&'static str, String)> {
        let says = |long: &str, short: &str| {
            let fits = columns > PERCENT + long.len();
            vec![(" ", if fits { long } else { short }.to_owned())]
        };
        match self.phase {
            Phase::Waiting => return says("waiting for the other side", "waiting"),
            Phase::Comparing => return says("comparing with what is there", "comparing"),
            Phase::Verifying => return says("verifying at the receiver", "verifying"),
            Phase::Moving => {}
        }
        let rate = dfcp::Rate::from_bps(self.goodput).to_string();
        let eta = self.eta.map_or("--".to_owned(), clock);
        let eta = format!("eta {eta}");
        let mut parts = vec![(" ", rate), (" ", eta)];
        let used: usize = parts.iter().map(|(_, part)| 1 + part.len()).sum();
        let bar = if columns >= WIDE - 1 { BAR + 1 } else { 0 };
        let room = columns.saturating_sub(bar + PERCENT + used + 1).min(NAME);
        if let Some(name) = self.name.as_ref().filter(|_| room >= SHORT_NAME) {
            parts.push((" ", tail(name, room)));
        }
        let cost = self.cost;
        parts.push((", ", units::bytes(self.bytes)));
        parts.push((", ", format!("loss {:.1} %", cost.loss * 100.0)));
        parts.push((", ", format!("rtt {:.0} ms", cost.rtt_ms)));
        if cost.wire_bytes > 0 {
            let each = cost.wire_bytes as f64 / self.bytes as f64;
            parts.push((", ", format!("{each:.2} sent/byte")));
        }
        parts.extend(self.remote.map(|remote| (", ", remote.to_string())));
        parts
    }
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

    fn line<'a>(phase: Phase, cost: &'a Cost, name: &str) -> Line<'a> {
        Line {
            phase,
            bytes: 10_000_000,
            total: 40_000_000,
            goodput: 80_000_000,
            eta: Some(12.3),
            cost,
            name: Some(name.to_owned()),
            remote: Some("[2001:db8::1234:5678]:4433".parse().unwrap()),
        }
    }

    #[test]
    fn the_line_fits_any_terminal_and_begins_with_what_matters_most() {
        let cost = Cost {
            rtt_ms: 60.0,
            loss: 0.05,
            wire_bytes: 11_000_000,
        };
        let shown = line(Phase::Moving, &cost, "data/a.tar").fit(200);
        assert!(
            shown.starts_with("███░░░░░░░░░  25% 80.00 Mbit/s eta 13s data/a.tar, "),
            "{shown}"
        );
        assert!(
            shown.ends_with("loss 5.0 %, rtt 60 ms, 1.10 sent/byte, [2001:db8::1234:5678]:4433"),
            "{shown}"
        );
        let names = ["x", &"long/".repeat(40), &"東京".repeat(30), "a\x1b[2Jb"];
        for (name, columns) in names
            .iter()
            .flat_map(|name| (0..250).map(move |n| (name, n)))
        {
            for phase in [
                Phase::Waiting,
                Phase::Comparing,
                Phase::Moving,
                Phase::Verifying,
            ] {
                let shown = line(phase, &cost, name).fit(columns);
                assert!(shown.width() <= columns, "{columns}: {shown:?}");
                assert!(!shown.contains('\x1b'));
                assert!(columns < 19 || shown.len() > 5, "{columns}: {shown:?}");
            }
        }
        let moving = |columns| line(Phase::Moving, &cost, "data/a.tar").fit(columns);
        assert_eq!(moving(19), " 25% 80.00 Mbit/s");
        assert_eq!(moving(39), " 25% 80.00 Mbit/s eta 13s data/a.tar");
        let verifying = line(Phase::Verifying, &cost, "x");
        assert_eq!(verifying.fit(39), " 25% verifying at the receiver");
        assert_eq!(verifying.fit(19), " 25% verifying");
        // More than was expected is all of it.
        let more = Line {
            total: 5,
            ..line(Phase::Moving, &cost, "x")
        };
        assert!(more.fit(19).starts_with("100%"));
    }

    #[test]
    fn names_and_times_fit() {
        assert_eq!(tail("a/b", 24), "a/b");
        let long = tail(&"é/".repeat(100), 24);
        assert_eq!(long.chars().count(), 24);
        assert!(!tail("a\x1b[2Jb", 24).contains('\x1b'));
        let shown = [0.0, 0.1, 59.5, 185.0, 7800.0, 1e12, f64::INFINITY].map(clock);
        assert_eq!(
            shown,
            ["0s", "1s", "1m00s", "3m05s", "2h10m", "days", "days"]
        );
    }
}
