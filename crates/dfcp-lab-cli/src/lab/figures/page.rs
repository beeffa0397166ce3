//! What people and programs read of figures on a real path: data, plots, a summary and a page.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use dfcp_command::Failure;
use serde::Serialize;

use super::plan::{Plan, Wanted};
use super::points::{Compared, Point, TOLERANCE};
use crate::sim::figures::Size;
use crate::sim::figures::catalogue::{Show, Source};
use crate::sim::figures::papers::Book;
use crate::sim::plot::{self, Data, Drawing, Estimate, Marking, Panel, Unit};
use crate::sim::store;
use crate::sim::table::{Cell, Table};

/// A figure with what came of it.
pub struct Figure<'a> {
    /// What it is.
    pub wanted: Wanted<'a>,
    /// Its curves and points.
    pub compared: Compared,
}

/// How many points agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Points.
    pub points: usize,
    /// Those whose real figure is within a tenth of the simulated one.
    pub near: usize,
    /// Those that are not, but by less than their spread over seeds.
    pub within_spread: usize,
    /// Points on a true path.
    pub on_a_true_path: usize,
    /// Those of them that are within a tenth.
    pub near_on_a_true_path: usize,
}

impl Tally {
    /// Counts.
    pub fn of<'p>(points: impl IntoIterator<Item = &'p Point>) -> Self {
        let mut tally = Self::default();
        for point in points {
            let (near, is_true) = (point.is_near(), point.untrue.is_none());
            tally.points += 1;
            tally.near += usize::from(near);
            tally.within_spread += usize::from(!near && point.is_within_spread());
            tally.on_a_true_path += usize::from(is_true);
            tally.near_on_a_true_path += usize::from(near && is_true);
        }
        tally
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            points,
            near,
            within_spread,
            on_a_true_path,
            near_on_a_true_path,
        } = self;
        write!(
            f,
            "{near} of {points} points within {:.0} %, and {within_spread} more within their spread over \
             seeds; of the {on_a_true_path} on a true path {near_on_a_true_path} within {:.0} %",
            TOLERANCE * 100.0,
            TOLERANCE * 100.0
        )
    }
}

/// A point in `summary.json`.
#[derive(Serialize)]
struct PointEntry<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    panel: &'a str,
    curve: &'a str,
    at: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<&'a str>,
    simulated: Option<f64>,
    real: Option<f64>,
    ratio: Option<f64>,
    near: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    untrue: Option<&'a str>,
}

#[derive(Serialize)]
struct FigureEntry<'a> {
    id: &'a str,
    of: &'a str,
    what: &'a str,
    scaled: &'a str,
    tally: Tally,
    points: Vec<PointEntry<'a>>,
}

#[derive(Serialize)]
struct Summary<'a> {
    dfcp_version: &'a str,
    size: Size,
    tally: Tally,
    figures: Vec<FigureEntry<'a>>,
}

/// What a page is about.
pub struct About<'a> {
    /// The paper.
    pub book: &'a Book,
    /// What of it is measured.
    pub plan: &'a Plan,
    /// How much was run.
    pub size: Size,
}

/// Writes everything.
pub fn write(directory: &Path, about: &About<'_>, figures: &[Figure<'_>]) -> Result<(), Failure> {
    for figure in figures {
        figure.write(directory)?;
    }
    let summary = Summary {
        dfcp_version: env!("CARGO_PKG_VERSION"),
        size: about.size,
        tally: total(figures),
        figures: figures.iter().map(Figure::entry).collect(),
    };
    store::write_atomically(&directory.join("summary.json"), |file| {
        serde_json::to_writer_pretty(&mut *file, &summary)?;
        Ok(file.write_all(b"\n")?)
    })?;
    let page = page(about, figures);
    store::write_atomically(&directory.join("README.md"), |file| {
        Ok(file.write_all(page.as_bytes())?)
    })
}

