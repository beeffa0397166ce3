//! Sweeps of a made-up simulator: what the files hold must not tell how they came to be.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dfcp_sim::report::{FlowReport, LinkReport, RunReport};
use indicatif::ProgressBar;

use super::merge::merge;
use super::*;
use crate::sim::store;
use crate::sim::table::Table;

const POINTS: usize = 24;

/// Twelve losses, two seeds; each point has as many flows as its index says, modulo three, plus
/// one.
struct Fake {
    provenance: Provenance,
    runs: AtomicUsize,
    /// After so many runs the user has had enough.
    interrupt_after: usize,
    interrupted: Arc<AtomicBool>,
    /// A point that panics.
    panics_at: Option<usize>,
    /// Points that are run again.
    again: BTreeSet<usize>,
    /// What goodputs are multiplied with.
    factor: f64,
}

impl Fake {
    fn new() -> Self {
        Self {
            provenance: Provenance {
                dfcp_version: "0.1.0".into(),
                scenario_hash: "aa".into(),
                scenario: "schema = 1\n".into(),
                parameters: vec!["link.bottleneck.loss".into(), "utilisation".into()],
                points: POINTS,
            },
            runs: AtomicUsize::new(0),
            interrupt_after: usize::MAX,
            interrupted: Arc::default(),
            panics_at: None,
            again: BTreeSet::new(),
            factor: 1.0,
        }
    }
}

impl Study for Fake {
    fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    fn run(&self, index: usize) -> Result<PointResult, Failure> {
        assert_ne!(self.panics_at, Some(index), "the fake fell over");
        if self.runs.fetch_add(1, Ordering::SeqCst) + 1 >= self.interrupt_after {
            self.interrupted.store(true, Ordering::SeqCst);
        }
        let step = index / 2;
        let flow = |number: usize| FlowReport {
            name: format!("flow-{number}"),
            protocol: "tcp-cubic".into(),
            goodput_bps: self.factor * 1e9 / (index as f64 + 3.0),
            fct_s: (index % 2 == 1).then_some(0.1 + index as f64),
            bytes: 1000 * index as u64,
            ..FlowReport::default()
        };
        Ok(PointResult {
            // Whole at first, then not: a column that widens.
            parameters: vec![
                match step {
                    0 => Cell::Integer(0),
                    _ => Cell::Real(step as f64 / 1000.0),
                },
                Cell::Text("10 ms".into()),
            ],
            seed: 1 + index as u64 % 2,
            report: RunReport {
                flows: (0..=index % 3).map(flow).collect(),
                links: vec![LinkReport {
                    name: "bottleneck".into(),
                    packets: index as u64,
                    ..LinkReport::default()
                }],
                ..RunReport::default()
            },
        })
    }

    fn again(&self) -> BTreeSet<usize> {
        self.again.clone()
    }
}

fn sweep(fake: Fake, out: &Path, points: Range<usize>, jobs: usize) -> Result<Outcome, Failure> {
    let request = Request {
        outputs: Outputs::new(out).unwrap(),
        points,
        jobs,
        interrupted: fake.interrupted.clone(),
    };
    execute(Arc::new(fake), &request, &ProgressBar::hidden())
}

/// The files of a sweep by name, without the journal.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let kept = entries.filter(|path| path.extension().is_none_or(|e| e != "journal"));
    kept.map(|path| (path.file_name().unwrap().into(), fs::read(&path).unwrap()))
        .collect()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The files of a sweep that nothing disturbed.
fn undisturbed() -> BTreeMap<PathBuf, Vec<u8>> {
    let dir = directory();
    let outcome = sweep(Fake::new(), &dir.path().join("out.csv"), 0..POINTS, 1).unwrap();
    assert_eq!((outcome.run, outcome.left), (POINTS, 0));
    let files = files(dir.path());
    assert_eq!(
        files.len(),
        5,
        "CSV and Parquet of flows and links, and a manifest"
    );
    files
}

#[test]
fn interruptions_and_threads_leave_no_trace() {
    let dir = directory();
    let out = dir.path().join("out.parquet");
    let mut runs = 0;
    for jobs in [3, 1, 2, 4] {
        let mut fake = Fake::new();
        fake.interrupt_after = 5;
        let outcome = sweep(fake, &out, 0..POINTS, jobs).unwrap();
        assert_eq!(outcome.before, runs, "a point done is not run again");
        runs += outcome.run;
    }
    let outcome = sweep(Fake::new(), &out, 0..POINTS, 3).unwrap();
    assert_eq!((outcome.before, outcome.left), (runs, 0));
    assert_eq!(files(dir.path()), undisturbed());
}

