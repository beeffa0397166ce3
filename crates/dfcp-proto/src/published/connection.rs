//! One connection: signalling by `state`, data by `send` and `recv`.
//!
//! Signalling is believed only with the right generator states (docs/spec/published.md,
//! "Whose segment"): who cannot see the packets cannot close or reset a connection.

mod application;
mod establish;
mod input;
mod observed;
mod output;
mod unproven;

use super::config::Config;
use super::endpoint::EndpointStats;
use super::header::PseudoHeader;
use super::negotiation::Offer;
use super::recv::Receiver;
pub use super::recv::SolveJob;
use super::send::Sender;
use super::state::{End, FIRST_TIMEOUT, Input, Machine, RETRIES, Segment, State, Step, Timer};
use crate::block::{Lease, Role};
use crate::observe::{Ending, Observation, Observer};
use crate::time::{Duration, Instant, Rate};
use dfcp_fec::raptor;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use unproven::Unproven;

pub(super) use input::Incoming;
use observed::Told;

/// What happened on a connection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is done.
    Connected,
    /// In-order data waits.
    Readable,
    /// There is room to write after there was none.
    Writable,
    /// The peer has finished: nothing follows what is readable.
    PeerFinished,
    /// The connection ended; `None` if both sides closed it in order.
    Closed(Option<Error>),
}

/// Why a connection failed or refuses a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No answer to SYN, SYNACK or FIN after all retries.
    #[error("the peer does not answer")]
    Unreachable,
    /// Silence.
    #[error("the peer fell silent")]
    TimedOut,
    /// RST from the peer.
    #[error("the peer reset the connection")]
    Reset,
    /// The parameters cannot be agreed to, or the peer is full.
    #[error("no agreement on the parameters: {0}")]
    Parameters(String),
    /// More or less than the message that the connection was opened for.
    #[error("the message has another length than was agreed on")]
    Message,
    /// A block failed to decode more often than chance explains.
    #[error("the peer sends blocks that cannot be decoded")]
    Unsolvable,
    /// The connection is closed for this call.
    #[error("the connection is closed")]
    Closed,
}

/// What a read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// So many bytes.
    Data(usize),
    /// Nothing yet.
    Blocked,
    /// The peer has finished and everything was read.
    Finished,
}

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Data packets sent.
    pub data_packets: u64,
    /// Of these, beyond the first pass over their block.
    pub extra_packets: u64,
    /// Data packets that would have been enough for the blocks acknowledged.
    pub needed_packets: u64,
    /// Blocks acknowledged by the peer.
    pub blocks_acked: u64,
    /// Blocks received.
    pub blocks_received: u64,
    /// Useful bytes of blocks received, in whatever order.
    pub bytes_received: u64,
    /// Blocks that could not be decoded with the symbols that should suffice.
    pub decode_failures: u64,
    /// Data packets received for blocks already complete.
    pub late_packets: u64,
    /// Data packets received twice.
    pub duplicate_packets: u64,
    /// Blocks given up (ACKs off).
    pub blocks_skipped: u64,
    /// ACKs that the peer took back, as the block did not decode.
    pub blocks_reopened: u64,
    /// Round-trip time.
    pub srtt: Option<Duration>,
    /// Loss rate of data packets as measured.
    pub loss: f64,
    /// Pacing rate.
    pub rate: Rate,
}

/// One answer that nothing paid for (to data before the handshake is done, to a doubtful RST) in
/// this time.
const ANSWER_INTERVAL: Duration = Duration::from_millis(100);

/// Segments waiting to be sent; more are no loss, as their senders ask again.
const MAX_SIGNALS: usize = 8;

/// What an endpoint gives a connection.
#[derive(Debug)]
pub(super) struct Birth {
    /// Address of the carrier.
    pub remote: SocketAddr,
    /// Port of this side.
    pub local_port: u16,
    /// Port of the other side.
    pub remote_port: u16,
    /// For checksums of packets to be sent.
    pub pseudo: PseudoHeader,
    /// Settings.
    pub config: Arc<Config>,
    /// What was offered, or settled on.
    pub offer: Offer,
    /// Where this direction's generator states start.
    pub initial: raptor::State,
    /// Memory that is set aside for what will be received.
    pub lease: Lease,
}

/// The two halves of the data transfer, once connected.
#[derive(Debug)]
struct Halves {
    sender: Sender,
    receiver: Receiver,
}

