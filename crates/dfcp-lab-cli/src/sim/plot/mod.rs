//! `dfcp sim plot`: figures of results, as SVG or PNG.
//!
//! Rows become curves in [`query`], with [`stats`] and [`quantity`]; curves become a drawing in
//! [`figure`], with [`axis`]; the drawing ([`scene`], [`font`]) becomes a file in [`svg`] or
//! [`png`]. The same data give the same bytes, whatever fonts a machine has.

mod axis;
mod figure;
mod font;
mod matrix;
mod png;
mod quantity;
mod query;
mod scene;
mod stats;
mod svg;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use self::axis::{Quantities, Scale};
pub use self::figure::Marking;
use self::figure::{Layout, Width};
use self::font::Font;
pub use self::quantity::{Quantity, Unit};
pub use self::query::{Combine, Data, Panel, Query, Sample, Typical, select};
use self::scene::Scene;
pub use self::stats::Estimate;
use super::store::{self, Stored};
use super::table::{Cell, Table};
use dfcp_command::{Failure, Kind};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Results of sweeps or runs, CSV or Parquet
    #[arg(required = true, value_name = "DATA")]
    data: Vec<PathBuf>,
    /// Column along the horizontal axis [default: the first swept parameter with numbers, or
    /// time]
    #[arg(long, value_name = "COLUMN")]
    x: Option<String>,
    /// Column along the vertical axis [default: goodput_bps, or utilisation]
    #[arg(long, value_name = "COLUMN")]
    y: Option<String>,
    /// Column whose values become curves [default: protocol, link, name or a second parameter,
    /// whichever varies]
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,
    /// Column whose values become panels
    #[arg(long, value_name = "COLUMN")]
    facet: Option<String>,
    /// Use only rows with this value; may be repeated
    #[arg(long, value_name = "COLUMN=VALUE", value_parser = condition)]
    only: Vec<(String, String)>,
    /// How the flows of one run become one number
    #[arg(long, value_enum, default_value_t)]
    combine: Combine,
    /// Average over so much of the horizontal axis up to each point, such as 10s
    #[arg(long, value_name = "TIME", value_parser = dfcp_command::units::duration)]
    average: Option<std::time::Duration>,
    /// Logarithmic horizontal axis
    #[arg(long)]
    log_x: bool,
    /// Logarithmic vertical axis
    #[arg(long)]
    log_y: bool,
    /// Text above the figure
    #[arg(long)]
    title: Option<String>,
    /// Name of the horizontal axis, instead of the column's
    #[arg(long, value_name = "TEXT")]
    x_label: Option<String>,
    /// Name of the vertical axis, instead of the column's
    #[arg(long, value_name = "TEXT")]
    y_label: Option<String>,
    /// Width of the figure
    #[arg(long, value_enum, default_value_t = Width::Column)]
    width: Width,
    /// Figure: FIG.svg or FIG.png [default: the data's name and .svg]
    #[arg(short, long, value_name = "FIG")]
    out: Option<PathBuf>,
}

fn condition(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(column, value)| (column.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("not COLUMN=VALUE: {text:?}"))
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match plot(&args) {
        Ok(warnings) => {
            warnings
                .iter()
                .for_each(|warning| eprintln!("dfcp: {warning}"));
            ExitCode::SUCCESS
        }
        Err(failure) => dfcp_command::fail(&failure),
    }
}

/// Formats of figures.
#[derive(Clone, Copy)]
enum Format {
    Svg,
    Png,
}

fn format(path: &Path) -> Result<Format, Failure> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => Ok(Format::Svg),
        Some("png") => Ok(Format::Png),
        _ => Err(Failure::usage(format!(
            "{}: a figure's name must end in .svg or .png",
            path.display()
        ))),
    }
}

/// Draws a figure; what its reader ought to know.
fn plot(args: &Args) -> Result<Vec<String>, Failure> {
    let first = args.data.first().map(|path| path.with_extension("svg"));
    let out = args.out.clone().or(first).unwrap_or_default();
    format(&out)?;
    let (table, parameters) = load(&args.data)?;
    let query = Query {
        x: args.x.clone(),
        y: args.y.clone(),
        by: args.by.clone(),
        facet: args.facet.clone(),
        only: args.only.clone(),
        parameters,
        combine: args.combine,
        typical: Typical::Mean,
        window: args.average.map(|window| window.as_secs_f64()),
    };
    let mut data = query::select(table, &query)?;
    adjust(&mut data, args);
    let layout = Layout {
        title: args.title.clone(),
        width: args.width,
        marking: Marking::EachCurve,
    };
    write(&data, &layout, &out)?;
    Ok(data.warnings)
}

