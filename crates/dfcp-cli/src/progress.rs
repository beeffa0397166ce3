//! What is shown while a session runs: a bar for people, and events for programs. Both count what the
//! receiver has, and apart from that what the path costs.

mod line;
mod relay;

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dfcp::Connection;
use dfcp::published::Monitor;
use dfcp_command::Failure;
use dfcp_command::output::{self, ERR, OUT};
use dfcp_command::text::printable;
use dfcp_transfer::{Meter, Outcome, Settled};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::AbortHandle;

use crate::command::Output;
use crate::report::Report;
use line::{Cost, Line, Phase};
pub use relay::Relay;

/// When to show a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Show {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
    /// As lines for the program on another machine that shows them.
    #[value(hide = true)]
    Relayed,
}

/// How often the bar is drawn.
const INTERVAL: Duration = Duration::from_millis(200);
/// Draws from one event about progress to the next: a second.
const EVENT: u32 = 5;
/// Goodput is that of the last five seconds: shorter, the time that is left jumps; longer, a change of the
/// path does not show. After so long it is said that nothing comes.
pub const STALLED: Duration = Duration::from_secs(5);
/// Draws in that time.
const WINDOW: usize = (STALLED.as_millis() / INTERVAL.as_millis()) as usize;

/// Bars of all sessions, a line each, and what is said above them. Who draws holds a lock of theirs until that is
/// written, so only the thread that writes standard error touches them.
static BARS: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));

/// Says something to people, above the bars.
pub fn say(line: &str) {
    let line = format!("dfcp: {}\n", printable(line));
    ERR.offer(move || BARS.suspend(|| output::write_err(line.as_bytes())));
}

/// Columns of the terminal that the bars are on, if they are on one.
fn bar_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    Some(size.ws_col.into()).filter(|columns| *columns > 0)
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

/// The last event, as a line.
///
/// # Errors
/// When it has none.
pub fn end(report: &Report) -> Result<String, Failure> {
    output::json(&Event::End(report))
}

/// How far the attempts before this one were, of a transfer that is tried again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before {
    /// Bytes that had arrived, and those that were to.
    pub bytes: u64,
    pub total: u64,
    /// What they cost.
    pub wire_bytes: u64,
}

impl Before {
    /// How far all of it is, where an attempt has so many bytes of those that it is to bring. What is
    /// there already becomes known file by file: until then it is no less than there was.
    pub fn and(self, bytes: u64, total: u64) -> (u64, u64) {
        if self.total == 0 {
            return (bytes, total);
        }
        let left = match total {
            0 => self.total,
            total => total.saturating_sub(bytes),
        };
        let there = self.total.saturating_sub(left).max(self.bytes);
        (there, self.total)
    }
}

/// A session that is shown, until this is dropped.
#[derive(Debug)]
pub struct Bar(Option<(AbortHandle, Arc<Mutex<Shown>>)>);

impl Bar {
    /// Shows how `meter` advances after what there was before, as far as that is wanted.
    pub fn start(
        output: &Output,
        connection: &Connection,
        remote: SocketAddr,
        (meter, before): (&Arc<Meter>, Before),
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
        Self::show(output, Some(remote), (meter, before), cost)
    }

    /// The same for a connection of DFCP as published.
    pub fn start_published(output: &Output, monitor: &Monitor, meter: &Arc<Meter>) -> Self {
        let monitor = monitor.clone();
        Self::show(output, None, (meter, Before::default()), move || {
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
        (meter, before): (&Arc<Meter>, Before),
        cost: impl Fn() -> Cost + Send + 'static,
    ) -> Self {
        let screen = Screen::wanted(output.progress());
        if screen.is_none() && !output.events() {
            return Self(None);
        }
        let shown = Shown {
            screen,
            files: output.events().then(|| meter.diary().listen()),
            remote,
            meter: meter.clone(),
            before,
            cost: Box::new(cost),
            pace: Pace::from(Instant::now()),
            offered: false,
            draws: 0,
        };
        let shown = Arc::new(Mutex::new(shown));
        let drawn = shown.clone();
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let progress = locked(&drawn).draw();
                tell_files(&drawn).await;
                if let Some(line) = progress {
                    OUT.room().await.put(|| print(line));
                }
            }
        });
        Self(Some((task.abort_handle(), shown)))
    }

    /// Ends it once all events have a place among the lines that wait. May be cancelled.
    pub async fn end(self) {
        if let Some((task, shown)) = &self.0 {
            task.abort();
            tell_files(shown).await;
        }
    }
}

