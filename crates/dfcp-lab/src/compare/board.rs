//! Peers over many named paths: which share of each path's limit each keeps, and where it does
//! worst.

use std::fmt::Write;

use super::record::{Context, Line};
use super::summary::{Spread, summarize};
use super::table::{self, Style};

/// A run's share of a path's limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// The path's name.
    pub path: String,
    /// What the path is, in words.
    pub title: String,
    /// Useful bits a second that a perfect sender would reach.
    pub limit_bps: f64,
    /// Who sent.
    pub peer: String,
    /// Goodput as a share of the limit.
    pub share: f64,
}

/// A table of paths and peers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Board {
    /// The peers, in the order in which they first came.
    pub peers: Vec<String>,
    /// The paths, likewise.
    pub paths: Vec<Place>,
}

/// A path, with what each peer keeps of its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The path's name.
    pub name: String,
    /// What it is, in words.
    pub title: String,
    /// Useful bits a second that a perfect sender would reach.
    pub limit_bps: f64,
    /// What the peers keep, in their order; `None` for one that did not run or only failed.
    pub kept: Vec<Option<Kept>>,
}

/// What a peer keeps of a path's limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// Its shares over the repetitions.
    pub share: Spread,
    /// Whether the lab's path was what it was to be.
    pub path: Truth,
}

/// Whether a measured path was true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It was.
    Valid,
    /// In no run was it: the machine was too slow for it.
    Invalid,
}

/// A share below this is a path on which a peer fails.
pub const GOOD: f64 = 0.85;

impl Board {
    /// Of the runs over named paths: goodput after the first tenth of what arrived.
    pub fn of_lines(lines: &[Line]) -> Self {
        let mut board = Self::default();
        for cell in summarize(lines) {
            let Some(path) = cell.path.named() else {
                continue;
            };
            let place = board.place(&path.name, &path.title, path.limit_bps);
            for row in &cell.rows {
                let peer = board.peer(&row.peer);
                let path = match row.valid {
                    true => Truth::Valid,
                    false => Truth::Invalid,
                };
                let kept = row.steady_share.map(|share| Kept { share, path });
                board.paths[place].put(peer, kept);
            }
        }
        board.even()
    }

    /// Of single runs.
    pub fn of_shares(shares: &[Share]) -> Self {
        let mut board = Self::default();
        for share in shares {
            let place = board.place(&share.path, &share.title, share.limit_bps);
            let peer = board.peer(&share.peer);
            let same = |other: &&Share| other.path == share.path && other.peer == share.peer;
            let all = shares.iter().filter(same).map(|share| share.share);
            let share = Spread::of(all.collect());
            let path = Truth::Valid;
            board.paths[place].put(peer, share.map(|share| Kept { share, path }));
        }
        board.even()
    }

    fn place(&mut self, name: &str, title: &str, limit_bps: f64) -> usize {
        let known = self.paths.iter().position(|place| place.name == name);
        known.unwrap_or_else(|| {
            self.paths.push(Place {
                name: name.to_owned(),
                title: title.to_owned(),
                limit_bps,
                kept: Vec::new(),
            });
            self.paths.len() - 1
        })
    }

    fn peer(&mut self, name: &str) -> usize {
        let known = self.peers.iter().position(|peer| peer == name);
        known.unwrap_or_else(|| {
            self.peers.push(name.to_owned());
            self.peers.len() - 1
        })
    }

    fn even(mut self) -> Self {
        for place in &mut self.paths {
            place.kept.resize(self.peers.len(), None);
        }
        self
    }

    /// A row for each path: its limit, and of each peer the median share with the least in
    /// brackets, and a question mark where the path was not true.
    pub fn table(&self, style: Style) -> String {
        let heads = ["path", "limit Mbit/s"].map(str::to_owned);
        let mut rows = vec![
            heads
                .into_iter()
                .chain(self.peers.iter().cloned())
                .collect(),
        ];
        rows.extend(self.paths.iter().map(|place| {
            let limit = format!("{:.2}", place.limit_bps / 1e6);
            let shares = place.kept.iter().map(|kept| {
                let Some(Kept { share, path }) = kept else {
                    return "–".to_owned();
                };
                let mark = match path {
                    Truth::Valid => "",
                    Truth::Invalid => "?",
                };
                match share.low == share.high {
                    true => format!("{:.2}{mark}", share.median),
                    false => format!("{:.2} [{:.2}]{mark}", share.median, share.low),
                }
            });
            let name = match style {
                Style::Terminal => place.name.clone(),
                Style::Page => format!("`{}`: {}", place.name, place.title),
            };
            [name, limit].into_iter().chain(shares).collect()
        }));
        table::set(&rows, style)
    }

