//! What a comparison writes: one JSON object a line, from which tables, plots and pages are made.

use serde::{Deserialize, Serialize};

use super::path::{PACKET, PAYLOAD, Path};

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    /// What the runs after it have in common.
    Context(Context),
    /// One run of one peer.
    Run(Box<Run>),
    /// One meeting of a CUBIC flow and a peer.
    Fairness(Fairness),
}

/// Where and how runs were made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// The command line.
    pub command: String,
    /// When, in UTC.
    pub date: String,
    /// Kernel, processor, cores.
    pub machine: String,
    /// Other processes that wanted a processor at the start: load average over a minute.
    pub load: f64,
    /// Programs and what they say their versions are.
    pub versions: Vec<(String, String)>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// All arrived.
    Complete,
    /// It was stopped at its time limit.
    Limit,
    /// It failed.
    Failed,
    /// A program is missing.
    Missing,
    /// The lab was not true to its path.
    Invalid,
}

/// A run of one peer over one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The peer's name.
    pub peer: String,
    /// The path.
    pub path: Path,
    /// Bytes of the large file: runs with another size are not comparable.
    pub file_size: u64,
    /// Counted from 1.
    pub repetition: u32,
    /// How it ended.
    pub status: Status,
    /// Why it did not end well.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Small objects, one after the other, each on a connection of its own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub objects: Option<Objects>,
    /// The large file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<FileFigures>,
}

/// Figures of small objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objects {
    /// Bytes of each.
    pub size: u64,
    /// Completion times.
    pub seconds: Vec<f64>,
    /// Those that did not complete.
    pub unfinished: u32,
}

/// Figures of the large file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileFigures {
    /// Its size in bytes; 0 where there is none, but a run of a fixed time.
    pub size: u64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Seconds until the sender knew that all had arrived; or until the limit.
    pub seconds: f64,
    /// Useful bits a second after the first tenth of what arrived.
    pub steady_bps: Option<f64>,
    /// Useful bits a second that a perfect sender would have reached in the same time; of named
    /// paths.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit_bps: Option<f64>,
    /// The same after the first tenth of what arrived.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub steady_limit_bps: Option<f64>,
    /// Processor seconds of sender, receiver and both ends of a tunnel.
    pub cpu_s: [f64; 3],
    /// What the path counted.
    #[serde(flatten)]
    pub wire: Option<Wire>,
}

/// What the lab's path counted while the file was on its way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wire {
    /// IP bytes that entered towards the sink.
    pub wire_bytes: u64,
    /// IP packets that entered towards the sink.
    pub wire_packets: u64,
    /// IP bytes that entered towards the source.
    pub wire_bytes_back: u64,
    /// Packets towards the sink that found the queue full.
    pub dropped_queue: u64,
    /// Packets towards the sink that were lost at random.
    pub dropped_loss: u64,
    /// 99 % of the packets came out at most so late.
    pub late_p99_ms: f64,
    /// The latest.
    pub late_max_ms: f64,
    /// Processor seconds of the path itself.
    pub path_cpu_s: f64,
}

/// A CUBIC flow, and a peer that joins it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fairness {
    /// The peer's name.
    pub peer: String,
    /// The path.
    pub path: Path,
    /// Counted from 1.
    pub repetition: u32,
    /// How it ended.
    pub status: Status,
    /// Why it did not end well.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Bits of IP packets a second that CUBIC got alone.
    pub alone_bps: f64,
    /// What it got beside the peer, and the peer beside it.
    pub together_bps: [f64; 2],
}

impl Fairness {
    /// Jain's index of the two: 1 is an equal share, 0.5 all for one.
    pub fn jain(&self) -> f64 {
        let [a, b] = self.together_bps;
        match a * a + b * b {
            0.0 => 1.0,
            squares => (a + b).powi(2) / (2.0 * squares),
        }
    }

    /// The share of its rate that CUBIC lost.
    pub fn lost_share(&self) -> f64 {
        match self.alone_bps {
            0.0 => 0.0,
            alone => 1.0 - self.together_bps[0] / alone,
        }
    }
}

