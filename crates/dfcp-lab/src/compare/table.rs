//! Tables of a comparison, for a terminal and for a page.

use std::fmt::Write;

use super::path::Path;
use super::record::{Context, Fairness, Line, Status};
use super::summary::{Cell, Row, Spread, summarize};

/// Heads of the columns of [`cells`].
const HEADS: [&str; 9] = [
    "peer",
    "steady Mbit/s",
    "÷ limit",
    "whole Mbit/s",
    "÷ limit",
    "object ms",
    "file s",
    "CPU s/GB",
    "wire ÷ least",
];

/// How text is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Columns of equal width.
    Terminal,
    /// Markdown.
    Page,
}

/// The table of a cell: medians, with the range in brackets where there is more than one run.
pub fn cell(cell: &Cell, style: Style) -> String {
    let mut rows: Vec<Vec<String>> = vec![HEADS.map(str::to_owned).to_vec()];
    rows.extend(cell.rows.iter().map(line));
    // A cable has no limit.
    if matches!(cell.path, Path::Direct { .. }) {
        for row in &mut rows {
            for column in [8, 4, 2] {
                row.remove(column);
            }
        }
    }
    let mut text = set(&rows, style);
    for row in cell.rows.iter().filter(|row| !row.notes.is_empty()) {
        let dash = if style == Style::Page { "- " } else { "  " };
        let _ = writeln!(text, "{dash}{}: {}", row.peer, row.notes.join("; "));
    }
    text
}

fn line(row: &Row) -> Vec<String> {
    let figure = |spread: Option<Spread>, factor: f64, digits: usize| {
        let Some(Spread { median, low, high }) = spread else {
            return "–".to_owned();
        };
        let number = |value: f64| match value.is_finite() {
            true => format!("{:.digits$}", value * factor),
            false => "∞".to_owned(),
        };
        match row.runs {
            1 => number(median),
            _ => format!("{} [{}–{}]", number(median), number(low), number(high)),
        }
    };
    vec![
        row.peer.clone(),
        figure(row.steady_bps, 1e-6, 1),
        figure(row.steady_share, 1.0, 3),
        figure(row.whole_bps, 1e-6, 1),
        figure(row.whole_share, 1.0, 3),
        figure(row.object_s, 1e3, 0),
        figure(row.file_s, 1.0, 2),
        figure(row.cpu_per_gb, 1.0, 2),
        figure(row.wire, 1.0, 3),
    ]
}

/// The table of meetings with a CUBIC flow on one path; nothing if there were none.
pub fn fairness(meetings: &[&Fairness], style: Style) -> String {
    let heads = [
        "peer",
        "CUBIC alone",
        "CUBIC beside it",
        "the peer",
        "Jain",
        "CUBIC loses",
    ];
    let mut rows: Vec<Vec<String>> = vec![heads.map(str::to_owned).to_vec()];
    let mut names: Vec<&str> = Vec::new();
    let mut notes = Vec::new();
    for meeting in meetings {
        if !names.contains(&meeting.peer.as_str()) {
            names.push(&meeting.peer);
        }
        if let Some(reason) = &meeting.reason {
            notes.push(format!("{}: {reason}", meeting.peer));
        }
    }
    for name in names {
        let own = || {
            let well = |meeting: &&&Fairness| {
                meeting.peer == name && matches!(meeting.status, Status::Complete | Status::Invalid)
            };
            meetings.iter().filter(well)
        };
        let median = |figure: fn(&Fairness) -> f64| {
            Spread::of(own().map(|meeting| figure(meeting)).collect())
        };
        let number = |figure: fn(&Fairness) -> f64, factor: f64, digits: usize| {
            let median = median(figure).map(|spread| spread.median * factor);
            median.map_or("–".to_owned(), |median| format!("{median:.digits$}"))
        };
        rows.push(vec![
            name.to_owned(),
            number(|meeting| meeting.alone_bps, 1e-6, 1),
            number(|meeting| meeting.together_bps[0], 1e-6, 1),
            number(|meeting| meeting.together_bps[1], 1e-6, 1),
            number(Fairness::jain, 1.0, 3),
            number(Fairness::lost_share, 100.0, 0) + " %",
        ]);
    }
    let mut text = set(&rows, style);
    notes.dedup();
    for note in notes {
        let dash = if style == Style::Page { "- " } else { "  " };
        let _ = writeln!(text, "{dash}{note}");
    }
    text
}

