//! `dfcp` beside kernel TCP and other transports, on the same path in one run.
//!
//! - [`path`]: the paths; [`emulated`]: their networks; [`record`]: what is written;
//! - [`summary`]: what is made of it; [`table`]: tables for people; [`board`]: peers over many named
//!   paths; [`fairness`]: a CUBIC flow and a peer that joins it.
//!
//! Repetitions are interleaved: every peer has run once before any runs again, so that a machine
//! that grows busier is so for all. Each run has a lab of its own, made anew: no queue, no cached
//! TCP metrics and no loss pattern of one helps or harms the next, and the same repetition has the
//! same random numbers for all.

pub mod board;
pub mod emulated;
pub mod fairness;
pub mod path;
pub mod record;
pub mod summary;
pub mod table;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use dfcp_sim::Seed;
use dfcp_sim::scenario::Scenario;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

use self::emulated::{Emulated, limit_between};
use self::path::Path;
use self::record::{FileFigures, Objects, Run, Status, Wire};
use crate::leftover::Scratch;
use crate::peer::plan::Told;
use crate::peer::{Ends, Outcome, Peer, Programs, Session, Transfer, Work};
use crate::run::Validity;
use crate::{FlowPorts, Host, Lab, LabOptions, LabStats};

/// What is compared.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Who takes part.
    pub peers: Vec<Peer>,
    /// Over which paths.
    pub paths: Vec<Emulated>,
    /// How often each.
    pub repetitions: u32,
    /// Bytes of the file; of named paths at most so many.
    pub file_size: u64,
    /// Bytes of a small object.
    pub object_size: u64,
    /// Small objects of a run.
    pub objects: u32,
    /// Time for the file, of named paths at most so long; and for all the small objects of a run.
    pub limit: Duration,
}

/// The files that are sent, and a place for those that arrive.
#[derive(Debug)]
pub struct Bench {
    folder: PathBuf,
    programs: Programs,
    _scratch: Option<Scratch>,
}

impl Bench {
    /// A place for the files of comparisons. Where the kernel allows it, it is in memory, and only
    /// this thread and what it starts see it: it vanishes with them, however they end. Else it is
    /// removed when dropped.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(programs: Programs) -> io::Result<Self> {
        let (folder, scratch) = match own_memory() {
            Some(directory) => (PathBuf::from(directory), None),
            None => {
                let scratch = Scratch::create()?;
                (scratch.path().to_owned(), Some(scratch))
            }
        };
        Ok(Self {
            folder,
            programs,
            _scratch: scratch,
        })
    }

    /// A file of so many random bytes, which nothing can compress.
    fn file(&self, size: u64) -> io::Result<PathBuf> {
        let path = self.folder.join(format!("source-{size}"));
        if path.exists() {
            return Ok(path);
        }
        let mut file = BufWriter::with_capacity(1 << 18, File::create_new(&path)?);
        let mut random = Seed(size).stream("comparison.content");
        let mut left = size;
        while left > 0 {
            let word = random.next_u64().to_le_bytes();
            let part = &word[..word.len().min(usize::try_from(left).unwrap_or(8))];
            file.write_all(part)?;
            left -= part.len() as u64;
        }
        file.flush()?;
        Ok(path)
    }

    /// A directory for one session.
    fn session(&self) -> Result<TempDir, String> {
        let directory = tempfile::tempdir_in(&self.folder);
        directory.map_err(|error| format!("a temporary directory: {error}"))
    }
}

/// Mounts a file system in memory that nobody else sees, over a directory that is empty anyway.
fn own_memory() -> Option<&'static str> {
    let empty =
        |path: &&str| std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    let directory = ["/srv", "/media", "/mnt"].into_iter().find(empty)?;
    let none = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNS).ok()?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).ok()?;
    mount(
        Some("tmpfs"),
        directory,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        none,
    )
    .ok()?;
    Some(directory)
}

