//! The demo for people: a line for each transfer, which grows while it runs on a terminal, and what
//! it comes to. All lines fit 80 columns.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use dfcp::Rate;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Columns of a bar, which is full at the limit of the path.
const BAR: usize = 24;

/// A transfer at the end.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// Of the transport.
    pub name: &'a str,
    /// From the start of the connection, in bits per second.
    pub goodput_bps: u64,
    /// The same after the first tenth of the bytes, which the bar is of.
    pub steady_bps: u64,
    /// What the path allows.
    pub limit_bps: f64,
    /// How long it took, or was given.
    pub time: Duration,
    /// Whether everything arrived.
    pub complete: bool,
    /// Bytes on the wire for each useful one, where they are known.
    pub wire: Option<f64>,
}

/// Above the lines.
pub fn columns() -> String {
    let (wide, share) = (BAR + 14, "of limit*");
    format!(
        "{:<10} {:>wide$} {share:>9} {:>8} {:>9}",
        "", "goodput", "time", "sent/byte"
    )
}

impl Line<'_> {
    /// As it is shown.
    pub fn text(&self) -> String {
        let time = match self.complete {
            true => format!("{:.2} s", self.time.as_secs_f64()),
            false => format!("> {:.0} s", self.time.as_secs_f64()),
        };
        let wire = self.wire.map_or(String::new(), |wire| format!("{wire:.3}"));
        format!(
            "{} {time:>8} {wire:>9}",
            progress(self.name, self.goodput_bps, self.steady_bps, self.limit_bps)
        )
        .trim_end()
        .to_owned()
    }
}

/// Name, bar, rate and share.
fn progress(name: &str, goodput_bps: u64, steady_bps: u64, limit_bps: f64) -> String {
    let share = steady_bps as f64 / limit_bps.max(1.0);
    let full = ((share * BAR as f64).round() as usize).min(BAR);
    format!(
        "{name:<10} {}{} {:>13} {:>7.1} %",
        "#".repeat(full),
        "-".repeat(BAR - full),
        Rate::from_bps(goodput_bps).to_string(),
        share * 100.0,
    )
}

/// The line of a transfer that is under way. It goes away when dropped.
#[derive(Debug)]
pub struct Live {
    bar: ProgressBar,
    limit_bps: f64,
    start: Option<Start>,
}

/// When a transfer was first looked at, and how many of its bytes had arrived.
#[derive(Debug)]
struct Start {
    name: String,
    at: Instant,
    bytes: u64,
}

impl Live {
    /// Shows something if standard output is a terminal and `wanted`.
    pub fn new(wanted: bool, limit_bps: f64) -> Self {
        let target = match wanted && std::io::stdout().is_terminal() {
            true => ProgressDrawTarget::stdout(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| {
            ProgressStyle::default_spinner() // the template is a constant
        }));
        Self {
            bar,
            limit_bps,
            start: None,
        }
    }

    /// `bytes` have arrived over `name` by now.
    pub fn show(&mut self, name: &str, bytes: u64) {
        if self.start.as_ref().is_none_or(|start| start.name != name) {
            self.start = None;
        }
        let start = self.start.get_or_insert_with(|| Start {
            name: name.to_owned(),
            at: Instant::now(),
            bytes,
        });
        let time = start.at.elapsed();
        // What came before the first look came in a time that nobody knows.
        let goodput = match bytes.saturating_sub(start.bytes) {
            0 => 0,
            came => Rate::from_transfer(came, time).as_bps(),
        };
        let text = progress(name, goodput, goodput, self.limit_bps);
        self.bar
            .set_message(format!("{text} {:>6.1} s", time.as_secs_f64()));
    }

    /// Takes the line away, before something is printed in its place.
    pub fn clear(&mut self) {
        self.start = None;
        self.bar.set_message("");
        self.bar.finish_and_clear();
        self.bar.reset();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// What it comes to: how long each takes for the whole file, in lines.
pub fn verdict(size: u64, lines: &[Line<'_>]) -> Vec<String> {
    let mut text = vec!["* after the first tenth of the bytes. The whole file takes".to_owned()];
    text.extend(lines.iter().map(|line| format!("  {}", whole(size, line))));
    text
}

fn whole(size: u64, line: &Line<'_>) -> String {
    let seconds = match line.complete {
        true => line.time.as_secs_f64(),
        false => size as f64 * 8.0 / line.goodput_bps as f64, // infinite where nothing arrives
    };
    let time = match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s.is_finite() => format!("{:.0} h", s / 3600.0),
        _ => "for ever".to_owned(),
    };
    let guess = if line.complete { "" } else { ", at this pace" };
    format!("{:<10} {time}{guess}", line.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, goodput_bps: u64, complete: bool) -> Line<'_> {
        Line {
            name,
            goodput_bps,
            steady_bps: goodput_bps,
            limit_bps: (goodput_bps as f64).max(93e6),
            time: Duration::from_secs(4),
            complete,
            wire: complete.then_some(1.102),
        }
    }

    #[test]
    fn lines_fit_a_terminal_of_eighty_columns() {
        for line in [
            line("dfcp", 90_123_456, true),
            line("tcp-cubic", 712_345, false),
            line("chameleon", 999_999_999_999, true),
            line("tcp-reno", 0, false),
        ] {
            assert!(line.text().len() <= 80, "{}", line.text());
        }
        assert!(columns().len() <= 80);
    }

    #[test]
    fn what_had_arrived_at_the_first_look_is_no_rate() {
        let mut live = Live::new(false, 93e6);
        live.show("tcp-cubic", 14_480);
        let shown = live.bar.message();
        assert!(shown.contains(" 0 bit/s     0.0 %"), "{shown}");
        live.show("tcp-cubic", 28_960);
        assert_ne!(live.bar.message(), shown);
        live.show("tcp-bbr", 28_960);
        assert!(live.bar.message().contains(" 0 bit/s     0.0 %"));
    }

    #[test]
    fn the_verdict_says_what_the_rest_would_take() {
        let lines = [
            line("dfcp", 90_000_000, true),
            line("tcp-cubic", 700_000, false),
        ];
        let text = verdict(32_000_000, &lines);
        assert_eq!(
            text[1..],
            ["  dfcp       4.0 s", "  tcp-cubic  6 min, at this pace"]
        );
        assert!(text.iter().all(|line| line.len() <= 80));
        assert!(verdict(1, &[line("x", 0, false)])[1].contains("for ever"));
    }
}
