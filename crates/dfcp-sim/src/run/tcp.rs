//! TCP.
use crate::engine::TcpConfig;
use crate::scenario::TcpSpec;
pub(super) fn config(_: &TcpSpec) -> TcpConfig {
    TcpConfig::default()
}
