//! The dfcp program.

mod command;
mod demo;
mod failure;
mod keys;
mod known_hosts;
#[cfg(target_os = "linux")]
mod lab;
mod meter;
mod net;
mod progress;
mod published;
mod report;
mod session;
mod sim;
mod units;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Sends files and directories to a receiver
    Send(Box<command::send::Args>),
    /// Receives files from senders
    Recv(Box<command::recv::Args>),
    /// Makes a key
    Keygen(command::keygen::Args),
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
    match Cli::parse().command {
        Command::Send(args) => command::send::run(*args),
        Command::Recv(args) => command::recv::run(*args),
        Command::Keygen(args) => command::keygen::run(args),
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
