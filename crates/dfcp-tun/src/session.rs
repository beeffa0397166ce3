//! One connection that carries a peer's packets, both ways.

use std::time::Duration;

use dfcp::{Connection, Datagram, Error};
use tokio::time::sleep_until;

use crate::code::{Decoder, Encoder, Path, max_piece};
use crate::hello;
use crate::site::{Site, locked};

/// How often the encoder is told of the path.
const REFRESH: Duration = Duration::from_millis(10);

/// Datagrams that are given to a connection at once, at most; there is room for less as a rule.
const BATCH: usize = 64;

/// What a datagram counts for in a connection's queue beyond its bytes.
const OVERHEAD: u64 = 64;

/// Bounds of the time for which a repair is of use, without a setting: a round trip, since who sends
/// again what was lost does so after one. On shorter paths a processor that is busy counts for more; on
/// longer ones the window is full before.
const MIN_DELAY: Duration = Duration::from_millis(20);
const MAX_DELAY: Duration = Duration::from_millis(200);

/// Carries packets until the connection ends.
pub async fn carry(site: &Site, number: usize, connection: &Connection) {
    let peer = &site.peers[number];
    let which = peer.connect(connection);
    let mut sender = Sender {
        site,
        number,
        connection,
        which,
        encoder: Encoder::default(),
        repairs: locked(&peer.stats).repairs,
        refreshed: None,
        most: 0,
    };
    tokio::select! {
        _ = sender.run() => {}
        _ = receive(site, number, connection) => {}
        () = hello::answer(site, number, connection) => {}
    }
    peer.disconnect(which);
    site.set_piece((number, which), None);
}

struct Sender<'a> {
    site: &'a Site,
    number: usize,
    connection: &'a Connection,
    which: u64,
    encoder: Encoder,
    /// Repair symbols of the connections before.
    repairs: u64,
    refreshed: Option<Duration>,
    /// Longest datagram.
    most: usize,
}

impl Sender<'_> {
    async fn run(&mut self) -> Result<(), Error> {
        self.refresh(self.site.now());
        loop {
            self.wait().await;
            let room = self.connection.datagram_room().await?;
            let now = self.site.now();
            if self.refreshed.is_none_or(|last| now >= last + REFRESH) {
                self.refresh(now);
            }
            let batch = self.batch(now, room);
            match self.connection.send_datagrams(batch) {
                // The path has become narrower meanwhile.
                Ok(()) | Err(Error::Datagram(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for a packet, or a repair symbol that is due.
    async fn wait(&self) {
        let peer = &self.site.peers[self.number];
        let packet = async {
            while locked(&peer.queue).is_empty() {
                peer.ready.notified().await;
            }
        };
        match self.encoder.timeout() {
            None => packet.await,
            Some(at) => tokio::select! {
                () = packet => {}
                () = sleep_until(self.site.time(at)) => {}
            },
        }
    }

    /// Learns what the path is like.
    fn refresh(&mut self, now: Duration) {
        self.refreshed = Some(now);
        let stats = self.connection.stats();
        let delay = stats.min_rtt.clamp(MIN_DELAY, MAX_DELAY);
        self.encoder.set_path(&Path {
            loss: stats.loss,
            burstiness: stats.loss_burstiness,
            settled: stats.packets_acknowledged + stats.packets_lost,
            lost: stats.packets_lost,
            delay: self.site.delay.unwrap_or(delay),
        });
        let most = self.connection.max_datagram_size();
        if most != self.most && most > 0 {
            self.most = most;
            let piece = max_piece(most);
            self.site.set_piece((self.number, self.which), Some(piece));
        }
    }

    /// Datagrams of `room` bytes or one more. Repair symbols are in no packet with what they repair.
    fn batch(&mut self, now: Duration, room: u64) -> Vec<Datagram> {
        let peer = &self.site.peers[self.number];
        let mut queue = locked(&peer.queue);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut too_long = 0;
        while bytes < room && batch.len() < BATCH {
            if let Some(repair) = self.encoder.repair(now) {
                bytes += repair.len() as u64 + OVERHEAD;
                batch.push(Datagram::apart(repair));
                continue;
            }
            let Some(packet) = queue.pop(now) else {
                break;
            };
            let mut add = |datagram: Vec<u8>| {
                bytes += datagram.len() as u64 + OVERHEAD;
                batch.push(Datagram::from(datagram));
            };
            if !self.encoder.push(now, &packet, self.most, &mut add) {
                too_long += 1;
            }
        }
        drop(queue);
        let mut stats = locked(&peer.stats);
        stats.too_long += too_long;
        stats.repairs = self.repairs + self.encoder.repairs();
        batch
    }
}

async fn receive(site: &Site, number: usize, connection: &Connection) -> Result<(), Error> {
    let mut decoder = Decoder::default();
    let before = locked(&site.peers[number].stats).code;
    loop {
        for datagram in connection.read_datagrams().await? {
            decoder.handle(&datagram, &mut |packet| site.deliver(number, packet));
        }
        locked(&site.peers[number].stats).code = before + decoder.counts();
        tokio::task::yield_now().await;
    }
}
