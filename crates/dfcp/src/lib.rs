//! dfcp
