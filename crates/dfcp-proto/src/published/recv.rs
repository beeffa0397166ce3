//! The receiving half: blocks being collected, their ACKs, in-order delivery.
