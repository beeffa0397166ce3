//! The real path: hosts whose processes talk through real kernels, and between them the network of
//! a scenario, run on the real clock.
//!
//! - [`path`]: carries packets between ports through a [`dfcp_sim::engine::Simulation`] on the real
//!   clock: every topology, queue discipline and impairment of the simulator, with its very code;
//!   portable. One kind of port is a UDP socket ([`path::relay`]).
//! - `net` (Linux): network namespaces, cables between them, processes in them.
//! - `peer` (Linux): programs that move files, run between two hosts; `compare`: one beside the other.
//! - [`Lab`] (Linux): the hosts of a scenario joined by its path; or two hosts on one cable.
//!
//! Everything lives in network namespaces of the process that called [`isolate`], so nothing of it
//! is left when that process ends, however it ends; processes started in the hosts die with it.

pub mod path;

#[cfg(target_os = "linux")]
pub mod compare;
#[cfg(target_os = "linux")]
mod lab;
#[cfg(target_os = "linux")]
pub mod leftover;
#[cfg(target_os = "linux")]
pub mod net;
#[cfg(target_os = "linux")]
pub mod parity;
#[cfg(target_os = "linux")]
pub mod peer;
#[cfg(target_os = "linux")]
pub mod run;
#[cfg(target_os = "linux")]
pub mod train;
#[cfg(target_os = "linux")]
pub mod verify;
#[cfg(target_os = "linux")]
pub mod worker;

#[cfg(target_os = "linux")]
pub use lab::{FlowHosts, FlowPorts, Lab, LabError, LabOptions, LabStats, Names, Tools};
#[cfg(target_os = "linux")]
pub use net::{
    host::Host,
    namespace::{Isolation, Unavailable, isolate},
    process::{Finished, HostCommand, HostProcess, Output},
};