fn locked(shown: &Mutex<Shown>) -> MutexGuard<'_, Shown> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints what became of files. An event is taken where there is room for it: who waits for room may be halted.
async fn tell_files(shown: &Mutex<Shown>) {
    if locked(shown).files.is_none() {
        return;
    }
    loop {
        let room = OUT.room().await;
        let Some(line) = locked(shown).next_event() else {
            return;
        };
        room.put(|| print(line));
    }
}

/// Prints an event. Whether it can be written the last one tells.
fn print(line: String) {
    let _ = dfcp_command::print(line);
}

/// A line among the bars.
#[derive(Debug)]
struct BarLine {
    bar: ProgressBar,
    /// Whether one that was drawn waits to be written.
    waits: Arc<AtomicBool>,
}

impl BarLine {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        // What is drawn is composed here, for as many columns as there are just then. A wrong template
        // would be a mistake of ours; the default one serves then.
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        let added = bar.clone();
        ERR.next(move || drop(BARS.add(added)));
        let waits = Arc::default();
        Self { bar, waits }
    }

    fn draw(&self, text: String) {
        if self.waits.swap(true, Ordering::Relaxed) {
            return;
        }
        let (bar, waits) = (self.bar.clone(), self.waits.clone());
        ERR.next(move || {
            waits.store(false, Ordering::Relaxed);
            bar.set_message(text);
        });
    }

    fn clear(self) {
        ERR.next(move || {
            self.bar.finish_and_clear();
            BARS.remove(&self.bar);
        });
    }
}

/// Where bars go.
#[derive(Debug)]
enum Screen {
    /// A line of a terminal, drawn over.
    Line(BarLine),
    /// A pipe or a file, which gets a line now and then.
    Log,
    /// Another program of this kind, which draws it.
    Relayed,
}

impl Screen {
    fn wanted(show: Show) -> Option<Self> {
        let terminal = std::io::stderr().is_terminal();
        match show {
            Show::Auto | Show::Always if terminal => Some(Self::Line(BarLine::new())),
            Show::Always => Some(Self::Log),
            Show::Auto | Show::Never => None,
            Show::Relayed => Some(Self::Relayed),
        }
    }

    /// Shows `line`, the one after so many.
    fn draw(&self, line: &Line, draws: u32) {
        match self {
            // The last column stays free: some terminals begin a new line when it is written to.
            Self::Line(bar) => bar.draw(line.fit(bar_columns().map_or(line::WIDE, |n| n - 1))),
            Self::Log if draws.is_multiple_of(EVENT) => {
                dfcp_command::tell!("dfcp: {}", line.fit(usize::MAX));
            }
            Self::Log => {}
            Self::Relayed => relay::tell(line),
        }
    }

