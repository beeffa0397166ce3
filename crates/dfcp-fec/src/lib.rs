//! dfcp-fec
