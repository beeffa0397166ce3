//! dfcp-sim
