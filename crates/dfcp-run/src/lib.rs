//! Programs whose connections go over dfcp without their knowing (Linux).
//!
//! The kernel stops a program, and whatever that starts, at the few system calls that make a connection or
//! ask about one (`seccomp_unotify(2)`), and asks the [`Supervisor`] what becomes of them. The program keeps
//! its own sockets of TCP: `poll`, `epoll`, `dup`, `fork`, `exec` and all options are the kernel's, and
//! nothing of this runs in the program, which may be static, of any language, with any C library.
//!
//! A connection that is carried goes like this. The supervisor has a copy of the program's socket
//! (`pidfd_getfd(2)`) and connects it to an address of this machine where nobody answers (see the module
//! `gate`): the socket is connecting, for the program and the kernel alike. Meanwhile the far end connects.
//! Once it has, a socket here connects from that address to the program's, both SYNs cross, and both are
//! connected; what was refused there is refused here. So a connection takes as long as it would, and fails as
//! it would, whether the program waits for it or polls.
//!
//! * [`Supervisor`]: starts programs, and carries what they connect to; [`Program`]: what a file is;
//!   [`let_go_on`]: for processes that outlive it, since a filter of calls is never taken off;
//! * [`Routes`]: what is carried, and what is left alone;
//! * names are resolved at the far end: the supervisor answers questions of DNS by addresses that stand for
//!   names.

#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

mod address;
mod datagrams;
mod filter;
mod gate;
mod message;
mod names;
mod process;
mod program;
mod relays;
mod routes;
mod supervisor;
mod sys;
mod table;

pub use program::Program;
pub use routes::{Route, Routes};
pub use supervisor::{Note, Supervisor, let_go_on};
