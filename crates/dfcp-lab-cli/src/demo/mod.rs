//! The path that the demo shows transfers on, on this machine and on the real clock.
//!
//! - [`run`]: the subcommand, with `dfcp send` and `dfcp recv` at the path's ends;
//! - [`path`]: the path's parameters, and the network that they make;
//! - [`transfer`]: `dfcp` itself over the path as a UDP relay on loopback;
//! - `picture`: what people see of it;
//! - [`tcp`]: the kernel's TCP over the same path, between two hosts of a lab.

pub mod path;
mod picture;
pub mod run;
pub mod tcp;
#[cfg(target_os = "linux")]
mod tcp_worker;
mod transfer;
