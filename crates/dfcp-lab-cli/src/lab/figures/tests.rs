//! The plans fit the catalogues and a machine; the two worlds are compared as they say.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::ValueEnum;

use super::page::Tally;
use super::points::{Point, compare};
use super::real::Truth;
use super::*;
use crate::sim::figures::catalogue::Item;
use crate::sim::figures::runs::Results;
use crate::sim::plot::Estimate;
use crate::sim::table::{Cell, Table};

/// Longer than this no point may take: a run is to be bounded in time.
const LONGEST_S: f64 = 200.0;

fn papers() -> impl Iterator<Item = Paper> {
    let papers = Paper::value_variants().iter().copied();
    papers.filter(|paper| !matches!(paper, Paper::Ablation | Paper::Reasons))
}

#[test]
fn every_figure_has_a_scenario_that_a_real_path_can_run_in_time() {
    for paper in papers() {
        let plan = Plan::of(paper).unwrap();
        let catalogue = Catalogue::read(paper.book().catalogue).unwrap();
        for size in [Size::Quick, Size::Full] {
            let wanted = plan.wanted(&catalogue, &[], size).unwrap();
            assert!(!wanted.is_empty());
            let runner = Runner {
                scenarios: paper.book().scenarios,
                size: Size::Quick,
                seeds: None,
                directory: Path::new("unused").to_owned(),
                jobs: 1,
                interrupted: Arc::new(AtomicBool::new(false)),
            };
            for wave in waves(&plan, &wanted, size, &runner).unwrap() {
                for point in 0..wave.points() {
                    let scenario = wave.study.point(point).unwrap().scenario;
                    let duration = scenario.run.duration.as_secs_f64();
                    assert!(duration <= LONGEST_S, "{}", wave.scenario.name);
                    assert!(scenario.run.warmup < scenario.run.duration);
                }
            }
        }
    }
}

#[test]
fn what_is_not_on_a_real_path_is_said() {
    assert!(Plan::of(Paper::Ablation).is_err());
    let plan = Plan::of(Paper::Dfcp).unwrap();
    let catalogue = Catalogue::read(Paper::Dfcp.book().catalogue).unwrap();
    let unknown = plan.wanted(&catalogue, &["fig-1".to_owned()], Size::Quick);
    assert!(unknown.unwrap_err().message.contains("fig-11"));
    // An item that quick runs leave out is made when it is named.
    let named = plan.wanted(&catalogue, &["fig-16".to_owned()], Size::Quick);
    assert_eq!(named.unwrap().len(), 1);
}

#[test]
fn points_on_a_path_that_was_not_true_are_run_again() {
    let directory = tempfile::tempdir().unwrap();
    let write = |point: usize, text: &str| {
        std::fs::write(directory.path().join(format!("{point}.json")), text).unwrap();
    };
    let true_one = serde_json::to_string(&Truth::default()).unwrap();
    let late = Truth {
        reasons: vec!["late".into()],
        ..Truth::default()
    };
    write(0, &true_one);
    write(2, &serde_json::to_string(&late).unwrap());
    // Of points that are not done, or were cut short, the journal knows.
    write(3, "{");
    assert_eq!(real::untrue(directory.path(), 4), [2].into());
}

/// DFCP-J Fig. 14a as the catalogue has it.
fn fig_14a() -> Item {
    let catalogue = Catalogue::read(Paper::Dfcp.book().catalogue).unwrap();
    let mut items = catalogue.items.into_iter();
    items.find(|item| item.id == "fig-14a").unwrap()
}