/// A segment to be sent, with the generator state that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signal {
    segment: Segment,
    state: raptor::State,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    birth: Birth,
    /// Where the other direction's states start, once known.
    peer: Option<raptor::State>,
    role: Role,
    machine: Machine,
    timer: Option<Instant>,
    signals: VecDeque<Signal>,
    halves: Option<Box<Halves>>,
    /// A packet that did not fit into the last transmit.
    stash: Option<output::Stash>,
    /// FIN or FINACK that came before the data that it follows.
    early_fin: Option<Segment>,
    /// Blocks that the peer sent, by its FIN.
    peer_blocks: Option<u32>,
    events: VecDeque<Event>,
    /// Why it ended, for calls that come later.
    ended: Option<Option<Error>>,
    /// [`finish`](Self::finish) was called.
    finishing: bool,
    /// A write did not fit.
    blocked: bool,
    readable_told: bool,
    finished_told: bool,
    /// First segment sent, for the round trip of the handshake.
    begun: Instant,
    last_heard: Instant,
    /// When silence is looked at next.
    idle_check: Instant,
    /// When it is looked at for a keep-alive.
    quiet_check: Option<Instant>,
    /// Keep-alives without an answer.
    unanswered: u32,
    next_answer: Instant,
    observer: Observer,
    told: Told,
    /// Of a side that got SYN, until its SYNACK was answered.
    unproven: Option<Unproven>,
    /// What an endpoint would have counted, had it not lent it.
    counts: EndpointStats,
}

impl Connection {
    /// The side that sends SYN.
    pub(super) fn connect(now: Instant, birth: Birth) -> Self {
        Self::new(now, birth, None, Machine::connect(RETRIES))
    }

    /// The side that got this SYN.
    pub(super) fn accept(now: Instant, birth: Birth, syn: &Incoming<'_>) -> Self {
        let peer = Some(syn.header.state);
        let mut connection = Self::new(now, birth, peer, Machine::accept(RETRIES));
        connection.unproven = Some(Unproven::new(syn.size));
        connection
    }

    fn new(
        now: Instant,
        birth: Birth,
        peer: Option<raptor::State>,
        (machine, step): (Machine, Step),
    ) -> Self {
        let role = match peer {
            None => Role::Client,
            Some(_) => Role::Server,
        };
        let mut connection = Self {
            observer: birth.config.observers.begin(role, birth.remote),
            told: Told::default(),
            idle_check: now + birth.config.idle_timeout,
            quiet_check: birth.config.keep_alive_interval().map(|i| now + i),
            unanswered: 0,
            birth,
            role,
            peer,
            machine,
            timer: None,
            signals: VecDeque::new(),
            halves: None,
            stash: None,
            early_fin: None,
            peer_blocks: None,
            events: VecDeque::new(),
            ended: None,
            finishing: false,
            blocked: false,
            readable_told: false,
            finished_told: false,
            begun: now,
            last_heard: now,
            next_answer: now,
            unproven: None,
            counts: EndpointStats::default(),
        };
        connection.apply(now, step, None);
        connection
    }

    /// Gives the machine an input; `echo` is the state of the packet that caused it.
    fn step(&mut self, now: Instant, input: Input, echo: Option<raptor::State>) {
        let step = self.machine.step(input);
        self.apply(now, step, echo);
    }

    fn apply(&mut self, now: Instant, step: Step, echo: Option<raptor::State>) {
        if step.connected && !self.establish(now) {
            return self.refuse(now, "the code cannot be built");
        }
        match step.timer {
            Some(Timer::Arm(time)) => self.timer = Some(now + time),
            Some(Timer::Stop) => self.timer = None,
            None => {}
        }
        if let Some(segment) = step.send {
            self.signal(segment, echo);
        }
        if let Some(end) = step.ended {
            self.end(
                now,
                match end {
                    End::InOrder => None,
                    End::Unreachable => Some(Error::Unreachable),
                    End::Reset => Some(Error::Reset),
                    End::TimedOut => Some(Error::TimedOut),
                    End::Aborted => Some(Error::Closed),
                },
            );
        }
    }

    /// Queues a segment. SYN, SYNACK, FIN and FINACK name the state of this direction, ACK that of
    /// the other; RST the state of what it answers, if it answers anything, else this direction's.
    fn signal(&mut self, segment: Segment, echo: Option<raptor::State>) {
        let own = self.birth.initial;
        let state = match segment {
            Segment::Syn | Segment::SynAck | Segment::Fin | Segment::FinAck => own,
            Segment::Ack | Segment::AckOfFin => self.peer.unwrap_or(own),
            Segment::Rst => echo.unwrap_or(own),
        };
        let signal = Signal { segment, state };
        if self.signals.len() < MAX_SIGNALS && !self.signals.contains(&signal) {
            self.signals.push_back(signal);
        }
    }

