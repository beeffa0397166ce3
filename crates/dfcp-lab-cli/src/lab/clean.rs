//! `dfcp lab clean`: removes what labs left that did not end in order.

use std::process::ExitCode;

use dfcp_command::{Failure, Kind};

/// Arguments.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Args {
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

/// Removes it.
pub fn run(args: Args) -> ExitCode {
    let found = match dfcp_lab::leftover::find() {
        Ok(found) => found,
        Err(error) => return dfcp_command::fail(&Failure::new(Kind::LocalIo, error.to_string())),
    };
    let mut failed = false;
    for leftover in &found {
        let removed = match args.dry_run {
            true => Ok(()),
            false => leftover.remove(),
        };
        match removed {
            Ok(()) => println!("{leftover}"),
            Err(error) => {
                failed = true;
                dfcp_command::fail(&Failure::new(Kind::LocalIo, format!("{leftover}: {error}")));
            }
        }
    }
    if found.is_empty() {
        println!("nothing is left");
    }
    ExitCode::from(u8::from(failed))
}
