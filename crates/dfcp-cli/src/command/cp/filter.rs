//! `--include`, `--exclude` and `--filter`, with rsync's rules: the first pattern that matches decides, and what
//! is in a directory that is left out is not looked at.

use clap::{Arg, ArgAction, ArgMatches, Command};
use dfcp_transfer::name;
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
            true => format!("--filter=+ {}", rule.pattern),
            false => format!("--filter=- {}", rule.pattern),
        }));
    }

    /// Whether a path is copied, as far as the patterns say.
    pub fn keeps(&self, path: &str, directory: bool) -> bool {
        // Patterns are of names as they are, not of their texts.
        let path = name::decode(path).unwrap_or_default();
        let path = path.to_string_lossy();
        let rule = self.0.iter().find(|rule| rule.matches(&path, directory));
        rule.is_none_or(|rule| rule.include)
    }
}

impl Rule {
    /// A rule of `--filter`, which says itself what it does; an empty one says nothing.
    ///
    /// # Errors
    /// When it is one of rsync's other rules: what it would have kept or protected must not go.
    fn filter(rule: &str) -> Result<Option<Self>, String> {
        let words = [
            ("+ ", true),
            ("- ", false),
            ("include ", true),
            ("exclude ", false),
        ];
        let found = words
            .iter()
            .find_map(|(word, include)| Some((rule.strip_prefix(word)?, *include)));
        match found {
            Some((pattern, include)) if !pattern.is_empty() => {
                let pattern = pattern.to_owned();
                Ok(Some(Self { include, pattern }))
            }
            _ if rule.is_empty() => Ok(None),
            _ => Err(format!(
                "{rule:?} is no rule that is known here: \"+ PATTERN\" copies, \"- PATTERN\" leaves out"
            )),
        }
    }

    /// A rule as --include and --exclude have it: `+ ` and `- ` before a pattern say what it does, whatever
    /// the option says.
    fn new(include: bool, rule: &str) -> Self {
        let (include, pattern) = match (rule.strip_prefix("+ "), rule.strip_prefix("- ")) {
            (Some(pattern), _) => (true, pattern),
            (_, Some(pattern)) => (false, pattern),
            _ => (include, rule),
        };
        let pattern = pattern.to_owned();
        Self { include, pattern }
    }

    fn matches(&self, path: &str, directory: bool) -> bool {
        let pattern = self.pattern.as_str();
        if let Some(tree) = pattern.strip_suffix("/***") {
            // Everything beneath the root, which has no name.
            if tree.is_empty() {
                return true;
            }
            let (tree, anchored) = anchor(tree);
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
        let (pattern, anchored) = anchor(pattern);
        matches_path(pattern, path, anchored)
    }
}

/// A pattern without the slash that ties it to the root, and whether it had one.
fn anchor(pattern: &str) -> (&str, bool) {
    let beneath = pattern.strip_prefix('/');
    (beneath.unwrap_or(pattern), beneath.is_some())
}

/// Where the components of `whole` end, each with its `/`.
fn ends(whole: &str) -> impl Iterator<Item = usize> {
    whole.match_indices('/').map(|(at, _)| at + 1)
}

/// Matches a path, from its beginning or from that of any of its components.
fn matches_path(pattern: &str, path: &str, anchored: bool) -> bool {
    // Without a wildcard a backslash stands for itself.
    let literal = !pattern.contains(['*', '?', '[']);
    let text = pattern;
    let pattern: Vec<char> = pattern.chars().collect();
    let matches = |path: &str| match literal {
        true => path == text,
        false => glob(&pattern, &path.chars().collect::<Vec<_>>()),
    };
    if anchored {
        return matches(path);
    }
    // What follows `**/` may be at the top, too.
    if pattern.starts_with(&['*', '*']) {
        return matches(&format!("/{path}"));
    }
    let deep = pattern.contains(&'/') || pattern.windows(2).any(|pair| pair == ['*', '*']);
    match deep {
        false => matches(path.rsplit('/').next().unwrap_or(path)),
        true => std::iter::once(0)
            .chain(path.match_indices('/').map(|(at, _)| at + 1))
            .any(|start| matches(&path[start..])),
    }
}

/// `*` and `?` match no `/`, `**` does; `[a-z]`, `[!x]`, `[[:upper:]]`, `\\` before what is meant
/// literally.
fn glob(pattern: &[char], text: &[char]) -> bool {
    let columns = text.len() + 1;
    let failed = vec![false; (pattern.len() + 1) * columns];
    Match { columns, failed }.run(pattern, text)
}

/// What was found not to match, by the lengths of what is left of pattern and text: it is not tried
/// again, so the work is bounded by both.
struct Match {
    columns: usize,
    failed: Vec<bool>,
}

impl Match {
    fn run(&mut self, pattern: &[char], text: &[char]) -> bool {
        let place = pattern.len() * self.columns + text.len();
        let matches = !self.failed[place] && self.step(pattern, text);
        self.failed[place] = !matches;
        matches
    }

