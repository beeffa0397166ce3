//! The path that the demo shows transfers on, on this machine and on the real clock.
//!
//! - [`run`]: the subcommand, with the program's own sender and receiver at the path's ends;
//! - [`path`]: the path's parameters, and the two links that they make;
//! - [`emulator`]: carries packets between two ports through those links, each at its time;
//! - [`relay`]: the path as a UDP relay on loopback, for `dfcp` itself;
//! - [`tcp`]: the kernel's TCP over the same path, between two network namespaces.

pub mod emulator;
pub mod path;
pub mod relay;
pub mod run;
pub mod tcp;
#[cfg(target_os = "linux")]
mod tcp_worker;
mod transfer;