#[test]
fn a_torn_line_is_run_again() {
    let expected = undisturbed();
    let dir = directory();
    let out = dir.path().join("out");
    sweep(Fake::new(), &out, 0..10, 2).unwrap();
    let journal = dir.path().join("out.journal");
    let whole = fs::read(&journal).unwrap();
    for cut in [1, 40] {
        fs::write(&journal, &whole[..whole.len() - cut]).unwrap();
        let outcome = sweep(Fake::new(), &out, 0..10, 2).unwrap();
        assert_eq!((outcome.before, outcome.run), (9, 1), "{cut} bytes cut off");
    }
    let outcome = sweep(Fake::new(), &out, 0..POINTS, 2).unwrap();
    assert_eq!(outcome.before, 10);
    assert_eq!(files(dir.path()), expected);
    // Even the head may be torn.
    for length in [0, 5, 20] {
        fs::write(&journal, &whole[..length]).unwrap();
        let outcome = sweep(Fake::new(), &out, 0..POINTS, 2).unwrap();
        assert_eq!(outcome.before, 0);
        assert_eq!(files(dir.path()), expected);
    }
}

#[test]
fn another_scenario_is_refused() {
    let dir = directory();
    let out = dir.path().join("out.csv");
    sweep(Fake::new(), &out, 0..3, 1).unwrap();
    let before = files(dir.path());
    let changes: [fn(&mut Provenance); 2] = [
        |provenance| provenance.scenario_hash = "bb".into(),
        |provenance| provenance.dfcp_version = "0.2.0".into(),
    ];
    for change in changes {
        let mut fake = Fake::new();
        change(&mut fake.provenance);
        let refused = sweep(fake, &out, 0..3, 1).unwrap_err();
        assert_eq!(refused.kind, Kind::Usage);
        assert!(refused.message.contains("remove it, or"), "{refused}");
    }
    assert_eq!(files(dir.path()), before);
    // Neither is a file that is no journal, or one of the future, touched.
    for text in [
        "Dear diary",
        "Dear diary\n",
        "{\"dfcp_journal\":2,\"points\":[]}\n",
    ] {
        fs::write(dir.path().join("mine.journal"), text).unwrap();
        assert!(sweep(Fake::new(), &dir.path().join("mine.csv"), 0..3, 1).is_err());
        let left = fs::read_to_string(dir.path().join("mine.journal")).unwrap();
        assert_eq!(left, text);
    }
}

#[test]
fn parts_merged_are_the_whole() {
    let (parts, whole) = (directory(), directory());
    let mut paths = Vec::new();
    // Out of order, and overlapping.
    for (name, points) in [("c", 15..POINTS), ("a", 0..2), ("b", 1..16)] {
        let path = parts.path().join(format!("{name}.parquet"));
        sweep(Fake::new(), &path, points, 2).unwrap();
        paths.push(path);
    }
    let outputs = Outputs::new(&whole.path().join("out.parquet")).unwrap();
    let (_, points) = merge(&paths, &outputs).unwrap();
    assert_eq!(points, POINTS);
    assert_eq!(files(whole.path()), undisturbed());
}

#[test]
fn parts_that_disagree_are_refused() {
    let dir = directory();
    let part = |name: &str| dir.path().join(format!("{name}.parquet"));
    sweep(Fake::new(), &part("a"), 0..4, 1).unwrap();
    let mut other = Fake::new();
    other.provenance.scenario_hash = "bb".into();
    sweep(other, &part("b"), 4..8, 1).unwrap();
    let outputs = Outputs::new(&part("all")).unwrap();
    let refused = merge(&[part("a"), part("b")], &outputs).unwrap_err();
    assert!(refused.message.contains("another scenario"), "{refused}");

    let mut stored = store::read(&part("a")).unwrap();
    let goodput = stored.table.column("goodput_bps").unwrap();
    let mut changed = Table::new(stored.table.columns().to_vec());
    for mut row in stored.table.rows().to_vec() {
        row[goodput] = Cell::Real(1.0);
        changed.push(row);
    }
    stored.table = changed;
    store::write(&part("c"), &stored.table, stored.provenance.as_ref()).unwrap();
    fs::copy(
        dir.path().join("a-links.parquet"),
        dir.path().join("c-links.parquet"),
    )
    .unwrap();
    let refused = merge(&[part("a"), part("c")], &outputs).unwrap_err();
    assert!(refused.message.contains("point 0 differs"), "{refused}");
    assert!(!part("all").exists());
}