    fn step(&mut self, pattern: &[char], text: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['*', '*', rest @ ..] => (0..=text.len()).any(|skip| self.run(rest, &text[skip..])),
            ['*', rest @ ..] => {
                let most = text.iter().position(|c| *c == '/').unwrap_or(text.len());
                (0..=most).any(|skip| self.run(rest, &text[skip..]))
            }
            ['?', rest @ ..] => {
                matches!(text, [c, tail @ ..] if *c != '/' && self.run(rest, tail))
            }
            ['\\', c, rest @ ..] => {
                matches!(text, [d, tail @ ..] if c == d && self.run(rest, tail))
            }
            ['[', class @ ..] => match (class_end(class), text) {
                (Some(end), [c, tail @ ..]) => {
                    *c != '/' && in_class(&class[..end], *c) && self.run(&class[end + 1..], tail)
                }
                // One without an end matches nothing.
                _ => false,
            },
            [c, rest @ ..] => matches!(text, [d, tail @ ..] if c == d && self.run(rest, tail)),
        }
    }
}

/// Where a class ends; a `]` at its beginning is one of its characters, as is one behind a backslash.
fn class_end(class: &[char]) -> Option<usize> {
    let mut at = match class.first() {
        Some('!' | '^') => 1,
        _ => 0,
    };
    let first = at;
    loop {
        match &class[at..] {
            [] => return None,
            [']', ..] if at > first => return Some(at),
            ['[', ':', ..] => match named_class(&class[at..]) {
                Some((_, length)) => at += length,
                None => at += 1,
            },
            ['\\', _, ..] => at += 2,
            _ => at += 1,
        }
    }
}

/// The name of a class like `[:upper:]` at the beginning, and its length with brackets.
fn named_class(class: &[char]) -> Option<(String, usize)> {
    let name = class.strip_prefix(&['[', ':'])?;
    let length = name.iter().position(|c| !c.is_ascii_alphabetic())?;
    let ends = name[length..].starts_with(&[':', ']']);
    ends.then(|| (name[..length].iter().collect(), length + 4))
}

/// Whether a character is in a class of POSIX, in its C locale.
fn is_named(name: &str, c: char) -> bool {
    match name {
        "alnum" => c.is_ascii_alphanumeric(),
        "alpha" => c.is_ascii_alphabetic(),
        "blank" => matches!(c, ' ' | '\t'),
        "cntrl" => c.is_ascii_control(),
        "digit" => c.is_ascii_digit(),
        "graph" => c.is_ascii_graphic(),
        "lower" => c.is_ascii_lowercase(),
        "print" => c.is_ascii_graphic() || c == ' ',
        "punct" => c.is_ascii_punctuation(),
        "space" => c.is_ascii_whitespace() || c == '\x0b',
        "upper" => c.is_ascii_uppercase(),
        "xdigit" => c.is_ascii_hexdigit(),
        _ => false,
    }
}

fn in_class(class: &[char], c: char) -> bool {
    let (negated, mut class) = match class {
        ['!' | '^', rest @ ..] => (true, rest),
        class => (false, class),
    };
    let mut found = false;
    while !class.is_empty() {
        if let Some((name, length)) = named_class(class) {
            found |= is_named(&name, c);
            class = &class[length..];
            continue;
        }
        let (first, rest) = member(class);
        class = match rest {
            ['-', end @ ..] if !end.is_empty() => {
                let (last, rest) = member(end);
                found |= (first..=last).contains(&c);
                rest
            }
            rest => {
                found |= first == c;
                rest
            }
        };
    }
    found != negated
}

