//! Named paths of a comparison: the bad ones that belong to the program, or those of scenario
//! files; and the page of what peers keep of their limits.

use std::fs;
use std::io::Write;
use std::path::Path;

use dfcp_command::Failure;
use dfcp_lab::compare::board::{self, Board, Share};
use dfcp_lab::compare::emulated::Emulated;
use dfcp_lab::compare::record::Context;
use dfcp_lab::compare::table::Style;
use dfcp_sim::scenario::Document;

use crate::sim::engine;
use crate::sim::plot::{
    self, Data, Drawing, Estimate, Marking, Panel, Quantities, Sample, Scale, Unit,
};
use crate::sim::store;

/// The bad paths belong to the program.
const BAD: &str = include_str!("../../../../../scenarios/bad-paths.toml");
const BAD_FILE: &str = "scenarios/bad-paths.toml";

/// Paths by `bad`, by their names among the bad ones, or by scenario files.
pub fn paths(words: &[String], traces: Option<&Path>) -> Result<Vec<Emulated>, Failure> {
    let bad = || engine::cases(BAD, Path::new(BAD_FILE), traces);
    let mut paths: Vec<Emulated> = Vec::new();
    for word in words {
        let file = Path::new(word);
        let (found, left_out) = if word == "bad" {
            bad()?
        } else if file
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let text = fs::read_to_string(file).map_err(|error| Failure::io(file, error))?;
            engine::cases(&text, file, traces)?
        } else {
            let (mut found, mut left_out) = bad()?;
            found.retain(|(name, _)| name == word);
            left_out.retain(|left| left.case == *word);
            if found.is_empty() && left_out.is_empty() {
                return Err(Failure::usage(format!(
                    "there is no path {word:?} in {BAD_FILE}; write `bad`, a path of it, or a \
                     scenario file, NAME.toml"
                )));
            }
            (found, left_out)
        };
        for left in left_out {
            eprintln!("dfcp: left out: {}: {}", left.case, left.why);
        }
        for (name, document) in found {
            let path = Emulated::named(&name, document).map_err(Failure::usage)?;
            if !paths.iter().any(|known| known.path == path.path) {
                paths.push(path);
            }
        }
    }
    match paths.is_empty() {
        true => Err(Failure::usage("no path is left")),
        false => Ok(paths),
    }
}

/// The shares of a sweep over the bad paths.
pub fn shares(file: &Path) -> Result<Vec<Share>, Failure> {
    let table = store::read(file)?.table;
    let column = |name: &str| {
        let missing = || {
            format!(
                "{}: no column `{name}`: is it of bad paths?",
                file.display()
            )
        };
        table.column(name).ok_or_else(|| Failure::usage(missing()))
    };
    let (path, peer) = (column("path")?, column("protocol")?);
    let (limit, share) = (column("limit_bps")?, column("share")?);
    let mut titles = Vec::new();
    let shares = table.rows().iter().filter_map(|row| {
        let path = row[path].to_string();
        Some(Share {
            title: title(&path, &mut titles),
            path,
            limit_bps: row[limit].number()?,
            peer: row[peer].to_string(),
            share: row[share].number()?,
        })
    });
    Ok(shares.collect())
}

/// What a bad path is in words, looked up once.
fn title(path: &str, known: &mut Vec<(String, String)>) -> String {
    if let Some((_, title)) = known.iter().find(|(name, _)| name == path) {
        return title.clone();
    }
    let title = Document::parse(BAD, BAD_FILE).and_then(|mut document| {
        document.choose(path)?;
        document.title()
    });
    let title = title.unwrap_or_default();
    known.push((path.to_owned(), title.clone()));
    title
}

