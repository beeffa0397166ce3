//! What people are told of a session.

use dfcp_command::{Failure, units};

use super::reasons::{by_reason, reason_of};
use super::{FIRST, FileProblem, Report};

/// Bytes on the wire per byte from which on names, keys and headers are most of it.
const MEANINGLESS: f64 = 10.0;

impl Report {
    /// `error` without the first file of several where that is its last part: it stands above already.
    fn short_sum(&self, error: &Failure) -> String {
        let is_sum = |sum: Option<Failure>| sum.is_some_and(|sum| sum.message == error.message);
        match error.message.split_once(FIRST) {
            Some((count, _)) if is_sum(self.sum_of_problems()) => count.to_owned(),
            _ => error.to_string(),
        }
    }

    /// What was carried, how fast, at which cost.
    fn summary(&self) -> String {
        let path = format!(
            "loss {:.2} %, round trip {:.1} ms",
            self.loss * 100.0,
            self.rtt_ms
        );
        let time = format!("{:.2} s", self.seconds);
        if self.files == 0 {
            let beside = self.beside();
            let beside = beside.trim_start_matches(", ");
            return format!("nothing new: {beside}, in {time}; {path}");
        }
        let carried = self.carried();
        // The rest was there, or is holes; of what several attempts carried not all was heard of.
        let part = match carried < self.useful_bytes && self.attempts <= 1 {
            true => format!(", {} of it carried,", units::bytes(carried)),
            false => String::new(),
        };
        let wire = self.wire_bytes.max(self.wire_bytes_received) as f64;
        let cost = match wire / carried as f64 {
            _ if carried == 0 => String::new(),
            // Of a few bytes that tells nothing.
            share if share >= MEANINGLESS => {
                format!("{} on the wire, ", units::bytes(wire as u64))
            }
            share => format!("{share:.3} bytes on the wire per byte, "),
        };
        // Links and empty files have no rate.
        let rate = match self.useful_bytes {
            0 => String::new(),
            _ => format!(": {}", dfcp::Rate::from_bps(self.goodput_bps)),
        };
        format!(
            "{}{}, {}{part} in {time}{rate}; {cost}{path}",
            units::files(self.files),
            self.beside(),
            units::bytes(self.useful_bytes),
        )
    }

    /// Files that were not needed.
    fn beside(&self) -> String {
        let part = |n: u64, what: &str| match n {
            0 => String::new(),
            n => format!(", {n} {what}"),
        };
        part(self.files_there, "there already") + &part(self.files_skipped, "skipped")
    }

    /// For people.
    pub fn lines(&self) -> Vec<String> {
        let problems = self.problems.iter().map(|problem| {
            let FileProblem { path, message, .. } = problem;
            (path.as_str(), reason_of(path, message), message.clone())
        });
        let mut lines = by_reason(problems, |count, first, reason| {
            format!("{count} files (--json names them), the first one {first}: {reason}")
        });
        let left_out = self.left_out.iter().map(|left| {
            let line = format!("left out {}: {}", left.path, left.why);
            (left.path.as_str(), left.why.clone(), line)
        });
        lines.extend(by_reason(left_out, |count, first, why| {
            format!("left out {count} things (--json names them), the first one {first}: {why}")
        }));
        for (paths, why) in [(&self.grown, GREW), (&self.changed, CHANGED)] {
            let told = paths.iter().map(|path| {
                let line = format!("{path}: {why}");
                (path.as_str(), why.to_owned(), line)
            });
            lines.extend(by_reason(told, |count, first, why| {
                format!("{count} files (--json names them), the first one {first}: {why}")
            }));
        }
        if let Some(error) = &self.error
            && !lines.contains(&error.message)
        {
            lines.push(self.short_sum(error));
        }
        if self.files + self.files_there + self.files_skipped > 0 {
            lines.push(self.summary());
        }
        lines
    }
}

/// What is said of a file to which was added while it was sent.
const GREW: &str =
    "it grew while it was sent: what was offered of it has arrived, as it was when it was read";

/// What is said of a file that was another one when it was its turn.
const CHANGED: &str =
    "it changed, or another file took its place, before it was sent: it has arrived as it was then";

#[cfg(test)]
mod tests {
    use dfcp_command::Kind;
    use dfcp_transfer::LeftOut;

    use super::super::reasons::MANY;
    use super::*;

