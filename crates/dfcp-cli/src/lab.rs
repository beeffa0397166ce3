//! What `dfcp-lab` does: a program of its own, so that who moves files need not install a simulator
//! and a plotter. `dfcp sim`, `dfcp lab` and `dfcp demo` become it where it is installed.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use dfcp_command::{Failure, beside, fail};

const PROGRAM: &str = "dfcp-lab";
const SUBCOMMANDS: [&str; 3] = ["sim", "lab", "demo"];

/// What the help says of them.
pub const HELP: &str = "\
Commands of dfcp-lab, which has to be beside this program or in PATH:
  sim     Compares transports in simulated time
  lab     Runs transports over a real path on this machine
  demo    Shows a transfer over an emulated bad path on this machine";

/// Becomes `dfcp-lab` if this process was called with one of its subcommands, or asked to explain
/// one; returns if not, with an exit code if it should have.
pub fn hand_on() -> Option<ExitCode> {
    let mut arguments = env::args_os();
    let called = arguments.next().unwrap_or_else(|| "dfcp".into());
    let arguments: Vec<OsString> = arguments.collect();
    let subcommand = wanted(&arguments)?;
    let Some(program) = beside::find(PROGRAM) else {
        return Some(fail(&Failure::usage(format!(
            "`{subcommand}` is a command of {PROGRAM}, the program that simulates and compares \
             transports; {}. It is made from the same source: cargo build --release -p \
             dfcp-lab-cli",
            beside::looked_for(PROGRAM)
        ))));
    };
    // Its usage lines then say what was typed.
    let error = Command::new(&program).arg0(called).args(arguments).exec();
    Some(fail(&Failure::io(&program, error)))
}

/// Which subcommand of `dfcp-lab` this is about.
fn wanted(arguments: &[OsString]) -> Option<&'static str> {
    let named = match arguments {
        [help, named, ..] if help == "help" => named,
        [named, ..] => named,
        [] => return None,
    };
    SUBCOMMANDS
        .into_iter()
        .find(|subcommand| named == subcommand)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_labs_is_told_from_the_rest() {
        let wanted = |line: &str| {
            let arguments: Vec<_> = line.split_whitespace().map(OsString::from).collect();
            super::wanted(&arguments)
        };
        assert_eq!(wanted("sim run a.toml"), Some("sim"));
        assert_eq!(wanted("demo"), Some("demo"));
        assert_eq!(wanted("help lab run"), Some("lab"));
        for other in [
            "",
            "send sim 192.0.2.1",
            "help",
            "help send",
            "--help",
            "simulate",
        ] {
            assert_eq!(wanted(other), None, "{other}");
        }
    }
}
