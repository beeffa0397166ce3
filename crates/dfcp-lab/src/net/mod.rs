//! Network namespaces, cables between them, and processes in them; Linux only.
//!
//! - [`namespace`]: a namespace and the thread that lives in it; isolation of this process;
//! - `netlink`: cables (veth) and addresses;
//! - [`host`]: a namespace with an address; [`process`]: what runs in it;
//! - [`cable`]: the lab's end of a cable as a port of the path; [`frame`]: the packets on it;
//! - `sys`: the system calls for which there is no safe wrapper.

pub mod cable;
pub mod frame;
pub mod host;
pub mod namespace;
pub(crate) mod netlink;
pub mod process;
pub(crate) mod sys;
