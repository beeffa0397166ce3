//! A TCP CUBIC flow has a path to itself until a peer joins it: what each gets then.
//!
//! Two pairs of hosts share one bottleneck. Rates are those of IP packets that came out of it, by
//! the lab's counters, over a window before the peer starts and one after it has settled.

use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::emulated::Emulated;
use super::record::{Fairness, Status};
use super::{Bed, Bench, ends, told};
use crate::peer::{Outcome, Peer, Session, Work};
use crate::{Lab, LabStats};

/// A comparison of what peers leave to CUBIC.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Who joins.
    pub peers: Vec<Peer>,
    /// Over which paths; the bare cable has no bottleneck to share.
    pub paths: Vec<Emulated>,
    /// How often each.
    pub repetitions: u32,
    /// How long CUBIC has before it is measured, and both have together before they are.
    pub settle: Duration,
    /// How long each is measured.
    pub window: Duration,
}

/// Makes all meetings of a plan, and shows each when it is done.
///
/// # Errors
/// When the file that is to be sent cannot be made.
pub fn compare(plan: &Plan, bench: &Bench, each: &mut dyn FnMut(Fairness)) -> io::Result<()> {
    for path in &plan.paths {
        let Some(rate_bps) = path.path.rate_bps() else {
            continue;
        };
        // Enough for the whole meeting, at the full rate.
        let time = 2 * (plan.settle + plan.window);
        let size = (rate_bps as f64 / 8.0 * time.as_secs_f64()) as u64;
        let source = bench.file(size)?;
        for repetition in 1..=plan.repetitions {
            for peer in &plan.peers {
                let mut meeting = Fairness {
                    peer: peer.to_string(),
                    path: path.path.clone(),
                    repetition,
                    status: Status::Complete,
                    reason: None,
                    alone_bps: 0.0,
                    together_bps: [0.0; 2],
                };
                if let Err((status, reason)) =
                    meet(plan, bench, (path, peer, &source, size), &mut meeting)
                {
                    (meeting.status, meeting.reason) = (status, Some(reason));
                }
                each(meeting);
            }
        }
    }
    Ok(())
}

fn meet(
    plan: &Plan,
    bench: &Bench,
    (path, peer, source, size): (&Emulated, &Peer, &std::path::Path, u64),
    meeting: &mut Fairness,
) -> Result<(), (Status, String)> {
    let failed = |reason: String| (Status::Failed, reason);
    for program in peer.programs() {
        let found = bench.programs.find(program);
        found.map_err(|missing| (Status::Missing, missing.to_string()))?;
    }
    let bed = Bed::make(path, 2, u64::from(meeting.repetition)).map_err(failed)?;
    let lab = &bed.lab;
    let cubic = Peer::Tcp("cubic".to_owned());
    let folders = [
        bench.session().map_err(failed)?,
        bench.session().map_err(failed)?,
    ];
    let told = [0, 1].map(|flow| told(&meeting.path, lab, flow, &folders[flow]));
    let programs = &bench.programs;
    let mut first = Session::start(&cubic, ends(lab, 0), &told[0], programs).map_err(failed)?;
    let mut second = Session::start(peer, ends(lab, 1), &told[1], programs).map_err(failed)?;
    let together = plan.settle + plan.window;
    let work = |limit| Work {
        source,
        size,
        limit,
        look: Duration::from_secs(1),
    };
    let measured = std::thread::scope(|scope| {
        let running = scope.spawn(|| first.transfer(&work(2 * together)));
        let alone = measure(lab, plan);
        let joined = scope.spawn(|| second.transfer(&work(together)));
        let both = measure(lab, plan);
        let ended = [joined.join(), running.join()];
        let [joined, running] = ended.map(|ended| ended.map(|transfer| transfer.outcome));
        (alone, both, joined, running)
    });
    second.stop();
    first.stop();
    let (alone, both, joined, running) = measured;
    meeting.alone_bps = alone[0];
    meeting.together_bps = both;
    for (name, outcome) in [("the peer", joined), ("CUBIC", running)] {
        match outcome {
            Ok(Outcome::Failed(reason)) => return Err(failed(format!("{name}: {reason}"))),
            Ok(Outcome::Complete | Outcome::Limit) => {}
            Err(_) => return Err(failed(format!("{name}: its thread panicked"))),
        }
    }
    match bed.stop().map_err(failed)? {
        (.., Some(reason)) => Err((Status::Invalid, reason)),
        (.., None) => Ok(()),
    }
}

/// Rates of both flows, once they have settled.
fn measure(lab: &Lab, plan: &Plan) -> [f64; 2] {
    pause(plan.settle);
    let (begin, before) = (Instant::now(), arrived(&lab.stats()));
    pause(plan.window);
    let (seconds, after) = (begin.elapsed().as_secs_f64(), arrived(&lab.stats()));
    [0, 1].map(|flow| (after[flow] - before[flow]) as f64 * 8.0 / seconds)
}

fn arrived(stats: &LabStats) -> [u64; 2] {
    [0, 1].map(|flow| stats.flows.get(flow).map_or(0, |flow| flow.bytes_arrived))
}

/// Lets time pass, which is what is measured here.
fn pause(time: Duration) {
    let (_keep, never) = mpsc::channel::<()>();
    let _ = never.recv_timeout(time);
}