/// How many points of all figures agree; one that two figures have counts once.
pub fn total(figures: &[Figure<'_>]) -> Tally {
    let mut seen = BTreeSet::new();
    let points = figures.iter().flat_map(|figure| {
        let item = figure.wanted.item;
        let of = (item.scenario.as_str(), item.y.column.as_str());
        figure.compared.points.iter().map(move |point| (of, point))
    });
    let bits = |estimate: Option<Estimate>| estimate.map(|own| own.mean.to_bits());
    let first = points.filter(|(of, point)| {
        let place = point.place.clone();
        seen.insert((
            *of,
            place,
            point.x.to_bits(),
            bits(point.simulated),
            bits(point.real),
        ))
    });
    Tally::of(first.map(|(_, point)| point))
}

fn page(about: &About<'_>, figures: &[Figure<'_>]) -> String {
    let Book { name, .. } = about.book;
    let size = about.size.name();
    let smaller = match about.size {
        Size::Quick => {
            " This is the quick size: durations, grids and seeds are less than said beside the figures."
        }
        Size::Full => "",
    };
    let mut text = format!(
        "# {} on a real path\n\nMade by `dfcp lab figures {name} --{size}`: senders and receivers are \
         processes on this machine's kernel, between them the scenario's network on the real clock \
         ([the lab](../../lab.md)). The simulator ran the same points with the same seeds. In the \
         pictures lines are simulated and marks are real; hollow marks are of runs whose path was not \
         true (packets late, or programs that waited for a processor), which count as the others do.{smaller}\n\n\
         {}\n\n**{}** (a point that two figures have counts once).\n\n| figure | points | within 10 % | on a true path | of these within 10 % |\n\
         |---|---|---|---|---|\n",
        about.book.title,
        about.plan.note,
        total(figures)
    );
    for figure in figures {
        let tally = Tally::of(&figure.compared.points);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            figure.wanted.item.of,
            tally.points,
            tally.near,
            tally.on_a_true_path,
            tally.near_on_a_true_path
        );
    }
    for figure in figures {
        text += &figure.section();
    }
    text
}