    /// A row for each peer: on how many paths it ran, the median of its shares, on how many it
    /// kept less than [`GOOD`], and the path on which it keeps least.
    pub fn worst(&self, style: Style) -> String {
        let heads = [
            "peer",
            "paths",
            "median share",
            "below 0.85",
            "worst",
            "share there",
        ];
        let mut rows: Vec<Vec<String>> = vec![heads.map(str::to_owned).to_vec()];
        for (peer, name) in self.peers.iter().enumerate() {
            let mut shares: Vec<(f64, &Place)> = self.medians(peer).collect();
            shares.sort_by(|a, b| a.0.total_cmp(&b.0));
            let Some((least, place)) = shares.first() else {
                continue;
            };
            let median = Spread::of(shares.iter().map(|(share, _)| *share).collect());
            let poor = shares.iter().filter(|(share, _)| *share < GOOD).count();
            rows.push(vec![
                name.clone(),
                shares.len().to_string(),
                median.map_or("–".to_owned(), |spread| format!("{:.2}", spread.median)),
                poor.to_string(),
                place.name.clone(),
                format!("{least:.2}"),
            ]);
        }
        table::set(&rows, style)
    }

    /// Shares of a peer, the least first: its worst path is where its curve begins.
    pub fn profile(&self, peer: usize) -> Vec<f64> {
        let mut shares: Vec<f64> = self.medians(peer).map(|(share, _)| share).collect();
        shares.sort_by(f64::total_cmp);
        shares
    }

    fn medians(&self, peer: usize) -> impl Iterator<Item = (f64, &Place)> {
        self.paths.iter().filter_map(move |place| {
            let kept = place.kept.get(peer).copied().flatten()?;
            Some((kept.share.median, place))
        })
    }
}

impl Place {
    fn put(&mut self, peer: usize, kept: Option<Kept>) {
        if self.kept.len() <= peer {
            self.kept.resize(peer + 1, None);
        }
        self.kept[peer] = kept;
    }
}

const HEAD: &str = "\
# Bad paths

One transfer over each of the paths of `scenarios/bad-paths.toml`, by each sender alone, as a share \
of the path's limit. `scripts/bench-bad-paths` makes this page.

The limit is what a perfect sender of UDP payload would reach: what the path offers over the run \
(its rate, the long-term rate of a policer or shaper, the opportunities of a recorded link), less \
outages, times the share that the path does not lose by itself, times 1472/1500. Random loss counts \
by its expectation: a short run with long bursts can come out above it. Shares are medians over the \
repetitions, with the least in brackets; –: did not run, or failed; ?: the machine was too slow for \
the lab's path in every run, so that the path was late.

In the figures each curve has the shares of one sender, its worst path first.
";

/// The page: what real programs reached, what the simulator says, how the runs were made.
pub fn page(
    boards: &[(&str, &Board)],
    contexts: &[&Context],
    pictures: &[(String, String)],
) -> String {
    let mut text = HEAD.to_owned();
    for (name, title) in pictures {
        let _ = writeln!(text, "\n![{title}]({name})");
    }
    for (title, board) in boards.iter().filter(|(_, board)| !board.paths.is_empty()) {
        let _ = writeln!(text, "\n## {title}\n\n{}", board.worst(Style::Page));
        text += &board.table(Style::Page);
    }
    if !contexts.is_empty() {
        text += "\n## Runs\n";
        text += &table::contexts(contexts);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(path: &str, peer: &str, share: f64) -> Share {
        Share {
            path: path.into(),
            title: format!("the path {path}"),
            limit_bps: 50e6,
            peer: peer.into(),
            share,
        }
    }

    #[test]
    fn each_peer_is_judged_by_its_worst_path() {
        let board = Board::of_shares(&[
            share("a", "x", 0.9),
            share("a", "x", 0.8),
            share("a", "x", 1.0),
            share("b", "x", 0.5),
            share("b", "y", 0.95),
        ]);
        assert_eq!(board.profile(0), [0.5, 0.9]);
        assert_eq!(board.profile(1), [0.95]);
        let table = board.table(Style::Page);
        assert!(
            table.contains("| `a`: the path a | 50.00 | 0.90 [0.80] | – |"),
            "{table}"
        );
        let worst = board.worst(Style::Page);
        assert!(worst.contains("| x | 2 | 0.70 | 1 | b | 0.50 |"), "{worst}");
        assert!(worst.contains("| y | 1 | 0.95 | 0 | b | 0.95 |"), "{worst}");
    }
}
