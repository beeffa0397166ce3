//! `dfcp lab`: transports on a real path, between hosts of this machine with kernels' own sockets.

mod compare;

use std::process::ExitCode;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Compares dfcp with kernel TCP and other transports
    Compare(Box<compare::Args>),
}

/// Runs the command. Before the process has any other thread.
pub fn run(args: Args) -> ExitCode {
    match args.command {
        Command::Compare(args) => compare::run(*args),
    }
}
