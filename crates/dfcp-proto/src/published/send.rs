//! The sending half: blocks in the window, and from which of them the next packet comes.
