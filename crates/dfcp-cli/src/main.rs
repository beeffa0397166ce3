//! The dfcp program.
fn main() {}
