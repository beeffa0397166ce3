//! Drawings as SVG 1.1, with words as words.
//!
//! Each text says how long it is, so that it has the room that it was given with whatever font a
//! reader has: many machines have none of the four that are asked for, and the one they take instead
//! is a sixth wider, which cut titles off at both ends.

use std::fmt::Write;

use super::font::{FAMILY, Font};
use super::scene::{Anchor, Color, Direction, Mark, Point, Scene, Text};

/// Writes a drawing.
pub fn write(scene: &Scene, font: &Font) -> String {
    let mut svg = String::new();
    let (width, height) = (short(scene.width), short(scene.height));
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}pt\" height=\"{height}pt\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"{FAMILY}\" fill=\"none\" \
         stroke-linejoin=\"round\">"
    );
    let _ = writeln!(
        svg,
        "<rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>",
        hex(Color::PAPER)
    );
    for mark in &scene.marks {
        write_mark(&mut svg, mark, font);
        svg.push('\n');
    }
    svg += "</svg>\n";
    svg
}

fn write_mark(svg: &mut String, mark: &Mark, font: &Font) {
    let _ = match mark {
        Mark::Line(points, stroke) => {
            let dashes: Vec<_> = stroke.dashes.iter().map(ToString::to_string).collect();
            let dashes = match dashes.is_empty() {
                true => String::new(),
                false => format!(" stroke-dasharray=\"{}\"", dashes.join(" ")),
            };
            write!(
                svg,
                "<polyline points=\"{}\" stroke=\"{}\" stroke-width=\"{}\"{dashes}/>",
                places(points),
                hex(stroke.color),
                short(stroke.width)
            )
        }
        Mark::Area(points, color, opacity) => {
            let opacity = match *opacity {
                1.0 => String::new(),
                opacity => format!(" fill-opacity=\"{}\"", short(opacity)),
            };
            let (points, color) = (places(points), hex(*color));
            write!(
                svg,
                "<polygon points=\"{points}\" fill=\"{color}\"{opacity}/>"
            )
        }
        Mark::Disc((x, y), radius, color) => write!(
            svg,
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>",
            short(*x),
            short(*y),
            short(*radius),
            hex(*color)
        ),
        Mark::Text(text) => write_text(svg, text, font),
    };
}

fn write_text(svg: &mut String, text: &Text, font: &Font) -> std::fmt::Result {
    let (x, y) = (short(text.at.0), short(text.at.1));
    let anchor = match text.anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    let turn = match text.direction {
        Direction::Right => String::new(),
        Direction::Up => format!(" transform=\"rotate(-90 {x} {y})\""),
    };
    // A single letter has no gaps that could be made to fit.
    let length = match text.text.chars().count() {
        0 | 1 => String::new(),
        _ => format!(
            " textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\"",
            short(font.width(&text.text, text.size))
        ),
    };
    write!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" text-anchor=\"{anchor}\"{length} fill=\"{}\"\
         {turn}>{}</text>",
        short(text.size),
        hex(Color::INK),
        escape(&text.text)
    )
}

/// Two decimals are a hundredth of a point.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_owned(),
        short => short.to_owned(),
    }
}

fn places(points: &[Point]) -> String {
    let places = points
        .iter()
        .map(|(x, y)| format!("{},{}", short(*x), short(*y)));
    places.collect::<Vec<_>>().join(" ")
}

fn hex(Color(red, green, blue): Color) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Text of an element; what XML 1.0 cannot hold becomes a question mark.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            letter if letter.is_control() => escaped.push('?'),
            letter => escaped.push(letter),
        }
    }
    escaped
}