/// The first character of a class that is not empty, which a backslash may stand before, and the rest.
fn member(class: &[char]) -> (char, &[char]) {
    match class {
        ['\\', c, rest @ ..] => (*c, rest),
        [c, rest @ ..] => (*c, rest),
        [] => ('\0', class),
    }
}

impl clap::Args for Filter {
    fn augment_args(command: Command) -> Command {
        let option = |name, help| {
            Arg::new(name)
                .long(name)
                .value_name("PATTERN")
                .allow_hyphen_values(true)
                .action(ArgAction::Append)
                .help(help)
        };
        command
            .arg(option(
                "filter",
                "A rule of rsync: \"- PATTERN\" leaves out what matches, \"+ PATTERN\" copies it",
            ))
            .arg(option(
                "include",
                "Copy what matches this pattern though a later --exclude does too",
            ))
            .arg(option(
                "exclude",
                "Leave out what matches, as rsync: /anchored, directories/, *, **, ?, [a-z], [[:upper:]]",
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
            rules.extend(
                places
                    .zip(values)
                    .map(|(place, pattern)| (place, Rule::new(include, pattern))),
            );
        }
        let given = matches.get_many::<String>("filter").into_iter().flatten();
        let places = matches.indices_of("filter").into_iter().flatten();
        for (place, rule) in places.zip(given) {
            let rule = Rule::filter(rule).map_err(|why| {
                let message = format!("invalid value for '--filter <PATTERN>': {why}\n");
                clap::Error::raw(clap::error::ErrorKind::ValueValidation, message)
            })?;
            rules.extend(rule.map(|rule| (place, rule)));
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
            ("\\**", &["*", "x/*a"], &["a"]),
            ("a\\b", &["a\\b", "x/a\\b"], &["ab"]),
            ("a\\bc*", &["abc", "abcd"], &["a\\bc"]),
            ("[[:upper:][:digit:]_]x", &["Ax", "1x", "_x"], &["ax", ":x"]),
            ("[\\]\\-]z", &["]z", "-z"], &["\\z", "az"]),
            ("[]a]", &["]", "a"], &["b"]),
            ("[[:none:]]x", &[], &["nx", ":x"]),
            (
                "cache/***",
                &["cache/", "cache/a", "x/cache/a/b"],
                &["cache", "mycache/a"],
            ),
            ("[", &[], &["[", "a"]),
            ("x[", &[], &["x["]),
            ("\\[", &["[", "x/["], &["a"]),
            ("**/z", &["z", "a/z", "a/b/z"], &["az", "z/a"]),
            ("**/z/", &["z/", "a/z/"], &["z"]),
            ("**/a?c", &["abc", "x/abc"], &["a/c"]),
            ("**/z/***", &["z/", "z/a/b", "a/z/b"], &["z", "az/b"]),
            ("/**/z", &["a/z", "a/b/z"], &["z"]),
            ("/***", &["a", "a/", "a/b"], &[]),
            ("//z", &[], &["z", "a/z"]),
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
    fn a_rule_says_what_it_does_and_no_pattern_takes_for_ever() {
        for (rule, include, pattern) in [("+ a", true, "a"), ("- b", false, "b"), ("c", true, "c")]
        {
            let read = Rule::new(true, rule);
            assert_eq!((read.include, read.pattern.as_str()), (include, pattern));
        }
        // rsync's other rules would be taken for patterns that match nothing, and --delete remove what they
        // protect.
        for rule in [
            "P keep",
            "protect keep",
            "x",
            ". file",
            ":C",
            "-keep",
            "- ",
            "H x",
        ] {
            let why = Rule::filter(rule).unwrap_err();
            assert!(why.contains("PATTERN"), "{why}");
        }
        for (rule, include) in [("+ a", true), ("exclude a", false)] {
            let read = Rule::filter(rule).unwrap().unwrap();
            assert_eq!((read.include, read.pattern.as_str()), (include, "a"));
        }
        assert!(Rule::filter("").unwrap().is_none());
        let pattern: Vec<char> = "*a".repeat(60).chars().chain(['b']).collect();
        assert!(!glob(&pattern, &['a'; 250]));
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