/// Makes all runs of a plan, and shows each when it is done.
///
/// # Errors
/// When the files that are to be sent cannot be made; whatever happens to a peer is in its runs.
pub fn compare(plan: &Plan, bench: &Bench, each: &mut dyn FnMut(Run)) -> io::Result<()> {
    let small = bench.file(plan.object_size)?;
    for path in &plan.paths {
        let (file_size, limit) = path.work(plan.file_size, plan.limit);
        let large = bench.file(file_size)?;
        let mut missing: Vec<&Peer> = Vec::new();
        for repetition in 1..=plan.repetitions {
            for peer in &plan.peers {
                if missing.contains(&peer) {
                    continue;
                }
                let attempt = Attempt {
                    plan,
                    bench,
                    path,
                    peer,
                    repetition,
                    file_size,
                    limit,
                };
                let run = attempt.run(&small, &large);
                if run.status == Status::Missing {
                    missing.push(peer); // it will not turn up
                }
                each(run);
            }
        }
        if large != small {
            // Many paths have each a file of its own size, and they lie in memory.
            let _ = std::fs::remove_file(&large);
        }
    }
    Ok(())
}

/// Between two looks at a small object, and at the file.
const LOOKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(5)];

/// One run of a peer.
struct Attempt<'a> {
    plan: &'a Plan,
    bench: &'a Bench,
    path: &'a Emulated,
    peer: &'a Peer,
    repetition: u32,
    file_size: u64,
    limit: Duration,
}

/// Why a run has no figures.
struct NoRun(Status, String);

impl From<String> for NoRun {
    fn from(reason: String) -> Self {
        Self(Status::Failed, reason)
    }
}

impl Attempt<'_> {
    fn run(&self, small: &std::path::Path, large: &std::path::Path) -> Run {
        let mut run = Run {
            peer: self.peer.to_string(),
            path: self.path.path.clone(),
            file_size: self.file_size,
            repetition: self.repetition,
            status: Status::Complete,
            reason: None,
            objects: None,
            file: None,
        };
        if let Err(NoRun(status, reason)) = self.fill(&mut run, small, large) {
            run.status = status;
            run.reason = Some(reason);
        }
        run
    }

    fn fill(
        &self,
        run: &mut Run,
        small: &std::path::Path,
        large: &std::path::Path,
    ) -> Result<(), NoRun> {
        let needed = self.peer.programs();
        for program in needed {
            if let Err(missing) = self.bench.programs.find(program) {
                return Err(NoRun(Status::Missing, missing.to_string()));
            }
        }
        if self.plan.objects > 0 && self.peer.moves_objects() {
            let (objects, problem) = self.objects(small)?;
            run.objects = Some(objects);
            run.reason = problem;
        }
        let (outcome, file, invalid) = self.file(large)?;
        run.file = Some(file);
        (run.status, run.reason) = match (outcome, invalid) {
            (Outcome::Failed(reason), _) => (Status::Failed, Some(reason)),
            (_, Some(reason)) => (Status::Invalid, Some(reason)),
            (Outcome::Limit, None) => (Status::Limit, run.reason.take()),
            (Outcome::Complete, None) => (Status::Complete, run.reason.take()),
        };
        Ok(())
    }

    /// Small objects one after the other, until the time is used up; with what went wrong.
    fn objects(&self, source: &std::path::Path) -> Result<(Objects, Option<String>), NoRun> {
        let bed = self.lab("objects")?;
        let lab = &bed.lab;
        let folder = self.bench.session()?;
        let told = told(&self.path.path, lab, 0, &folder);
        let mut session = Session::start(self.peer, ends(lab, 0), &told, &self.bench.programs)?;
        let mut objects = Objects {
            size: self.plan.object_size,
            seconds: Vec::new(),
            unfinished: 0,
        };
        let mut problem = None;
        let mut left = self.plan.limit;
        for _ in 0..self.plan.objects {
            let transfer = session.transfer(&Work {
                source,
                size: self.plan.object_size,
                limit: left,
                look: LOOKS[0],
            });
            left = left.saturating_sub(Duration::from_secs_f64(transfer.seconds));
            match transfer.outcome {
                Outcome::Complete => objects.seconds.push(transfer.seconds),
                Outcome::Limit => objects.unfinished += 1,
                Outcome::Failed(reason) => {
                    objects.unfinished += 1;
                    problem = Some(format!("an object failed: {reason}"));
                }
            }
            if left.is_zero() {
                break;
            }
        }
        session.stop();
        Ok((objects, problem))
    }

    /// The file; with the reason why the lab was not true, if it was not.
    fn file(
        &self,
        source: &std::path::Path,
    ) -> Result<(Outcome, FileFigures, Option<String>), NoRun> {
        let bed = self.lab("file")?;
        let lab = &bed.lab;
        let folder = self.bench.session()?;
        let told = told(&self.path.path, lab, 0, &folder);
        let mut session = Session::start(self.peer, ends(lab, 0), &told, &self.bench.programs)?;
        let transfer = session.transfer(&Work {
            source,
            size: self.file_size,
            limit: self.limit + self.peer.fixed_time(),
            look: LOOKS[1],
        });
        let tunnel = session.stop();
        let epoch_ns = lab.epoch_ns();
        let (stats, scenario, invalid) = bed.stop()?;
        let Transfer {
            outcome,
            started_ns,
            bytes,
            seconds,
            steady,
            cpu_sender,
            cpu_receiver,
        } = transfer;
        // Only named paths change, or lose more at one time than at another.
        let scenario = scenario.filter(|_| self.path.path.named().is_some());
        let limit_of_last = |length: f64| {
            let begin = started_ns.saturating_sub(epoch_ns);
            let at = |seconds: f64| begin + (seconds.max(0.0) * 1e9) as u64;
            limit_between(scenario.as_ref()?, at(seconds - length), at(seconds))
        };
        let figures = FileFigures {
            size: match self.peer.moves_objects() {
                true => self.file_size,
                false => 0,
            },
            bytes,
            seconds,
            steady_bps: steady.map(|(bytes, seconds)| bytes as f64 * 8.0 / seconds),
            limit_bps: limit_of_last(seconds),
            steady_limit_bps: steady.and_then(|(_, length)| limit_of_last(length)),
            cpu_s: [cpu_sender, cpu_receiver, tunnel].map(|cpu| cpu.as_secs_f64()),
            wire: wire(&stats),
        };
        Ok((outcome, figures, invalid))
    }

    /// A lab of this run alone.
    fn lab(&self, part: &str) -> Result<Bed, NoRun> {
        let seed = Seed(u64::from(self.repetition)).stream(part).next_u64() >> 1;
        Ok(Bed::make(self.path, 1, seed)?)
    }
}

