use super::*;
use Input::{Abort, Close, Data, Silence, Timeout};
use Segment as S;
use State::*;

const SEGMENTS: [Segment; 7] = [
    S::Syn,
    S::SynAck,
    S::Ack,
    S::Fin,
    S::AckOfFin,
    S::FinAck,
    S::Rst,
];

fn inputs() -> Vec<Input> {
    let mut all: Vec<_> = SEGMENTS.into_iter().map(Input::Segment).collect();
    all.extend([Data, Timeout, Close, Abort, Silence]);
    all
}

/// A machine in each state, as far as `limit` retries allow; the second FIN_WAIT1 is crossed.
fn machines() -> Vec<Machine> {
    let at = |state, crossed| Machine {
        state,
        limit: RETRIES,
        retries: 0,
        crossed,
    };
    let mut all: Vec<_> = [
        SynSent,
        SynRecv,
        Established,
        FinWait1,
        FinWait2,
        CloseWait,
        LastAck,
        TimeWait,
        Closed,
    ]
    .map(|state| at(state, false))
    .into();
    all.push(at(FinWait1, true));
    all
}

const fn seg(segment: Segment) -> Input {
    Input::Segment(segment)
}

type Row = (State, bool, Input, State, Option<Segment>, Option<End>);

/// (state, crossed, input) → (state, answer, end); what is not in the table changes nothing.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    (SynSent, false, seg(S::SynAck), Established, Some(S::Ack), None),
    (SynSent, false, seg(S::Syn), SynSent, Some(S::Rst), None),
    (SynSent, false, seg(S::Ack), SynSent, Some(S::Rst), None),
    (SynSent, false, seg(S::Fin), SynSent, Some(S::Rst), None),
    (SynSent, false, seg(S::AckOfFin), SynSent, Some(S::Rst), None),
    (SynSent, false, seg(S::FinAck), SynSent, Some(S::Rst), None),
    (SynSent, false, Data, SynSent, Some(S::Rst), None),
    (SynSent, false, seg(S::Rst), Closed, None, Some(End::Reset)),
    (SynSent, false, Timeout, SynSent, Some(S::Syn), None),
    (SynSent, false, Abort, Closed, Some(S::Rst), Some(End::Aborted)),
    (SynSent, false, Silence, Closed, Some(S::Rst), Some(End::TimedOut)),

    (SynRecv, false, seg(S::Ack), Established, None, None),
    (SynRecv, false, seg(S::Syn), SynRecv, Some(S::SynAck), None),
    (SynRecv, false, seg(S::Fin), SynRecv, Some(S::SynAck), None),
    (SynRecv, false, Data, SynRecv, Some(S::SynAck), None),
    (SynRecv, false, seg(S::Rst), Closed, None, Some(End::Reset)),
    (SynRecv, false, Timeout, SynRecv, Some(S::SynAck), None),
    (SynRecv, false, Abort, Closed, Some(S::Rst), Some(End::Aborted)),
    (SynRecv, false, Silence, Closed, Some(S::Rst), Some(End::TimedOut)),

    (Established, false, seg(S::SynAck), Established, Some(S::Ack), None),
    (Established, false, seg(S::Fin), CloseWait, Some(S::AckOfFin), None),
    (Established, false, seg(S::Rst), Closed, None, Some(End::Reset)),
    (Established, false, Close, FinWait1, Some(S::Fin), None),
    (Established, false, Abort, Closed, Some(S::Rst), Some(End::Aborted)),
    (Established, false, Silence, Closed, Some(S::Rst), Some(End::TimedOut)),

    (FinWait1, false, seg(S::SynAck), FinWait1, Some(S::Ack), None),
    (FinWait1, false, seg(S::Fin), FinWait1, Some(S::AckOfFin), None),
    (FinWait1, false, seg(S::AckOfFin), FinWait2, Some(S::FinAck), None),
    (FinWait1, false, seg(S::FinAck), TimeWait, Some(S::AckOfFin), Some(End::InOrder)),
    (FinWait1, false, seg(S::Rst), Closed, None, Some(End::Reset)),
    (FinWait1, false, Timeout, FinWait1, Some(S::Fin), None),
    (FinWait1, false, Abort, Closed, Some(S::Rst), Some(End::Aborted)),
    (FinWait1, false, Silence, Closed, Some(S::Rst), Some(End::TimedOut)),

    (FinWait1, true, seg(S::SynAck), FinWait1, Some(S::Ack), None),
    (FinWait1, true, seg(S::Fin), FinWait1, Some(S::AckOfFin), None),
    (FinWait1, true, seg(S::AckOfFin), TimeWait, None, Some(End::InOrder)),
    (FinWait1, true, seg(S::Rst), Closed, None, Some(End::InOrder)),
    (FinWait1, true, Timeout, FinWait1, Some(S::Fin), None),
    (FinWait1, true, Abort, Closed, Some(S::Rst), Some(End::Aborted)),
    (FinWait1, true, Silence, Closed, Some(S::Rst), Some(End::TimedOut)),

    (FinWait2, false, seg(S::Fin), TimeWait, Some(S::AckOfFin), Some(End::InOrder)),
    (FinWait2, false, seg(S::FinAck), TimeWait, Some(S::AckOfFin), Some(End::InOrder)),
    (FinWait2, false, seg(S::Rst), Closed, None, Some(End::Reset)),
    (FinWait2, false, Abort, Closed, Some(S::Rst), Some(End::Aborted)),
    (FinWait2, false, Silence, Closed, Some(S::Rst), Some(End::TimedOut)),

    (CloseWait, false, seg(S::Fin), CloseWait, Some(S::AckOfFin), None),
    (CloseWait, false, seg(S::Rst), Closed, None, Some(End::Reset)),
    (CloseWait, false, Close, LastAck, Some(S::FinAck), None),
    (CloseWait, false, Abort, Closed, Some(S::Rst), Some(End::Aborted)),
    (CloseWait, false, Silence, Closed, Some(S::Rst), Some(End::TimedOut)),

    (LastAck, false, seg(S::Fin), LastAck, Some(S::FinAck), None),
    (LastAck, false, seg(S::AckOfFin), Closed, None, Some(End::InOrder)),
    (LastAck, false, seg(S::Rst), Closed, None, Some(End::InOrder)),
    (LastAck, false, Timeout, LastAck, Some(S::FinAck), None),
    (LastAck, false, Abort, Closed, Some(S::Rst), Some(End::Aborted)),
    (LastAck, false, Silence, Closed, Some(S::Rst), Some(End::TimedOut)),

    (TimeWait, false, seg(S::Fin), TimeWait, Some(S::AckOfFin), None),
    (TimeWait, false, seg(S::FinAck), TimeWait, Some(S::AckOfFin), None),
    (TimeWait, false, seg(S::Rst), Closed, None, None),
    (TimeWait, false, Timeout, Closed, None, None),
    (TimeWait, false, Abort, Closed, None, None),
    (TimeWait, false, Silence, Closed, None, None),
];

