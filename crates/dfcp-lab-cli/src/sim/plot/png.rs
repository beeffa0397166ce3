//! Drawings as PNG, at 300 dots an inch.

use tiny_skia::{
    Color as Ink, FillRule, LineJoin, Paint, Path, PathBuilder, Pixmap, Stroke as Pen, StrokeDash,
    Transform,
};

use super::font::Font;
use super::scene::{Color, Direction, Mark, Point, Scene};

/// Dots for each point of 1/72 inch.
const SCALE: f64 = 300.0 / 72.0;

/// Draws a drawing; none if it is too large for memory.
pub fn write(scene: &Scene, font: &Font) -> Option<Vec<u8>> {
    let dots = |length: f64| (length * SCALE).round() as u32;
    let mut pixmap = Pixmap::new(dots(scene.width), dots(scene.height))?;
    let Color(red, green, blue) = Color::PAPER;
    pixmap.fill(Ink::from_rgba8(red, green, blue, 255));
    for mark in &scene.marks {
        draw(&mut pixmap, mark, font);
    }
    pixmap.encode_png().ok()
}

fn draw(pixmap: &mut Pixmap, mark: &Mark, font: &Font) {
    let scale = Transform::from_scale(SCALE as f32, SCALE as f32);
    match mark {
        Mark::Line(points, stroke) => {
            let pen = Pen {
                width: stroke.width as f32,
                line_join: LineJoin::Round,
                dash: StrokeDash::new(stroke.dashes.to_vec(), 0.0),
                ..Pen::default()
            };
            if let Some(path) = path(points) {
                pixmap.stroke_path(&path, &paint(stroke.color, 1.0), &pen, scale, None);
            }
        }
        Mark::Area(points, color, opacity) => {
            if let Some(path) = path(points) {
                fill(pixmap, &path, paint(*color, *opacity), scale);
            }
        }
        Mark::Disc((x, y), radius, color) => {
            if let Some(path) = PathBuilder::from_circle(*x as f32, *y as f32, *radius as f32) {
                fill(pixmap, &path, paint(*color, 1.0), scale);
            }
        }
        Mark::Text(text) => {
            let mut outline = Outline(PathBuilder::new());
            font.outline(&text.text, text.size, &mut outline);
            let degrees = match text.direction {
                Direction::Right => 0.0,
                Direction::Up => -90.0,
            };
            let place = scale
                .pre_translate(text.at.0 as f32, text.at.1 as f32)
                .pre_rotate(degrees)
                .pre_translate(text.offset(font) as f32, 0.0);
            if let Some(path) = outline.0.finish() {
                fill(pixmap, &path, paint(Color::INK, 1.0), place);
            }
        }
    }
}

fn fill(pixmap: &mut Pixmap, path: &Path, paint: Paint<'_>, transform: Transform) {
    pixmap.fill_path(path, &paint, FillRule::Winding, transform, None);
}

fn path(points: &[Point]) -> Option<Path> {
    let mut builder = PathBuilder::new();
    let (first, others) = points.split_first()?;
    builder.move_to(first.0 as f32, first.1 as f32);
    for (x, y) in others {
        builder.line_to(*x as f32, *y as f32);
    }
    builder.finish()
}

fn paint(Color(red, green, blue): Color, opacity: f64) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, (opacity * 255.0).round() as u8);
    paint
}

/// Outlines of letters become a path.
struct Outline(PathBuilder);

impl ttf_parser::OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.0.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.0.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.0.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.0.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.0.close();
    }
}
