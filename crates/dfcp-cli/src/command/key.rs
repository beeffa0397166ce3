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
    /// none
    Show {
        /// Key file [default: $XDG_CONFIG_HOME/dfcp/key or ~/.config/dfcp/key]
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
}

/// Shows the key.
pub fn run(args: Args) -> ExitCode {
    let Command::Show { key } = args.command;
    match keys::load_or_create(key.as_deref()) {
        Ok(key) => {
            println!("{}\n{}", key.public(), phrase(&key.public()));
            ExitCode::SUCCESS
        }
        Err(failure) => dfcp_command::fail(&failure),
    }
}
