//! What a bar says of a session, in as many columns as there are.

use std::net::SocketAddr;

use dfcp_command::text::printable;
use dfcp_command::units;
use serde::{Deserialize, Serialize};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns from which there is a bar; on fewer the figures need the room. A terminal that does not say
/// how wide it is has as many.
pub const WIDE: usize = 80;
/// Columns of the bar, of the percentage, and of the blanks after them.
const BAR: usize = 12;
const PERCENT: usize = 4;
/// Columns of a file's name that are shown: its end, by which files differ; and the fewest that tell
/// anything.
const NAME: usize = 24;
const SHORT_NAME: usize = 6;

/// What a session has cost so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    pub rtt_ms: f64,
    /// Share of packets lost, recently.
    pub loss: f64,
    /// Bytes of IP packets; 0 where they are not known.
    pub wire_bytes: u64,
}

/// Where the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing has arrived.
    Waiting,
    /// None arrive; both sides read files that are there in another version.
    Comparing,
    /// They arrive.
    Moving,
    /// All have arrived; not all are in their place.
    Verifying,
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    pub phase: Phase,
    pub bytes: u64,
    pub total: u64,
    pub goodput: u64,
    pub eta: Option<f64>,
    pub cost: Cost,
    /// The file that was begun last.
    pub name: Option<String>,
    /// A receiver has several.
    pub remote: Option<SocketAddr>,
}

impl Line {
    /// As much of it as `columns` hold, what matters most first; nothing is cut in two.
    pub fn fit(&self, columns: usize) -> String {
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
            // For all the time that goodput is of.
            Phase::Moving if self.goodput == 0 => {
                return says("nothing arrives at present", "stalled");
            }
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

    fn line(phase: Phase, cost: Cost, name: &str) -> Line {
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
        let shown = line(Phase::Moving, cost, "data/a.tar").fit(200);
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
                let shown = line(phase, cost, name).fit(columns);
                assert!(shown.width() <= columns, "{columns}: {shown:?}");
                assert!(!shown.contains('\x1b'));
                assert!(columns < 19 || shown.len() > 5, "{columns}: {shown:?}");
            }
        }
        let moving = |columns| line(Phase::Moving, cost, "data/a.tar").fit(columns);
        assert_eq!(moving(19), " 25% 80.00 Mbit/s");
        assert_eq!(moving(39), " 25% 80.00 Mbit/s eta 13s data/a.tar");
        let verifying = line(Phase::Verifying, cost, "x");
        assert_eq!(verifying.fit(39), " 25% verifying at the receiver");
        assert_eq!(verifying.fit(19), " 25% verifying");
        let stalled = Line {
            goodput: 0,
            eta: None,
            ..line(Phase::Moving, cost, "x")
        };
        assert_eq!(stalled.fit(39), " 25% nothing arrives at present");
        assert_eq!(stalled.fit(19), " 25% stalled");
        // More than was expected is all of it.
        let more = Line {
            total: 5,
            ..line(Phase::Moving, cost, "x")
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
