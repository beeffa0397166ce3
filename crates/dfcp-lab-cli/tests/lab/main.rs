//! The program `dfcp-lab` as its users run it: real processes, networks of its own where it may make them.

#[cfg(target_os = "linux")]
mod beside;
mod common;
#[cfg(target_os = "linux")]
mod compare;
#[cfg(target_os = "linux")]
mod controller;
mod demo;
#[cfg(target_os = "linux")]
mod lab;
mod programs;
mod sim;
