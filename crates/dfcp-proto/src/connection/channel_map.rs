//! The channels of a connection, and the two halves of each.

use crate::block::{ChannelId, RecvChannel, Role, SendChannel};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Channel {
    pub send: Option<SendChannel>,
    pub recv: Option<RecvChannel>,
}

/// Found by number; a half that is over is not found. They lie beside the map, whose nodes are half empty where
/// numbers grow.
#[derive(Debug, Default)]
pub(super) struct Channels {
    all: BTreeMap<ChannelId, Box<Channel>>,
    /// How many of them each side opened.
    opened: [u64; 2],
}

impl Channels {
    pub fn insert(&mut self, id: ChannelId, channel: Channel) {
        if self.all.insert(id, Box::new(channel)).is_none() {
            self.opened[id.opener() as usize] += 1;
        }
    }

    pub fn get_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.all.get_mut(&id).map(Box::as_mut)
    }

    /// The sending half.
    pub fn sender(&mut self, id: ChannelId) -> Option<&mut SendChannel> {
        self.all.get_mut(&id)?.send.as_mut()
    }

    /// The sending half, to look at.
    pub fn peek_sender(&self, id: ChannelId) -> Option<&SendChannel> {
        self.all.get(&id)?.send.as_ref()
    }

    /// The receiving half.
    pub fn receiver(&mut self, id: ChannelId) -> Option<&mut RecvChannel> {
        self.all.get_mut(&id)?.recv.as_mut()
    }

    /// The receiving half, to look at.
    pub fn peek_receiver(&self, id: ChannelId) -> Option<&RecvChannel> {
        self.all.get(&id)?.recv.as_ref()
    }

    /// All sending halves, in order.
    pub fn senders(&self) -> impl Iterator<Item = (ChannelId, &SendChannel)> {
        let each = self.all.iter();
        each.filter_map(|(&id, channel)| Some((id, channel.send.as_ref()?)))
    }

    /// All sending halves, to work with.
    pub fn senders_mut(&mut self) -> impl Iterator<Item = (ChannelId, &mut SendChannel)> {
        let each = self.all.iter_mut();
        each.filter_map(|(&id, channel)| Some((id, channel.send.as_mut()?)))
    }

    /// All receiving halves, to work with.
    pub fn receivers_mut(&mut self) -> impl Iterator<Item = (ChannelId, &mut RecvChannel)> {
        let each = self.all.iter_mut();
        each.filter_map(|(&id, channel)| Some((id, channel.recv.as_mut()?)))
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many a side opened that are not over.
    pub fn opened_by(&self, role: Role) -> u64 {
        self.opened[role as usize]
    }

    /// Drops a channel whose both halves are over; true if it was there.
    pub fn forget_if_over(&mut self, id: ChannelId) -> bool {
        let channel = self.all.get(&id);
        let is_over = channel.is_some_and(|of| of.send.is_none() && of.recv.is_none());
        let removed = is_over && self.all.remove(&id).is_some();
        self.opened[id.opener() as usize] -= u64::from(removed);
        removed
    }
}