#[test]
fn every_transition_is_the_one_of_the_table() {
    let mut used = 0;
    for machine in machines() {
        for input in inputs() {
            let rows = TABLE
                .iter()
                .filter(|r| (r.0, r.1, r.2) == (machine.state, machine.crossed, input));
            let expected = rows.clone().map(|r| (r.3, r.4, r.5)).next();
            used += rows.count();
            let mut after = machine.clone();
            let step = after.step(input);
            let got = (after.state, step.send, step.ended);
            let expected = expected.unwrap_or((machine.state, None, None));
            assert_eq!(got, expected, "{machine:?} {input:?}");
            assert_eq!(
                step.connected,
                after.state == Established && machine.state != Established,
                "{machine:?} {input:?}"
            );
            // A state that waits has its timer, one that does not has none.
            let waits = |s| matches!(s, SynSent | SynRecv | FinWait1 | LastAck | TimeWait);
            if after.state != machine.state {
                let armed = matches!(step.timer, Some(Timer::Arm(_)));
                assert_eq!(armed, waits(after.state), "{machine:?} {input:?}");
            } else if step.timer.is_some() {
                assert!(waits(after.state), "{machine:?} {input:?}");
            }
        }
    }
    assert_eq!(
        used,
        TABLE.len(),
        "a row that no machine meets, or two alike"
    );
}

/// Timeouts until the machine gives up: what it sent and how long it waited each time.
fn exhaust(machine: &mut Machine, first: Step) -> (Vec<Option<Segment>>, Vec<u64>, Step) {
    let (mut sent, mut waits, mut step) = (vec![first.send], Vec::new(), first);
    while let Some(Timer::Arm(wait)) = step.timer {
        waits.push(wait.as_secs());
        step = machine.step(Timeout);
        sent.push(step.send);
    }
    (sent, waits, step)
}

#[test]
fn a_segment_without_answer_is_repeated_five_times_at_doubled_intervals() {
    let doubled = vec![1, 2, 4, 8, 16, 32];
    let cases: [(State, Segment, Option<Segment>); 4] = [
        (SynSent, S::Syn, None),
        (SynRecv, S::SynAck, Some(S::Rst)),
        (FinWait1, S::Fin, None),
        (LastAck, S::FinAck, None),
    ];
    for (state, segment, last) in cases {
        let (mut machine, step) = Machine::start(state, segment, RETRIES);
        let (sent, waits, end) = exhaust(&mut machine, step);
        assert_eq!(waits, doubled, "{state:?}");
        let (tail, repeats) = sent.split_last().expect("something was sent");
        assert_eq!(repeats, [Some(segment); 6], "{state:?}");
        assert_eq!((*tail, end.ended), (last, Some(End::Unreachable)));
        assert_eq!(machine.state, Closed);
    }
}

#[test]
fn time_wait_lasts_twice_the_last_timeout_of_fin_and_late_segments_renew_it() {
    for retries in 0..=RETRIES {
        let (mut machine, _) = Machine::start(FinWait1, S::Fin, RETRIES);
        for _ in 0..retries {
            machine.step(Timeout);
        }
        let expected = Some(Timer::Arm(Duration::from_secs(2 << retries)));
        assert_eq!(machine.step(seg(S::FinAck)).timer, expected);
        assert_eq!(machine.step(seg(S::FinAck)).timer, expected);
    }
}

#[test]
fn the_fin_of_a_connection_whose_syn_was_repeated_starts_at_one_second() {
    let (mut machine, _) = Machine::connect(RETRIES);
    machine.step(Timeout);
    machine.step(seg(S::SynAck));
    assert_eq!(
        machine.step(Close).timer,
        Some(Timer::Arm(Duration::from_secs(1)))
    );
}
