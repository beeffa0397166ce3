//! A figure on paper: panels in a grid, one legend above them.
//!
//! Made for a column of a journal, 3.5 inches, or its page, 7.16 inches (IEEE); letters of 7 and
//! 8 points. Colours are those of Okabe and Ito (2008), which the colour-blind can tell apart, each
//! with a marker or dashes of its own.

mod legend;

use super::axis::{Axis, Scale, Zero};
use super::font::Font;
use super::query::{Data, Panel, Sample};
use super::scene::{Anchor, Color, Mark, Point, Scene, Stroke};

/// How wide a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Width {
    /// A column of a journal, 3.5 inches
    Column,
    /// A page of a journal, 7.16 inches
    Page,
}

const COLORS: [Color; 7] = [
    Color(0x00, 0x72, 0xb2),
    Color(0xd5, 0x5e, 0x00),
    Color(0x00, 0x9e, 0x73),
    Color(0xcc, 0x79, 0xa7),
    Color(0xe6, 0x9f, 0x00),
    Color(0x56, 0xb4, 0xe9),
    Color(0x00, 0x00, 0x00),
];
const DASHES: [&[f32]; 4] = [&[], &[5.0, 2.0], &[1.5, 1.5], &[6.0, 1.5, 1.5, 1.5]];

/// More points than this are a line alone, with a band around it.
const MARKED_POINTS: usize = 40;

const TITLE: f64 = 9.0;
const LABEL: f64 = 8.0;
const TICK: f64 = 7.0;
const MARKER: f64 = 2.2;
const CURVE: f64 = 1.1;
/// Points nearer than this are not told apart: half of a marker.
const SAME: f64 = MARKER;
/// A marker on another has this share of its size, so that both are seen.
const SHRINKS: f64 = 0.62;
/// Of a line on another.
const GAPS: &[f32] = &[3.0, 3.0];
const FRAME: f64 = 0.6;
/// Length of a tick.
const OUT: f64 = 2.5;
/// Between things that belong together.
const GAP: f64 = 3.0;
/// Between things that do not, and around everything.
const MARGIN: f64 = 6.0;
/// Height of a panel for its width.
const SHAPE: f64 = 0.64;

/// How to draw.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Above everything.
    pub title: Option<String>,
    /// How wide.
    pub width: Width,
    /// What tells curves apart.
    pub marking: Marking,
}

/// What tells curves apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marking {
    /// Each has a colour and a marker of its own.
    #[default]
    EachCurve,
    /// The same without lines: what stands next to each other along the axis has nothing else in
    /// common, and a line between would say that it has.
    Points,
    /// Three in a row share them, as they are of one thing: simulated, a line; measured on a real
    /// path, markers; and measured on a path that was not true, hollow markers. The first of them
    /// names it.
    Worlds,
}

/// Which of three curves in a row one is, where they are of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum World {
    Simulated,
    Real,
    Untrue,
}

const WORLDS: [(World, &str); 3] = [
    (World::Simulated, "simulated"),
    (World::Real, "real"),
    (World::Untrue, "real, path late"),
];

/// A rectangle: left, top, right, bottom.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

/// How a marker is filled.
#[derive(Clone, Copy, Debug)]
enum Fill {
    Whole(Color),
    Faint(Color),
    Hollow(Color),
}

impl Fill {
    fn in_color(self, color: Color) -> Self {
        match self {
            Self::Whole(_) => Self::Whole(color),
            Self::Faint(_) => Self::Faint(color),
            Self::Hollow(_) => Self::Hollow(color),
        }
    }
}

struct Painter<'a> {
    font: &'a Font,
    scene: Scene,
    data: &'a Data,
    x: Axis,
    y: Axis,
    marking: Marking,
    /// Curves of many points have no markers.
    plain: bool,
}

