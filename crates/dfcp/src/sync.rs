//! Locks, flags and clocks that the tasks of an endpoint share, and what starts these: those of the
//! standard library and of tokio. `tests/schedules` compiles the modules that use them with others of
//! the same names, which run the tasks in one order after the other.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize};
pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use std::time::Instant as Clock;
pub(crate) use tokio::runtime::Handle as Runtime;
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::task::{JoinSet, yield_now};
