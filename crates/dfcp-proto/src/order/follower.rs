//! The sender's side of a controller's orders.
//!
//! Whom to believe: whoever has the key. What keeps old datagrams from being believed again: each
//! session has a number that was never used before, challenges name the hello which they answer, and
//! the sequence numbers of orders only rise. A controller that falls silent is noticed when its last
//! order has expired; then a new session begins, so that one which was restarted, and counts from
//! another number, is heard too.

use super::message::{Flow, Kind, MESSAGE_LEN, Message, OrderKey};
use crate::time::{Duration, Instant, Rate};

/// How often a sender says that it is there. Every hello is answered by the order that holds, so an
/// order that is lost is there this much later. Five in the usual validity of a second.
pub const HELLO_EVERY: Duration = Duration::from_millis(200);

/// Validities beyond these are taken as the nearer one: no controller is noticed to be gone later
/// than after the longest, none is missed while two hellos are lost.
const VALIDITY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// The least that an order comes to: five packets a second, so that the connection lives, and its
/// end is noticed, while it waits for more.
pub const LEAST_RATE: Rate = Rate::from_bps(60_000);

/// What a follower is made of.
#[derive(Clone, Debug)]
pub struct FollowerConfig {
    /// Shared with the controller.
    pub key: OrderKey,
    /// Whose rate it is.
    pub flow: Flow,
    /// Bytes of each packet's headers that the sender's pacer does not count.
    pub headers: u16,
    /// Most that is sent while there is no order that holds.
    pub fallback: Rate,
    /// Most that is ever sent, whatever is ordered.
    pub limit: Rate,
    /// Drawn at random: the number of the first session.
    pub session: u64,
}

/// How a follower stands with its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing was heard of it yet.
    Waiting,
    /// Its order holds: the pacer's rate.
    Ordered(Rate),
    /// Its last order has expired: the pacer's rate until the next one.
    Silent(Rate),
}

/// What came of datagrams so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerStats {
    /// Orders that were followed, repeated ones included.
    pub orders: u64,
    /// Datagrams that are no authentic messages.
    pub refused: u64,
    /// Authentic messages that are old, of another session or flow, or not for senders.
    pub stale: u64,
    /// How often orders expired.
    pub silences: u64,
}

/// Follows the orders for one flow.
#[derive(Debug)]
pub struct Follower {
    config: FollowerConfig,
    session: u64,
    token: u64,
    /// Of the hellos of this session.
    sent: u64,
    /// Of the newest order of this session.
    heard: u64,
    next_hello: Instant,
    /// When the order that holds ends.
    expires: Option<Instant>,
    standing: Standing,
    stats: FollowerStats,
}