/// Goodput of two flows at two losses, as the scenario of DFCP-J Fig. 14a gives it.
fn results(goodputs: [[f64; 2]; 2]) -> Results {
    let columns = [
        "point",
        "title",
        "link.access-left.loss",
        "seed",
        "flow",
        "goodput_bps",
    ];
    let mut flows = Table::untyped(columns);
    for (point, (loss, goodputs)) in [0.001, 0.05].into_iter().zip(goodputs).enumerate() {
        for (flow, goodput) in ["flow-1", "flow-2"].into_iter().zip(goodputs) {
            let point = Cell::from(point as u64);
            flows.push(vec![
                point,
                "DFCP".into(),
                loss.into(),
                1u64.into(),
                flow.into(),
                goodput.into(),
            ]);
        }
    }
    Results {
        flows,
        parameters: vec!["title".into(), "link.access-left.loss".into()],
        ..Results::default()
    }
}

#[test]
fn points_are_set_side_by_side_and_untrue_ones_marked() {
    let late = Truth {
        reasons: vec!["late".into()],
        ..Truth::default()
    };
    let worlds = Worlds {
        simulated: results([[40e6, 40e6], [35e6, 35e6]]),
        real: results([[41e6, 30e6], [34e6, 36e6]]),
        truths: vec![Truth::default(), late],
    };
    let compared = compare(&fig_14a(), &worlds, 0.0).unwrap();
    let told = |point: &Point| {
        (
            point.curve.clone(),
            point.x,
            point.is_near(),
            point.untrue.clone(),
        )
    };
    let told: Vec<_> = compared.points.iter().map(told).collect();
    assert_eq!(
        told,
        [
            ("flow-1".to_owned(), 0.001, true, None),
            ("flow-1".to_owned(), 0.05, true, Some("late".to_owned())),
            ("flow-2".to_owned(), 0.001, false, None),
            ("flow-2".to_owned(), 0.05, true, Some("late".to_owned())),
        ]
    );
    let tally = Tally::of(&compared.points);
    assert_eq!((tally.points, tally.near, tally.on_a_true_path), (4, 3, 2));
    // Each flow is drawn simulated, real, and real on a late path.
    let counts: Vec<_> = compared.data.panels[0]
        .curves
        .iter()
        .map(Vec::len)
        .collect();
    assert_eq!(counts, [2, 1, 1, 2, 1, 1]);
}

#[test]
fn a_flow_that_did_not_run_measured_nothing() {
    let failed = Truth {
        failures: vec!["flow-1 did not run: no such program".into()],
        ..Truth::default()
    };
    let worlds = Worlds {
        simulated: results([[40e6, 40e6], [35e6, 35e6]]),
        real: results([[40e6, 40e6], [0.0, 35e6]]),
        truths: vec![Truth::default(), failed],
    };
    let compared = compare(&fig_14a(), &worlds, 0.0).unwrap();
    let nothing: Vec<_> = compared
        .points
        .iter()
        .filter(|point| point.real.is_none())
        .collect();
    assert_eq!(nothing.len(), 2);
    assert!(
        nothing
            .iter()
            .all(|point| !point.is_near() && point.untrue.is_some())
    );
}

#[test]
fn points_are_near_within_a_tenth_of_the_simulated() {
    let estimate = |mean| {
        Some(Estimate {
            mean,
            half_width: None,
        })
    };
    let point = |simulated, real| Point {
        panel: String::new(),
        curve: String::new(),
        x: 0.0,
        place: None,
        simulated,
        real,
        untrue: None,
    };
    assert!(point(estimate(100.0), estimate(91.0)).is_near());
    assert!(!point(estimate(100.0), estimate(111.0)).is_near());
    assert!(!point(estimate(100.0), None).is_near());
    assert!(!point(None, None).is_near());
    assert_eq!(point(estimate(0.0), estimate(1.0)).ratio(), None);
    let wide = |mean, half_width| {
        Some(Estimate {
            mean,
            half_width: Some(half_width),
        })
    };
    assert!(point(wide(100.0, 20.0), wide(130.0, 10.0)).is_within_spread());
    assert!(!point(wide(100.0, 20.0), wide(131.0, 10.0)).is_within_spread());
    assert!(!point(estimate(100.0), estimate(111.0)).is_within_spread());
}