impl FileFigures {
    /// Useful bits a second from start to end.
    pub fn whole_bps(&self) -> f64 {
        match self.seconds {
            0.0 => 0.0,
            seconds => self.bytes as f64 * 8.0 / seconds,
        }
    }

    /// Processor seconds of everything per 10⁹ useful bytes.
    pub fn cpu_per_gb(&self) -> Option<f64> {
        let cpu: f64 = self.cpu_s.iter().sum();
        (self.bytes > 0).then(|| cpu / (self.bytes as f64 / 1e9))
    }

    /// IP bytes sent per useful byte, as a multiple of the least that path allows.
    pub fn wire_ratio(&self, path: &Path) -> Option<f64> {
        let wire = self.wire.as_ref()?;
        let least = match path {
            Path::Bottleneck(path) => path.least_wire(),
            // As it happened: a path that loses in bursts does not lose its mean in every run.
            Path::Named(_) => {
                let lost = wire.dropped_loss as f64 / wire.wire_packets.max(1) as f64;
                PACKET / PAYLOAD / (1.0 - lost)
            }
            Path::Direct { .. } => return None,
        };
        (self.bytes > 0).then(|| wire.wire_bytes as f64 / self.bytes as f64 / least)
    }
}

/// Reads lines; those that are none are named.
///
/// # Errors
/// The number of the first line that cannot be read, and why.
pub fn read_lines(text: &str) -> Result<Vec<Line>, String> {
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", index + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let run = Run {
            peer: "srt".into(),
            path: Path::DIRECT,
            file_size: 100,
            repetition: 3,
            status: Status::Limit,
            reason: None,
            objects: Some(Objects {
                size: 150_000,
                seconds: vec![0.1, 0.2],
                unfinished: 1,
            }),
            file: Some(FileFigures {
                size: 100,
                bytes: 50,
                seconds: 2.0,
                wire: Some(Wire::default()),
                ..FileFigures::default()
            }),
        };
        let mut without = run.clone();
        without.objects = None;
        without.file.as_mut().unwrap().wire = None;
        let lines = [
            Line::Context(Context::default()),
            Line::Run(Box::new(run)),
            Line::Run(Box::new(without)),
        ];
        let text: Vec<_> = lines
            .iter()
            .map(|line| serde_json::to_string(line).unwrap())
            .collect();
        assert_eq!(read_lines(&text.join("\n")).unwrap(), lines);
        let error = read_lines(&format!("{}\n\n{{", text[0])).unwrap_err();
        assert!(error.starts_with("line 3: "), "{error}");
    }

    #[test]
    fn ratios_worked_by_hand() {
        let path: Path = serde_json::from_str(
            r#"{"rate_bps":100000000,"rtt_s":0.05,"loss":0.5,"queue_packets":10}"#,
        )
        .unwrap();
        let file = FileFigures {
            bytes: 1472,
            seconds: 0.5,
            cpu_s: [1e-6, 2e-6, 3e-6],
            wire: Some(Wire {
                wire_bytes: 6000,
                ..Wire::default()
            }),
            ..FileFigures::default()
        };
        assert_eq!(file.whole_bps(), 23552.0);
        assert!((file.wire_ratio(&path).unwrap() - 2.0).abs() < 1e-12);
        assert!((file.cpu_per_gb().unwrap() - 6e-6 / 1.472e-6).abs() < 1e-9);
        assert_eq!(FileFigures::default().cpu_per_gb(), None);
    }

    #[test]
    fn shares_of_two() {
        let mut meeting = Fairness {
            peer: "udt".into(),
            path: Path::DIRECT,
            repetition: 1,
            status: Status::Complete,
            reason: None,
            alone_bps: 100.0,
            together_bps: [50.0, 50.0],
        };
        assert_eq!((meeting.jain(), meeting.lost_share()), (1.0, 0.5));
        meeting.together_bps = [0.0, 90.0];
        assert_eq!((meeting.jain(), meeting.lost_share()), (0.5, 1.0));
    }
}
