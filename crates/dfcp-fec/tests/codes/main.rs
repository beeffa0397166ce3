//! The codes from outside: round trips, vectors of the specification, overhead.

mod chosen;
mod overhead;
mod rlnc;
mod round_trip;
mod structural;
