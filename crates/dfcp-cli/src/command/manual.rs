//! `dfcp completions` and `dfcp manual`: what a package installs beside the program.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use dfcp_command::{Failure, fail};

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

/// Writes a man page for `program` and for each of its commands.
pub fn manual(args: &ManualArgs, program: Command) -> ExitCode {
    let written = std::fs::create_dir_all(&args.directory)
        .and_then(|()| clap_mangen::generate_to(program, &args.directory));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&Failure::io(Path::new(&args.directory), error)),
    }
}
