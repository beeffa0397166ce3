//! File systems that take names for the same that differ in their case only, as FAT, exFAT and those of most
//! Macs do: of two such files of an offer the second would take the place of the first without a word.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Mutex;

use cap_std::fs::OpenOptions;

use super::{PARTIAL, Store, Survey};
use crate::message::{Entry, Outcome, Problem, ProblemKind};
use crate::name;

impl Store {
    /// Settles those of `entries` whose names are others' to the file system here, as failed.
    pub(crate) fn settle_twins(&self, entries: &[Entry], known: &mut Vec<(u64, Survey)>) {
        let twins = twins(entries);
        if twins.is_empty() || !self.folds_case() {
            return;
        }
        let comes = |(first, twin): &(u64, u64)| {
            !self.refused.contains(first) && !self.refused.contains(twin)
        };
        let mut failed = BTreeMap::new();
        for (first, twin) in twins.into_iter().filter(comes) {
            let path = &entries[twin as usize].path;
            let message = format!(
                "receiver: {path}: the file system there takes it for {}, since it does not tell upper from \
                 lower case; rename one of them, or copy to another one",
                entries[first as usize].path
            );
            let problem = Problem::new(ProblemKind::Target, message);
            // Each in its place would move all behind it, and there may be a hundred thousand of both.
            failed.insert(twin, Survey::Settled(Outcome::Error(problem)));
        }
        known.retain(|(index, _)| !failed.contains_key(index));
        known.extend(failed);
        known.sort_by_key(|(index, _)| *index);
    }

    /// Whether a file can be found under its name in capitals.
    fn folds_case(&self) -> bool {
        // Sessions look one after the other: none is to find, or remove, what another looks for.
        static LOOKING: Mutex<()> = Mutex::new(());
        let _looking = LOOKING.lock();
        let name = name::beside(&format!("case-{}", std::process::id()), PARTIAL);
        let capitals = name.to_uppercase();
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let made = self.dir.open_with(name::path(&name), &options).is_ok();
        let found = made && self.dir.symlink_metadata(name::path(&capitals)).is_ok();
        if made {
            let _ = self.dir.remove_file(name::path(&name));
        }
        found
    }
}

/// Files whose path differs from an earlier one's in its case only: places of both, in the order of the latter.
/// Links and directories are none: they replace nothing.
fn twins(entries: &[Entry]) -> Vec<(u64, u64)> {
    let files = (0..).zip(entries).filter(|(_, entry)| entry.is_file());
    let mut hashes: Vec<(u64, u64)> = files
        .map(|(index, entry)| {
            let mut hasher = DefaultHasher::new();
            folded(&entry.path).for_each(|c| c.hash(&mut hasher));
            (hasher.finish(), index)
        })
        .collect();
    hashes.sort_unstable();
    let same =
        |a: u64, b: u64| folded(&entries[a as usize].path).eq(folded(&entries[b as usize].path));
    let alike = hashes.chunk_by(|a, b| a.0 == b.0);
    let mut twins: Vec<(u64, u64)> = alike
        .flat_map(|alike| alike[1..].iter().map(move |(_, twin)| (alike[0].1, *twin)))
        .filter(|(first, twin)| same(*first, *twin))
        .collect();
    twins.sort_unstable_by_key(|(_, twin)| *twin);
    twins
}

fn folded(path: &str) -> impl Iterator<Item = char> {
    path.chars().flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OnConflict;

    fn files(paths: &[&str]) -> Vec<Entry> {
        let entry = |path: &&str| Entry {
            path: (*path).to_owned(),
            directory: path.ends_with("dir"),
            ..Entry::default()
        };
        paths.iter().map(entry).collect()
    }

    #[test]
    fn files_that_differ_in_case_only_are_found() {
        let found = |paths: &[&str]| twins(&files(paths));
        assert_eq!(
            found(&["t/Readme", "t/b", "T/README", "t/B"]),
            [(0, 2), (1, 3)]
        );
        assert_eq!(found(&["Ä", "ä", "Ä2"]), [(0, 1)]);
        assert_eq!(found(&["a", "a/b", "b", "ab"]), []);
        assert_eq!(found(&["a-dir", "A-dir"]), [], "directories become one");
    }

    /// Where both have their places both are to come, and the look leaves nothing behind.
    #[test]
    fn nothing_fails_where_case_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), OnConflict::Overwrite).unwrap();
        let mut known = Vec::new();
        store.settle_twins(&files(&["a", "A"]), &mut known);
        let told =
            std::fs::write(dir.path().join("x"), "").is_ok() && !dir.path().join("X").exists();
        assert_eq!(known.is_empty(), told);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