    fn clear(self) {
        if let Self::Line(bar) = self {
            bar.clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some((task, shown)) = self.0.take() {
            task.abort();
            let mut shown = locked(&shown);
            // What happened since it was last drawn is an event, too. Nobody waits here: it is as much as was
            // remembered of it.
            while let Some(line) = shown.next_event() {
                OUT.next(|| print(line));
            }
            if let Some(screen) = shown.screen.take() {
                screen.clear();
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
    before: Before,
    cost: Box<dyn Fn() -> Cost + Send>,
    /// How many bytes there were when.
    pace: Pace,
    offered: bool,
    draws: u32,
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shown").finish_non_exhaustive()
    }
}

impl Shown {
    /// Draws; an event about it where one is due.
    fn draw(&mut self) -> Option<String> {
        let (bytes, total) = (self.meter.progress().bytes(), self.meter.total());
        let goodput = self.pace.goodput(Instant::now(), bytes);
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
        let (bytes, total) = self.before.and(bytes, total);
        let mut cost = (self.cost)();
        cost.wire_bytes += self.before.wire_bytes;
        if let Some(screen) = &self.screen {
            let line = Line {
                phase,
                bytes,
                total,
                goodput,
                eta,
                cost,
                name: self.meter.diary().begun(),
                remote: self.remote,
            };
            screen.draw(&line, self.draws);
        }
        self.draws += 1;
        if self.files.is_none() || !self.draws.is_multiple_of(EVENT) {
            return None;
        }
        let event = Event::Progress {
            remote: self.remote,
            phase,
            bytes,
            total,
            goodput_bps: goodput,
            eta_seconds: eta,
            loss: cost.loss,
            rtt_ms: cost.rtt_ms,
            wire_bytes: cost.wire_bytes,
        };
        output::json(&event).ok()
    }

    /// The next event of what is offered and what became of files, as a line.
    fn next_event(&mut self) -> Option<String> {
        let files = self.files.as_mut()?;
        let entries = self.meter.diary().entries();
        if !self.offered && !entries.is_empty() {
            self.offered = true;
            let event = Event::Offer {
                remote: self.remote,
                files: entries.iter().filter(|entry| entry.is_file()).count(),
                bytes: (entries.iter()).fold(0, |sum: u64, entry| sum.saturating_add(entry.size)),
            };
            return output::json(&event).ok();
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
            let event = Event::File {
                path: &entry.path,
                size: settled.size.unwrap_or(entry.size),
                status,
                blake3: settled.hash,
                message,
            };
            return output::json(&event).ok();
        }
        None
    }
}

/// How many bytes had arrived at the last draws, and when.
struct Pace(VecDeque<(Instant, u64)>);

impl Pace {
    fn from(start: Instant) -> Self {
        Self(VecDeque::from([(start, 0)]))
    }

    /// Bits per second over the last draws; the time before anything arrived says nothing of the path.
    fn goodput(&mut self, now: Instant, bytes: u64) -> u64 {
        if bytes == 0 {
            self.0.clear();
        }
        self.0.push_back((now, bytes));
        if self.0.len() > WINDOW {
            self.0.pop_front();
        }
        let (since, before) = self.0[0];
        match bytes.saturating_sub(before) {
            0 => 0,
            came => dfcp::Rate::from_transfer(came, now - since).as_bps(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_again_goes_on_from_what_is_there() {
        assert_eq!(Before::default().and(3, 10), (3, 10));
        let before = Before {
            bytes: 60,
            total: 100,
            wire_bytes: 0,
        };
        // Nothing is known; all of it may be to come; what is there is known, a little less than thought.
        let states = [(0, 0), (0, 100), (0, 45), (10, 45), (45, 45)];
        let shown = states.map(|(bytes, total)| before.and(bytes, total).0);
        assert_eq!(shown, [60, 60, 60, 65, 100]);
        // What was sent in vain, or came on top, is no more than all of it.
        assert_eq!(before.and(200, 200), (100, 100));
    }

    #[test]
    fn goodput_is_that_of_the_time_in_which_bytes_arrive() {
        let start = Instant::now();
        let mut pace = Pace::from(start);
        let mut at = |draw: u32, bytes| pace.goodput(start + INTERVAL * draw, bytes);
        let quick = Pace::from(start).goodput(start + INTERVAL, 1_000_000);
        assert_eq!(quick, 40_000_000, "at the first look");
        // The other side is waited for.
        for draw in 0..20 {
            assert_eq!(at(draw, 0), 0);
        }
        let megabyte = 1_000_000;
        assert_eq!(at(20, megabyte), 40_000_000);
        assert_eq!(at(21, 2 * megabyte), 40_000_000);
        // What stands still later does count, and is forgotten after a while.
        for draw in 22..24 {
            at(draw, 2 * megabyte);
        }
        assert_eq!(at(24, 2 * megabyte), 16_000_000);
        for draw in 25..60 {
            at(draw, 2 * megabyte);
        }
        assert_eq!(at(60, 2 * megabyte), 0);
    }
}
