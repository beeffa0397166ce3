//! The legend above the panels: what it names, and how it is drawn.

use super::{CURVE, Fill, GAP, MARGIN, Marking, Painter, TICK, WORLDS};
use crate::sim::plot::scene::{Anchor, Color, Stroke};

/// A line of the legend.
struct LegendEntry {
    name: String,
    line: Option<Stroke>,
    /// Its shape and how it is filled.
    marker: Option<(usize, Fill)>,
}

impl Painter<'_> {
    /// Draws the legend in as many rows as it takes; where it ends.
    pub(super) fn legend(&mut self, top: f64) -> f64 {
        const SAMPLE: f64 = 18.0;
        let entries = self.legend_entries();
        if entries.is_empty() {
            return top;
        }
        let width = |entry: &LegendEntry| SAMPLE + GAP + self.font.width(&entry.name, TICK);
        let widest = entries.iter().map(width).fold(0.0, f64::max);
        let column = widest + 2.0 * MARGIN;
        let room = self.scene.width - 2.0 * MARGIN;
        let columns = ((room + 2.0 * MARGIN) / column).floor().max(1.0) as usize;
        let columns = columns.min(entries.len());
        let left = (self.scene.width - columns as f64 * column + 2.0 * MARGIN) / 2.0;
        let line = TICK + GAP;
        for (index, entry) in entries.iter().enumerate() {
            let x = left.max(MARGIN) + (index % columns) as f64 * column;
            let y = top + (index / columns) as f64 * line + TICK / 2.0;
            if let Some(stroke) = entry.line {
                self.scene.line(vec![(x, y), (x + SAMPLE, y)], stroke);
            }
            if let Some((shape, fill)) = entry.marker {
                self.marker((x + SAMPLE / 2.0, y), (shape, 1.0), fill);
            }
            let base = (x + SAMPLE + GAP, y + TICK * 0.36);
            self.scene.text(base, TICK, Anchor::Start, &entry.name);
        }
        top + entries.len().div_ceil(columns) as f64 * line + GAP
    }

    /// What the legend names: curves; or things, and then the worlds that there are.
    fn legend_entries(&self) -> Vec<LegendEntry> {
        let step = match self.marking {
            Marking::EachCurve | Marking::Points => 1,
            Marking::Worlds => WORLDS.len(),
        };
        let curves = self.data.curves.iter().enumerate().step_by(step);
        let curve = |(curve, name): (usize, &String)| {
            let stroke = self.stroke(curve);
            let stroke = match step {
                1 => stroke,
                _ => Stroke::solid(stroke.color, CURVE),
            };
            let fill = Fill::Whole(stroke.color);
            LegendEntry {
                name: name.clone(),
                line: (self.marking != Marking::Points).then_some(stroke),
                marker: (!self.plain).then_some((self.kind(curve).0, fill)),
            }
        };
        let mut entries: Vec<_> = curves.map(curve).collect();
        if self.marking == Marking::Worlds {
            let worlds = (0..WORLDS.len()).filter(|world| self.has(*world));
            entries.extend(worlds.map(|world| self.world_entry(world)));
        }
        entries
    }

    /// Whether there is anything of a world.
    fn has(&self, world: usize) -> bool {
        let panels = self.data.panels.iter();
        let mut curves = panels.flat_map(|panel| panel.curves.iter().skip(world).step_by(3));
        curves.any(|samples| !samples.is_empty())
    }

    fn world_entry(&self, world: usize) -> LegendEntry {
        let line = Stroke {
            color: Color::INK,
            ..self.stroke(world)
        };
        LegendEntry {
            name: WORLDS[world].1.to_owned(),
            line: self.is_line(world).then_some(line),
            marker: self
                .is_marked(world)
                .then(|| (0, self.fill(world).in_color(Color::INK))),
        }
    }
}
