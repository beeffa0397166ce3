//! `--include` and `--exclude`, with rsync's rules: the first pattern that matches decides, and what
//! is in a directory that is left out is not looked at.

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::{Deserialize, Serialize};

/// The patterns in the order in which they were given.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Filter(Vec<Rule>);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Rule {
    include: bool,
    pattern: String,
}

impl Filter {
    /// As options on a command line.
    pub fn words(&self, words: &mut Vec<String>) {
        words.extend(self.0.iter().map(|rule| match rule.include {
            true => format!("--include={}", rule.pattern),
            false => format!("--exclude={}", rule.pattern),
        }));
    }

    /// Whether a path is copied, as far as the patterns say.
    pub fn keeps(&self, path: &str, directory: bool) -> bool {
        let rule = self.0.iter().find(|rule| rule.matches(path, directory));
        rule.is_none_or(|rule| rule.include)
    }
}

impl Rule {
    fn matches(&self, path: &str, directory: bool) -> bool {
        let pattern = self.pattern.as_str();
        if let Some(tree) = pattern.strip_suffix("/***") {
            let tree = tree.trim_start_matches('/');
            let anchored = pattern.starts_with('/');
            let whole = format!("{path}/");
            return ends(&whole)
                .filter(|end| directory || *end < whole.len())
                .any(|end| matches_path(tree, &whole[..end - 1], anchored));
        }
        let (pattern, only_directories) = match pattern.strip_suffix('/') {
            Some(pattern) => (pattern, true),
            None => (pattern, false),
        };
        if only_directories && !directory {
            return false;
        }
        let anchored = pattern.starts_with('/');
        matches_path(pattern.trim_start_matches('/'), path, anchored)
    }
}

/// Where the components of `whole` end, each with its `/`.
fn ends(whole: &str) -> impl Iterator<Item = usize> {
    whole.match_indices('/').map(|(at, _)| at + 1)
}

/// Matches a path, from its beginning or from that of any of its components.
fn matches_path(pattern: &str, path: &str, anchored: bool) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let matches = |path: &str| glob(&pattern, &path.chars().collect::<Vec<_>>());
    if anchored {
        return matches(path);
    }
    let deep = pattern.contains(&'/') || pattern.windows(2).any(|pair| pair == ['*', '*']);
    match deep {
        false => matches(path.rsplit('/').next().unwrap_or(path)),
        true => std::iter::once(0)
            .chain(path.match_indices('/').map(|(at, _)| at + 1))
            .any(|start| matches(&path[start..])),
    }
}

/// `*` and `?` match no `/`, `**` does; `[a-z]`, `[!x]`, `\` before what is meant literally.
fn glob(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', '*', rest @ ..] => (0..=text.len()).any(|skip| glob(rest, &text[skip..])),
        ['*', rest @ ..] => {
            let most = text.iter().position(|c| *c == '/').unwrap_or(text.len());
            (0..=most).any(|skip| glob(rest, &text[skip..]))
        }
        ['?', rest @ ..] => matches!(text, [c, tail @ ..] if *c != '/' && glob(rest, tail)),
        ['\\', c, rest @ ..] => matches!(text, [d, tail @ ..] if c == d && glob(rest, tail)),
        ['[', class @ ..] => match (class_end(class), text) {
            (Some(end), [c, tail @ ..]) => {
                *c != '/' && in_class(&class[..end], *c) && glob(&class[end + 1..], tail)
            }
            (Some(_), []) => false,
            (None, _) => matches!(text, ['[', tail @ ..] if glob(class, tail)),
        },
        [c, rest @ ..] => matches!(text, [d, tail @ ..] if c == d && glob(rest, tail)),
    }
}

/// Where a class ends; a `]` at its beginning is one of its characters.
fn class_end(class: &[char]) -> Option<usize> {
    let first = match class.first() {
        Some('!' | '^') => 2,
        _ => 1,
    };
    let after = class.iter().skip(first).position(|c| *c == ']')?;
    Some(first + after)
}