#[test]
fn csv_and_parquet_hold_the_same_rows() {
    let dir = directory();
    sweep(Fake::new(), &dir.path().join("out"), 0..POINTS, 2).unwrap();
    for name in ["out", "out-links"] {
        let csv = store::read(&dir.path().join(format!("{name}.csv"))).unwrap();
        let parquet = store::read(&dir.path().join(format!("{name}.parquet"))).unwrap();
        let print = |table: &Table| -> Vec<Vec<String>> {
            let rows = table.rows().iter();
            rows.map(|row| row.iter().map(ToString::to_string).collect())
                .collect()
        };
        assert_eq!(print(&csv.table), print(&parquet.table));
        let names = |table: &Table| -> Vec<String> {
            table.columns().iter().map(|c| c.name.clone()).collect()
        };
        assert_eq!(names(&csv.table), names(&parquet.table));
        assert_eq!(names(&csv.table)[..2], ["point", "link.bottleneck.loss"]);
    }
}

#[test]
fn a_point_that_fails_leaves_the_others() {
    let dir = directory();
    let out = dir.path().join("out.csv");
    let mut fake = Fake::new();
    fake.panics_at = Some(7);
    let outcome = sweep(fake, &out, 0..POINTS, 2).unwrap();
    assert_eq!((outcome.run, outcome.failed.len()), (POINTS - 1, 1));
    assert_eq!(outcome.failed[0].0, 7);
    assert!(outcome.failed[0].1.message.contains("the fake fell over"));
    let outcome = sweep(Fake::new(), &out, 0..POINTS, 2).unwrap();
    assert_eq!(outcome.run, 1);
    assert_eq!(files(dir.path()), undisturbed());
}

/// What a point measured that does not count is replaced by what it measures when it is run again; the
/// other points stand.
#[test]
fn a_point_that_does_not_count_is_run_again() {
    let dir = directory();
    let out = dir.path().join("out.csv");
    sweep(Fake::new(), &out, 0..POINTS, 1).unwrap();
    let second = Fake {
        again: [3, 7].into(),
        factor: 2.0,
        ..Fake::new()
    };
    let outcome = sweep(second, &out, 0..POINTS, 1).unwrap();
    assert_eq!((outcome.before, outcome.run), (POINTS - 2, 2));
    let table = store::read(&out).unwrap().table;
    let goodput = table.column("goodput_bps").unwrap();
    let mut points = Vec::new();
    for row in table.rows() {
        let (point, measured) = (row[0].number().unwrap(), row[goodput].number().unwrap());
        let factor = if [3.0, 7.0].contains(&point) {
            2.0
        } else {
            1.0
        };
        assert!(
            (measured * (point + 3.0) / 1e9 - factor).abs() < 1e-9,
            "{point}"
        );
        points.push(point as usize);
    }
    // Each as often as it has flows, and in order.
    let flows = |point: usize| std::iter::repeat_n(point, point % 3 + 1);
    assert_eq!(points, (0..POINTS).flat_map(flows).collect::<Vec<_>>());
}

#[test]
fn two_sweeps_do_not_share_a_journal() {
    let dir = directory();
    let path = dir.path().join("out.journal");
    let fake = Fake::new();
    let (open, _) = Journal::open(&path, &fake.provenance).unwrap();
    let refused = sweep(Fake::new(), &dir.path().join("out"), 0..1, 1).unwrap_err();
    assert!(refused.message.contains("another sweep"), "{refused}");
    drop(open);
    sweep(Fake::new(), &dir.path().join("out"), 0..1, 1).unwrap();
}

#[test]
fn what_cannot_be_written_is_an_error_that_keeps_points() {
    let dir = directory();
    let out = dir.path().join("out");
    // Where the table should go, there is a directory.
    fs::create_dir(dir.path().join("out.csv")).unwrap();
    fs::File::create(dir.path().join("out.csv/full"))
        .unwrap()
        .write_all(b"x")
        .unwrap();
    let failed = sweep(Fake::new(), &out, 0..POINTS, 2).unwrap_err();
    assert_eq!(failed.kind, Kind::LocalIo);
    assert!(failed.message.contains("out.csv"), "{failed}");
    fs::remove_dir_all(dir.path().join("out.csv")).unwrap();
    let outcome = sweep(Fake::new(), &out, 0..POINTS, 2).unwrap();
    assert_eq!((outcome.before, outcome.run), (POINTS, 0));
}

#[test]
fn ranges_of_points() {
    assert_eq!(range("3..7"), Ok(3..7));
    assert_eq!(range("..7"), Ok(0..7));
    assert_eq!(range("3.."), Ok(3..usize::MAX));
    assert!(range("3").is_err() && range("a..b").is_err());
    assert_eq!(
        outputs::ranges(&[0, 1, 2, 5, 7, 8].into()),
        ["0..3", "5..6", "7..9"]
    );
}
