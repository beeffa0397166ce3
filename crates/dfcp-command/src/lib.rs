//! What the command lines of `dfcp` and `dfcp-lab` share.
//!
//! - [`failure`]: exit codes for scripts, sentences for people;
//! - [`mod@panic`]: how a mistake of ours ends the process;
//! - [`units`]: quantities as they are typed;
//! - [`profile`]: the transports by name;
//! - [`text`]: what came from elsewhere, as it may be shown;
//! - [`beside`]: where the other program is;
//! - [`signals`]: requests to end, none of which is forgotten;
//! - [`output`]: standard output and standard error, which nobody may halt;
//! - here: what is printed, and how a command's future is run.

#![forbid(unsafe_code)]

/// Prints a line on standard error, see [`output::tell`].
#[macro_export]
macro_rules! tell {
    ($($argument:tt)*) => {
        $crate::output::tell(format!($($argument)*))
    };
}

pub mod beside;
pub mod failure;
pub mod output;
pub mod panic;
pub mod profile;
pub mod signals;
pub mod text;
pub mod units;

pub use failure::{EXIT_CODES, Failure, Kind};
pub use profile::Profile;
pub use signals::{Request, Requests, enough, forget_signals, interrupted, watch_interrupts};

use std::process::ExitCode;

/// Where receivers listen unless told otherwise.
pub const DEFAULT_PORT: u16 = 4433;

/// Prints a line of JSON on standard output.
///
/// # Errors
/// When it cannot be written, also because its reader went away: a program that lacks the last line
/// knows nothing.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    output::json(value).and_then(print_whole)
}

/// Prints a line that its reader must have.
///
/// # Errors
/// When it cannot be written, also because its reader went away.
pub fn print_whole(line: String) -> Result<(), Failure> {
    write_out(line).map_err(|error| unwritten(&error))
}

/// The same for a program whose output is all that it is for: it ends where that cannot be written.
pub fn print_json_or_end(value: &impl serde::Serialize) {
    if let Err(failure) = print_json(value) {
        tell!("dfcp: {}", text::printable(&failure.message));
        std::process::exit(failure.kind as i32);
    }
}

/// Prints lines that a command is for on standard output. A reader that went away is no error: it has
/// what it wanted.
///
/// # Errors
/// When they cannot be written.
pub fn print(lines: impl std::fmt::Display) -> Result<(), Failure> {
    match write_out(lines) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(unwritten(&error)),
        _ => Ok(()),
    }
}

fn write_out(lines: impl std::fmt::Display) -> std::io::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout();
    writeln!(out, "{lines}").and_then(|()| out.flush())
}

/// What is said where standard output cannot be written.
pub fn unwritten(error: &std::io::Error) -> Failure {
    let advice = match error.kind() {
        std::io::ErrorKind::BrokenPipe => "whoever read it has ended",
        _ => "give it room, or send it elsewhere",
    };
    let message = format!("standard output cannot be written: {error}; {advice}");
    Failure::new(Kind::LocalIo, message)
}

/// Prints a failure that happened before there was anything to report.
pub fn fail(failure: &Failure) -> ExitCode {
    tell!("dfcp: {}", text::printable(&failure.message));
    failure.exit_code()
}

/// What ends a process that writes beyond `ulimit -f` and does not listen for it; the same on Linux, the BSDs
/// and macOS, but for MIPS.
const SIGXFSZ: i32 = 25;

/// Runs a command's future. One thread: handing data between threads costs more than a second
/// one gains, and files are read, written and hashed on threads of their own.
///
/// # Errors
/// Those of the future, or that it cannot be run.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        // A file that grows beyond `ulimit -f` is to fail with a sentence (EFBIG), not to end the process; a
        // handler, unlike an ignored signal, is not passed on to programs that are started.
        let beyond = tokio::signal::unix::SignalKind::from_raw(SIGXFSZ);
        let _heard = tokio::signal::unix::signal(beyond);
        future.await
    });
    // Whatever still reads or writes a file need not be waited for.
    runtime.shutdown_background();
    result
}
