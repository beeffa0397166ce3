//! Figures of a comparison: what each peer reaches along one property of the path, all others
//! being equal.

use std::path::Path as FilePath;

use dfcp_command::Failure;
use dfcp_lab::compare::path::Bottleneck;
use dfcp_lab::compare::record::Line;
use dfcp_lab::compare::summary::{Cell, Row, Spread, summarize};
use dfcp_lab::compare::table;

use crate::sim::plot::{
    self, Data, Drawing, Estimate, Marking, Panel, Quantities, Sample, Scale, Unit,
};
use crate::sim::store;

/// A property of paths, along which there may be a curve.
struct Along {
    /// In file names.
    name: &'static str,
    label: &'static str,
    unit: Unit,
    log: bool,
    of: fn(&Bottleneck) -> f64,
}

const ALONG: [Along; 4] = [
    Along {
        name: "loss",
        label: "packets lost, each way",
        unit: Unit::Share,
        log: false,
        of: |path| path.loss,
    },
    Along {
        name: "rtt",
        label: "round-trip time",
        unit: Unit::Seconds,
        log: true,
        of: |path| path.rtt_s,
    },
    Along {
        name: "queue",
        label: "queue",
        unit: Unit::Count("packets"),
        log: true,
        of: |path| path.queue_packets as f64,
    },
    Along {
        name: "rate",
        label: "rate of the path",
        unit: Unit::BitsPerSecond,
        log: true,
        of: |path| path.rate_bps as f64,
    },
];

/// A figure of peers.
struct Figure {
    name: &'static str,
    label: &'static str,
    unit: Unit,
    log: bool,
    of: fn(&Row) -> Option<Spread>,
}

const FIGURES: [Figure; 4] = [
    Figure {
        name: "goodput",
        label: "steady goodput ÷ limit",
        unit: Unit::Share,
        log: false,
        of: |row| row.steady_share,
    },
    Figure {
        name: "cpu",
        label: "CPU seconds per GB, both ends",
        unit: Unit::Count(""),
        log: true,
        of: |row| row.cpu_per_gb,
    },
    Figure {
        name: "object",
        label: "completion time of a small object",
        unit: Unit::Seconds,
        log: true,
        of: |row| row.object_s,
    },
    Figure {
        name: "wire",
        label: "bytes on the wire ÷ least",
        unit: Unit::Count(""),
        log: false,
        of: |row| row.wire,
    },
];

/// Fewer places than this are a table, not a curve.
const LEAST_PLACES: usize = 3;

/// Writes a page, and the figures of its data into the directory of its name.
pub fn write_page(lines: &[Line], page: &FilePath) -> Result<(), Failure> {
    let directory = page.with_extension("");
    let stem = directory
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let cells = summarize(lines);
    let mut pictures = Vec::new();
    for along in &ALONG {
        let slice = longest_slice(&cells, along);
        for figure in &FIGURES {
            let Some((title, data)) = curves(&slice, along, figure) else {
                continue;
            };
            let name = format!("{}-{}", figure.name, along.name);
            let drawing = Drawing {
                data,
                title: Some(title.clone()),
                log_x: along.log,
                log_y: figure.log,
                marking: Marking::EachCurve,
            };
            plot::draw(drawing, &directory.join(format!("{name}.svg")))?;
            pictures.push((
                format!("{stem}/{name}.svg"),
                format!("{}: {title}", figure.label),
            ));
        }
    }
    let text = table::page(lines, &pictures);
    store::write_atomically(page, |file| Ok(file.write_all(text.as_bytes())?))
}

/// The most cells that differ in nothing else, by their place.
fn longest_slice<'a>(cells: &'a [Cell], along: &Along) -> Vec<(f64, &'a Cell)> {
    let rest = |path: &Bottleneck| -> Vec<f64> {
        let others = ALONG.iter().filter(|other| other.name != along.name);
        // A queue of one product of rate and delay stays one when these change.
        let queue_follows = matches!(along.name, "rtt" | "rate");
        let others = others.map(|other| match other.name {
            "queue" if queue_follows => queue_in_products(path),
            _ => (other.of)(path),
        });
        others.collect()
    };
    let paths = || {
        cells
            .iter()
            .filter_map(|cell| Some((cell, cell.path.bottleneck()?)))
    };
    let slice = |like: &Bottleneck| {
        let same = paths().filter(|(_, path)| rest(path) == rest(like));
        let mut slice: Vec<_> = same.map(|(cell, path)| ((along.of)(path), cell)).collect();
        // Of files of different sizes on one path, those that ran more often.
        let runs = |cell: &Cell| cell.rows.iter().map(|row| row.runs).sum::<usize>();
        slice.sort_by(|a, b| a.0.total_cmp(&b.0).then(runs(b.1).cmp(&runs(a.1))));
        slice.dedup_by(|later, first| later.0 == first.0);
        slice
    };
    // The first of the longest.
    let slices = paths().map(|(_, path)| slice(path));
    slices.fold(Vec::new(), |longest, next| {
        if next.len() > longest.len() {
            next
        } else {
            longest
        }
    })
}

/// To a hundredth; short ones, which have a least number of packets, count as one.
fn queue_in_products(path: &Bottleneck) -> f64 {
    const LEAST: u64 = 10;
    let product = path.rate_bps as f64 / 8.0 * path.rtt_s / 1500.0;
    match path.queue_packets {
        0..=LEAST if product < LEAST as f64 => 1.0,
        packets => (packets as f64 / product * 100.0).round() / 100.0,
    }
}

