//! The program as its users run it: real processes on loopback, and between network namespaces.

#[cfg(unix)]
mod away;
mod closed;
mod codes;
mod common;
mod cp;
mod cp_across;
mod cp_again;
mod cp_ssh;
mod disks;
mod draining;
mod failures;
mod hand_on;
mod hostile;
mod install;
mod log;
mod lost_output;
mod names;
#[cfg(target_os = "linux")]
mod nat;
mod orders;
mod pipes;
#[cfg(target_os = "linux")]
mod probe;
mod proxy;
mod published;
mod rates;
mod resume;
#[cfg(target_os = "linux")]
mod run;
mod screen;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod service;
#[cfg(target_os = "linux")]
mod siege;
mod slow_names;
mod sync;
mod sync_deep;
mod sync_guard;
mod transfer;
#[cfg(target_os = "linux")]
mod transparent;
#[cfg(target_os = "linux")]
mod tun;
#[cfg(target_os = "linux")]
mod unread_output;
mod usage;
