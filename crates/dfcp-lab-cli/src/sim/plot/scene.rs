//! A drawing: shapes and words in points of 1/72 inch, from the top left corner.
//!
//! Both formats are made of the same drawing: SVG by [`svg`](super::svg), pixels by
//! [`png`](super::png).

use super::font::Font;

/// A place.
pub type Point = (f64, f64);

/// A colour, red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Color(pub u8, pub u8, pub u8);

impl Color {
    /// Black, but softer.
    pub const INK: Self = Self(0x22, 0x22, 0x22);
    /// Of lines that only guide the eye.
    pub const GRID: Self = Self(0xe2, 0xe2, 0xe2);
    /// Of the paper.
    pub const PAPER: Self = Self(0xff, 0xff, 0xff);
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stroke {
    /// Its colour.
    pub color: Color,
    /// Its width.
    pub width: f64,
    /// Lengths of dashes and gaps; none for a whole line.
    pub dashes: &'static [f32],
}

impl Stroke {
    /// A whole line.
    pub fn solid(color: Color, width: f64) -> Self {
        Self {
            color,
            width,
            dashes: &[],
        }
    }
}

/// Which end of a text stands at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// Which way a text runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the right.
    Right,
    /// Upwards.
    Up,
}

/// A text on one line.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// Where its base line has its anchor.
    pub at: Point,
    /// Size of the letters.
    pub size: f64,
    /// What stands there.
    pub anchor: Anchor,
    /// Which way it runs.
    pub direction: Direction,
    /// The words.
    pub text: String,
}

/// A part of a drawing.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// A line through points.
    Line(Vec<Point>, Stroke),
    /// An area, and how opaque it is.
    Area(Vec<Point>, Color, f64),
    /// A disc.
    Disc(Point, f64, Color),
    /// Words.
    Text(Text),
}

/// A drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
    /// Its parts, those behind first.
    pub marks: Vec<Mark>,
}

impl Scene {
    /// Adds a line.
    pub fn line(&mut self, points: Vec<Point>, stroke: Stroke) {
        if points.len() > 1 {
            self.marks.push(Mark::Line(points, stroke));
        }
    }

    /// Adds words.
    pub fn text(&mut self, at: Point, size: f64, anchor: Anchor, text: &str) {
        self.marks.push(Mark::Text(Text {
            at,
            size,
            anchor,
            direction: Direction::Right,
            text: text.to_owned(),
        }));
    }

    /// Adds words that run upwards.
    pub fn text_upwards(&mut self, at: Point, size: f64, text: &str) {
        self.marks.push(Mark::Text(Text {
            at,
            size,
            anchor: Anchor::Middle,
            direction: Direction::Up,
            text: text.to_owned(),
        }));
    }
}

impl Text {
    /// Where it begins, along its direction, from its place.
    pub fn offset(&self, font: &Font) -> f64 {
        let width = font.width(&self.text, self.size);
        match self.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -width / 2.0,
            Anchor::End => -width,
        }
    }
}
