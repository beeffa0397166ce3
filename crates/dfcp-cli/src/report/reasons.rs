//! Many things with the same reason, such as files of a full disk, in one line.

use std::collections::{BTreeMap, BTreeSet};

/// So many things with the same reason have a line each; of more there is one line, and JSON has them all.
pub(super) const MANY: usize = 10;

/// Of `receiver: NAME: no space`, with or without the first, what other files have in common with it. The
/// sender's names have the directory before them that it was told to send, and not a new name that this gets.
pub(super) fn reason_of(path: &str, message: &str) -> String {
    let beneath = path.split_once('/').map(|(_, beneath)| beneath);
    let named = [
        Some(format!("{path}: ")),
        beneath.map(|path| format!("/{path}: ")),
    ];
    let split = named
        .iter()
        .flatten()
        .find_map(|name| message.split_once(name));
    match split {
        Some((before, reason)) => {
            let mut sides = ["sender: ", "receiver: "].into_iter();
            let side = sides.find(|side| before.starts_with(side));
            side.unwrap_or_default().to_owned() + reason
        }
        None => message.to_owned(),
    }
}

/// Lines about things, each with its path, its reason and its line; `sum` is the line of many with the
/// same reason: how many, the first path, the reason.
pub(super) fn by_reason<'a>(
    things: impl Iterator<Item = (&'a str, String, String)>,
    sum: impl Fn(usize, &str, &str) -> String,
) -> Vec<String> {
    let (mut places, mut reasons) = (BTreeMap::new(), Vec::new());
    for (path, reason, line) in things {
        let next = reasons.len();
        let place = *places.entry(reason).or_insert(next);
        if place == next {
            reasons.push((path, 0, Vec::new()));
        }
        let (_, count, lines) = &mut reasons[place];
        *count += 1;
        if lines.len() <= MANY && !lines.contains(&line) {
            lines.push(line);
        }
    }
    for (reason, place) in &places {
        let (path, count, lines) = &mut reasons[*place];
        if lines.len() > MANY {
            *lines = vec![sum(*count, path, reason)];
        }
    }
    // One thing may keep all that is beneath it from its place.
    let mut said = BTreeSet::new();
    let lines = reasons.into_iter().flat_map(|(.., lines)| lines);
    lines.filter(|line| said.insert(line.clone())).collect()
}
