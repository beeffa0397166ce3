//! Channel names.

/// Longest short message, bytes, such as a keystroke, a request or a move in a game: with all headers it takes
/// a third of a packet.
pub const SHORT_MESSAGE: u64 = 500;

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sent the SYN.
    Client,
    /// Answered it.
    Server,
}

/// How a channel delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelKind {
    /// Both directions, in order.
    Stream,
    /// From its opener to the other side; blocks in any order, each with its offset.
    Object,
    /// From its opener to the other side, in order.
    Uni,
}

/// A channel: bit 0 says who opened it (1 = server), bits 1 and 2 its kind (0 = stream both ways, 1 =
/// object, 2 = stream one way), the rest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u64);

impl ChannelId {
    /// The `index`th channel of `kind` that `opener` opens.
    pub fn new(opener: Role, kind: ChannelKind, index: u64) -> Self {
        Self(index << 3 | (kind as u64) << 1 | u64::from(opener == Role::Server))
    }

    /// Who opened it.
    pub fn opener(self) -> Role {
        if self.0 & 1 == 0 {
            Role::Client
        } else {
            Role::Server
        }
    }

    /// Whether it is of a kind that there is.
    pub fn is_valid(self) -> bool {
        self.0 >> 1 & 3 != 3
    }

    /// How it delivers.
    pub fn kind(self) -> ChannelKind {
        match self.0 >> 1 & 3 {
            0 => ChannelKind::Stream,
            1 => ChannelKind::Object,
            _ => ChannelKind::Uni,
        }
    }

    /// Whether a block of so many bytes on it is a short message that somebody waits for: streams send what
    /// they have, so it is all that was said.
    pub fn is_message(self, block_len: u64) -> bool {
        self.kind() != ChannelKind::Object && block_len <= SHORT_MESSAGE
    }

    /// Its number among channels of the same opener and kind.
    pub fn index(self) -> u64 {
        self.0 >> 3
    }

    /// Whether `role` may send on it.
    pub fn can_send(self, role: Role) -> bool {
        self.kind() == ChannelKind::Stream || self.opener() == role
    }

    /// Whether `role` may receive on it.
    pub fn can_receive(self, role: Role) -> bool {
        self.kind() == ChannelKind::Stream || self.opener() != role
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of docs/spec/wire.md: they are on the wire.
    #[test]
    fn a_name_says_who_opened_it_and_for_what() {
        for (opener, kind, index, number) in [
            (Role::Client, ChannelKind::Stream, 0, 0),
            (Role::Server, ChannelKind::Stream, 0, 1),
            (Role::Client, ChannelKind::Object, 0, 2),
            (Role::Server, ChannelKind::Uni, 5, 45),
        ] {
            let id = ChannelId::new(opener, kind, index);
            assert_eq!(id, ChannelId(number));
            assert_eq!((id.opener(), id.kind(), id.index()), (opener, kind, index));
            assert!(id.is_valid());
            let other = match opener {
                Role::Client => Role::Server,
                Role::Server => Role::Client,
            };
            let both = kind == ChannelKind::Stream;
            assert!(id.can_send(opener) && id.can_receive(other));
            assert_eq!((id.can_send(other), id.can_receive(opener)), (both, both));
        }
        assert!(!ChannelId(6).is_valid() && !ChannelId(7).is_valid());
    }
}
