//! The subcommands.

pub mod keygen;
pub mod recv;
pub mod send;

use std::process::ExitCode;
use std::time::Duration;

use dfcp::{Endpoint, TransportConfig};

use crate::failure::Failure;
use crate::progress::Show;
use crate::report::Report;

/// What all transfers take.
#[derive(Clone, Debug, clap::Args)]
pub struct Output {
    /// Print one JSON object on standard output at the end, also on failure
    #[arg(long)]
    pub json: bool,
    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// When to show a progress bar
    #[arg(long, value_enum, default_value_t = Show::Auto)]
    progress: Show,
    /// Silence after which the other side is given up
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = crate::units::duration)]
    timeout: Duration,
    /// End with the process that started this one
    #[arg(long, hide = true)]
    with_parent: bool,
}

impl Output {
    /// When to show a progress bar.
    pub fn progress(&self) -> Show {
        match self.quiet {
            true => Show::Never,
            false => self.progress,
        }
    }

    /// Says something to people.
    pub fn say(&self, message: impl std::fmt::Display) {
        if !self.quiet {
            eprintln!("dfcp: {message}");
        }
    }

    /// Prints a report, and its lines for people.
    pub fn report(&self, report: &Report) {
        for line in report.lines() {
            if !self.quiet || report.error.is_some() {
                eprintln!("dfcp: {line}");
            }
        }
        if self.json {
            print_json(report);
        }
    }

    /// Silence after which the other side is given up.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The transport's settings as far as they follow from these.
    fn transport(&self) -> TransportConfig {
        // Pings keep a session alive while its disk is slow or a question is open.
        let pings = (self.timeout / 4).min(Duration::from_secs(10));
        TransportConfig::default()
            .idle_timeout(self.timeout)
            .keep_alive(Some(pings))
    }

    fn prepare(&self) {
        #[cfg(target_os = "linux")]
        if self.with_parent {
            // Without it the process merely outlives a killed parent.
            let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// Prints a line of JSON on standard output.
pub fn print_json(value: &impl serde::Serialize) {
    use std::io::Write;
    if let Ok(json) = serde_json::to_string(value) {
        // A reader that went away is no reason to panic.
        let _ = writeln!(std::io::stdout(), "{json}");
    }
}

/// Runs a command's future. One thread: handing data between threads costs more than a second
/// one gains, and files are read, written and hashed on threads of their own.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(future);
    // Whatever still reads or writes a file need not be waited for.
    runtime.shutdown_background();
    result
}

/// Prints a failure that happened before there was anything to report.
pub fn fail(failure: &Failure) -> ExitCode {
    eprintln!("dfcp: {failure}");
    failure.exit_code()
}

/// Waits for Ctrl-C, or a request to terminate.
pub async fn interrupted() -> Failure {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).ok();
    let terminated = async {
        match &mut terminate {
            Some(signal) => signal.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated => {}
    }
    Failure::interrupted()
}

/// How long the farewell may take.
pub const FAREWELL: Duration = Duration::from_secs(1);

/// Lets the endpoint tell its peers that it ends.
pub async fn farewell(endpoint: &Endpoint, code: dfcp::CloseCode, reason: &str) {
    let _ = tokio::time::timeout(FAREWELL, endpoint.close(code, reason)).await;
}
