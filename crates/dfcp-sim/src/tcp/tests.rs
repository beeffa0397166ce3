//! Whole connections over a small link: what each specification promises.

mod control;
mod delivery;
mod link;
mod recovery;

use super::*;
use crate::packet::Ecn;
use crate::random::Seed;
use dfcp_proto::{Duration, Instant, Rate};
use link::{Bed, Path, mbps, ms};
