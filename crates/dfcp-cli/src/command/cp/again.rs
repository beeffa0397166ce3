//! `--retry`: a copy that goes on by itself where the path or the other side comes back.

use std::time::{Duration, Instant};

use dfcp_command::{Failure, Kind, interrupted};

use super::Args;
use super::attempt::start;
use crate::command::send::RETRY_PAUSE;
use crate::report::{Attempts, Report};

/// What is told of a copy.
#[derive(Debug)]
pub struct Told {
    /// Of the attempt that there is.
    pub report: Report,
    /// Of those before it.
    pub earlier: Attempts,
}

impl Told {
    pub fn new(role: &'static str) -> Self {
        Self {
            report: Report::new(role),
            earlier: Attempts::default(),
        }
    }

    /// Whether files failed since something else writes them.
    fn is_held(&self) -> bool {
        let mut problems = self.report.problems.iter();
        problems.any(|problem| problem.message.ends_with(dfcp_transfer::BUSY))
    }

    /// Adds the attempts before to the last one.
    fn end(&mut self, ended: Result<(), Failure>) -> Result<(), Failure> {
        if ended.is_err() && self.earlier.is_some() {
            self.report.add_arrived(&self.earlier);
        }
        self.report.add_attempts(&self.earlier, Duration::ZERO);
        ended
    }
}

/// Copies, and tries again if that is wanted and may help: what never began, such as a login that fails,
/// would fail again.
pub async fn attempts(args: &Args, told: &mut Told) -> Result<(), Failure> {
    let mut since = Instant::now();
    let mut began = false;
    let mut said = String::new();
    loop {
        told.report.attempts = u32::from(args.retry.is_some());
        let begin = Instant::now();
        let ended = start(args, args.way()?, told).await;
        began |= told.report.via.is_some();
        if told.report.moved_bytes > 0 {
            since = Instant::now();
        }
        let why = match &ended {
            // There, the attempt before waits for this side as long as this one has waited for it.
            Ok(()) if told.is_held() => {
                "the other side has not given up the attempt before".to_owned()
            }
            Err(failure) if began && failure.kind == Kind::Unreachable => failure.to_string(),
            _ => return told.end(ended),
        };
        if args.retry.is_none_or(|limit| since.elapsed() >= limit) {
            return told.end(ended);
        }
        told.earlier.note(&told.report, begin, Duration::ZERO);
        args.output.say_again(&mut said, why);
        let stop = tokio::select! {
            () = tokio::time::sleep(RETRY_PAUSE) => None,
            failure = interrupted() => Some(failure),
        };
        told.report = Report::new(told.report.role);
        if let Some(failure) = stop {
            return told.end(Err(failure));
        }
    }
}
