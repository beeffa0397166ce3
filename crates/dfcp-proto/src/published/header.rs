//! The header of DFCP-J Fig. 2.
