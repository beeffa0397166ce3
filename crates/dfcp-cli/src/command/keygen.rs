//! `dfcp keygen`.

use std::path::PathBuf;
use std::process::ExitCode;

use dfcp_command::Failure;

use crate::keys::{self, Existing};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Key file [default: $XDG_CONFIG_HOME/dfcp/key or ~/.config/dfcp/key]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace a key that is there
    #[arg(long)]
    force: bool,
}

/// Makes a key and prints its public half.
pub fn run(args: Args) -> ExitCode {
    let make = || {
        let path = args.out.map_or_else(|| keys::config_file("key"), Ok)?;
        let existing = match args.force {
            true => Existing::Replace,
            false => Existing::Refuse,
        };
        keys::create(&path, existing)
    };
    match make().and_then(|key| dfcp_command::print(key.public())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure @ Failure { .. }) => dfcp_command::fail(&failure),
    }
}
