//! Peers of `dfcp` that come as libraries, made into programs for the lab's comparison. They are
//! no part of the `dfcp` program, so that it does not carry them.
//!
//! - [`transfer`]: a file by quinn (RFC 9000);
//! - [`brutal`]: a congestion control for it after hysteria2's published idea;
//! - [`certificate`]: what TLS asks for; [`progress`]: what they print at the end.
//!
//! UDT's program, in C++, is `udt/udt-file.cpp`.

mod brutal;
mod certificate;
mod progress;
mod transfer;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use serde_json::{Value, json};

use crate::transfer::{Sending, Windows};

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Receives a file over QUIC
    Recv {
        /// UDP address
        #[arg(long)]
        listen: SocketAddr,
        /// Where the certificate is left for the sender
        #[arg(long)]
        certificate: PathBuf,
        /// Where the file goes
        #[arg(long)]
        file: PathBuf,
        #[command(flatten)]
        windows: Windows,
        /// Seconds after which it ends with what came
        #[arg(long, default_value_t = 3600)]
        limit: u64,
    },
    /// Sends a file over QUIC
    Send {
        /// UDP address
        #[arg(long)]
        to: SocketAddr,
        /// The receiver's certificate
        #[arg(long)]
        certificate: PathBuf,
        /// The file
        #[arg(long)]
        file: PathBuf,
        #[command(flatten)]
        windows: Windows,
        #[command(flatten)]
        sending: Sending,
    },
    /// Writes a self-signed `cert.pem` and its `key.pem`
    Certificate {
        /// Directory
        #[arg(long)]
        out: PathBuf,
    },
}

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    // Without it the process merely outlives a killed parent.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    match run(Cli::parse().command) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("dfcp-peer-quinn: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<Value> {
    // One thread, as dfcp has: handing packets between threads costs more than a second one gains.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match command {
        Command::Recv {
            listen,
            certificate,
            file,
            windows,
            limit,
        } => {
            let ready = || println!("{}", json!({"ready": true}));
            let limit = Duration::from_secs(limit);
            let received = transfer::receive(listen, &certificate, &file, windows, limit, ready);
            runtime.block_on(received)
        }
        Command::Send {
            to,
            certificate,
            file,
            windows,
            sending,
        } => runtime.block_on(transfer::send(to, &certificate, &file, windows, sending)),
        Command::Certificate { out } => {
            certificate::write_pem(&out)?;
            Ok(json!({"certificate": out.join("cert.pem"), "key": out.join("key.pem")}))
        }
    }
}