pub(super) fn set(rows: &[Vec<String>], style: Style) -> String {
    let mut text = String::new();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    for (index, row) in rows.iter().enumerate() {
        match style {
            Style::Page => {
                let _ = writeln!(text, "| {} |", row.join(" | "));
                if index == 0 {
                    let _ = writeln!(text, "|{}", "---|".repeat(columns));
                }
            }
            Style::Terminal => {
                let cells = row.iter().zip(&widths).enumerate();
                let cells = cells.map(|(column, (cell, width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                });
                let line: Vec<_> = cells.collect();
                let _ = writeln!(text, "{}", line.join("  ").trim_end());
            }
        }
    }
    if style == Style::Page {
        text.push('\n');
    }
    text
}

/// Meetings by path, in the order in which the paths first come.
pub fn by_path(lines: &[Line]) -> Vec<(Path, Vec<&Fairness>)> {
    let mut all: Vec<(Path, Vec<&Fairness>)> = Vec::new();
    for line in lines {
        if let Line::Fairness(meeting) = line {
            match all.iter_mut().find(|known| known.0 == meeting.path) {
                Some(known) => known.1.push(meeting),
                None => all.push((meeting.path.clone(), vec![meeting])),
            }
        }
    }
    all
}

const HEAD: &str = "\
# Beside kernel TCP and other transports

Made by `dfcp lab compare --from` from the raw lines in [`compare.jsonl`](compare.jsonl): one \
object for each run. `make bench-compare` makes both again.

Two hosts, each a network namespace with a kernel of TCP and sockets of its own, joined by the lab's \
path; sender and receiver are processes, and every file goes from a file to a file in memory. Loss is \
random, each way; the limit is (1−p)·C·1472/1500.

- steady: from 10 % of the bytes until the last, by the growth of the target file; whole: from before \
connecting until the sender knows that all arrived.
- object: completion time of a small object on a new connection (kcptun and hysteria2: through the \
tunnel that is up already); file: of the large one. ∞: not within the time limit.
- CPU: user and system time of all processes of both ends per 10⁹ useful bytes, start-up included; for \
tunnels the tunnel's two processes and the TCP ends beside them. Packets that the kernel handles on \
behalf of no process, as acknowledgements of TCP, are not in it.
- wire ÷ least: IP bytes that entered the path towards the receiver, as a multiple of useful bytes · \
1500/1472 ÷ (1−p).
- Medians over the runs that ended, with their range; repetitions are interleaved.

What each peer is: `dfcp`: `dfcp send` and `dfcp recv`, as they are, encrypted and verified; \
`tcp-…`: the kernel, in clear; `quinn-…`: quinn with its default windows, encrypted; `quinn-brutal`: \
our rendition on quinn of hysteria2's rate control (a told rate divided by the share that arrives), \
which is not hysteria2; `hysteria2`: its own program, told the rate, where it is installed; `kcptun`: \
Debian's, mode `fast3`, 10+3 Reed–Solomon shards, AES, TCP through it; `srt`: `srt-file-transmit`, \
AES, told the rate as its `maxbw`; it looks every 250 ms whether it is done; `udt`: UDT 4, in clear; \
`iperf3-…`: iperf3 in memory for 8 s instead of a file.
";

/// The page of all lines; `pictures` are the names of figures that lie beside it.
pub fn page(lines: &[Line], pictures: &[(String, String)]) -> String {
    let mut text = HEAD.to_owned();
    for (name, title) in pictures {
        let _ = writeln!(text, "\n![{title}]({name})");
    }
    for cell_of in summarize(lines) {
        let _ = writeln!(text, "\n## {}\n", heading(&cell_of));
        text += &cell(&cell_of, Style::Page);
    }
    for (path, meetings) in by_path(lines) {
        let _ = writeln!(text, "\n## Beside a CUBIC flow: {path}\n");
        text += "A CUBIC flow has the path to itself, then the peer joins: Mbit/s of IP packets that \
                 came out of the bottleneck; Jain's index of the two.\n\n";
        text += &fairness(&meetings, Style::Page);
    }
    text += "\n## Runs\n";
    text += &contexts(&of_runs(lines));
    text
}

/// Where and how runs were made.
pub fn of_runs(lines: &[Line]) -> Vec<&Context> {
    let contexts = lines.iter().filter_map(|line| match line {
        Line::Context(context) => Some(context),
        _ => None,
    });
    contexts.collect()
}

/// The same in words.
pub(super) fn contexts(contexts: &[&Context]) -> String {
    let mut text = String::new();
    let mut before = None;
    for context in contexts {
        text += &context_text(context, before);
        before = Some(*context);
    }
    text
}

/// What a cell is about.
pub fn heading(cell: &Cell) -> String {
    let megabytes = cell.file_size as f64 / 1e6;
    let text = format!("{}; file of {megabytes} MB", cell.path);
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// A command, with where it ran unless that is as before.
fn context_text(context: &Context, before: Option<&Context>) -> String {
    let mut text = String::new();
    let place = |context: &Context| (context.machine.clone(), context.versions.clone());
    if before.map(place) != Some(place(context)) {
        let versions = context.versions.iter();
        let versions: Vec<_> = versions
            .map(|(name, version)| format!("{name}: {version}"))
            .collect();
        let _ = writeln!(text, "\n{}. {}.\n", context.machine, versions.join("; "));
    }
    let Context {
        command,
        date,
        load,
        ..
    } = context;
    let _ = writeln!(text, "- `{command}`, {date}, load {load:.1} at its start");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::record::read_lines;

    const LINES: &str = r#"
{"kind":"context","command":"dfcp lab compare","date":"today","machine":"a machine","load":0.5,"versions":[["dfcp","1"]]}
{"kind":"run","peer":"dfcp","path":{"rate_bps":100000000,"rtt_s":0.05,"loss":0.1,"queue_packets":417},"file_size":1000000,"repetition":1,"status":"complete","objects":{"size":150000,"seconds":[0.17,0.19],"unfinished":0},"file":{"size":100,"bytes":100,"seconds":1e-5,"steady_bps":88.32e6,"cpu_s":[1e-7,1e-7,0.0],"wire_bytes":120,"wire_packets":2,"wire_bytes_back":5,"dropped_queue":0,"dropped_loss":0,"late_p99_ms":0.1,"late_max_ms":0.2,"path_cpu_s":0.1}}
{"kind":"run","peer":"tcp-reno","path":{"rate_bps":100000000,"rtt_s":0.05,"loss":0.1,"queue_packets":417},"file_size":1000000,"repetition":1,"status":"failed","reason":"receiver: exit status: 1"}
{"kind":"fairness","peer":"dfcp","path":{"rate_bps":100000000,"rtt_s":0.05,"loss":0.0,"queue_packets":417},"repetition":1,"status":"complete","alone_bps":90e6,"together_bps":[45e6,45e6]}
"#;

    #[test]
    fn a_page_says_figures_reasons_and_machine() {
        let lines = read_lines(LINES).unwrap();
        let page = page(&lines, &[("compare/x.svg".into(), "X".into())]);
        for part in [
            "## 100 Mbit/s, 50 ms, 10 % loss, queue of 417 packets; file of 1 MB",
            "| dfcp | 88.3 | 1.000 | 80.0 | 0.906 | 180 | 0.00 | 2.00 | 1.060 |",
            "| tcp-reno | – | – | – | – | – | – | – | – |",
            "- tcp-reno: failed: receiver: exit status: 1",
            "| dfcp | 90.0 | 45.0 | 45.0 | 1.000 | 50 % |",
            "\na machine. dfcp: 1.\n",
            "- `dfcp lab compare`, today, load 0.5 at its start",
            "![X](compare/x.svg)",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }

    #[test]
    fn a_terminal_gets_columns_of_equal_width() {
        let lines = read_lines(LINES).unwrap();
        let text = cell(&summarize(&lines)[0], Style::Terminal);
        let ends: Vec<usize> = text
            .lines()
            .take(3)
            .map(|line| line.chars().count())
            .collect();
        assert!(ends.iter().all(|end| *end == ends[0]), "{text}");
    }
}
