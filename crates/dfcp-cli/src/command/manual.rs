//! `dfcp completions` and `dfcp manual`: what a package installs beside the program.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use dfcp_command::{EXIT_CODES, Failure, fail};

/// Arguments of `dfcp completions`.
#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `dfcp manual`.
#[derive(Clone, Debug, clap::Args)]
pub struct ManualArgs {
    /// Directory for the pages, which is made if it does not exist
    directory: PathBuf,
}

/// Prints what makes a shell complete the command line of `program`.
pub fn completions(args: &CompletionsArgs, program: Command) -> ExitCode {
    match dfcp_command::print(script(args.shell, &program).trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn script(shell: Shell, program: &Command) -> String {
    let mut text = Vec::new();
    let mut program = shown(program);
    if shell == Shell::Zsh {
        program = with_plain_names(program);
    }
    clap_complete::generate(shell, &mut program, "dfcp", &mut text);
    let text = String::from_utf8_lossy(&text);
    match shell {
        Shell::Bash => with_files(&text),
        Shell::Zsh => with_commands(&text),
        Shell::Fish => with_words(&text, &program),
        _ => text.into_owned(),
    }
}

/// The script for bash, in which files are offered wherever a command takes them, and options where a `-` is
/// written. The generated one offers all options for every empty word, of which `cp` has some sixty.
fn with_files(script: &str) -> String {
    const OPTIONS: &str = "COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )";
    // Of a command that has commands or values of its own nothing changes.
    let (mut has_words, mut offers) = (false, 0);
    let lines = script.lines().map(|line| {
        if let Some((_, known)) = line.split_once("opts=\"") {
            let mut known = known.trim_end_matches('"').split_whitespace();
            (has_words, offers) = (known.any(|word| !word.starts_with('-')), 0);
        }
        offers += usize::from(line.trim() == OPTIONS);
        match line.split_once(" || ${COMP_CWORD} -eq ") {
            Some((condition, _)) if !has_words => format!("{condition} ]] ; then"),
            _ if line.trim() == OPTIONS && offers > 1 && !has_words => {
                line.replace(OPTIONS, "COMPREPLY=()")
            }
            _ => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A command whose values have no colons in their names, as `[ADDR:]PORT` has: to zsh what follows one is what it
/// completes.
fn with_plain_names(command: Command) -> Command {
    let plain = |arg: clap::Arg| {
        let names = arg.get_value_names().unwrap_or_default().iter();
        // They are written once, before the program ends.
        let names = names.map(|name| &*name.replace(':', "\\:").leak());
        let names: Vec<&'static str> = names.collect();
        match names.is_empty() {
            true => arg,
            false => arg.value_names(names),
        }
    };
    command.mut_args(plain).mut_subcommands(with_plain_names)
}

/// The script for zsh, in which a command's own commands are offered where it takes something else as well, as
/// `serve` after `dfcp proxy`, and are completed as commands. The generated one takes the first word for the other.
fn with_commands(script: &str) -> String {
    let (mut lines, mut in_states) = (Vec::<String>::new(), false);
    let mut rest = script.lines().peekable();
    while let Some(line) = rest.next() {
        let next = rest.peek().and_then(|next| next.strip_prefix("\":: :"));
        let commands = next.and_then(|next| next.strip_suffix("\" \\"));
        if let Some(commands) = commands.filter(|_| line.starts_with("':")) {
            let operand = line
                .trim_end_matches(" \\")
                .replace(":_default'", &format!(":{commands}'"));
            let begin = lines
                .iter()
                .rposition(|line| line.starts_with("_arguments "));
            let is_command = format!(
                "[[ $words[2] == ({}) ]]",
                names_in(script, commands).join("|")
            );
            let operand = format!("local -a operand; {is_command} || operand=({operand})");
            lines.insert(begin.unwrap_or(0), operand);
            lines.push("\"$operand[@]\" \\".to_owned());
            in_states = true;
            continue;
        }
        in_states &= !line.trim().starts_with("esac");
        lines.push(match in_states {
            true => line.replace("$line[2]", "$line[$#operand+1]"),
            false => line.to_owned(),
        });
    }
    lines.join("\n")
}

/// The commands that a function of the script for zsh describes: a line each, the name before a colon.
fn names_in<'a>(script: &'a str, function: &str) -> Vec<&'a str> {
    let body = script.split_once(&format!("\n{function}() {{\n"));
    let lines = body.map_or("", |(_, body)| body).lines().skip(1);
    let lines = lines.map_while(|line| line.strip_prefix('\''));
    lines
        .filter_map(|line| Some(line.split_once(':')?.0))
        .collect()
}

/// The script for fish, with the words of which a command takes one, as `completions` does, and with commands after
/// `help`: the generated one offers files for both.
fn with_words(script: &str, program: &Command) -> String {
    // After `help`, which is among the words, there would be none that was not seen.
    let lines = script
        .lines()
        .map(|line| match line.contains("_subcommand help; and not") {
            true => line.replace(" help\" -f", "\" -f"),
            false => line.to_owned(),
        });
    let mut script = lines.collect::<Vec<_>>().join("\n") + "\n";
    for command in program.get_subcommands() {
        let values = command
            .get_positionals()
            .flat_map(clap::Arg::get_possible_values);
        let words: Vec<_> = values.map(|value| value.get_name().to_owned()).collect();
        if !words.is_empty() {
            let (name, words) = (command.get_name(), words.join(" "));
            script += &format!(
                "complete -c dfcp -n \"__fish_dfcp_using_subcommand {name}\" -f -a \"{words}\"\n"
            );
        }
    }
    script
}

/// A command without what help does not show, such as commands that it starts itself.
fn shown(command: &Command) -> Command {
    // It is written once, before the program ends.
    let name: &'static str = command.get_name().to_owned().leak();
    let arguments = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let commands = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let mut shown_of = Command::new(name)
        .args(arguments.cloned())
        .subcommands(commands.map(shown));
    if let Some(about) = command.get_about() {
        shown_of = shown_of.about(about.clone());
    }
    if command.get_version().is_some() {
        shown_of = shown_of.version(env!("CARGO_PKG_VERSION"));
    }
    shown_of
}

/// Commands whose exit codes are those of [`EXIT_CODES`].
const MOVING: [&str; 7] = [
    "dfcp",
    "dfcp-send",
    "dfcp-recv",
    "dfcp-cp",
    "dfcp-sync",
    "dfcp-doctor",
    "dfcp-probe",
];

/// What the pages of commands show, and what it is for.
const EXAMPLES: [(&str, &[(&str, &str)]); 6] = [
    (
        "dfcp-cp",
        &[
            (
                "There, as scp does",
                "dfcp cp -r data/ photos.tar server:incoming/",
            ),
            ("Back", "dfcp cp 'server:results/*.csv' ."),
            (
                "What would be sent, or change",
                "dfcp cp -n -r --exclude '*.o' src server:",
            ),
            (
                "Through an hour in which the line fails now and then, with 20 Mbit/s at most",
                "dfcp cp --retry 1h -b 20M disk.img server:",
            ),
        ],
    ),
    (
        "dfcp-sync",
        &[(
            "Make the copy there like the directory here",
            "dfcp sync --delete photos server:photos",
        )],
    ),
    (
        "dfcp-send",
        &[
            ("By a code, which it prints", "dfcp send data/ photos.tar"),
            (
                "To a receiver whose key is known",
                "dfcp send data/ 203.0.113.7 --peer-key dfcp-pub-b3ac...",
            ),
            (
                "What a pipe gives",
                "tar c data | dfcp send - 203.0.113.7 --name data.tar",
            ),
        ],
    ),
    (
        "dfcp-recv",
        &[
            ("By a code", "dfcp recv 7-otter-lamp -o incoming"),
            (
                "From one key, for as long as it runs",
                "dfcp recv -o incoming --allow dfcp-pub-5e1d...",
            ),
            ("Into a pipe", "dfcp recv --once -o - | tar x"),
        ],
    ),
    (
        "dfcp-proxy",
        &[
            (
                "SOCKS5 and HTTP at one local port",
                "dfcp proxy --socks 1080 203.0.113.7 --peer-key dfcp-pub-b3ac...",
            ),
            (
                "A port here that leads to a host there, as ssh has it",
                "dfcp proxy -L 5432:db.internal:5432 203.0.113.7",
            ),
            (
                "ssh through it",
                "ssh -o ProxyCommand='dfcp proxy -W %h:%p 203.0.113.7' host",
            ),
        ],
    ),
    (
        "dfcp-run",
        &[(
            "A program whose connections go over the server",
            "dfcp run 203.0.113.7 -- curl https://example.org/",
        )],
    ),
];

/// Writes a man page for `program` and for each of its commands.
pub fn manual(args: &ManualArgs, program: Command) -> ExitCode {
    let at = Path::new(&args.directory);
    let written = std::fs::create_dir_all(at)
        .and_then(|()| clap_mangen::generate_to(program, at))
        .and_then(|()| MOVING.iter().try_for_each(|name| add_exit_codes(at, name)))
        .and_then(|()| {
            let mut pages = EXAMPLES.iter();
            pages.try_for_each(|(name, examples)| add_examples(at, name, examples))
        });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&Failure::io(at, error)),
    }
}

/// Adds the section that tells of exit codes to the page of a command.
fn add_exit_codes(directory: &Path, name: &str) -> io::Result<()> {
    let page = directory.join(format!("{name}.1"));
    let mut page = File::options().append(true).open(page)?;
    let mut text = ".SH \"EXIT STATUS\"\n".to_owned();
    for (code, meaning) in EXIT_CODES {
        text += &format!(".TP\n{code}\n{}\n", meaning.replace('-', "\\-"));
    }
    page.write_all(text.as_bytes())
}

/// Adds the section of examples to the page of a command.
fn add_examples(directory: &Path, name: &str, examples: &[(&str, &str)]) -> io::Result<()> {
    let mut text = ".SH EXAMPLES\n".to_owned();
    for (what, command) in examples {
        let command = command
            .replace('\\', "\\\\")
            .replace('-', "\\-")
            .replace('\'', "\\(aq");
        text += &format!(".TP\n{what}:\n{command}\n");
    }
    let mut page = File::options()
        .append(true)
        .open(directory.join(format!("{name}.1")))?;
    page.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, ValueEnum};

    #[test]
    fn shells_complete_what_help_shows() {
        for shell in Shell::value_variants() {
            let script = script(*shell, &crate::Cli::command());
            for hidden in ["left-behind", "left__behind", "expand"] {
                assert!(!script.contains(hidden), "{shell}: {hidden}");
            }
            for shown in ["rendezvous", "exclude", "version", "completions"] {
                assert!(script.contains(shown), "{shell}: {shown}");
            }
        }
    }

    /// An option that got another name would be wrong there for long.
    #[test]
    fn examples_are_command_lines_that_are_taken() {
        for (name, examples) in EXAMPLES {
            let command = name.replace('-', " ");
            for (_, example) in examples {
                // Beside other programs, or in an option of theirs.
                let from = example.find(&command).expect(example);
                let within = example[..from].ends_with('\'');
                let end = if within { '\'' } else { '|' };
                let own = example[from..].split(end).next().unwrap_or_default();
                // ssh puts these in.
                let own = own.replace("%h:%p", "host:22");
                let words = shlex::split(&own).expect(&own).into_iter();
                // Keys are longer than anybody wants to read.
                let words = words.map(|word| match word.starts_with("dfcp-pub-") {
                    true => format!("dfcp-pub-{}", "b3".repeat(32)),
                    false => word,
                });
                let taken = crate::Cli::command().try_get_matches_from(words);
                assert!(taken.is_ok(), "{example}: {}", taken.unwrap_err());
            }
        }
    }
}
