//! `dfcp lab`: transports on a real path, between hosts of this machine with kernels' own sockets.

mod clean;
mod compare;
mod exec;
mod figures;
mod parity;
mod run;
mod verify;

use std::process::ExitCode;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Runs a scenario for real, as `dfcp sim run` simulates it
    Run(run::Args),
    /// Measures a scenario's network with echoes and trains of datagrams
    Verify(verify::Args),
    /// Runs scenarios in the simulator and for real, and sets the two side by side
    Parity(parity::Args),
    /// Runs the testbed figures of papers for real, beside the simulator
    Figures(figures::Args),
    /// Removes what labs that crashed left on this machine
    Clean(clean::Args),
    /// Compares dfcp with kernel TCP and other transports
    Compare(Box<compare::Args>),
    /// Runs any program on one host, with another behind an emulated path
    ///
    /// Both hosts are network namespaces without any other network. The environment says their
    /// addresses: DFCP_HERE and DFCP_THERE (IPv4), DFCP_HERE6 and DFCP_THERE6.
    Exec(exec::Args),
}

/// Runs the command. Before the process has any other thread.
pub fn run(args: Args) -> ExitCode {
    match args.command {
        Command::Run(args) => run::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Parity(args) => parity::run(args),
        Command::Figures(args) => figures::run(args),
        Command::Clean(args) => clean::run(args),
        Command::Compare(args) => compare::run(*args),
        Command::Exec(args) => exec::run(args),
    }
}
