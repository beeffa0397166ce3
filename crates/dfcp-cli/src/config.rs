//! A service's settings from a file of TOML: its keys are the names of the command's options, and mean
//! the same.

use std::borrow::Cow;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Args, Command};
use dfcp_command::Failure;
use toml::Spanned;
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
    Text::open(path)?.whole()
}

/// Whether it is there and a pipe.
pub fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo())
}

/// All that is in a file, if that is no more than [`MAX_FILE`]: a part of it may say something else.
///
/// # Errors
/// That it is longer, or cannot be read.
pub fn read_short(file: File) -> io::Result<String> {
    let mut text = String::new();
    let read = file.take(MAX_FILE + 1).read_to_string(&mut text)?;
    match read as u64 > MAX_FILE {
        true => Err(io::Error::other("it is longer than 1 MiB")),
        false => Ok(text),
    }
}

/// Whether a file can be read a second time: a pipe gives nothing then, or has whoever reads it wait.
///
/// # Errors
/// That it is a pipe.
pub fn check_no_pipe(path: &Path) -> Result<(), Failure> {
    match is_pipe(path) {
        true => Err(Failure::io(path, "a pipe is read once")),
        false => Ok(()),
    }
}

/// A file that was read.
pub struct Text {
    path: PathBuf,
    text: String,
}

/// What stands in a table: keys with their values, in the order of the file, so that its first mistake is
/// told.
type Entries<'a> = Vec<(Spanned<Cow<'a, str>>, Spanned<DeValue<'a>>)>;

fn entries<'a>(
    table: impl IntoIterator<Item = (Spanned<Cow<'a, str>>, Spanned<DeValue<'a>>)>,
) -> Entries<'a> {
    let mut entries: Entries<'a> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

impl Text {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let text = File::open(path).and_then(read_short);
        let text = text.map_err(|error| Failure::io(path, error))?;
        let path = path.to_owned();
        Ok(Self { path, text })
    }

    /// The settings of a command.
    ///
    /// # Errors
    /// What is wrong in it, and where.
    pub fn whole<A: Args>(&self) -> Result<A, Failure> {
        let entries = self.parse().map_err(|fault| self.wrong(fault))?;
        self.settings("", entries, &[])
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing is set in it.
    pub fn is_empty(&self) -> bool {
        self.parse().is_ok_and(|entries| entries.is_empty())
    }

    /// Whether this may be what `before` has become: a file without a setting that had some is one that
    /// somebody writes just now, or that a full disk has cut off, and what it stands for is every default.
    ///
    /// # Errors
    /// That it may not.
    pub fn check_after(&self, before: &Self) -> Result<(), Failure> {
        match self.is_empty() && !before.is_empty() {
            true => Err(Failure::io(
                &self.path,
                "it has no settings any more; start again if that is meant",
            )),
            false => Ok(()),
        }
    }

    /// The settings of several commands, each in its section, and those of all above the first.
    ///
    /// # Errors
    /// What is wrong in it, and where: also a section that is not among those that are `known`.
    pub fn sections(&self, known: &[&'static str]) -> Result<Sections<'_>, Failure> {
        let (mut above, mut sections) = (Vec::new(), Vec::new());
        for (key, value) in self.parse().map_err(|fault| self.wrong(fault))? {
            let at = key.span().start;
            let is_array = |value: &DeValue<'_>| {
                value
                    .as_array()
                    .is_some_and(|array| array.iter().any(|item| item.get_ref().is_table()))
            };
            match (
                known.iter().find(|name| **name == key.get_ref()),
                value.get_ref(),
            ) {
                (Some(name), DeValue::Table(_)) => {
                    let DeValue::Table(table) = value.into_inner() else {
                        continue;
                    };
                    sections.push((*name, entries(table)));
                }
                (Some(name), _) => {
                    let what =
                        format!("`{name}` is a section: write [{name}], once, above its settings");
                    return Err(self.wrong(Fault { at, what }));
                }
                (None, value) if value.is_table() || is_array(value) => {
                    let name = key.get_ref();
                    let hint = match nearest(name, known.iter().copied()) {
                        Some(near) => format!("Did you mean [{near}]?"),
                        None => format!("There are [{}]", known.join("], [")),
                    };
                    let what = format!("there is no section [{name}]. {hint}");
                    return Err(self.wrong(Fault { at, what }));
                }
                (None, _) => above.push((key, value)),
            }
        }
        Ok(Sections {
            file: self,
            above,
            sections,
            elsewhere: Vec::new(),
        })
    }

    fn parse(&self) -> Result<Entries<'_>, Fault> {
        match DeTable::parse(&self.text) {
            Ok(table) => Ok(entries(table.into_inner())),
            Err(error) => Err(Fault {
                at: error.span().map_or(0, |span| span.start),
                what: error.message().to_owned(),
            }),
        }
    }

    fn settings<A: Args>(
        &self,
        section: &str,
        entries: Entries<'_>,
        elsewhere: &[String],
    ) -> Result<A, Failure> {
        let command = command_of::<A>();
        let words = words(entries, &command, elsewhere).map_err(|fault| self.wrong(fault))?;
        let matches = command.try_get_matches_from(words);
        let settings = matches.and_then(|matches| A::from_arg_matches(&matches));
        let section = match section {
            "" => String::new(),
            name => format!(" [{name}]"),
        };
        settings.map_err(|error| {
            let path = self.path.display();
            Failure::usage(format!("{path}{section}: {}", reason(&error)))
        })
    }

    fn wrong(&self, Fault { at, what }: Fault) -> Failure {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = before.split(|byte| *byte == b'\n').count();
        Failure::usage(format!("{} line {line}: {what}", self.path.display()))
    }
}

