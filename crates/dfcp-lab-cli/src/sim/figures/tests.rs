//! The catalogue is complete and consistent; what it says is what is checked.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::ValueEnum;

use super::catalogue::Source;
use super::*;
use crate::sim::sweep::Study;
use crate::sim::table::{Cell, Table};

fn runner(paper: Paper, size: Size, directory: &Path) -> Runner<'static> {
    Runner {
        scenarios: paper.book().scenarios,
        size,
        seeds: None,
        directory: directory.join("sweeps"),
        jobs: 2,
        interrupted: Arc::new(AtomicBool::new(false)),
    }
}

fn catalogue(paper: Paper) -> Catalogue {
    Catalogue::read(paper.book().catalogue).unwrap()
}

/// Values of a swept parameter.
fn values(
    catalogue: &Catalogue,
    runner: &Runner<'_>,
    scenario: &str,
    name: &str,
) -> BTreeSet<String> {
    let study = runner.study(catalogue.scenario(scenario).unwrap()).unwrap();
    let place = study
        .provenance()
        .parameters
        .iter()
        .position(|own| own == name);
    let place = place.unwrap_or_else(|| panic!("{scenario} does not sweep {name}"));
    let points = 0..study.provenance().points;
    points
        .map(|point| study.parameters(point).unwrap()[place].to_string())
        .collect()
}

#[test]
fn every_item_has_a_scenario_that_runs() {
    let both = |paper| [(paper, Size::Quick), (paper, Size::Full)];
    for (paper, size) in Paper::value_variants().iter().copied().flat_map(both) {
        let catalogue = catalogue(paper);
        let runner = runner(paper, size, Path::new("unused"));
        for entry in &catalogue.scenarios {
            let study = runner
                .study(entry)
                .unwrap_or_else(|error| panic!("{error}"));
            assert!(study.provenance().points > 0);
        }
        for item in &catalogue.items {
            let titles = values(&catalogue, &runner, &item.scenario, "title");
            for curve in &item.curves {
                assert!(
                    titles.contains(curve),
                    "{}: no run is called {curve}",
                    item.id
                );
            }
        }
    }
}

#[test]
fn every_scenario_file_is_known_and_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/figures");
    for paper in Paper::value_variants() {
        let book = paper.book();
        let files = std::fs::read_dir(root.join(book.name))
            .into_iter()
            .flatten();
        let stem = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.unwrap().path();
            path.file_stem().unwrap().to_string_lossy().into_owned()
        };
        let files: BTreeSet<String> = files.map(stem).collect();
        let catalogue = catalogue(*paper);
        let known: BTreeSet<String> = book
            .scenarios
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        let named = catalogue.scenarios.iter().map(|entry| entry.name.clone());
        let used = catalogue.items.iter().map(|item| item.scenario.clone());
        assert_eq!(known, files);
        assert_eq!(named.collect::<BTreeSet<_>>(), files);
        assert_eq!(used.collect::<BTreeSet<_>>(), files);
    }
}

/// The figures and tables of both papers that are measurements.
#[test]
fn no_figure_of_the_papers_is_missing() {
    let catalogue = catalogue(Paper::Dfcp);
    let ids: BTreeSet<&str> = catalogue
        .items
        .iter()
        .map(|item| item.id.as_str())
        .collect();
    let journal = "eq-2 table-3-loss table-3-rtt fig-9a fig-9b fig-10 fig-11 fig-12 fig-13 fig-14a \
                   fig-14b fig-15 fig-16 fig-17a fig-17b fig-18 fig-19a fig-19b fig-20a fig-20b \
                   fig-21a fig-21b fig-22a fig-22b fig-23a fig-23b fig-24 table-4 fig-25 fig-26 \
                   table-5";
    let report = "tr-6a tr-6b tr-7a tr-7b tr-8a tr-8b tr-9 tr-10 tr-11a tr-11b tr-12a tr-12b \
                  tr-13a tr-13b tr-14a tr-14b tr-15 tr-16 tr-17 tr-18a tr-18b tr-19a tr-19b tr-20a \
                  tr-20b";
    for id in journal.split_whitespace().chain(report.split_whitespace()) {
        assert!(ids.contains(id), "{id}");
    }
}

