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
pub fn completions(args: &CompletionsArgs, mut program: Command) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program, "dfcp", &mut text);
    match dfcp_command::print(String::from_utf8_lossy(&text).trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
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

/// Writes a man page for `program` and for each of its commands.
pub fn manual(args: &ManualArgs, program: Command) -> ExitCode {
    let at = Path::new(&args.directory);
    let written = std::fs::create_dir_all(at)
        .and_then(|()| clap_mangen::generate_to(program, at))
        .and_then(|()| MOVING.iter().try_for_each(|name| add_exit_codes(at, name)));
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
