//! Results for people: aligned tables, with units.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use dfcp_proto::Rate;
use dfcp_sim::report::{FlowReport, LinkReport, RunReport};

/// Prints on standard output; a reader that went away is no reason to panic.
pub fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// What flows and links did.
pub fn tables(report: &RunReport) -> String {
    let mut text = flows(&report.flows);
    text.push('\n');
    text += &links(&report.links);
    text
}

/// A run.
pub fn report(report: &RunReport, wall: Duration) -> String {
    let mut text = tables(report);
    let run = &report.summary;
    let _ = writeln!(
        text,
        "\n{} simulated in {}: {} events, {} packets",
        seconds(Some(run.simulated_s)),
        seconds(Some(wall.as_secs_f64())),
        run.events,
        run.packets
    );
    let figures = [
        ("utilisation of the busiest link", Some(run.utilisation)),
        ("Jain's index", run.jain),
        ("stability", run.stability),
        ("friendliness", run.friendliness),
    ];
    let known = figures.into_iter().filter_map(|(name, value)| {
        let value = value.filter(|value| value.is_finite())?;
        Some(format!("{name} {value:.3}"))
    });
    let _ = writeln!(text, "{}", known.collect::<Vec<_>>().join(", "));
    text
}

fn flows(flows: &[FlowReport]) -> String {
    let head = [
        "flow", "protocol", "start", "goodput", "of limit", "time", "bytes", "loss", "overhead",
        "RTT",
    ];
    let row = |flow: &FlowReport| {
        vec![
            flow.name.clone(),
            flow.protocol.clone(),
            seconds(Some(flow.start_s)),
            rate(flow.goodput_bps),
            percent(flow.share()),
            seconds(flow.fct_s),
            bytes(flow.bytes),
            percent(Some(flow.loss)),
            percent(flow.overhead),
            seconds(flow.rtt_mean_s),
        ]
    };
    align(&head, flows.iter().map(row).collect(), 2)
}

fn links(links: &[LinkReport]) -> String {
    let head = [
        "link", "used", "packets", "dropped", "marked", "queue", "95 %", "most", "wait", "longest",
    ];
    let row = |link: &LinkReport| {
        vec![
            link.name.clone(),
            percent(Some(link.utilisation)),
            link.packets.to_string(),
            percent(Some(link.drop_rate)),
            link.marked.to_string(),
            format!("{:.1} pkt", link.queue.mean_packets),
            format!("{:.0} pkt", link.queue.p95_packets),
            format!("{} pkt", link.queue.max_packets),
            seconds(link.queue.sojourn_mean_s),
            seconds(link.queue.sojourn_max_s),
        ]
    };
    // A link that carried nothing says nothing.
    let used = links.iter().filter(|link| link.packets > 0);
    align(&head, used.map(row).collect(), 1)
}

/// Columns as wide as their widest cell: `left` ones to the left, figures to the right.
pub fn align(head: &[&str], rows: Vec<Vec<String>>, left: usize) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let cells = cells.map(|cell| cell.chars().count());
        cells.fold(head[column].chars().count(), usize::max)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let head = head.iter().map(|&name| name.to_owned()).collect();
    for row in std::iter::once(head).chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = match column < left {
                true => write!(line, "{cell:<width$}  "),
                false => write!(line, "{cell:>width$}  "),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

const NONE: &str = "–";

/// Bits per second.
pub fn rate(bps: f64) -> String {
    Rate::from_bps(bps.max(0.0) as u64).to_string()
}

/// A share.
pub fn percent(share: Option<f64>) -> String {
    share
        .filter(|share| share.is_finite())
        .map_or(NONE.to_owned(), |share| format!("{:.2} %", share * 100.0))
}

/// A time.
pub fn seconds(seconds: Option<f64>) -> String {
    match seconds.filter(|seconds| seconds.is_finite()) {
        None => NONE.to_owned(),
        Some(0.0) => "0 s".to_owned(),
        Some(s) if s.abs() < 1e-3 => format!("{:.1} µs", s * 1e6),
        Some(s) if s.abs() < 1.0 => format!("{:.2} ms", s * 1e3),
        Some(s) => format!("{s:.2} s"),
    }
}

fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        b if b < 1e3 => format!("{bytes} B"),
        b if b < 1e6 => format!("{:.1} kB", b / 1e3),
        b if b < 1e9 => format!("{:.1} MB", b / 1e6),
        b if b < 1e12 => format!("{:.2} GB", b / 1e9),
        b => format!("{:.2} TB", b / 1e12),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_under_their_heads() {
        let flow = |name: &str, goodput_bps, fct_s| FlowReport {
            name: name.into(),
            protocol: "tcp-cubic".into(),
            goodput_bps,
            fct_s,
            bytes: 4_700_000_000,
            ..FlowReport::default()
        };
        let report = RunReport {
            flows: vec![flow("a", 9.5e6, Some(0.25)), flow("flöte", 1.2e9, None)],
            ..RunReport::default()
        };
        let text = super::report(&report, Duration::from_millis(5));
        let lines: Vec<_> = text.lines().take(3).collect();
        let ends = |line: &str, of: &str| {
            let at = line.find(of).unwrap_or_else(|| panic!("{of} in {line}"));
            line[..at + of.len()].chars().count()
        };
        assert_eq!(ends(lines[0], "goodput"), ends(lines[1], "9.50 Mbit/s"));
        assert_eq!(ends(lines[0], "time"), ends(lines[1], "250.00 ms"));
        assert_eq!(ends(lines[0], "bytes"), ends(lines[2], "4.70 GB"));
    }
}
