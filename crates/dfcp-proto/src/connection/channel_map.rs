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
pub(super) struct Channels(BTreeMap<ChannelId, Box<Channel>>);

impl Channels {
    pub fn insert(&mut self, id: ChannelId, channel: Channel) {
        self.0.insert(id, Box::new(channel));
    }

    pub fn get_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.0.get_mut(&id).map(Box::as_mut)
    }

    /// The sending half.
    pub fn sender(&mut self, id: ChannelId) -> Option<&mut SendChannel> {
        self.0.get_mut(&id)?.send.as_mut()
    }

    /// The sending half, to look at.
    pub fn peek_sender(&self, id: ChannelId) -> Option<&SendChannel> {
        self.0.get(&id)?.send.as_ref()
    }

    /// The receiving half.
    pub fn receiver(&mut self, id: ChannelId) -> Option<&mut RecvChannel> {
        self.0.get_mut(&id)?.recv.as_mut()
    }

    /// The receiving half, to look at.
    pub fn peek_receiver(&self, id: ChannelId) -> Option<&RecvChannel> {
        self.0.get(&id)?.recv.as_ref()
    }

    /// All sending halves, in order.
    pub fn senders(&self) -> impl Iterator<Item = (ChannelId, &SendChannel)> {
        let each = self.0.iter();
        each.filter_map(|(&id, channel)| Some((id, channel.send.as_ref()?)))
    }

    /// All sending halves, to work with.
    pub fn senders_mut(&mut self) -> impl Iterator<Item = (ChannelId, &mut SendChannel)> {
        let each = self.0.iter_mut();
        each.filter_map(|(&id, channel)| Some((id, channel.send.as_mut()?)))
    }

    /// All receiving halves, to work with.
    pub fn receivers_mut(&mut self) -> impl Iterator<Item = (ChannelId, &mut RecvChannel)> {
        let each = self.0.iter_mut();
        each.filter_map(|(&id, channel)| Some((id, channel.recv.as_mut()?)))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many a side opened that are not over.
    pub fn opened_by(&self, role: Role) -> u64 {
        self.0.keys().filter(|id| id.opener() == role).count() as u64
    }

    /// Drops a channel whose both halves are over; true if it was there.
    pub fn forget_if_over(&mut self, id: ChannelId) -> bool {
        let channel = self.0.get(&id);
        let is_over = channel.is_some_and(|of| of.send.is_none() && of.recv.is_none());
        is_over && self.0.remove(&id).is_some()
    }
}
