//! The dfcp-lab program: transports compared, in simulated time and on a real path of this machine.

mod demo;
#[cfg(target_os = "linux")]
mod lab;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "dfcp-lab", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// `dfcp` hands those that are not hidden on to here (`dfcp-cli/src/lab.rs`).
#[derive(Subcommand)]
enum Command {
    /// Shows a transfer over an emulated bad path on this machine
    Demo(demo::run::Args),
    /// Compares transports in simulated time
    Sim(sim::Args),
    /// Runs transports over a real path on this machine
    #[cfg(target_os = "linux")]
    Lab(lab::Args),
    /// Runs the kernel's TCP over the demo's path.
    #[command(hide = true)]
    DemoTcp(demo::tcp::TcpArgs),
    /// Makes or takes the traffic of a lab's host.
    #[cfg(target_os = "linux")]
    #[command(hide = true, name = dfcp_lab::worker::SUBCOMMAND)]
    LabWorker {
        /// What to do, as JSON
        job: String,
    },
}

fn main() -> ExitCode {
    dfcp_command::panic::ends_the_process();
    match Cli::parse().command {
        Command::Demo(args) => demo::run::run(args),
        Command::Sim(args) => sim::run(args),
        // Before the process has any other thread.
        #[cfg(target_os = "linux")]
        Command::Lab(args) => lab::run(args),
        #[cfg(target_os = "linux")]
        Command::LabWorker { job } => dfcp_lab::worker::main(&job),
        Command::DemoTcp(args) => {
            demo::tcp::worker(&args);
            ExitCode::SUCCESS
        }
    }
}