    fn end(&mut self, now: Instant, error: Option<Error>) {
        if self.ended.is_none() {
            self.observer.tell(now, || {
                Observation::Closed(Ending::Published(error.as_ref()))
            });
            self.events.push_back(Event::Closed(error.clone()));
            self.ended = Some(error);
        }
    }

    /// Closes because the parameters do not do.
    fn refuse(&mut self, now: Instant, reason: &str) {
        self.fail(now, Error::Parameters(reason.into()));
    }

    /// Ends at once, with RST.
    fn fail(&mut self, now: Instant, error: Error) {
        self.end(now, Some(error));
        self.step(now, Input::Abort, None);
    }

    /// FIN once everything is acknowledged.
    fn close_if_done(&mut self, now: Instant) {
        let done = self.finishing && self.halves.as_ref().is_some_and(|h| h.sender.all_acked());
        if done && matches!(self.state(), State::Established | State::CloseWait) {
            self.step(now, Input::Close, None);
        }
    }

    /// Why a call cannot be served.
    fn check(&self) -> Result<(), Error> {
        match &self.ended {
            Some(error) => Err(error.clone().unwrap_or(Error::Closed)),
            None if self.finishing => Err(Error::Closed),
            None => Ok(()),
        }
    }

    /// Whether the application has nothing to expect of it and the network nothing to get.
    pub(super) fn is_over(&self) -> bool {
        self.state() == State::Closed && self.signals.is_empty()
    }

    /// Ends it if need be, and keeps only what late segments need.
    pub(super) fn release(&mut self) {
        if self.state() != State::TimeWait {
            self.abort(self.last_heard);
        }
        self.halves = None;
        self.birth.lease.resize(0);
        self.stash = None;
        self.events.clear();
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let idle = Some(self.idle_check)
            .into_iter()
            .chain(self.quiet_check)
            .min();
        let idle = idle.filter(|_| self.may_idle_out());
        let sender = self.may_send().then_some(self.halves.as_ref()).flatten();
        let sender = sender.and_then(|h| h.sender.poll_timeout());
        let receiver = self.halves.as_ref().and_then(|h| h.receiver.poll_timeout());
        [self.timer, idle, sender, receiver]
            .into_iter()
            .flatten()
            .min()
    }

    /// Where no retry tells that the peer is gone.
    fn may_idle_out(&self) -> bool {
        use State::*;
        matches!(self.state(), Established | FinWait2 | CloseWait)
    }

    /// After silence: what the peer's state answers anyhow, so that both sides hear each other. A
    /// peer in FIN_WAIT2 answers nothing that does not end it: it is the one to ask.
    fn keep_alive(&mut self, now: Instant) {
        let due = self.quiet_check.is_some_and(|at| at <= now) && self.may_idle_out();
        let Some(interval) = self.birth.config.keep_alive_interval().filter(|_| due) else {
            return;
        };
        let next = self.last_heard + interval;
        if next > now {
            (self.quiet_check, self.unanswered) = (Some(next), 0);
            return;
        }
        // As signalling is repeated, for one may be lost.
        let wait = FIRST_TIMEOUT * 2u32.pow(self.unanswered.min(RETRIES.into()));
        self.quiet_check = Some(now + wait.min(interval));
        self.unanswered += 1;
        if let Some(segment) = self.machine.keep_alive() {
            self.signal(segment, None);
        }
    }

    /// Where data may be sent: after FIN only what the peer takes its acknowledgement back for.
    fn may_send(&self) -> bool {
        use State::*;
        matches!(self.state(), Established | CloseWait | FinWait1 | FinWait2)
    }

    /// The time of `poll_timeout` has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.timer.is_some_and(|at| at <= now) {
            self.timer = None;
            self.step(now, Input::Timeout, None);
        }
        if self.idle_check <= now && self.may_idle_out() {
            self.idle_check = self.last_heard + self.birth.config.idle_timeout;
            if self.idle_check <= now {
                self.step(now, Input::Silence, None);
            }
        }
        self.keep_alive(now);
        let mut silent = false;
        if let Some(halves) = &mut self.halves {
            if halves.sender.poll_timeout().is_some_and(|at| at <= now) {
                halves.sender.handle_timeout(now);
                silent = true;
            }
            if halves.receiver.poll_timeout().is_some_and(|at| at <= now) {
                halves.receiver.handle_timeout(now);
            }
        }
        if silent {
            self.tell_path(now);
        }
        self.after_data(now);
    }
}
