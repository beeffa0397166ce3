//! The font of figures: Arimo, whose widths are those of Helvetica and Arial, so that an SVG looks
//! the same whichever of them is there. It comes with the program; licence in `fonts/OFL.txt`.

use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// Font families for SVG, the best first.
pub const FAMILY: &str = "Arimo, 'Liberation Sans', Arial, Helvetica, sans-serif";

/// The font.
#[derive(Debug)]
pub struct Font(Face<'static>);

impl Font {
    /// The font that comes with the program.
    pub fn bundled() -> Self {
        let bytes = include_bytes!("../../../fonts/Arimo-Regular.ttf");
        Self(Face::parse(bytes, 0).expect("the bundled font is a font"))
    }

    fn glyph(&self, letter: char) -> GlyphId {
        self.0.glyph_index(letter).unwrap_or_default()
    }

    fn scale(&self, size: f64) -> f64 {
        size / f64::from(self.0.units_per_em())
    }

    fn advance(&self, letter: char) -> f64 {
        let advance = self.0.glyph_hor_advance(self.glyph(letter));
        f64::from(advance.unwrap_or_default())
    }

    /// Width of a text.
    pub fn width(&self, text: &str, size: f64) -> f64 {
        let advances = text.chars().map(|letter| self.advance(letter));
        advances.sum::<f64>() * self.scale(size)
    }

    /// Draws a text; `pen` gets places right of and below its beginning.
    pub fn outline(&self, text: &str, size: f64, pen: &mut dyn OutlineBuilder) {
        let mut placed = Placed {
            pen,
            x: 0.0,
            scale: self.scale(size) as f32,
        };
        for letter in text.chars() {
            self.0.outline_glyph(self.glyph(letter), &mut placed);
            placed.x += self.advance(letter) as f32;
        }
    }
}

/// Places a glyph behind those before it.
struct Placed<'a> {
    pen: &'a mut dyn OutlineBuilder,
    x: f32,
    scale: f32,
}

impl Placed<'_> {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        ((self.x + x) * self.scale, -y * self.scale)
    }
}

impl OutlineBuilder for Placed<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.pen.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.pen.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.pen.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.pen.curve_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.pen.close();
    }
}