/// A file of several sections.
pub struct Sections<'a> {
    file: &'a Text,
    above: Entries<'a>,
    sections: Vec<(&'static str, Entries<'a>)>,
    /// Settings that belong above the first section.
    elsewhere: Vec<String>,
}

impl Sections<'_> {
    /// The settings above the first section. To be asked for before those of sections, which say then
    /// where one of these belongs.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn above<A: Args>(&mut self) -> Result<A, Failure> {
        let long = command_of::<A>();
        let long = long.get_arguments().filter_map(Arg::get_long);
        self.elsewhere = long.map(str::to_owned).collect();
        self.file.settings("", std::mem::take(&mut self.above), &[])
    }

    /// The settings of a section, if it is there.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn section<A: Args>(&mut self, name: &str) -> Result<Option<A>, Failure> {
        let Some(at) = self.sections.iter().position(|(known, _)| *known == name) else {
            return Ok(None);
        };
        let (_, entries) = self.sections.swap_remove(at);
        self.file.settings(name, entries, &self.elsewhere).map(Some)
    }
}

fn command_of<A: Args>() -> Command {
    let command = A::augment_args(Command::new("settings").no_binary_name(true));
    command.disable_help_flag(true).disable_version_flag(true)
}

/// What is wrong, and at which byte.
struct Fault {
    at: usize,
    what: String,
}

/// The command line that means the same as the entries.
fn words(
    entries: Entries<'_>,
    command: &Command,
    elsewhere: &[String],
) -> Result<Vec<String>, Fault> {
    let mut words = Vec::new();
    for (key, value) in entries {
        let at = key.span().start;
        let fault = |what: String| Fault { at, what };
        let key = key.into_inner();
        if elsewhere.iter().any(|name| *name == key)
            && !command
                .get_arguments()
                .any(|argument| argument.get_long() == Some(&*key))
        {
            return Err(fault(format!("`{key}` belongs above the first section")));
        }
        let own = option(&key, value.into_inner(), command).map_err(fault)?;
        // Each by itself first: whoever reads what is wrong wants to know where.
        match command.clone().try_get_matches_from(&own) {
            // The others are not there yet.
            Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {}
            alone => drop(alone.map_err(|error| fault(reason(&error)))?),
        }
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
    if error.kind() == ErrorKind::MissingRequiredArgument
        && let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg)
    {
        // "--address <ADDR/LEN>"
        let name = |text: &String| {
            text.trim_start_matches('-')
                .split(' ')
                .next()
                .map(str::to_owned)
        };
        let names: Vec<_> = missing.iter().filter_map(name).collect();
        return format!("`{}` is missing", names.join("`, `"));
    }
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
    #[derive(Debug, clap::Args)]
    struct Above {
        #[arg(long)]
        metrics: Option<u16>,
    }

    #[derive(Debug, clap::Args)]
    struct Link {
        #[arg(long, required = true)]
        address: Vec<String>,
        #[arg(long)]
        mtu: Option<u16>,
    }

    fn parse_sections(text: &str) -> Result<(Above, Option<Settings>, Option<Link>), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let parsed = Text::open(file.path()).and_then(|text| {
            let mut sections = text.sections(&["proxy", "tun"])?;
            Ok((
                sections.above()?,
                sections.section("proxy")?,
                sections.section("tun")?,
            ))
        });
        parsed.map_err(|failure| {
            let name = file.path().display().to_string();
            failure.message.replace(&name, "FILE")
        })
    }

    #[test]
    fn sections_have_the_settings_of_their_commands() {
        let text =
            "metrics = 7\n[proxy]\npermit = \"a\"\n[tun]\nmtu = 9\naddress = [\"x\", \"y\"]\n";
        let (above, proxy, link) = parse_sections(text).unwrap();
        assert_eq!(above.metrics, Some(7));
        assert_eq!(proxy.unwrap().permit, ["a"]);
        let link = link.unwrap();
        assert_eq!((link.address.len(), link.mtu), (2, Some(9)));
        let (above, proxy, link) = parse_sections("[proxy]\n").unwrap();
        assert!(above.metrics.is_none() && proxy.is_some() && link.is_none());
        for (text, words) in [
            (
                "[prox]\n",
                "FILE line 1: there is no section [prox]. Did you mean [proxy]?",
            ),
            ("\n[[proxy]]\n", "FILE line 2: `proxy` is a section"),
            ("proxy = 1\n", "FILE line 1: `proxy` is a section"),
            (
                "[proxy]\nmetrics = 7",
                "FILE line 2: `metrics` belongs above the first section",
            ),
            ("[tun]\nmtu = 9", "FILE [tun]: `address` is missing"),
            ("[tun]\nmtu = \"x\"", "FILE line 2: invalid digit"),
            (
                "permit = \"a\"",
                "FILE line 1: there is no setting `permit`",
            ),
            (
                "[proxy]\n\npermitt = \"a\"",
                "FILE line 3: there is no setting `permitt`",
            ),
        ] {
            let said = parse_sections(text).unwrap_err();
            assert!(said.contains(words), "{text:?}: {said}");
        }
    }
}
