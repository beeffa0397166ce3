//! Shares of something as coloured squares with their numbers: who has how much beside whom.
//!
//! A row is a curve, a column a name along the horizontal axis. Half is paper; less turns to
//! vermilion and more to blue, which the colour-blind can tell apart.

use super::font::Font;
use super::query::{Data, Panel};
use super::scene::{Anchor, Color, Mark, Scene};

const TITLE: f64 = 9.0;
const LABEL: f64 = 8.0;
const TEXT: f64 = 6.5;
/// Of the names above columns, which stand side by side.
const HEAD: f64 = 5.5;
const GAP: f64 = 3.0;
const MARGIN: f64 = 6.0;
/// A page of a journal, 7.16 inches.
const WIDTH: f64 = 515.5;
const LESS: Color = Color(0xd5, 0x5e, 0x00);
const MORE: Color = Color(0x00, 0x72, 0xb2);
/// How opaque the ends of the scale are: numbers stand on them.
const STRONGEST: f64 = 0.75;

/// Draws a panel for each of the data's, side by side.
pub fn draw(data: &Data, title: Option<&str>, font: &Font) -> Scene {
    let mut scene = Scene {
        width: WIDTH,
        height: 0.0,
        marks: Vec::new(),
    };
    let mut top = MARGIN;
    if let Some(title) = title {
        top += TITLE;
        scene.text((WIDTH / 2.0, top), TITLE, Anchor::Middle, title);
        top += GAP;
    }
    let names = data.curves.iter().map(|name| font.width(name, TEXT));
    let left = MARGIN + LABEL + GAP + names.fold(0.0, f64::max) + GAP;
    let panels = data.panels.len().max(1);
    let most = 2;
    let columns = panels.min(most);
    let between = 4.0 * GAP;
    let width = (WIDTH - MARGIN - left - between * (columns - 1) as f64) / columns as f64;
    let cell = width / data.x.categories.len().max(1) as f64;
    let tall = (cell * 0.55).clamp(2.0 * TEXT, 3.0 * TEXT);
    let heading = 2.0 * (TEXT + GAP);
    let height = tall * data.curves.len() as f64;
    let mut bottom = top;
    for (index, panel) in data.panels.iter().enumerate() {
        let (column, row) = (index % most, index / most);
        let corner = (
            left + column as f64 * (width + between),
            top + heading + row as f64 * (heading + height + GAP),
        );
        head(&mut scene, data, panel, corner, cell);
        if column == 0 {
            for (place, name) in data.curves.iter().enumerate() {
                let middle = corner.1 + (place as f64 + 0.5) * tall + TEXT * 0.36;
                scene.text((corner.0 - GAP, middle), TEXT, Anchor::End, name);
            }
        }
        squares(&mut scene, panel, corner, (cell, tall));
        bottom = f64::max(bottom, corner.1 + height);
    }
    let middle = (top + bottom) / 2.0;
    let label = format!("{}, %", data.y.name);
    scene.text_upwards((MARGIN + LABEL * 0.8, middle), LABEL, &label);
    scene.text(
        ((left + WIDTH) / 2.0, bottom + GAP + LABEL),
        LABEL,
        Anchor::Middle,
        &data.x.name,
    );
    scene.height = bottom + GAP + LABEL + MARGIN;
    scene
}

/// A panel's title and the names of its columns.
fn head(scene: &mut Scene, data: &Data, panel: &Panel, corner: (f64, f64), cell: f64) {
    let columns = data.x.categories.len() as f64;
    if let Some(title) = &panel.title {
        let at = (corner.0 + cell * columns / 2.0, corner.1 - 2.0 * GAP - TEXT);
        scene.text(at, TEXT + 0.5, Anchor::Middle, title);
    }
    for (place, name) in data.x.categories.iter().enumerate() {
        let at = (corner.0 + (place as f64 + 0.5) * cell, corner.1 - GAP);
        scene.text(at, HEAD, Anchor::Middle, name);
    }
}

fn squares(scene: &mut Scene, panel: &Panel, corner: (f64, f64), (wide, tall): (f64, f64)) {
    for (row, samples) in panel.curves.iter().enumerate() {
        for sample in samples {
            let (left, top) = (corner.0 + sample.x * wide, corner.1 + row as f64 * tall);
            let (right, bottom) = (left + wide - 0.8, top + tall - 0.8);
            let corners = vec![(left, top), (right, top), (right, bottom), (left, bottom)];
            let share = sample.y.mean.clamp(0.0, 1.0);
            let (color, strength) = match share < 0.5 {
                true => (LESS, (0.5 - share) * 2.0),
                false => (MORE, (share - 0.5) * 2.0),
            };
            scene
                .marks
                .push(Mark::Area(corners.clone(), Color::GRID, 0.5));
            scene
                .marks
                .push(Mark::Area(corners, color, strength * STRONGEST));
            let number = format!("{:.0}", sample.y.mean * 100.0);
            let at = ((left + right) / 2.0, (top + bottom) / 2.0 + TEXT * 0.36);
            scene.text(at, TEXT, Anchor::Middle, &number);
        }
    }
}