/// Draws a figure.
pub fn draw(data: &Data, layout: &Layout, font: &Font) -> Scene {
    let samples = || {
        let panels = data.panels.iter();
        panels.flat_map(|panel| panel.curves.iter()).flatten()
    };
    // What is never negative gets no axis below zero because an interval reaches there; and on a
    // logarithmic axis there is nothing to span below zero.
    let negative = samples().any(|sample| sample.y.mean < 0.0);
    let floor = if negative { f64::MIN } else { 0.0 };
    let ends = samples().flat_map(|sample| [low(sample).max(floor), sample.y.mean, high(sample)]);
    let shown = |end: &f64| data.y.scale == Scale::Linear || *end > 0.0;
    let longest = data
        .panels
        .iter()
        .flat_map(|panel| panel.curves.iter().map(Vec::len));
    let mut painter = Painter {
        font,
        scene: Scene {
            width: match layout.width {
                Width::Column => 252.0,
                Width::Page => 515.5,
            },
            height: 0.0,
            marks: Vec::new(),
        },
        data,
        x: Axis::new(&data.x, samples().map(|sample| sample.x), Zero::IfVeryNear),
        y: Axis::new(&data.y, ends.filter(shown), Zero::IfNear),
        marking: layout.marking,
        plain: longest.max().unwrap_or(0) > MARKED_POINTS,
    };
    let mut top = MARGIN;
    if let Some(title) = &layout.title {
        let middle = painter.scene.width / 2.0;
        for line in lines(title, painter.scene.width - 2.0 * MARGIN, font) {
            top += TITLE + GAP;
            painter
                .scene
                .text((middle, top - GAP), TITLE, Anchor::Middle, &line);
        }
        top += MARGIN - GAP;
    }
    top = painter.legend(top);
    painter.panels(top, layout.width);
    painter.scene
}

