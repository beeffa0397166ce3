//! The states of a connection and what moves it between them (DFCP-TR §2.3), and nothing else:
//! no time, no data, no packets. [`Machine`] is small and can be compared, so that a model checker
//! explores two of them over any network.
//!
//! One timer serves all states. Every step either leaves everything as it is, or answers a
//! segment, or brings the machine nearer to `Closed`.

use crate::time::Duration;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// SYN sent.
    SynSent,
    /// SYN received, SYNACK sent.
    SynRecv,
    /// Data may flow both ways.
    Established,
    /// FIN sent.
    FinWait1,
    /// FIN acknowledged.
    FinWait2,
    /// FIN received.
    CloseWait,
    /// FIN received, FINACK sent.
    LastAck,
    /// Everything is done; late segments are answered.
    TimeWait,
    /// Nothing is left.
    Closed,
}

/// Segments that the machine sends and takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Segment {
    /// SYN.
    Syn,
    /// SYN, ACK.
    SynAck,
    /// ACK of SYNACK.
    Ack,
    /// FIN.
    Fin,
    /// ACK of FIN or FINACK.
    AckOfFin,
    /// FIN, ACK.
    FinAck,
    /// RST.
    Rst,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A segment of this connection arrived.
    Segment(Segment),
    /// Data, a block ACK or an echo arrived.
    Data,
    /// The timer expired.
    Timeout,
    /// Everything this side sends is acknowledged, and nothing more will follow.
    Close,
    /// The application gives up.
    Abort,
    /// Nothing arrived for the idle timeout.
    Silence,
}

/// What to do with the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    /// Start it anew.
    Arm(Duration),
    /// Stop it.
    Stop,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Both sides closed it.
    InOrder,
    /// Retries exhausted.
    Unreachable,
    /// RST received.
    Reset,
    /// Silence.
    TimedOut,
    /// By the application on this side.
    Aborted,
}

/// What an input led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// To be sent.
    pub send: Option<Segment>,
    /// If the timer changes.
    pub timer: Option<Timer>,
    /// Whether the handshake was completed just now.
    pub connected: bool,
    /// Whether the connection ended for the application just now.
    pub ended: Option<End>,
}

/// Retries before a side gives up.
pub const RETRIES: u8 = 5;
/// First timeout; it doubles with each retry.
pub const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a connection is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    state: State,
    /// Most retries; only the model checker takes fewer than [`RETRIES`].
    limit: u8,
    /// Retries of the segment that waits for an answer.
    retries: u8,
    /// FIN_WAIT1 and the peer's FIN is here too: a simultaneous close.
    crossed: bool,
}

impl Machine {
    /// The connecting side, and its SYN.
    pub fn connect(limit: u8) -> (Self, Step) {
        Self::start(State::SynSent, Segment::Syn, limit)
    }

    /// The side that got a SYN, and its SYNACK.
    pub fn accept(limit: u8) -> (Self, Step) {
        Self::start(State::SynRecv, Segment::SynAck, limit)
    }