impl Figure<'_> {
    fn entry(&self) -> FigureEntry<'_> {
        let item = self.wanted.item;
        let points = self.compared.points.iter();
        let point = |point: &'_ Point| {
            let mean = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.mean);
            (mean(point.simulated), mean(point.real))
        };
        FigureEntry {
            id: &item.id,
            of: &item.of,
            what: &item.title,
            scaled: &self.wanted.scenario.scaled,
            tally: Tally::of(&self.compared.points),
            points: points
                .map(|own| PointEntry {
                    panel: &own.panel,
                    curve: &own.curve,
                    at: own.x,
                    place: own.place.as_deref(),
                    simulated: point(own).0,
                    real: point(own).1,
                    ratio: own.ratio(),
                    near: own.is_near(),
                    untrue: own.untrue.as_deref(),
                })
                .collect(),
        }
    }

    /// Its CSV and picture.
    fn write(&self, directory: &Path) -> Result<(), Failure> {
        let item = self.wanted.item;
        let column = &item.y.column;
        let panel = item.panels.as_ref();
        let panel = panel.map_or("panel", |panels| &panels.column);
        let mut table = Table::untyped([
            panel,
            "curve",
            &item.x.column,
            &format!("{column}_simulated"),
            &format!("{column}_simulated_half_width"),
            &format!("{column}_real"),
            &format!("{column}_real_half_width"),
            "path_not_true",
        ]);
        for point in &self.compared.points {
            let at = match (&point.place, point.x) {
                (Some(place), _) => Cell::from(place.as_str()),
                (None, x) => x.into(),
            };
            let cells = |estimate: Option<Estimate>| {
                let mean = estimate.map(|estimate| estimate.mean);
                [mean.into(), estimate.and_then(|own| own.half_width).into()]
            };
            let mut row = vec![point.panel.as_str().into(), point.curve.as_str().into(), at];
            row.extend(cells(point.simulated));
            row.extend(cells(point.real));
            row.push(point.untrue.as_deref().into());
            table.push(row);
        }
        store::write(&directory.join(format!("{}.csv", item.id)), &table, None)?;
        let out = directory.join(format!("{}.svg", item.id));
        let title = format!("{}: {}", item.of, item.title);
        if item.show == Show::Matrix {
            return plot::draw_matrix(&self.worlds_apart(), Some(&title), &out);
        }
        let drawing = Drawing {
            data: self.compared.data.clone(),
            title: Some(title),
            log_x: item.x.log,
            log_y: item.y.log,
            marking: Marking::Worlds,
        };
        plot::draw(drawing, &out)
    }

    /// A panel for each world instead of a curve: simulated, and real with what was late among it.
    fn worlds_apart(&self) -> Data {
        let item = self.wanted.item;
        let data = &self.compared.data;
        let apart = |panel: &Panel| {
            let title = panel.title.clone().unwrap_or_default();
            let curves = |worlds: &[usize]| {
                let three = panel.curves.chunks(3);
                let of = |three: &[Vec<_>]| worlds.iter().flat_map(|w| three[*w].clone()).collect();
                three.map(of).collect()
            };
            [(&[0][..], "simulated"), (&[1, 2], "real")].map(|(worlds, name)| Panel {
                title: Some(format!("{title}, {name}")),
                curves: curves(worlds),
            })
        };
        let mut x = data.x.clone();
        x.categories
            .iter_mut()
            .for_each(|name| *name = item.readable(name));
        Data {
            x,
            y: data.y.clone(),
            curves: data.curves.iter().step_by(3).cloned().collect(),
            panels: data.panels.iter().flat_map(apart).collect(),
            warnings: Vec::new(),
        }
    }

    fn section(&self) -> String {
        let Wanted {
            item,
            scenario,
            note,
            ..
        } = &self.wanted;
        let mut text = format!(
            "\n## {}: {}\n\n![{}]({}.svg)\n\nScenario `{}.toml`: {}.",
            item.of, item.title, item.of, item.id, scenario.name, scenario.scaled
        );
        if !note.is_empty() {
            let _ = write!(text, " {note}");
        }
        text += "\n\n";
        text += &self.table();
        text
    }

    /// Its points, a line each.
    fn table(&self) -> String {
        let Data { x, y, .. } = &self.compared.data;
        let item = self.wanted.item;
        // A change to shares is of the picture alone.
        let unit = match item.y.change {
            Some(_) => Unit::of_column(&item.y.column),
            None => y.unit,
        };
        let with_panels = item.panels.is_some();
        let mut text = String::new();
        if with_panels {
            text += "| panel ";
        }
        let _ = writeln!(
            text,
            "| curve | {} | simulated | real | real ÷ simulated | |",
            x.name
        );
        text += if with_panels { "|---" } else { "" };
        text += "|---|---|---|---|---|---|\n";
        for point in &self.compared.points {
            if with_panels {
                let panel = self.compared.titles.get(&point.panel);
                let panel = panel.map_or("–", |panel| panel.as_str());
                let _ = write!(text, "| {panel} ");
            }
            let at = match &point.place {
                Some(place) => item.readable(place),
                None if item.source == Source::Series => format!("mean from {} s", point.x),
                None => quantity(point.x, x.unit),
            };
            let both = [point.simulated, point.real].map(|estimate| match estimate {
                Some(estimate) => quantity(estimate.mean, unit),
                None => "–".to_owned(),
            });
            let _ = writeln!(
                text,
                "| {} | {at} | {} | {} | {} | {} |",
                item.readable(&point.curve),
                both[0],
                both[1],
                point
                    .ratio()
                    .map_or("–".to_owned(), |ratio| format!("{ratio:.3}")),
                remark(point)
            );
        }
        text
    }
}

/// What there is to say of a point: that it is too far off, or on what path it was.
fn remark(point: &Point) -> String {
    let mut remarks = Vec::new();
    match (point.is_near(), point.is_within_spread()) {
        (true, _) => {}
        (false, true) => remarks.push("✗, within its spread over seeds".to_owned()),
        (false, false) => remarks.push("✗".to_owned()),
    }
    match (&point.untrue, point.simulated, point.real) {
        (Some(why), ..) => remarks.push(format!("path not true: {why}")),
        (None, Some(_), None) => remarks.push("not finished for real".to_owned()),
        (None, None, Some(_)) => remarks.push("not finished simulated".to_owned()),
        _ => {}
    }
    remarks.join(" ")
}

/// A number with its unit.
fn quantity(value: f64, unit: Unit) -> String {
    let (prefix, factor) = unit.prefix(value.abs());
    let number = value / factor;
    let digits = match number.abs() {
        size if size >= 100.0 || number.fract() == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let number = format!("{number:.digits$}");
    format!("{number} {}", unit.symbol(prefix))
        .trim_end()
        .to_owned()
}