impl Follower {
    /// A follower that has said nothing yet.
    pub fn new(config: FollowerConfig, now: Instant) -> Self {
        Self {
            session: config.session,
            config,
            token: 0,
            sent: 0,
            heard: 0,
            next_hello: now,
            expires: None,
            standing: Standing::Waiting,
            stats: FollowerStats::default(),
        }
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// What came of datagrams so far.
    pub fn stats(&self) -> FollowerStats {
        self.stats
    }

    /// The rate to be sent at, if somebody has said one.
    pub fn rate(&self) -> Option<Rate> {
        match self.standing {
            Standing::Waiting => None,
            Standing::Ordered(rate) | Standing::Silent(rate) => Some(rate),
        }
    }

    /// Takes a datagram.
    pub fn handle(&mut self, now: Instant, datagram: &[u8]) {
        let Ok(message) = Message::decode(datagram, &self.config.key) else {
            self.stats.refused += 1;
            return;
        };
        let ours = message.session == self.session && message.flow == self.config.flow;
        match message.kind {
            Kind::Challenge if ours && message.sequence == self.sent && self.sent > 0 => {
                if std::mem::replace(&mut self.token, message.token) != message.token {
                    self.next_hello = now;
                }
            }
            Kind::Order if ours && message.token == self.token && message.sequence > self.heard => {
                self.heard = message.sequence;
                self.stats.orders += 1;
                let [shortest, longest] = VALIDITY;
                self.expires = Some(now + message.valid.clamp(shortest, longest));
                self.standing = Standing::Ordered(self.pacing(message.rate));
            }
            _ => self.stats.stale += 1,
        }
    }

    /// What the pacer is to do for a rate of IP packets.
    fn pacing(&self, rate: Rate) -> Rate {
        let (packet, headers) = (self.config.flow.packet, self.config.headers);
        let counted = f64::from(packet.saturating_sub(headers)) / f64::from(packet.max(1));
        let ordered = rate.mul_f64(counted).max(LEAST_RATE);
        ordered.min(self.config.limit)
    }

    /// When [`Follower::handle_timeout`] or [`Follower::poll_transmit`] has something to do.
    pub fn poll_timeout(&self) -> Instant {
        self.expires
            .map_or(self.next_hello, |at| at.min(self.next_hello))
    }

    /// Notices that an order has expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.expires.is_none_or(|at| now < at) {
            return;
        }
        self.expires = None;
        self.stats.silences += 1;
        let rate = self.rate().unwrap_or(self.config.fallback);
        self.standing = Standing::Silent(rate.min(self.config.fallback));
        self.session = self.session.wrapping_add(1);
        (self.token, self.sent, self.heard) = (0, 0, 0);
        self.next_hello = now;
    }

    /// A datagram for the controller.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<[u8; MESSAGE_LEN]> {
        if now < self.next_hello {
            return None;
        }
        self.next_hello = now + HELLO_EVERY;
        Some(self.message(Kind::Hello))
    }

    /// The last datagram: all is sent.
    pub fn farewell(&mut self) -> [u8; MESSAGE_LEN] {
        self.message(Kind::Farewell)
    }

    fn message(&mut self, kind: Kind) -> [u8; MESSAGE_LEN] {
        self.sent += 1;
        Message {
            kind,
            session: self.session,
            token: self.token,
            sequence: self.sent,
            rate: Rate::MAX,
            valid: Duration::ZERO,
            flow: self.config.flow,
        }
        .encode(&self.config.key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::flow;
    use super::*;

    const MBIT: u64 = 1_000_000;

    fn config() -> FollowerConfig {
        FollowerConfig {
            key: OrderKey::new(&[7; 32]),
            flow: Flow {
                packet: 1400,
                ..flow()
            },
            headers: 28,
            fallback: mbit(10),
            limit: mbit(1000),
            session: u64::MAX,
        }
    }

    fn mbit(rate: u64) -> Rate {
        Rate::from_bps(rate * MBIT)
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// A controller of one sender.
    struct Controller {
        key: OrderKey,
        token: u64,
        sequence: u64,
    }

    impl Controller {
        fn new() -> Self {
            Self {
                key: config().key,
                token: 42,
                sequence: 1000,
            }
        }

        fn read(&self, datagram: &[u8]) -> Message {
            Message::decode(datagram, &self.key).expect("a message")
        }

        fn challenge(&self, hello: Message) -> Vec<u8> {
            let challenge = Message {
                kind: Kind::Challenge,
                token: self.token,
                ..hello
            };
            challenge.encode(&self.key).to_vec()
        }

        fn order(&mut self, hello: Message, rate: Rate) -> Vec<u8> {
            self.sequence += 1;
            let order = Message {
                kind: Kind::Order,
                sequence: self.sequence,
                rate,
                valid: Duration::from_secs(1),
                ..hello
            };
            order.encode(&self.key).to_vec()
        }

        /// Brings a follower to where it takes orders; its last hello.
        fn meet(&mut self, follower: &mut Follower, now: Instant) -> Message {
            let hello = self.read(&follower.poll_transmit(now).expect("a hello"));
            follower.handle(now, &self.challenge(hello));
            let hello = follower.poll_transmit(now).expect("the answer at once");
            let hello = self.read(&hello);
            assert_eq!(hello.token, self.token);
            hello
        }
    }

    #[test]
    fn orders_are_followed_in_the_pacers_terms() {
        let (mut follower, mut controller) = (Follower::new(config(), at(0)), Controller::new());
        assert_eq!(follower.standing(), Standing::Waiting);
        let hello = controller.meet(&mut follower, at(0));
        follower.handle(at(1), &controller.order(hello, mbit(70)));
        let rate = Rate::from_bps(70 * MBIT * 1372 / 1400);
        assert_eq!(follower.standing(), Standing::Ordered(rate));
        // Hellos go on, and each keeps the order alive.
        for millis in (200..5000).step_by(200) {
            follower.handle_timeout(at(millis));
            let hello = follower.poll_transmit(at(millis)).expect("a hello");
            assert!(follower.poll_transmit(at(millis)).is_none());
            let order = controller.order(controller.read(&hello), mbit(70));
            follower.handle(at(millis + 1), &order);
        }
        assert_eq!(follower.standing(), Standing::Ordered(rate));
        assert_eq!(follower.stats().silences, 0);
    }

    #[test]
    fn a_lying_controller_is_bounded_at_both_ends() {
        let (mut follower, mut controller) = (Follower::new(config(), at(0)), Controller::new());
        let hello = controller.meet(&mut follower, at(0));
        for (ordered, followed) in [(0, LEAST_RATE), (u64::MAX, mbit(1000))] {
            let order = controller.order(hello, Rate::from_bps(ordered));
            follower.handle(at(1), &order);
            assert_eq!(follower.standing(), Standing::Ordered(followed));
        }
        // Nor does one that promises an order for ever.
        let order = controller.order(hello, mbit(50));
        let mut order = controller.read(&order);
        order.valid = Duration::from_millis(u32::MAX.into());
        order.sequence += 1;
        follower.handle(at(1), &order.encode(&controller.key));
        follower.handle_timeout(at(30_002));
        assert_eq!(follower.standing(), Standing::Silent(mbit(10)));
    }

    #[test]
    fn a_controller_that_is_gone_is_noticed_and_heard_again() {
        let (mut follower, mut controller) = (Follower::new(config(), at(0)), Controller::new());
        let hello = controller.meet(&mut follower, at(0));
        follower.handle(at(0), &controller.order(hello, mbit(500)));
        follower.handle_timeout(at(999));
        assert!(matches!(follower.standing(), Standing::Ordered(_)));
        assert!(follower.poll_timeout() <= at(1000));
        follower.handle_timeout(at(1000));
        assert_eq!(follower.standing(), Standing::Silent(mbit(10)));
        // Restarted, it counts from elsewhere and has another token.
        let mut restarted = Controller {
            token: 4711,
            sequence: 0,
            ..Controller::new()
        };
        let hello = restarted.meet(&mut follower, at(1000));
        assert_ne!(hello.session, u64::MAX);
        follower.handle(at(1001), &restarted.order(hello, mbit(20)));
        assert!(matches!(follower.standing(), Standing::Ordered(_)));
        // What was less than the fallback stays.
        follower.handle(at(1002), &restarted.order(hello, mbit(2)));
        let little = follower.rate().expect("a rate");
        follower.handle_timeout(at(2002));
        assert_eq!(follower.standing(), Standing::Silent(little));
    }

    #[test]
    fn what_was_said_before_is_not_believed_again() {
        let (mut follower, mut controller) = (Follower::new(config(), at(0)), Controller::new());
        let first = controller.read(&follower.poll_transmit(at(0)).expect("a hello"));
        let challenge = controller.challenge(first);
        // No order without the controller's token, though it is authentic.
        let early = controller.order(first, mbit(900));
        follower.handle(at(0), &challenge);
        follower.handle(at(0), &early);
        assert_eq!(follower.standing(), Standing::Waiting);
        let hello = controller.read(&follower.poll_transmit(at(0)).expect("a hello"));
        let (old, new) = (
            controller.order(hello, mbit(900)),
            controller.order(hello, mbit(50)),
        );
        follower.handle(at(1), &new);
        let rate = follower.rate();
        for replayed in [&old, &new, &challenge] {
            follower.handle(at(2), replayed);
        }
        assert_eq!((follower.rate(), follower.stats().stale), (rate, 4));
        // Replays do not keep a controller alive that is gone.
        follower.handle_timeout(at(1001));
        assert!(matches!(follower.standing(), Standing::Silent(_)));
        // Nor does the next session believe those of the last.
        controller.meet(&mut follower, at(1001));
        for replayed in [&old, &new, &challenge] {
            follower.handle(at(1002), replayed);
        }
        assert!(matches!(follower.standing(), Standing::Silent(_)));
    }

    #[test]
    fn orders_for_others_and_echoes_are_not_followed() {
        let (mut follower, mut controller) = (Follower::new(config(), at(0)), Controller::new());
        let hello = controller.meet(&mut follower, at(0));
        let mut other = hello;
        other.flow.source_port += 1;
        let strange = [
            controller.order(other, mbit(5)),
            hello.encode(&controller.key).to_vec(),
            follower.farewell().to_vec(),
        ];
        for datagram in &strange {
            follower.handle(at(1), datagram);
        }
        assert_eq!(follower.standing(), Standing::Waiting);
        assert_eq!(follower.stats().stale, 3);
        for garbage in [&b""[..], &[0; MESSAGE_LEN], &[0xff; 2000]] {
            follower.handle(at(1), garbage);
        }
        assert_eq!(follower.stats().refused, 3);
    }
}
