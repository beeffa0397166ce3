//! From runs to figures: median and range over the repetitions, for each peer on each path.

use super::path::Path;
use super::record::{FileFigures, Line, Run, Status};

/// A median, and between what it lies. What did not end has no bound above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

impl Spread {
    /// Of samples; none of no samples.
    pub fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let upper = *samples.get(samples.len() / 2)?;
        let lower = samples[(samples.len() - 1) / 2];
        Some(Self {
            // Of two that are not finite there is no middle.
            median: if upper == lower {
                upper
            } else {
                (lower + upper) / 2.0
            },
            low: samples[0],
            high: samples[samples.len() - 1],
        })
    }
}

/// A peer on a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The peer's name.
    pub peer: String,
    /// Runs that are in the figures.
    pub runs: usize,
    /// Whether the lab was true to its path in these; else the figures are better than nothing.
    pub valid: bool,
    /// Bits a second after the first tenth of the bytes.
    pub steady_bps: Option<Spread>,
    /// Bits a second from start to end.
    pub whole_bps: Option<Spread>,
    /// The first as a share of the path's limit.
    pub steady_share: Option<Spread>,
    /// The second, likewise.
    pub whole_share: Option<Spread>,
    /// Seconds until a small object was there.
    pub object_s: Option<Spread>,
    /// Seconds until the file was there.
    pub file_s: Option<Spread>,
    /// Processor seconds of both ends per 10⁹ bytes.
    pub cpu_per_gb: Option<Spread>,
    /// IP bytes sent as a multiple of the least.
    pub wire: Option<Spread>,
    /// What did not go well.
    pub notes: Vec<String>,
}

/// All peers on one path, with one size of file.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The path.
    pub path: Path,
    /// Bytes of the file.
    pub file_size: u64,
    /// The peers, in the order in which they first ran.
    pub rows: Vec<Row>,
}

/// The cells of a comparison, in the order in which they first ran.
pub fn summarize(lines: &[Line]) -> Vec<Cell> {
    let runs = || {
        lines.iter().filter_map(|line| match line {
            Line::Run(run) => Some(&**run),
            _ => None,
        })
    };
    let mut cells: Vec<Cell> = Vec::new();
    for run in runs() {
        let like = |other: &&Run| other.file_size == run.file_size && other.path == run.path;
        if !cells
            .iter()
            .any(|cell| cell.file_size == run.file_size && cell.path == run.path)
        {
            let here: Vec<&Run> = runs().filter(like).collect();
            cells.push(cell(run, &here));
        }
    }
    cells
}

fn cell(of: &Run, runs: &[&Run]) -> Cell {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.peer.as_str()) {
            names.push(&run.peer);
        }
    }
    let rows = names.into_iter().map(|name| {
        let own: Vec<&Run> = runs
            .iter()
            .copied()
            .filter(|run| run.peer == name)
            .collect();
        row(name, &of.path, &own)
    });
    Cell {
        path: of.path.clone(),
        file_size: of.file_size,
        rows: rows.collect(),
    }
}

fn row(peer: &str, path: &Path, runs: &[&Run]) -> Row {
    let ended = |run: &&&Run| matches!(run.status, Status::Complete | Status::Limit);
    let mut good: Vec<&Run> = runs.iter().filter(ended).copied().collect();
    if good.is_empty() {
        // Better than nothing, and marked.
        let invalid = |run: &&&Run| run.status == Status::Invalid;
        good = runs.iter().filter(invalid).copied().collect();
    }
    let files = || {
        good.iter()
            .filter_map(|run| Some((*run, run.file.as_ref()?)))
    };
    let of = |figure: &dyn Fn(&FileFigures) -> Option<f64>| {
        Spread::of(files().filter_map(|(_, file)| figure(file)).collect())
    };
    let limit = path.limit_bps();
    let file_s =
        files()
            .filter(|(_, file)| file.size > 0)
            .map(|(_, file)| match file.bytes == file.size {
                true => file.seconds,
                false => f64::INFINITY,
            });
    let objects = good.iter().filter_map(|run| run.objects.as_ref());
    let object_s = objects.flat_map(|objects| {
        let unfinished = std::iter::repeat_n(f64::INFINITY, objects.unfinished as usize);
        objects.seconds.iter().copied().chain(unfinished)
    });
    Row {
        peer: peer.to_owned(),
        runs: good.len(),
        valid: good.iter().all(|run| run.status != Status::Invalid),
        steady_bps: of(&|file| file.steady_bps),
        whole_bps: of(&|file| Some(file.whole_bps())),
        steady_share: of(&|file| Some(file.steady_bps? / file.steady_limit_bps.or(limit)?)),
        whole_share: of(&|file| Some(file.whole_bps() / file.limit_bps.or(limit)?)),
        object_s: Spread::of(object_s.collect()),
        file_s: Spread::of(file_s.collect()),
        cpu_per_gb: of(&FileFigures::cpu_per_gb),
        wire: of(&|file| file.wire_ratio(path)),
        notes: notes(runs),
    }
}

