//! The program under test, and `dfcp` beside it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// `dfcp-lab`, with `dfcp` where it looks for it.
pub fn lab() -> Command {
    let _ = dfcp();
    Command::new(env!("CARGO_BIN_EXE_dfcp-lab"))
}

/// `dfcp`, which is of another package: cargo makes it, in the same folder, before the tests of the
/// whole workspace run, but not for those of this package alone.
pub fn dfcp() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_dfcp-lab")).with_file_name("dfcp");
    assert!(
        program.is_file(),
        "no {}: run `cargo test --workspace`, or `cargo build -p dfcp-cli` before the tests of \
         this package",
        program.display()
    );
    program
}