#[test]
fn items_are_made_checked_and_written() {
    let directory = tempfile::tempdir().unwrap();
    let catalogue = catalogue(Paper::Dfcp);
    let only = ["fig-21a", "tr-12a", "tr-18a"].map(str::to_owned);
    let items = chosen(&catalogue, &only).unwrap();
    let runner = runner(Paper::Dfcp, Size::Quick, directory.path());
    let done = make(&catalogue, &items, &runner).unwrap();
    for done in &done {
        let told = |verdict: &check::Verdict| verdict.pass || verdict.reason.is_some();
        assert!(done.verdicts.iter().all(told), "{:#?}", done.verdicts);
        assert!(
            done.curves.data.warnings.is_empty(),
            "{:?}",
            done.curves.data.warnings
        );
        done.write(directory.path()).unwrap();
    }
    let book = Paper::Dfcp.book();
    page::write(directory.path(), &book, &done).unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(summary["items"].as_array().unwrap().len(), 3);
    assert_eq!(summary["items"][0]["size"], "quick");
    assert_eq!(summary["items"][0]["outcome"], "differs");
    assert_eq!(summary["items"][1]["outcome"], "unstated");
    let page = read("README.md");
    assert!(page.contains("![DFCP-J Fig. 21a](fig-21a.svg)"), "{page}");
    assert!(page.contains("“several orders of magnitude"), "{page}");
    let rows = read("fig-21a.csv");
    assert!(
        rows.starts_with("panel,curve,topology.rtt,object_s,"),
        "{rows}"
    );
    assert!(directory.path().join("fig-21a.svg").exists());
    // What was written says the same when it is read again.
    let stored = with_stored(Vec::new(), &catalogue, &runner, directory.path()).unwrap();
    assert_eq!(page::page(&book, &stored), page);
    for (stored, done) in stored.iter().zip(&done) {
        assert_eq!(stored.curves.data, done.curves.data);
        assert_eq!(stored.curves.panels, done.curves.panels);
    }
    // What is done is not run again: the same results from the journal alone.
    let again = make(&catalogue, &items, &runner).unwrap();
    assert_eq!(again[0].curves.data, done[0].curves.data);
}

/// An item over losses 0.01 and 0.1, of curves A and B.
const ITEM: &str = r#"
[[scenario]]
name = "s"
[[item]]
id = "i"
of = "Fig. 1"
title = "t"
unstated = "p"
scenario = "s"
curves = ["A", "B"]
x = { column = "loss", label = "Loss" }
y = { column = "goodput_bps", label = "Goodput" }
"#;

/// Goodputs of A are 8 and 4, of B 2 and 0.5; each from two seeds, one above and one below.
fn results() -> Results {
    let mut flows = Table::untyped(["point", "title", "loss", "seed", "goodput_bps"]);
    let runs = [
        ("A", 0.01, 8.0),
        ("A", 0.1, 4.0),
        ("B", 0.01, 2.0),
        ("B", 0.1, 0.5),
    ];
    for (index, (title, loss, goodput)) in runs.into_iter().enumerate() {
        for (seed, off) in [(1i64, -0.1), (2, 0.1)] {
            let point = Cell::from(2 * index as u64 + seed as u64);
            flows.push(vec![
                point,
                title.into(),
                loss.into(),
                seed.into(),
                (goodput + off).into(),
            ]);
        }
    }
    Results {
        flows,
        parameters: vec!["title".into(), "loss".into()],
        ..Results::default()
    }
}

fn verdict(check: &str) -> check::Verdict {
    let text = format!("{ITEM}{}{check}\n", OURS);
    let catalogue = Catalogue::read(&[("test", text.as_str())]).unwrap();
    let item = &catalogue.items[0];
    assert_eq!(item.source, Source::Flows);
    let results = results();
    let curves = select::select(item, &results, "goodput_bps").unwrap();
    let verdicts = check::verdicts(item, &curves, &BTreeMap::new());
    verdicts.unwrap().remove(0)
}

/// The beginning of a check.
const OURS: &str = "[[item.check]]\nwhat = \"w\"\ncurves = [\"A\"]\nbasis.ours = \"o\"\n";

#[test]
fn a_check_takes_the_number_that_is_furthest_off() {
    let near = |verdict: &check::Verdict, value: f64| {
        let measured = verdict.measured.unwrap();
        assert!((measured - value).abs() < 1e-9, "{verdict:?}");
    };
    let ratio = verdict("over = \"B\"\nbound.within-share = [4.0, 0.25]");
    assert!(!ratio.pass && ratio.tolerance == "4 ± 25 %");
    near(&ratio, 8.0);
    assert!(verdict("over = \"B\"\nx = 0.01\nbound.within-share = [4.0, 0.25]").pass);
    let bound = "bound.between = [3.0, 9.0]";
    near(
        &verdict(&format!("minus = \"B\"\nfrom = 0.05\n{bound}")),
        3.5,
    );
    near(&verdict(&format!("take = \"spread\"\n{bound}")), 2.0);
    near(&verdict(&format!("take = \"ends\"\n{bound}")), 0.5);
    near(&verdict(&format!("take = \"fall\"\n{bound}")), 0.5);
    near(&verdict(&format!("take = \"rise\"\n{bound}")), 0.0);
    near(&verdict(&format!("take = \"mean\"\n{bound}")), 6.0);
    let both = verdict(&format!("take = \"apart\"\n{bound}").replace("[3.0, 9.0]", "[4.8, 4.8]"));
    assert!(!both.pass && both.measured == Some(1.0), "{both:?}");
    // The quotient of the means, 6 over 1.25, and not the mean of 4 and 8.
    near(
        &verdict(&format!("take = \"mean\"\nover = \"B\"\n{bound}")),
        4.8,
    );
    assert!(!verdict("bound.within = [6.0, 1.9]").pass);
    assert!(verdict("bound.within = [6.0, 2.0]").pass);
}