/// Each reason with how often it was met.
fn notes(runs: &[&Run]) -> Vec<String> {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for run in runs {
        let reason = run.reason.as_deref().unwrap_or_default();
        let note = match run.status {
            Status::Complete if reason.is_empty() => continue,
            Status::Complete | Status::Missing => reason.to_owned(),
            Status::Limit => "stopped at the time limit".to_owned(),
            Status::Failed => format!("failed: {reason}"),
            Status::Invalid => format!("invalid: {reason}"),
        };
        match reasons.iter_mut().find(|known| known.0 == note) {
            Some(known) => known.1 += 1,
            None => reasons.push((note, 1)),
        }
    }
    let all = runs.len();
    let note = |(reason, count): (String, usize)| match count == all {
        true => reason,
        false => format!("{count} of {all}: {reason}"),
    };
    reasons.into_iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::path::{Bottleneck, Queue};
    use crate::compare::record::Objects;
    use std::time::Duration;

    fn run(peer: &str, status: Status, seconds: f64) -> Run {
        let path = Bottleneck::new(100_000_000, Duration::from_millis(50), 0.0, Queue::Bdp(1.0));
        let bytes = if status == Status::Complete {
            1000
        } else {
            500
        };
        Run {
            peer: peer.into(),
            path: Path::Bottleneck(path),
            file_size: 1000,
            repetition: 1,
            status,
            reason: (status == Status::Failed).then(|| "it crashed".to_owned()),
            objects: Some(Objects {
                size: 150_000,
                seconds: vec![seconds],
                unfinished: u32::from(status == Status::Limit),
            }),
            file: Some(FileFigures {
                size: 1000,
                bytes,
                seconds,
                cpu_s: [1e-6, 1e-6, 0.0],
                ..FileFigures::default()
            }),
        }
    }

    fn lines(runs: Vec<Run>) -> Vec<Line> {
        runs.into_iter()
            .map(|run| Line::Run(Box::new(run)))
            .collect()
    }

    #[test]
    fn medians_ignore_failures_and_say_them() {
        let cells = summarize(&lines(vec![
            run("a", Status::Complete, 2.0),
            run("b", Status::Complete, 1.0),
            run("a", Status::Failed, 9.0),
            run("a", Status::Complete, 1.0),
            run("a", Status::Complete, 4.0),
        ]));
        assert_eq!(cells.len(), 1);
        let row = &cells[0].rows[0];
        assert_eq!((row.peer.as_str(), row.runs), ("a", 3));
        let expected = Spread {
            median: 2.0,
            low: 1.0,
            high: 4.0,
        };
        assert_eq!(row.file_s, Some(expected));
        assert_eq!(row.whole_bps.map(|spread| spread.median), Some(4000.0));
        assert_eq!(row.notes, ["1 of 4: failed: it crashed"]);
        assert!((row.cpu_per_gb.unwrap().median - 2.0).abs() < 1e-9);
        assert_eq!(cells[0].rows[1].notes, [""; 0]);
    }

    #[test]
    fn what_does_not_end_takes_for_ever() {
        let cells = summarize(&lines(vec![
            run("a", Status::Limit, 5.0),
            run("a", Status::Limit, 5.0),
            run("a", Status::Complete, 4.0),
        ]));
        let row = &cells[0].rows[0];
        assert_eq!(row.file_s.map(|spread| spread.median), Some(f64::INFINITY));
        assert_eq!(row.file_s.map(|spread| spread.low), Some(4.0));
        // Its goodput counts nevertheless: what arrived in the time it had.
        assert_eq!(row.whole_bps.map(|spread| spread.low), Some(800.0));
        // Three objects arrived and two did not.
        assert_eq!(row.object_s.map(|spread| spread.median), Some(5.0));
        assert_eq!(row.notes, ["2 of 3: stopped at the time limit"]);
    }

    #[test]
    fn a_missing_peer_has_a_row_without_figures() {
        let mut missing = run("c", Status::Missing, 0.0);
        missing.reason = Some("not installed: x".into());
        (missing.file, missing.objects) = (None, None);
        let cells = summarize(&lines(vec![missing]));
        let row = &cells[0].rows[0];
        assert_eq!((row.runs, row.file_s, row.whole_share), (0, None, None));
        assert_eq!(row.notes, ["not installed: x"]);
    }
}
