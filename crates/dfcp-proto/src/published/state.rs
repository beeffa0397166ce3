//! The states of a connection (DFCP-TR §2.3).

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// SYN sent.
    SynSent,
    /// SYN received, SYNACK sent.
    SynRecv,
    /// Data may flow both ways.
    Established,
    /// FIN sent.
    FinWait1,
    /// FIN acknowledged.
    FinWait2,
    /// FIN received.
    CloseWait,
    /// FIN received, FINACK sent.
    LastAck,
    /// Everything is done; late segments are answered.
    TimeWait,
    /// Nothing is left.
    Closed,
}
