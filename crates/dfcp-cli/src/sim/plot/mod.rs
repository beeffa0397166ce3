//! `dfcp sim plot`: figures of results.
use std::process::ExitCode;
/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {}
/// Runs the command.
pub fn run(_args: Args) -> ExitCode { ExitCode::SUCCESS }
