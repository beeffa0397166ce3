//! `dfcp key`.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::keys;
use crate::phrase::phrase;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Prints the public half of this side's key, and the same in words; makes the key if there is
    /// none and no file is named
    Show {
        /// Key file [default: $XDG_CONFIG_HOME/dfcp/key or ~/.config/dfcp/key]
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
}

/// Shows the key.
pub fn run(args: Args) -> ExitCode {
    let Command::Show { key } = args.command;
    let shown = keys::load_or_create(key.as_deref()).and_then(|key| {
        let key = key.public();
        dfcp_command::print(format_args!("{key}\n{}", phrase(&key)))
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => dfcp_command::fail(&failure),
    }
}