#[test]
fn a_number_too_large_fails_as_one_too_small_does() {
    assert!(!verdict("x = 0.01\nbound.between = [1.0, 7.9]").pass);
    assert!(!verdict("x = 0.01\nbound.between = [8.1, 9.0]").pass);
    assert!(verdict("over = \"B\"\nbound.order = \"above\"").pass);
    assert!(!verdict("over = \"B\"\nbound.order = \"below\"").pass);
    assert!(!verdict("over = \"A\"\nbound.order = \"above\"").pass);
    assert!(!verdict("minus = \"A\"\nbound.order = \"below\"").pass);
    assert!(verdict("take = \"ends\"\nbound.order = \"below\"").pass);
}

#[test]
fn what_other_seeds_might_decide_is_said() {
    // Two seeds 0.2 apart: Student's t of one degree of freedom makes ± 1.27 of it.
    let near = verdict("x = 0.01\nbound.between = [7.0, 10.0]");
    assert!(near.pass && near.within_spread, "{near:?}");
    assert!((near.half_width.unwrap() - 1.2706).abs() < 1e-3, "{near:?}");
    let clear = verdict("x = 0.01\nbound.between = [6.0, 10.0]");
    assert!(clear.pass && !clear.within_spread, "{clear:?}");
    let missed = verdict("x = 0.01\nbound.between = [9.0, 10.0]");
    assert!(!missed.pass && missed.within_spread, "{missed:?}");
    let lost = verdict("x = 0.01\nbound.between = [9.5, 10.0]");
    assert!(!lost.pass && !lost.within_spread, "{lost:?}");
    // Nothing is less than itself, whatever the seeds.
    let itself = verdict("x = 0.01\ntake = \"spread\"\nbound.between = [1.0, 1.5]");
    assert!(itself.pass && !itself.within_spread, "{itself:?}");
}

#[test]
fn what_was_not_measured_does_not_hold() {
    for check in ["x = 0.02", "over = \"C\""] {
        let verdict = verdict(&format!("{check}\nbound.between = [0.0, 9.0]"));
        assert!(!verdict.pass && verdict.measured.is_none(), "{verdict:?}");
    }
}

#[test]
fn a_catalogue_that_does_not_fit_together_is_refused() {
    let refused = |text: &str| Catalogue::read(&[("test", text)]).unwrap_err().message;
    let good = format!("{ITEM}{OURS}bound.between = [1.0, 2.0]\n");
    let without = |part: &str| refused(&good.replace(part, ""));
    assert!(without("bound.between = [1.0, 2.0]").contains("missing field `bound`"));
    assert!(without("basis.ours = \"o\"").contains("missing field `basis`"));
    assert!(without("unstated = \"p\"").contains("neither what the paper states"));
    let stated = "basis.stated = { place = \"p\", words = \"w\" }";
    assert!(refused(&good.replace("basis.ours = \"o\"", stated)).contains("is said not to be"));
    let bound = |bound: &str| refused(&good.replace("between = [1.0, 2.0]", bound));
    assert!(bound("between = [1.0, inf]").contains("one side alone"));
    assert!(bound("between = [2.0, 1.0]").contains("above the most"));
    assert!(bound("order = \"above\"").contains("an order of what"));
    assert!(
        refused(&good.replace("scenario = \"s\"", "scenario = \"u\"")).contains("no scenario u")
    );
    let reason = "[[reason]]\nitems = [\"j\"]\nbecause = \"b\"\n";
    assert!(refused(&format!("{good}{reason}")).contains("j, which is no item"));
    let reason = "[[reason]]\nitems = [\"i\"]\ncheck = \"v\"\nbecause = \"b\"\n";
    assert!(refused(&format!("{good}{reason}")).contains("v, which is no check"));
}

/// What docs/reproduction says follows from the data beside it and from the catalogue as it is.
#[test]
fn committed_pages_are_what_their_data_show() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let papers = std::fs::read_to_string(docs.join("papers.md")).unwrap();
    let root = docs.join("reproduction");
    for paper in Paper::value_variants() {
        let book = paper.book();
        let catalogue = catalogue(*paper);
        for directory in [book.name.to_owned(), format!("{}-full", book.name)] {
            let directory = root.join(directory);
            if !directory.join("summary.json").exists() {
                continue;
            }
            let runner = runner(*paper, Size::Quick, Path::new("unused"));
            let stored = with_stored(Vec::new(), &catalogue, &runner, &directory).unwrap();
            let page = std::fs::read_to_string(directory.join("README.md")).unwrap();
            let fresh = page::page(&book, &stored);
            assert!(
                page == fresh,
                "{}: make the page again: dfcp sim figures {} --stored -o DIR",
                directory.display(),
                book.name
            );
            if directory.ends_with(format!("{}-full", book.name)) {
                let row = page::Tally::of(&stored).row();
                assert!(papers.contains(&row), "docs/papers.md lacks {row}");
            }
            let ids: BTreeSet<_> = stored.iter().map(|done| &done.item.id).collect();
            let all: BTreeSet<_> = catalogue.items.iter().map(|item| &item.id).collect();
            assert_eq!(ids, all, "{}", directory.display());
        }
    }
}