/// Draws data into a file, by its extension.
fn write(data: &Data, layout: &Layout, out: &Path) -> Result<(), Failure> {
    let font = Font::bundled();
    paint(&figure::draw(data, layout, &font), &font, out)
}

/// Draws shares as a matrix: curves are rows, the names along the horizontal axis columns.
pub fn draw_matrix(data: &Data, title: Option<&str>, out: &Path) -> Result<(), Failure> {
    let font = Font::bundled();
    paint(&matrix::draw(data, title, &font), &font, out)
}

/// Writes a drawing, by the file's extension.
fn paint(scene: &Scene, font: &Font, out: &Path) -> Result<(), Failure> {
    let format = format(out)?;
    let bytes = match format {
        Format::Svg => svg::write(scene, font).into_bytes(),
        Format::Png => png::write(scene, font).ok_or_else(|| {
            Failure::new(Kind::Failure, "the figure is too large for a PNG; try .svg")
        })?,
    };
    store::write_atomically(out, |file| Ok(file.write_all(&bytes)?))
}

/// A figure of data that are ready to draw.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// What it shows.
    pub data: Data,
    /// Text above it.
    pub title: Option<String>,
    /// Whether the horizontal axis is logarithmic.
    pub log_x: bool,
    /// Whether the vertical axis is.
    pub log_y: bool,
    /// What tells its curves apart.
    pub marking: Marking,
}

/// Draws a figure into an SVG or PNG file; panels get the width of a page.
pub fn draw(mut drawing: Drawing, out: &Path) -> Result<(), Failure> {
    scale(&mut drawing.data, drawing.log_x, drawing.log_y);
    let layout = Layout {
        title: drawing.title,
        width: match drawing.data.panels.len() {
            1 => Width::Column,
            _ => Width::Page,
        },
        marking: drawing.marking,
    };
    write(&drawing.data, &layout, out)
}

/// Scales and names that the arguments ask for.
fn adjust(data: &mut Data, args: &Args) {
    let rename = |axis: &mut Quantities, name: &Option<String>| {
        if let Some(name) = name {
            axis.name.clone_from(name);
        }
    };
    rename(&mut data.x, &args.x_label);
    rename(&mut data.y, &args.y_label);
    scale(data, args.log_x, args.log_y);
}

/// Logarithmic axes, without what they cannot show.
fn scale(data: &mut Data, log_x: bool, log_y: bool) {
    let mut left_out = 0;
    let mut keep_positive = |value: fn(&query::Sample) -> f64| {
        for curve in data.panels.iter_mut().flat_map(|panel| &mut panel.curves) {
            let before = curve.len();
            curve.retain(|sample| value(sample) > 0.0);
            left_out += before - curve.len();
        }
    };
    if log_x && data.x.categories.is_empty() {
        data.x.scale = Scale::Log;
        keep_positive(|sample| sample.x);
    }
    if log_y {
        data.y.scale = Scale::Log;
        keep_positive(|sample| sample.y.mean);
    }
    if left_out > 0 {
        data.warnings.push(format!(
            "{left_out} points at or below zero are left out of a logarithmic axis"
        ));
    }
}

/// All tables as one, and the parameters swept in them.
fn load(paths: &[PathBuf]) -> Result<(Table, Vec<String>), Failure> {
    let mut all = Table::default();
    let mut parameters: Vec<String> = Vec::new();
    for path in paths {
        let Stored {
            mut table,
            provenance,
        } = store::read(path)?;
        let named = match provenance {
            Some(provenance) => provenance.parameters,
            None => parameters_by_place(&table),
        };
        for name in named {
            // A parameter with the name of a figure has a column of another name.
            let renamed = format!("parameter.{name}");
            let name = if table.column(&renamed).is_some() {
                renamed
            } else {
                name
            };
            if !parameters.contains(&name) {
                parameters.push(name);
            }
        }
        if table.column(query::FILE).is_none() {
            let stem = path.with_extension("").to_string_lossy().into_owned();
            table.add_column(query::FILE, &Cell::from(stem.as_str()));
        }
        all.append(table);
    }
    Ok((all, parameters))
}

/// In a table of results, parameters stand between point and seed.
fn parameters_by_place(table: &Table) -> Vec<String> {
    match (table.column("point"), table.column("seed")) {
        (Some(point), Some(seed)) if point < seed => table.columns()[point + 1..seed]
            .iter()
            .map(|column| column.name.clone())
            .collect(),
        _ => Vec::new(),
    }
}
