//! A service's settings from a file of TOML: its keys are the names of the command's options, and mean
//! the same.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::{Arg, Args, Command};
use dfcp_command::Failure;
use toml::de::{DeTable, DeValue};

/// Longest file that is read.
const MAX_FILE: u64 = 1 << 20;
/// Options that a file cannot have.
const NOT_HERE: [&str; 2] = ["config", "with-parent"];

/// Reads the settings of a command.
///
/// # Errors
/// When the file cannot be read, or what is wrong in it and where.
pub fn read<A: Args>(path: &Path) -> Result<A, Failure> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| Failure::io(path, error))?;
    let read = file.take(MAX_FILE).read_to_string(&mut text);
    read.map_err(|error| Failure::io(path, error))?;
    let wrong = |Fault { at, what }: Fault| {
        let line = text.as_bytes()[..at.min(text.len())].split(|byte| *byte == b'\n');
        let line = line.count();
        Failure::usage(format!("{} line {line}: {what}", path.display()))
    };
    let command = A::augment_args(Command::new("settings").no_binary_name(true));
    let command = command.disable_help_flag(true).disable_version_flag(true);
    let words = words(&text, &command).map_err(wrong)?;
    let matches = command.try_get_matches_from(words);
    let settings = matches.and_then(|matches| A::from_arg_matches(&matches));
    settings.map_err(|error| Failure::usage(format!("{}: {}", path.display(), reason(&error))))
}

/// What is wrong, and at which byte.
struct Fault {
    at: usize,
    what: String,
}

/// The command line that means the same as the file.
fn words(text: &str, command: &Command) -> Result<Vec<String>, Fault> {
    let fault = |at: usize, what: String| Fault { at, what };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        fault(at, error.message().to_owned())
    })?;
    let mut entries: Vec<_> = table.into_inner().into_iter().collect();
    // In the order of the file: its first mistake is told.
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut words = Vec::new();
    for (key, value) in entries {
        let at = key.span().start;
        let own = option(&key.into_inner(), value.into_inner(), command);
        let own = own.map_err(|what| fault(at, what))?;
        // Each by itself first: whoever reads what is wrong wants to know where.
        let alone = command.clone().try_get_matches_from(&own);
        alone.map_err(|error| fault(at, reason(&error)))?;
        words.extend(own);
    }
    Ok(words)
}

/// The words of an option.
fn option(key: &str, value: DeValue<'_>, command: &Command) -> Result<Vec<String>, String> {
    let known = || {
        let long = command.get_arguments().filter_map(Arg::get_long);
        long.filter(|long| !NOT_HERE.contains(long))
    };
    let unknown = || {
        let hint = match nearest(key, known()) {
            Some(near) => format!("Did you mean `{near}`?"),
            None => format!("There are `{}`", known().collect::<Vec<_>>().join("`, `")),
        };
        format!("there is no setting `{key}`. {hint}")
    };
    let mut arguments = command.get_arguments();
    let argument = arguments.find(|argument| argument.get_long() == Some(key));
    let argument = argument.filter(|_| known().any(|known| known == key));
    let argument = argument.ok_or_else(unknown)?;
    let word = |value: DeValue<'_>| match value {
        DeValue::String(text) => Ok(format!("--{key}={text}")),
        DeValue::Integer(number) => Ok(format!("--{key}={}", number.as_str())),
        DeValue::Float(number) => Ok(format!("--{key}={}", number.as_str())),
        _ => Err(format!(
            "`{key}` wants text, such as {key} = \"…\", or a list of texts"
        )),
    };
    match value {
        value if !argument.get_action().takes_values() => match value {
            DeValue::Boolean(true) => Ok(vec![format!("--{key}")]),
            DeValue::Boolean(false) => Ok(Vec::new()),
            _ => Err(format!("`{key}` is true or false")),
        },
        DeValue::Array(values) => values.into_iter().map(|v| word(v.into_inner())).collect(),
        value => Ok(vec![word(value)?]),
    }
}

/// The known word that `word` was probably meant to be: at most half of its letters are others.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |known: &'a str| (strsim::levenshtein(word, known), known);
    let is_near = |(letters, known): &(usize, &str)| *letters <= word.len().max(known.len()) / 2;
    known
        .map(distance)
        .filter(is_near)
        .min()
        .map(|(_, known)| known)
}

/// What clap says is wrong, without what it says of command lines.
fn reason(error: &clap::Error) -> String {
    if let Some(source) = error.source() {
        return source.to_string();
    }
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[derive(Debug, clap::Args)]
    struct Settings {
        #[arg(long)]
        permit: Vec<String>,
        #[arg(long, default_value = "60s", value_parser = dfcp_command::units::patience)]
        timeout: Duration,
        #[arg(long, conflicts_with = "quiet")]
        verbose: bool,
        #[arg(long)]
        quiet: bool,
        #[arg(long)]
        max_streams: Option<u64>,
        #[arg(long, exclusive = true)]
        config: Option<String>,
    }

    fn parse(text: &str) -> Result<Settings, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path()).map_err(|failure| {
            let name = file.path().display().to_string();
            failure.message.replace(&name, "FILE")
        })
    }

    #[test]
    fn settings_are_the_options_of_the_command() {
        let text =
            "# mine\npermit = [\"a:1\", \"b\"]\nverbose = true\nquiet = false\nmax-streams = 7\n";
        let settings = parse(text).unwrap();
        assert_eq!(settings.permit, ["a:1", "b"]);
        assert!(settings.verbose && !settings.quiet && settings.config.is_none());
        assert_eq!(settings.max_streams, Some(7));
        assert_eq!(settings.timeout, Duration::from_secs(60));
        assert!(parse("").unwrap().permit.is_empty());
        assert_eq!(parse("permit = \"--quiet\"").unwrap().permit, ["--quiet"]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, words) in [
            (
                "\n\npermitt = \"a\"",
                "FILE line 3: there is no setting `permitt`. Did you mean `permit`?",
            ),
            ("verbose = 1", "FILE line 1: `verbose` is true or false"),
            (
                "permit = \"a\"\ntimeout = \"0s\"",
                "FILE line 2: a time above zero",
            ),
            ("max-streams = \"x\"", "FILE line 1: invalid digit"),
            ("max-streams = -1", "FILE line 1: "),
            ("permit = [[1]]", "FILE line 1: `permit` wants text"),
            ("[permit]\nx = 1", "FILE line 1: `permit` wants text"),
            ("permit = 2020-01-01", "FILE line 1: `permit` wants text"),
            (
                "config = \"x\"",
                "FILE line 1: there is no setting `config`",
            ),
            ("permit = \"a\npermit = 1", "FILE line 1: "),
            ("quiet = true\nquiet = true", "FILE line 2: "),
            (
                "quiet = true\nverbose = true",
                "FILE: the argument '--quiet' cannot be used with",
            ),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(words), "{text:?}: {said}");
        }
        let missing = read::<Settings>(Path::new("/nowhere/dfcp.toml")).unwrap_err();
        assert!(missing.message.contains("/nowhere/dfcp.toml"), "{missing}");
    }
}