    #[test]
    fn what_is_in_the_way_of_many_files_is_told_once() {
        let problem = |path: &str| FileProblem {
            path: path.to_owned(),
            kind: Kind::LocalIo,
            message: "tree: it is a file here".to_owned(),
        };
        let mut report = Report {
            problems: vec![problem("tree/a"), problem("tree/b"), problem("tree")],
            ..Report::new("cp")
        };
        report.conclude(None);
        let expected = ["tree: it is a file here", "3 files failed"];
        assert_eq!(report.lines(), expected);
        // Who reads JSON has the first one in the error.
        let error = report.error.unwrap().message;
        assert_eq!(
            error,
            "3 files failed, the first one: tree: it is a file here"
        );
    }

    #[test]
    fn many_things_with_the_same_reason_have_one_line() {
        let problem = |path: &str, why: &str| FileProblem {
            path: path.to_owned(),
            kind: Kind::LocalIo,
            message: format!("receiver: {path}: {why}"),
        };
        let left = |path: &str| LeftOut {
            path: path.to_owned(),
            why: "a symbolic link".to_owned(),
        };
        let mut report = Report {
            problems: (0..300)
                .map(|i| problem(&format!("tree/{i}"), "no space"))
                .collect(),
            left_out: (0..11).map(|i| left(&format!("links/{i}"))).collect(),
            ..Report::new("send")
        };
        report
            .problems
            .insert(7, problem("tree/odd", "not allowed"));
        report.conclude(None);
        let expected = [
            "300 files (--json names them), the first one tree/0: receiver: no space",
            "receiver: tree/odd: not allowed",
            "left out 11 things (--json names them), the first one links/0: a symbolic link",
            "301 files failed",
        ];
        assert_eq!(report.lines(), expected);
        report.problems.truncate(MANY);
        report.conclude(None);
        assert_eq!(report.lines().len(), MANY + 2);
        // Of what is sent from elsewhere, too.
        for problem in &mut report.problems {
            problem.message = format!("sender: /data/{}: removed", problem.path);
        }
        report.problems.push(FileProblem {
            path: "tree/last".to_owned(),
            message: "sender: /data/tree/last: removed".to_owned(),
            ..report.problems[0].clone()
        });
        report.conclude(None);
        let expected = "11 files (--json names them), the first one tree/0: sender: removed";
        assert_eq!(report.lines()[0], expected);
        // And of what is called otherwise there.
        for problem in &mut report.problems {
            problem.message = problem.message.replace("/data/tree", "old");
        }
        assert_eq!(report.lines()[0], expected);
    }

    #[test]
    fn who_sends_a_log_hears_that_it_grew_and_nothing_is_wrong() {
        let mut report = Report {
            files: 1,
            grown: vec!["var/log".to_owned()],
            ..Report::new("send")
        };
        report.conclude(None);
        assert_eq!(report.exit_code, 0);
        let expected = "var/log: it grew while it was sent: what was offered of it has arrived, as it was when it was read";
        assert_eq!(report.lines()[0], expected);
        assert_eq!(report.lines().len(), 2);
        report.changed = vec!["notes".to_owned()];
        assert!(report.lines()[1].starts_with("notes: it changed, or another file took its place"));
    }

    #[test]
    fn the_summary_tells_what_came_from_what_was_there() {
        let mut report = Report {
            files: 1,
            useful_bytes: 30_000_000,
            moved_bytes: 30_000_000,
            seconds: 2.0,
            goodput_bps: 120_000_000,
            ..Report::new("recv")
        };
        let said = |report: &Report| report.lines().join(" ");
        let whole = "1 file, 30.0 MB in 2.00 s: 120.00 Mbit/s; ";
        assert!(said(&report).starts_with(whole), "{}", said(&report));
        report.moved_bytes = 10_000_000;
        report.files_there = 2;
        let part = "1 file, 2 there already, 30.0 MB, 10.0 MB of it carried, in 2.00 s: ";
        assert!(said(&report).starts_with(part), "{}", said(&report));
        report.wire_bytes = 10_500_000;
        assert!(said(&report).contains("1.050 bytes on the wire per byte"));
        report.wire_bytes = 150_000_000;
        assert!(said(&report).contains("; 150 MB on the wire, loss"));
        // Several attempts are one transfer.
        report.attempts = 2;
        assert!(!said(&report).contains("carried"), "{}", said(&report));
        report.attempts = 0;
        (report.moved_bytes, report.kept_bytes) = (0, 30_000_000);
        let none = "30.0 MB, 0 bytes of it carried, in 2.00 s";
        assert!(said(&report).contains(none), "{}", said(&report));
        // As of links.
        report.useful_bytes = 0;
        report.kept_bytes = 0;
        let empty = "1 file, 2 there already, 0 bytes in 2.00 s; loss";
        assert!(said(&report).starts_with(empty), "{}", said(&report));
        report.files = 0;
        let nothing = "nothing new: 2 there already, in 2.00 s; loss";
        assert!(said(&report).starts_with(nothing), "{}", said(&report));
    }
}