fn in_class(class: &[char], c: char) -> bool {
    let (negated, mut class) = match class {
        ['!' | '^', rest @ ..] => (true, rest),
        class => (false, class),
    };
    let mut found = false;
    while let [first, rest @ ..] = class {
        class = match rest {
            ['-', last, rest @ ..] => {
                found |= (*first..=*last).contains(&c);
                rest
            }
            rest => {
                found |= *first == c;
                rest
            }
        };
    }
    found != negated
}

impl clap::Args for Filter {
    fn augment_args(command: Command) -> Command {
        let option = |name, help| {
            Arg::new(name)
                .long(name)
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .help(help)
        };
        command
            .arg(option(
                "include",
                "Copy what matches this pattern though a later --exclude does too",
            ))
            .arg(option(
                "exclude",
                "Leave out what matches, as rsync: /anchored, directories/, *, **, ?, [a-z]",
            ))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Filter {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut rules = Vec::new();
        for (name, include) in [("include", true), ("exclude", false)] {
            let values = matches.get_many::<String>(name).into_iter().flatten();
            let places = matches.indices_of(name).into_iter().flatten();
            rules.extend(places.zip(values).map(|(place, pattern)| {
                let pattern = pattern.clone();
                (place, Rule { include, pattern })
            }));
        }
        rules.sort_by_key(|(place, _)| *place);
        Ok(Self(rules.into_iter().map(|(_, rule)| rule).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dfcp_transfer::{Scan, Sources};

    #[test]
    fn patterns_match_as_in_rsync() {
        let matches = |pattern: &str, path: &str| {
            let (path, directory) = match path.strip_suffix('/') {
                Some(path) => (path, true),
                None => (path, false),
            };
            let rule = Rule {
                include: false,
                pattern: pattern.to_owned(),
            };
            rule.matches(path, directory)
        };
        for (pattern, yes, no) in [
            ("*.o", &["a.o", "x/y.o"][..], &["a.oo", "x.o/y"][..]),
            ("/foo", &["foo", "foo/"], &["x/foo"]),
            ("foo/", &["foo/", "x/foo/"], &["foo"]),
            (
                "sub/*.c",
                &["sub/a.c", "x/sub/a.c"],
                &["sub/b/a.c", "xsub/a.c"],
            ),
            ("/a/**/z", &["a/b/z", "a/b/c/z"], &["x/a/b/z"]),
            ("**.tmp", &["a.tmp", "x/b.tmp"], &["a.tmpx"]),
            ("[a-c]?[!x]", &["b1y", "d/c__"], &["d1y", "b1x"]),
            ("\\*", &["*", "x/*"], &["a"]),
            (
                "cache/***",
                &["cache/", "cache/a", "x/cache/a/b"],
                &["cache", "mycache/a"],
            ),
            ("[", &["["], &["a"]),
        ] {
            for path in yes {
                assert!(matches(pattern, path), "{pattern} {path}");
            }
            for path in no {
                assert!(!matches(pattern, path), "{pattern} {path}");
            }
        }
    }

    #[test]
    fn the_first_pattern_decides_and_directories_take_their_content_along() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("t");
        for path in ["keep/a.c", "keep/a.o", "skip/b.c", "skip-not/c.c"] {
            let path = tree.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let rule = |include, pattern: &str| Rule {
            include,
            pattern: pattern.to_owned(),
        };
        let rules = vec![
            rule(false, "skip/"),
            rule(true, "*.c"),
            rule(true, "*/"),
            rule(false, "*"),
        ];
        let filter = Filter(rules);
        let keep = |path: &str, directory| filter.keeps(path, directory);
        let how = Scan {
            filter: Some(&keep),
            ..Scan::default()
        };
        let sources = Sources::scan_with(&[tree], how).unwrap();
        let paths: Vec<_> = sources.list.iter().map(|s| s.entry.path.as_str()).collect();
        assert_eq!(
            paths,
            ["t", "t/keep", "t/keep/a.c", "t/skip-not", "t/skip-not/c.c"]
        );
    }
}
