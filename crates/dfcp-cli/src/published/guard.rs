//! Where DFCP as published may be used: within this machine, or where the user vouches for the
//! network.

use std::net::SocketAddr;

use dfcp_command::Failure;

use super::options::Common;

/// Refuses `addresses` beyond this machine unless the user vouches for the network.
pub fn check(addresses: &[SocketAddr], common: &Common) -> Result<(), Failure> {
    let beyond = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
    match addresses.iter().find(beyond) {
        Some(address) if !common.i_own_this_network => Err(Failure::usage(format!(
            "{} is beyond this machine, and a published profile is neither encrypted nor does it give \
             way: anyone on the path can read and forge what is sent, and other traffic is pushed \
             aside. Use --profile auto, which has keys and congestion control. On a network that \
             is yours alone, add --i-own-this-network",
            address.ip()
        ))),
        _ => Ok(()),
    }
}