    fn start(state: State, segment: Segment, limit: u8) -> (Self, Step) {
        let mut machine = Self {
            state,
            limit,
            retries: 0,
            crossed: false,
        };
        let step = machine.enter(state, segment);
        (machine, step)
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Retries of the segment that waits for an answer.
    pub fn retries(&self) -> u8 {
        self.retries
    }

    /// Whether FIN or FINACK of the peer is here.
    pub fn peer_finished(&self) -> bool {
        use State::*;
        self.crossed || matches!(self.state, CloseWait | LastAck | TimeWait)
    }

    /// What the peer answers without any change on either side, whatever its state may be.
    pub fn keep_alive(&self) -> Option<Segment> {
        match self.state {
            State::Established => Some(Segment::SynAck),
            State::FinWait2 => Some(Segment::Fin),
            _ => None,
        }
    }

    /// Takes an input.
    pub fn step(&mut self, input: Input) -> Step {
        match input {
            Input::Segment(segment) => self.on_segment(segment),
            Input::Data => self.on_data(),
            Input::Timeout => self.on_timeout(),
            Input::Close => match self.state {
                State::Established => self.enter(State::FinWait1, Segment::Fin),
                State::CloseWait => self.enter(State::LastAck, Segment::FinAck),
                _ => Step::default(),
            },
            Input::Abort => self.give_up(End::Aborted),
            Input::Silence => self.give_up(End::TimedOut),
        }
    }

    fn on_segment(&mut self, segment: Segment) -> Step {
        use Segment as S;
        use State::*;
        match (self.state, segment) {
            (Closed, _) => Step::default(),
            // The peer has nothing to say after these, whatever it meant (RFC 9293 §3.10.7.4).
            (LastAck, S::Rst) => self.end(End::InOrder),
            (FinWait1, S::Rst) if self.crossed => self.end(End::InOrder),
            (TimeWait, S::Rst) => self.vanish(),
            (_, S::Rst) => self.end(End::Reset),

            (SynSent, S::SynAck) => Step {
                send: Some(S::Ack),
                ..self.establish()
            },
            // A simultaneous open, or what an earlier connection left: refused.
            (SynSent, _) => send(S::Rst),

            (SynRecv, S::Ack) => self.establish(),
            // The peer is connected and our SYNACK or its ACK got lost.
            (SynRecv, S::Syn | S::Fin) => send(S::SynAck),

            // Our ACK got lost.
            (Established | FinWait1, S::SynAck) => send(S::Ack),
            (Established, S::Fin) => {
                self.state = CloseWait;
                send(S::AckOfFin)
            }

            (FinWait1, S::AckOfFin) if self.crossed => self.time_wait(None),
            (FinWait1, S::AckOfFin) => {
                self.state = FinWait2;
                Step {
                    send: Some(S::FinAck),
                    timer: Some(Timer::Stop),
                    ..Step::default()
                }
            }
            (FinWait1, S::Fin) => {
                self.crossed = true;
                send(S::AckOfFin)
            }
            // Without the peer's FIN before it, FINACK comes from LAST_ACK and has seen our FIN.
            (FinWait1, S::FinAck) if !self.crossed => self.time_wait(Some(S::AckOfFin)),
            (FinWait2, S::Fin | S::FinAck) => self.time_wait(Some(S::AckOfFin)),

            (CloseWait, S::Fin) => send(S::AckOfFin),
            (LastAck, S::AckOfFin) => self.end(End::InOrder),
            // FINACK says all that the ACK that got lost said.
            (LastAck, S::Fin) => send(S::FinAck),
            (TimeWait, S::Fin | S::FinAck) => Step {
                send: Some(S::AckOfFin),
                timer: Some(Timer::Arm(self.time_wait_length())),
                ..Step::default()
            },
            _ => Step::default(),
        }
    }

    fn on_data(&mut self) -> Step {
        match self.state {
            State::SynSent => send(Segment::Rst),
            // The ACK got lost; SYNACK calls for it again.
            State::SynRecv => send(Segment::SynAck),
            _ => Step::default(),
        }
    }

    fn on_timeout(&mut self) -> Step {
        use State::*;
        let segment = match self.state {
            SynSent => Segment::Syn,
            SynRecv => Segment::SynAck,
            FinWait1 => Segment::Fin,
            LastAck => Segment::FinAck,
            TimeWait => return self.vanish(),
            Established | FinWait2 | CloseWait | Closed => return Step::default(),
        };
        if self.retries < self.limit {
            self.retries += 1;
            return Step {
                send: Some(segment),
                timer: Some(Timer::Arm(self.timeout())),
                ..Step::default()
            };
        }
        let last_word = (self.state == SynRecv).then_some(Segment::Rst);
        Step {
            send: last_word,
            ..self.end(End::Unreachable)
        }
    }

    /// Changes to a state that sends `segment` until it is answered.
    fn enter(&mut self, state: State, segment: Segment) -> Step {
        self.state = state;
        self.retries = 0;
        Step {
            send: Some(segment),
            timer: Some(Timer::Arm(self.timeout())),
            ..Step::default()
        }
    }

    fn establish(&mut self) -> Step {
        self.state = State::Established;
        Step {
            timer: Some(Timer::Stop),
            connected: true,
            ..Step::default()
        }
    }

    fn time_wait(&mut self, segment: Option<Segment>) -> Step {
        self.state = State::TimeWait;
        Step {
            send: segment,
            timer: Some(Timer::Arm(self.time_wait_length())),
            connected: false,
            ended: Some(End::InOrder),
        }
    }

    /// RST, unless the other side needs none.
    fn give_up(&mut self, end: End) -> Step {
        match self.state {
            State::Closed => Step::default(),
            State::TimeWait => self.vanish(),
            _ => Step {
                send: Some(Segment::Rst),
                ..self.end(end)
            },
        }
    }

    fn end(&mut self, end: End) -> Step {
        Step {
            ended: Some(end),
            ..self.vanish()
        }
    }

    fn vanish(&mut self) -> Step {
        self.state = State::Closed;
        self.retries = 0;
        Step {
            timer: Some(Timer::Stop),
            ..Step::default()
        }
    }

    fn timeout(&self) -> Duration {
        FIRST_TIMEOUT * 2u32.pow(self.retries.into())
    }

    /// Twice the last timeout of FIN; the papers give no length.
    fn time_wait_length(&self) -> Duration {
        2 * self.timeout()
    }
}

fn send(segment: Segment) -> Step {
    Step {
        send: Some(segment),
        ..Step::default()
    }
}

#[cfg(test)]
mod explore;
#[cfg(test)]
mod tests;