/// A title in lines that are no wider than this, as long as its words are not.
fn lines(title: &str, width: f64, font: &Font) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in title.split(' ') {
        match lines.last_mut() {
            Some(line) if font.width(&format!("{line} {word}"), TITLE) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn low(sample: &Sample) -> f64 {
    sample.y.mean - sample.y.half_width.unwrap_or(0.0)
}

fn high(sample: &Sample) -> f64 {
    sample.y.mean + sample.y.half_width.unwrap_or(0.0)
}

impl Painter<'_> {
    /// Which colour and marker a curve has, and of which world it is.
    fn kind(&self, curve: usize) -> (usize, Option<World>) {
        match self.marking {
            Marking::EachCurve | Marking::Points => (curve, None),
            Marking::Worlds => (curve / 3, Some(WORLDS[curve % 3].0)),
        }
    }

    fn stroke(&self, curve: usize) -> Stroke {
        let (index, world) = self.kind(curve);
        // Colours come round again with other dashes.
        let dashes = match (self.plain, world) {
            (true, Some(World::Simulated)) => DASHES[1],
            (true, Some(World::Untrue)) => DASHES[2],
            (_, Some(_)) => DASHES[0],
            (true, None) => DASHES[curve % DASHES.len()],
            (false, None) => DASHES[curve / COLORS.len() % DASHES.len()],
        };
        Stroke {
            color: COLORS[index % COLORS.len()],
            width: CURVE,
            dashes,
        }
    }

    /// Whether a line joins a curve's points: words have no order that one could follow.
    fn is_line(&self, curve: usize) -> bool {
        let measured = matches!(self.kind(curve).1, Some(World::Real | World::Untrue));
        let joined = self.marking != Marking::Points && self.data.x.categories.is_empty();
        joined && (self.plain || !measured)
    }

    /// Whether a curve's points have markers.
    fn is_marked(&self, curve: usize) -> bool {
        let simulated = self.kind(curve).1 == Some(World::Simulated);
        // Among words there is no line that could show them.
        !self.plain && (!simulated || !self.data.x.categories.is_empty())
    }

    /// How a curve's markers are filled.
    fn fill(&self, curve: usize) -> Fill {
        let color = self.stroke(curve).color;
        match self.kind(curve).1 {
            Some(World::Untrue) => Fill::Hollow(color),
            // Among words: no line, so a marker of another kind than the real one's.
            Some(World::Simulated) => Fill::Faint(color),
            _ => Fill::Whole(color),
        }
    }

    /// Draws all panels, and ends the scene beneath them.
    fn panels(&mut self, top: f64, width: Width) {
        let count = self.data.panels.len();
        let most = match width {
            Width::Column => 2,
            Width::Page => 3,
        };
        let columns = if count == 4 { 2 } else { count.min(most) };
        let rows = count.div_ceil(columns);
        let ticks = self
            .y
            .major
            .iter()
            .map(|(_, text)| self.font.width(text, TICK));
        let left = MARGIN + LABEL + GAP + ticks.fold(0.0, f64::max) + GAP + OUT;
        let ends = self.x.major.last().map_or(0.0, |(value, text)| {
            // Half of the last label may stand out beyond the frame.
            let inside = (1.0 - self.x.position(*value)) * self.scene.width / columns as f64;
            self.font.width(text, TICK) / 2.0 - inside
        });
        let right = self.scene.width - MARGIN.max(ends + 1.0);
        let between = 2.0 * MARGIN;
        let panel = (right - left - between * (columns - 1) as f64) / columns as f64;
        let height = SHAPE * panel.min(220.0);
        let heading = match self.data.panels.iter().any(|panel| panel.title.is_some()) {
            true => TICK + GAP,
            false => 0.0,
        };
        let data = self.data;
        let mut bottom = top;
        for (index, content) in data.panels.iter().enumerate() {
            let (column, row) = (index % columns, index / columns);
            let below = index + columns >= count;
            let area_left = left + column as f64 * (panel + between);
            let step = heading + height + between;
            let area_top = top + heading + row as f64 * step;
            let area = Area {
                left: area_left,
                top: area_top,
                right: area_left + panel,
                bottom: area_top + height,
            };
            self.frame(area, column == 0, below);
            if let Some(title) = &content.title {
                let middle = ((area.left + area.right) / 2.0, area.top - GAP);
                self.scene.text(middle, TICK, Anchor::Middle, title);
            }
            self.curves(area, content);
            bottom = f64::max(bottom, area.bottom);
        }
        let middle =
            top + heading + (rows as f64 * (heading + height + between) - between - heading) / 2.0;
        self.scene
            .text_upwards((MARGIN + LABEL * 0.8, middle), LABEL, &self.y.label.clone());
        let base = bottom + GAP + TICK + GAP + LABEL;
        let center = (left + right) / 2.0;
        self.scene
            .text((center, base), LABEL, Anchor::Middle, &self.x.label.clone());
        self.scene.height = base + MARGIN;
    }

    /// Grid, frame and ticks of a panel.
    fn frame(&mut self, area: Area, at_left: bool, below: bool) {
        let ink = Stroke::solid(Color::INK, FRAME);
        let grid = Stroke::solid(Color::GRID, 0.4);
        let (x, y) = (self.x.clone(), self.y.clone());
        for (value, text) in &y.major {
            let (_, at) = self.place(area, (0.0, *value));
            self.scene
                .line(vec![(area.left, at), (area.right, at)], grid);
            self.scene
                .line(vec![(area.left - OUT, at), (area.left, at)], ink);
            if at_left {
                let base = (area.left - OUT - GAP, at + TICK * 0.36);
                self.scene.text(base, TICK, Anchor::End, text);
            }
        }
        // Names that would run into each other are left out.
        let mut free = f64::NEG_INFINITY;
        for (value, text) in &x.major {
            let at = area.left + x.position(*value) * (area.right - area.left);
            self.scene
                .line(vec![(at, area.bottom), (at, area.bottom + OUT)], ink);
            let half = self.font.width(text, TICK) / 2.0;
            if below && at - half > free {
                let base = (at, area.bottom + OUT + GAP + TICK * 0.75);
                self.scene.text(base, TICK, Anchor::Middle, text);
                free = at + half + GAP;
            }
        }
        for value in &y.minor {
            let (_, at) = self.place(area, (0.0, *value));
            self.scene
                .line(vec![(area.left - OUT / 2.0, at), (area.left, at)], ink);
        }
        for value in &x.minor {
            let at = area.left + x.position(*value) * (area.right - area.left);
            self.scene
                .line(vec![(at, area.bottom), (at, area.bottom + OUT / 2.0)], ink);
        }
        let corners = [
            (area.left, area.top),
            (area.left, area.bottom),
            (area.right, area.bottom),
        ];
        self.scene.line(corners.to_vec(), ink);
    }

    /// Curves over words stand beside each other.
    fn dodge(&self, curve: usize) -> f64 {
        const ROOM: f64 = 0.6;
        let count = self.data.curves.len().max(1) as f64;
        match self.data.x.categories.is_empty() {
            true => 0.0,
            false => (curve as f64 - (count - 1.0) / 2.0) * (ROOM / count).min(0.15),
        }
    }

    fn place(&self, area: Area, (x, y): Point) -> Point {
        let across = self.x.position(x) * (area.right - area.left);
        let up = self.y.position(y) * (area.bottom - area.top);
        (area.left + across, area.bottom - up)
    }

    fn curves(&mut self, area: Area, panel: &Panel) {
        // All intervals lie behind all curves.
        for (index, samples) in panel.curves.iter().enumerate() {
            self.intervals(area, samples, index);
        }
        let mut placed: Vec<Vec<Point>> = Vec::new();
        for (index, samples) in panel.curves.iter().enumerate() {
            let across = |sample: &Sample| sample.x + self.dodge(index);
            let means = samples.iter().map(|sample| (across(sample), sample.y.mean));
            let points: Vec<_> = means.map(|mean| self.place(area, mean)).collect();
            let depths: Vec<_> = points.iter().map(|point| depth(*point, &placed)).collect();
            if self.is_line(index) {
                self.joined(&points, &depths, index);
            }
            if self.is_marked(index) {
                let (shape, fill) = (self.kind(index).0, self.fill(index));
                for (point, depth) in points.iter().zip(&depths) {
                    self.marker(*point, (shape, SHRINKS.powi(*depth as i32)), fill);
                }
            }
            // Markers of one thing in two worlds are meant to lie on each other.
            if self.kind(index).1.is_none() && !self.plain {
                placed.push(points);
            }
        }
    }

    /// A line through points. Where both ends of a piece lie on curves that are drawn already, it is
    /// dashed, so that these are seen in its gaps.
    fn joined(&mut self, points: &[Point], depths: &[usize], curve: usize) {
        let covers = |piece: usize| depths[piece].min(depths[piece + 1]) > 0;
        let stroke = self.stroke(curve);
        let mut from = 0;
        for piece in 0..points.len().saturating_sub(1) {
            let last = piece + 2 == points.len();
            if last || covers(piece) != covers(piece + 1) {
                let dashes = if covers(piece) { GAPS } else { stroke.dashes };
                let line = points[from..=piece + 1].to_vec();
                self.scene.line(line, Stroke { dashes, ..stroke });
                from = piece + 1;
            }
        }
    }

    /// Confidence intervals: bars, or a band where points are many.
    fn intervals(&mut self, area: Area, samples: &[Sample], index: usize) {
        const CAP: f64 = 1.8;
        let Stroke { color, .. } = self.stroke(index);
        let known = samples
            .iter()
            .filter(|sample| sample.y.half_width.is_some());
        if self.plain {
            let known: Vec<_> = known.collect();
            let upper = known.iter().map(|sample| (sample.x, high(sample)));
            let lower = known.iter().rev().map(|sample| (sample.x, low(sample)));
            let outline: Vec<_> = upper.chain(lower).map(|at| self.place(area, at)).collect();
            if outline.len() > 2 {
                self.scene.marks.push(Mark::Area(outline, color, 0.2));
            }
            return;
        }
        let thin = Stroke::solid(color, 0.7);
        for sample in known {
            let across = sample.x + self.dodge(index);
            let (x, top) = self.place(area, (across, high(sample)));
            let (_, bottom) = self.place(area, (across, low(sample)));
            self.scene.line(vec![(x, top), (x, bottom)], thin);
            // An interval that goes on below the axis has no end there.
            let ends = [(top, true), (bottom, low(sample) >= self.y.low())];
            for (y, _) in ends.into_iter().filter(|(_, is_end)| *is_end) {
                self.scene.line(vec![(x - CAP, y), (x + CAP, y)], thin);
            }
        }
    }

    /// A marker of a share of the usual size, with an edge of paper so that it stands out from lines.
    fn marker(&mut self, at: Point, (shape, share): (usize, f64), fill: Fill) {
        const EDGE: f64 = 0.6;
        let whole = MARKER * share;
        let mut draw = |size: f64, color: Color, opacity: f64| {
            let mark = match outline(shape, size) {
                None if opacity >= 1.0 => Mark::Disc(at, size, color),
                corners => {
                    let corners = corners.unwrap_or_else(|| circle(size));
                    let place = |(x, y): &Point| (at.0 + x, at.1 + y);
                    Mark::Area(corners.iter().map(place).collect(), color, opacity)
                }
            };
            self.scene.marks.push(mark);
        };
        draw(whole + EDGE * share, Color::PAPER, 1.0);
        match fill {
            Fill::Whole(color) => draw(whole, color, 1.0),
            Fill::Faint(color) => draw(whole, color, 0.4),
            Fill::Hollow(color) => {
                draw(whole, color, 1.0);
                draw(whole - EDGE, Color::PAPER, 1.0);
            }
        }
    }
}

/// How many curves that are drawn already have a point here.
fn depth((x, y): Point, placed: &[Vec<Point>]) -> usize {
    let here = |(other_x, other_y): &Point| (other_x - x).hypot(other_y - y) < SAME;
    let has = |points: &&Vec<Point>| points.iter().any(here);
    placed.iter().filter(has).count()
}

/// Corners enough for a disc of this size.
fn circle(size: f64) -> Vec<Point> {
    let corner = |index: u32| {
        let angle = f64::from(index) / 24.0 * std::f64::consts::TAU;
        (size * angle.sin(), -size * angle.cos())
    };
    (0..24).map(corner).collect()
}

/// Corners of a curve's marker around its middle; none for a disc. All have about the same area.
fn outline(curve: usize, size: f64) -> Option<Vec<Point>> {
    let regular = |corners: usize, turn: f64, size: f64| -> Vec<Point> {
        let corner = |index: usize| {
            let angle = (turn + index as f64 / corners as f64) * std::f64::consts::TAU;
            (size * angle.sin(), -size * angle.cos())
        };
        (0..corners).map(corner).collect()
    };
    match curve % 7 {
        0 => None,
        1 => Some(regular(4, 0.125, size * 1.25)),
        2 => Some(regular(3, 0.0, size * 1.5)),
        3 => Some(regular(4, 0.0, size * 1.35)),
        4 => Some(regular(3, 0.5, size * 1.5)),
        5 => Some(regular(5, 0.0, size * 1.2)),
        _ => {
            let arm = size * 0.45;
            let end = size * 1.25;
            let quarter = [(-arm, -end), (arm, -end), (arm, -arm), (end, -arm)];
            let turned = |turns: usize, (x, y): Point| (0..turns).fold((x, y), |(x, y), _| (-y, x));
            let corners = (0..4).flat_map(|turns| quarter.map(|corner| turned(turns, corner)));
            Some(corners.collect())
        }
    }
}
