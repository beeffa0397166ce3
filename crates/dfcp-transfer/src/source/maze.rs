//! Links that are followed make a tree of any size out of a few directories that lead to each other.

use std::collections::BTreeSet;

use crate::offer::Limits;

/// Device and number of a file.
type Identity = (u64, u64);

/// Counts directories as they are listed, and tells when links lead around among them.
#[derive(Debug, Default)]
pub(super) struct Maze {
    directories: BTreeSet<Identity>,
    /// Links that lead to directories.
    links: BTreeSet<Identity>,
    listed: u64,
}

impl Maze {
    /// A link that leads to a directory.
    pub(super) fn link(&mut self, link: Identity) {
        self.links.insert(link);
    }

    /// A directory is listed. Why not, if they are more by now than each link makes that leads to all of them:
    /// then some came again by the same link, behind different ones. So many as a receiver takes by default
    /// are no harm.
    pub(super) fn list(&mut self, directory: Identity) -> Result<(), String> {
        self.directories.insert(directory);
        self.listed += 1;
        let (directories, links) = (self.directories.len() as u64, self.links.len() as u64);
        let most = directories.saturating_mul(1 + links);
        match self.listed > most.max(Limits::default().files) {
            false => Ok(()),
            true => Err(format!(
                "symbolic links lead around among {directories} directories, which became {} so far and \
                 might never end: without -L links are not followed, -l keeps them as links",
                self.listed
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_listed_in_any_number_and_again_as_often_as_links_lead_to_them() {
        let many = Limits::default().files + 10;
        let mut maze = Maze::default();
        for i in 0..many {
            maze.list((1, i)).unwrap();
        }
        let error = maze.list((1, 0)).unwrap_err();
        assert!(error.contains("lead around"), "{error}");
        maze.link((2, 0));
        for i in 1..many {
            maze.list((1, i)).unwrap();
        }
        maze.list((1, 0)).unwrap_err();
    }
}
