//! The dfcp program.

use clap::{Parser, Subcommand};

#[allow(dead_code)] // until the `demo` command uses it
mod demo;

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the kernel's TCP over the demo's path.
    #[command(hide = true)]
    DemoTcp(demo::tcp::TcpArgs),
}

fn main() {
    match Cli::parse().command {
        Command::DemoTcp(args) => demo::tcp::worker(&args),
    }
}