/// A lab and what it was made from.
struct Bed {
    lab: Lab,
    scenario: Option<Scenario>,
}

impl Bed {
    /// Makes a lab of a path, with so many pairs of hosts.
    fn make(path: &Emulated, pairs: usize, seed: u64) -> Result<Self, String> {
        let options = LabOptions::default();
        let scenario = path.scenario(pairs, seed)?;
        let lab = match &scenario {
            None => Lab::direct_pair(&options),
            Some(scenario) => Lab::start(scenario, &options),
        };
        let lab = lab.map_err(|error| format!("the lab: {error}"))?;
        Ok(Self { lab, scenario })
    }

    /// What the path counted, what it was made from, and why it was not that, if so.
    fn stop(self) -> Result<(LabStats, Option<Scenario>, Option<String>), String> {
        let stats = self.lab.stop();
        let stats = stats.map_err(|error| format!("the lab: {error}"))?;
        let validity = self.scenario.as_ref();
        let validity = validity.map(|scenario| Validity::of(scenario, &stats));
        let reasons = validity.map_or_else(Vec::new, |validity| validity.reasons);
        let invalid = (!reasons.is_empty()).then(|| reasons.join("; "));
        Ok((stats, self.scenario, invalid))
    }
}

fn ends(lab: &Lab, flow: usize) -> Ends<'_> {
    let (source, sink): (&Host, &Host) = lab.flow_hosts(flow);
    Ends { source, sink }
}

/// What the peer of a flow is told.
fn told(path: &Path, lab: &Lab, flow: usize, folder: &TempDir) -> Told {
    /// Of a cable: more than any peer needs.
    const CABLE_BPS: u64 = 10_000_000_000;
    let ports = FlowPorts::of(flow);
    Told {
        sink: lab.flow_hosts(flow).1.ipv4(),
        port: ports.server,
        inner: ports.further,
        rate_bps: path.rate_bps().unwrap_or(CABLE_BPS),
        round_trip: path.round_trip(),
        folder: folder.path().to_owned(),
    }
}

/// What the path counted for flow 0.
fn wire(stats: &LabStats) -> Option<Wire> {
    let (flow, path) = (stats.flows.first()?, stats.path.as_ref()?);
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    Some(Wire {
        wire_bytes: flow.bytes_sent,
        wire_packets: flow.packets_sent,
        wire_bytes_back: flow.bytes_returned,
        dropped_queue: flow.drops.full,
        dropped_loss: flow.drops.loss,
        late_p99_ms: milliseconds(path.lateness.quantile(0.99)),
        late_max_ms: milliseconds(path.lateness.max()),
        path_cpu_s: path.cpu.as_secs_f64(),
    })
}
