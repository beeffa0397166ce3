//! A path between ports, on the real clock.
//!
//! - [`emulator`]: the thread that runs the simulated network on the real clock;
//! - [`port`]: where packets enter and leave it;
//! - [`clock`]: the clock; [`lateness`]: how late packets left;
//! - [`relay`]: a path between UDP sockets, for programs that need no namespaces.

pub mod clock;
pub mod emulator;
pub mod lateness;
pub mod port;
pub mod relay;

pub use clock::Clock;
pub use emulator::{Emulator, EmulatorConfig, PathStats};
pub use lateness::Lateness;
pub use port::{Arrived, Port, PortStats};