/// Shows boards that are not empty.
pub fn print(boards: &[&Board]) {
    let full = boards.iter().filter(|board| !board.paths.is_empty());
    let texts = full.map(|board| {
        let [table, worst] = [board.table(Style::Terminal), board.worst(Style::Terminal)];
        format!("Share of the limit, median [least]\n{table}\n{worst}\n")
    });
    // A reader that went away is no reason to panic.
    let _ = std::io::stdout().write_all(texts.collect::<String>().as_bytes());
}

/// Writes the page, and its figures into the directory of its name.
pub fn write_page(
    real: &Board,
    simulated: &Board,
    contexts: &[&Context],
    page: &Path,
) -> Result<(), Failure> {
    let directory = page.with_extension("");
    let stem = directory.file_name().unwrap_or_default().to_string_lossy();
    let boards = [
        ("real", "Real programs on the lab's path", real),
        ("simulated", "In the simulator", simulated),
    ];
    let mut pictures = Vec::new();
    for (name, title, board) in boards {
        let Some(data) = curves(board) else { continue };
        let drawing = Drawing {
            data,
            title: Some(title.to_owned()),
            log_x: false,
            log_y: false,
            marking: Marking::EachCurve,
        };
        plot::draw(drawing, &directory.join(format!("{name}.svg")))?;
        pictures.push((format!("{stem}/{name}.svg"), title.to_owned()));
    }
    let boards = boards.map(|(_, title, board)| (title, board));
    let text = board::page(&boards, contexts, &pictures);
    store::write_atomically(page, |file| Ok(file.write_all(text.as_bytes())?))
}

/// A curve for each peer: its shares, the worst path first.
fn curves(board: &Board) -> Option<Data> {
    let axis = |name: &str, unit| Quantities {
        name: name.to_owned(),
        unit,
        scale: Scale::Linear,
        categories: Vec::new(),
    };
    let points = |peer: usize| -> Vec<Sample> {
        let shares = board.profile(peer).into_iter().enumerate();
        let sample = |(rank, share): (usize, f64)| Sample {
            x: (rank + 1) as f64,
            y: Estimate {
                mean: share,
                half_width: None,
            },
        };
        shares.map(sample).collect()
    };
    let peers = board.peers.iter().enumerate();
    let curves = peers.map(|(peer, name)| (name.clone(), points(peer)));
    let (names, curves): (Vec<_>, Vec<_>) = curves.filter(|(_, points)| points.len() > 1).unzip();
    (!names.is_empty()).then(|| Data {
        x: axis("paths, the worst of each sender first", Unit::Count("")),
        y: axis("goodput ÷ limit", Unit::Share),
        curves: names,
        panels: vec![Panel {
            title: None,
            curves,
        }],
        warnings: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_becomes_a_page_with_a_figure_of_the_worst_paths() {
        let folder = tempfile::tempdir().unwrap();
        let csv = folder.path().join("sweep.csv");
        let rows = "point,path,protocol,seed,limit_bps,share\n\
                    0,queue4,auto,1,98e6,0.9\n1,queue4,auto,2,98e6,0.8\n\
                    2,burst50,auto,1,89e6,0.5\n3,burst50,tcp-bbr,1,89e6,\n";
        fs::write(&csv, rows).unwrap();
        let shares = shares(&csv).unwrap();
        assert_eq!(shares.len(), 3, "one run has no share");
        assert_eq!(shares[0].title, "a queue of 4 packets");
        let page = folder.path().join("bad.md");
        let board = Board::of_shares(&shares);
        write_page(&Board::default(), &board, &[], &page).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.contains("`queue4`: a queue of 4 packets"), "{text}");
        assert!(text.contains("(bad/simulated.svg)"), "{text}");
        assert!(folder.path().join("bad/simulated.svg").exists());
        assert!(!text.contains("Real programs"), "{text}");
    }

    #[test]
    fn a_table_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let csv = folder.path().join("other.csv");
        fs::write(&csv, "a,b\n1,2\n").unwrap();
        let error = shares(&csv).unwrap_err();
        assert!(error.message.contains("`path`"), "{error}");
    }
}
