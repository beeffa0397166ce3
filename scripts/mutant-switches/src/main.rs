//! Puts many mutations of a crate into one build, each behind a switch, so that a mutation costs the
//! run of some tests and no build: `mutant-switches FROM TO < mutants.json > places.json`.
//!
//! It reads mutations as `cargo mutants --list --json` lists them, each with an `id` besides, reads their
//! files below FROM and writes them with switches below TO. Where a mutation changes an expression, this
//! becomes
//!
//! ```text
//! (if crate::mutant::off(&[7]) { a + b } else if crate::mutant::on(7) { a - b } else { unreachable!() })
//! ```
//!
//! where an arm of a match is deleted it gets a guard, and where the body of a function is replaced it
//! begins with a return. The module `mutant` is for the caller to put there.
//!
//! What it says on standard output: `left`, the mutations that it has no switch for, and `places`, the
//! lines of the new files that belong to some mutations alone. Who compiles the files and finds an error
//! in such a place leaves those mutations out and tries again.

mod place;
mod render;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use serde::{Deserialize, Serialize};

use place::Places;
use render::Changes;

/// One mutation, as `cargo mutants` lists it; what is not needed here is not read.
#[derive(Deserialize)]
pub struct Mutant {
    id: u32,
    file: String,
    genre: String,
    replacement: String,
    span: LineSpan,
}

/// What a mutation replaces: the end is exclusive.
#[derive(Deserialize)]
pub struct LineSpan {
    start: LineColumn,
    end: LineColumn,
}

/// Both from one, columns in characters.
#[derive(Deserialize, Clone, Copy)]
pub struct LineColumn {
    line: usize,
    column: usize,
}

/// Lines of a written file that are there for some mutations alone.
#[derive(Serialize)]
struct Place {
    file: String,
    #[serde(flatten)]
    lines: render::Lines,
}

#[derive(Serialize, Default)]
struct Report {
    left: Vec<u32>,
    places: Vec<Place>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, from, to] = &args[..] else {
        return Err("mutant-switches FROM TO < mutants.json > places.json".into());
    };
    let mutants: Vec<Mutant> = serde_json::from_reader(std::io::stdin().lock())?;
    let mut files: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in &mutants {
        files.entry(&mutant.file).or_default().push(mutant);
    }
    let mut report = Report::default();
    for (file, mutants) in files {
        let source = std::fs::read_to_string(Path::new(from).join(file))?;
        let places = Places::of(&source)?;
        let mut changes = Changes::default();
        for mutant in mutants {
            if !changes.add(&source, &places, mutant) {
                report.left.push(mutant.id);
            }
        }
        let (text, lines) = changes.render(&source);
        report.places.extend(lines.into_iter().map(|lines| Place {
            file: file.to_owned(),
            lines,
        }));
        std::fs::write(Path::new(to).join(file), text)?;
    }
    serde_json::to_writer(std::io::stdout().lock(), &report)?;
    Ok(())
}
