//! Profiles as people name them: on command lines and in reports.

use super::{ChameleonParameters, CtcpParameters, Profile};

/// A transport by its name. The encrypted ones are the sender's choice alone: a receiver takes them
/// all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileName {
    /// [`Profile::auto`].
    #[default]
    Auto,
    /// [`Profile::auto_l4s`].
    AutoL4s,
    /// [`Profile::ctcp`], with parameters for any path.
    Ctcp,
    /// [`Profile::chameleon`], with parameters for any path.
    Chameleon,
    /// [`Profile::dfcp`].
    DfcpSealed,
    /// [`Profile::rc_udp`].
    RcUdpSealed,
    /// DFCP as published: no profile, but a wire of its own, in clear.
    Dfcp,
    /// RC-UDP as published, likewise.
    RcUdp,
}

impl ProfileName {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::Auto,
        Self::AutoL4s,
        Self::Ctcp,
        Self::Chameleon,
        Self::DfcpSealed,
        Self::RcUdpSealed,
        Self::Dfcp,
        Self::RcUdp,
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::AutoL4s => "auto-l4s",
            Self::Ctcp => "ctcp",
            Self::Chameleon => "chameleon",
            Self::DfcpSealed => "dfcp-sealed",
            Self::RcUdpSealed => "rc-udp-sealed",
            Self::Dfcp => "dfcp",
            Self::RcUdp => "rc-udp",
        }
    }

    /// What it is, in a line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Auto => "Coded, encrypted, with congestion control: for any network",
            Self::AutoL4s => "The same, answering the frequent marks of low-latency queues (L4S)",
            Self::Ctcp => "Network-coded TCP: coded, encrypted, shares a path as TCP does",
            Self::Chameleon => {
                "Chameleon: encrypted, smooth, at the rate that TCP would have (TFRC)"
            }
            Self::DfcpSealed => {
                "The choices of DFCP, encrypted: as fast as the host can, for a network that is yours"
            }
            Self::RcUdpSealed => "Those of RC-UDP, likewise: blocks of 1 MB one by one",
            Self::Dfcp => {
                "DFCP as published, in clear, without congestion control: for a network that is yours"
            }
            Self::RcUdp => "RC-UDP as published, likewise: blocks of 1 MB one by one",
        }
    }

    /// The profile with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }

    /// The parts of an encrypted transport; `None` for what is in clear.
    pub fn sealed(self) -> Option<Profile> {
        match self {
            Self::Auto => Some(Profile::auto()),
            Self::AutoL4s => Some(Profile::auto_l4s()),
            Self::Ctcp => Some(Profile::ctcp_with(CtcpParameters::for_any_path())),
            Self::Chameleon => Some(Profile::chameleon_with(ChameleonParameters::for_any_path())),
            Self::DfcpSealed => Some(Profile::dfcp()),
            Self::RcUdpSealed => Some(Profile::rc_udp()),
            Self::Dfcp | Self::RcUdp => None,
        }
    }

    /// Whether it gives way to others. What does not is for a network of one's own.
    pub fn gives_way(self) -> bool {
        match self {
            Self::Auto | Self::AutoL4s | Self::Ctcp | Self::Chameleon => true,
            Self::DfcpSealed | Self::RcUdpSealed | Self::Dfcp | Self::RcUdp => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_profiles_and_profiles_bear_them() {
        for name in ProfileName::ALL {
            assert_eq!(ProfileName::from_name(name.name()), Some(name));
            if let Some(profile) = name.sealed() {
                assert_eq!(profile.name, name.name());
            }
        }
        assert_eq!(ProfileName::from_name("none"), None);
    }
}