/// Curves of all peers that have at least two points; none for a slice that is too short.
fn curves(slice: &[(f64, &Cell)], along: &Along, figure: &Figure) -> Option<(String, Data)> {
    let first = slice.first()?.1.path.bottleneck()?;
    if slice.len() < LEAST_PLACES {
        return None;
    }
    let mut names: Vec<&str> = Vec::new();
    for row in slice.iter().flat_map(|(_, cell)| &cell.rows) {
        if !names.contains(&row.peer.as_str()) {
            names.push(&row.peer);
        }
    }
    let points = |name: &str| -> Vec<Sample> {
        let rows = slice.iter().filter_map(|(x, cell)| {
            let row = cell.rows.iter().find(|row| row.peer == name)?;
            let median = (figure.of)(row)?.median;
            median.is_finite().then_some(Sample {
                x: *x,
                y: Estimate {
                    mean: median,
                    half_width: None,
                },
            })
        });
        rows.collect()
    };
    let curves = names
        .into_iter()
        .map(|name| (name.to_owned(), points(name)));
    let (names, curves): (Vec<_>, Vec<_>) = curves.filter(|(_, points)| points.len() > 1).unzip();
    let axis = |name: &str, unit: Unit| Quantities {
        name: name.to_owned(),
        unit,
        scale: Scale::Linear,
        categories: Vec::new(),
    };
    let data = Data {
        x: axis(along.label, along.unit),
        y: axis(figure.label, figure.unit),
        curves: names,
        panels: vec![Panel {
            title: None,
            curves,
        }],
        warnings: Vec::new(),
    };
    (!data.curves.is_empty()).then(|| (title(first, along), data))
}

/// What all cells of a slice have in common.
fn title(path: &Bottleneck, along: &Along) -> String {
    let queue = match along.name {
        "rtt" | "rate" => format!("queue {} BDP", queue_in_products(path)),
        _ => format!("queue {} packets", path.queue_packets),
    };
    let parts = [
        ("rate", format!("{} Mbit/s", path.rate_bps as f64 / 1e6)),
        ("rtt", format!("{:.0} ms", path.rtt_s * 1e3)),
        (
            "loss",
            format!("{} % loss", (path.loss * 1e4).round() / 1e2),
        ),
        ("queue", queue),
    ];
    let others = parts.into_iter().filter(|(name, _)| *name != along.name);
    let others: Vec<_> = others.map(|(_, text)| text).collect();
    others.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use dfcp_lab::compare::path::{Path, Queue};
    use dfcp_lab::compare::record::{FileFigures, Run, Status};
    use std::time::Duration;

    fn run(peer: &str, path: Bottleneck, steady: f64) -> Line {
        Line::Run(Box::new(Run {
            peer: peer.into(),
            path: Path::Bottleneck(path),
            file_size: 1,
            repetition: 1,
            status: Status::Complete,
            reason: None,
            objects: None,
            file: Some(FileFigures {
                size: 1,
                bytes: 1,
                seconds: 1.0,
                steady_bps: Some(steady),
                cpu_s: [1.0, 1.0, 0.0],
                ..FileFigures::default()
            }),
        }))
    }

    fn path(ms: u64, loss: f64) -> Bottleneck {
        let rtt = Duration::from_millis(ms);
        Bottleneck::new(100_000_000, rtt, loss, Queue::Bdp(1.0))
    }

    fn lines() -> Vec<Line> {
        let losses = [0.2, 0.0, 0.1].map(|loss| run("a", path(50, loss), 50e6));
        let rtts = [1, 10, 50, 200].map(|ms| run("b", path(ms, 0.0), 50e6));
        losses.into_iter().chain(rtts).collect()
    }

    #[test]
    fn slices_vary_in_one_property_only() {
        let cells = summarize(&lines());
        let places = |along: &Along| -> Vec<f64> {
            longest_slice(&cells, along)
                .iter()
                .map(|(x, _)| *x)
                .collect()
        };
        assert_eq!(places(&ALONG[0]), [0.0, 0.1, 0.2]);
        assert_eq!(places(&ALONG[1]), [0.001, 0.01, 0.05, 0.2]);
        assert_eq!(places(&ALONG[3]).len(), 1);
        let slice = longest_slice(&cells, &ALONG[1]);
        let (title, data) = curves(&slice, &ALONG[1], &FIGURES[0]).unwrap();
        assert_eq!(data.curves, ["b"]); // "a" has one point there
        assert!(
            title.contains("100 Mbit/s, 0 % loss, queue 1 BDP"),
            "{title}"
        );
        assert!(curves(&longest_slice(&cells, &ALONG[3]), &ALONG[3], &FIGURES[0]).is_none());
    }

    #[test]
    fn a_page_comes_with_its_figures() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.md");
        write_page(&lines(), &page).unwrap();
        let text = std::fs::read_to_string(page).unwrap();
        for name in ["goodput-loss", "goodput-rtt", "cpu-loss", "cpu-rtt"] {
            assert!(text.contains(&format!("](page/{name}.svg)")), "{name}");
            let figure = folder.path().join(format!("page/{name}.svg"));
            assert!(figure.exists(), "{}", figure.display());
        }
        assert!(!text.contains("wire-loss.svg"), "no figure without data");
    }
}
