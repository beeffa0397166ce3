//! A network of two queues, with the names that the library's `socket` has.

use crate::sync::{Mutex, MutexGuard};
use dfcp_proto::Transmit;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Gone,
    TooLarge,
    Blocked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    Nothing,
    Arrivals,
    ArrivalsAndRoom,
}

#[derive(Debug)]
pub(crate) struct Train<'a> {
    pub(crate) remote: SocketAddr,
    pub(crate) ecn: u8,
    pub(crate) age: Duration,
    pub(crate) bytes: &'a mut [u8],
}

/// Bytes of a packet.
pub(crate) const PACKET: usize = 2;

impl Train<'_> {
    pub(crate) fn packets(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.bytes.chunks_mut(PACKET)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) datagrams: usize,
    pub(crate) is_last: bool,
}

#[derive(Debug, Default)]
struct Queues {
    arrived: VecDeque<Vec<u8>>,
    room: usize,
    reader: Option<Waker>,
}

/// What a socket is at.
#[derive(Debug, Default)]
pub(crate) struct Net(Mutex<Queues>);

impl Net {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, f: impl FnOnce(&mut Queues)) {
        let mut queues = self.queues();
        f(&mut queues);
        let reader = queues.reader.take();
        drop(queues);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Packets that came together.
    pub(crate) fn arrive(&self, packets: &[[u8; PACKET]]) {
        self.change(|queues| queues.arrived.push_back(packets.concat()));
    }

    /// So many batches more may leave.
    pub(crate) fn make_room(&self, batches: usize) {
        self.change(|queues| queues.room += batches);
    }
}

#[derive(Debug)]
pub(crate) struct Outlet(Arc<Net>);

impl Outlet {
    pub(crate) fn max_segments(&self) -> usize {
        1
    }

    pub(crate) fn try_send(&self, _batch: &Transmit, _contents: &[u8]) -> Sent {
        let mut queues = self.0.queues();
        match queues.room.checked_sub(1) {
            Some(room) => {
                queues.room = room;
                Sent::Gone
            }
            None => Sent::Blocked,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketBuffers {
    pub(crate) receive: usize,
}

#[derive(Debug)]
pub(crate) struct Socket {
    net: Arc<Net>,
    watched: Watch,
    pub(crate) buffers: SocketBuffers,
}

impl Socket {
    pub(crate) fn at(net: Arc<Net>) -> Self {
        Self {
            net,
            watched: Watch::Nothing,
            buffers: SocketBuffers { receive: 1 << 20 },
        }
    }

    pub(crate) fn outlet(&self) -> Arc<Outlet> {
        Arc::new(Outlet(self.net.clone()))
    }

    pub(crate) fn watch(&mut self, watch: Watch) -> io::Result<()> {
        self.watched = watch;
        Ok(())
    }

    pub(crate) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut queues = self.net.queues();
        let is_ready = match self.watched {
            Watch::Nothing => false,
            Watch::Arrivals => !queues.arrived.is_empty(),
            Watch::ArrivalsAndRoom => !queues.arrived.is_empty() || queues.room > 0,
        };
        if is_ready {
            return Poll::Ready(Ok(()));
        }
        queues.reader = Some(context.waker().clone());
        Poll::Pending
    }

    pub(crate) fn receive(&mut self, mut each: impl FnMut(Train<'_>)) -> io::Result<Received> {
        let next = self.net.queues().arrived.pop_front();
        let Some(mut bytes) = next else {
            return Ok(Received {
                datagrams: 0,
                is_last: true,
            });
        };
        let datagrams = bytes.len() / PACKET;
        each(Train {
            remote: (Ipv4Addr::LOCALHOST, 1).into(),
            ecn: 0,
            age: Duration::ZERO,
            bytes: &mut bytes,
        });
        Ok(Received {
            datagrams,
            is_last: false,
        })
    }
}
