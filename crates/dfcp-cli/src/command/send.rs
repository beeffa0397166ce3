//! `dfcp send`.

mod arguments;
mod reach;
mod silence;

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dfcp::{
    CloseCode, Connection, ConnectionError, Endpoint, EndpointConfig, Error, Profile, Rate,
};
use dfcp_command::{Failure, Kind, block_on, interrupted};
use dfcp_transfer::{DONE, Expected, FAILED, INTERRUPTED, Meter, Sent};

use super::{code, farewell};
use crate::files;
use crate::progress::Bar;
use crate::published;
use crate::report::{Attempts, Report};
use crate::unfinished::Unfinished;
use arguments::Job;
pub use arguments::{Args, RAPTORQ_SYMBOLS};
use reach::{connect, refused_or};

/// Sends the files.
pub fn run(args: Args) -> ExitCode {
    args.output.prepare();
    let mut report = Report::new("send");
    let result = match (args.what_and_where(), args.sealed()) {
        (Err(failure), _) => Err(failure),
        (Ok(job), Some(profile)) => args
            .check_options(&job)
            .and_then(|()| block_on(attempts(&args, &job, &profile, &mut report))),
        (Ok(job), None) => match args.published(&job) {
            Ok(job) => return published::send::run(job),
            Err(failure) => Err(failure),
        },
    };
    report.conclude(result.err());
    args.output.report_at_end(&report)
}

/// Why an attempt ended, and whether another one may fare better.
struct Ended {
    failure: Failure,
    again: bool,
}

impl<E: Into<Failure>> From<E> for Ended {
    fn from(error: E) -> Self {
        let failure = error.into();
        let again = failure.kind == Kind::Unreachable;
        Self { failure, again }
    }
}

/// Between attempts: long enough not to be a burden, short beside what a person waits.
pub const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// Sends the files, and tries again if that is wanted and may help.
async fn attempts(
    args: &Args,
    job: &Job,
    profile: &Profile,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut since = Instant::now();
    let mut earlier = Attempts::default();
    let mut unspent = None;
    let mut said = String::new();
    loop {
        report.attempts = 1;
        let (start, mut asked) = (Instant::now(), Duration::ZERO);
        let ended = transfer(
            args,
            job,
            profile.clone(),
            report,
            (&mut earlier, &mut asked, &mut unspent),
        )
        .await;
        let Err(ended) = ended else {
            // All may have come before anybody saw that it was agreed to.
            if let Some(code) = unspent {
                code.spend();
            }
            report.add_attempts(&earlier, asked);
            return Ok(());
        };
        match unspent.take() {
            // What a pipe gave is gone.
            Some(code) if ended.failure.kind.is_interruption() || job.is_pipe() => code.spend(),
            Some(code) => {
                // Whoever came may come again, with more room or to another place.
                dfcp_command::tell!("dfcp: {}; nothing was sent", ended.failure);
                unspent = Some(code);
                *report = Report::new("send");
                continue;
            }
            None => {}
        }
        if report.moved_bytes > 0 {
            since = Instant::now();
        }
        let retry = args
            .retry
            .filter(|limit| job.host.is_some() && ended.again && since.elapsed() < *limit);
        if retry.is_none() {
            report.add_arrived(&earlier);
            report.add_attempts(&earlier, asked);
            return Err(ended.failure);
        }
        earlier.note(report, start, asked);
        args.output.say_again(&mut said, ended.failure.to_string());
        tokio::select! {
            () = tokio::time::sleep(RETRY_PAUSE) => {}
            failure = interrupted() => {
                *report = Report::new("send");
                report.add_arrived(&earlier);
                report.add_attempts(&earlier, Duration::ZERO);
                return Err(failure);
            }
        }
        *report = Report::new("send");
    }
}

/// Whether a new connection may do better than one that ended like this.
fn may_recover(error: &Error) -> bool {
    match error {
        Error::Connection(error) => match error {
            ConnectionError::TimedOut | ConnectionError::Unreachable | ConnectionError::Reset => {
                true
            }
            // Its user or its service manager ended it, and may start it again; or it is full.
            ConnectionError::PeerClosed { code, .. } => {
                [INTERRUPTED, CloseCode::LIMIT].contains(code)
            }
            _ => false,
        },
        // No interface, no route.
        Error::Io(_) => true,
        _ => false,
    }
}

async fn transfer(
    args: &Args,
    job: &Job,
    profile: Profile,
    report: &mut Report,
    (earlier, asked, unspent): (&mut Attempts, &mut Duration, &mut Option<code::Unspent>),
) -> Result<(), Ended> {
    // Where nothing comes of this before somebody is there, nothing more is waited for.
    let told = unspent.take();
    let mut sources = args.sources(&job.paths)?;
    report.left_out.clone_from(&sources.left_out);
    let key = args.peer.own_key()?;
    let (own, static_key) = (key.public(), key.clone());
    let transport = args.output.observed(args.transport(profile))?;
    let config = EndpointConfig::client(key).transport(transport);
    let mut start = Instant::now();
    let (endpoint, connection, remote) = match &job.host {
        Some(host) => {
            let endpoint = Endpoint::bind(config)?;
            let (connection, remote) = tokio::select! {
                connected = connect(args, host, &endpoint, &own, asked) => connected?,
                failure = interrupted() => return Err(failure.into()),
            };
            (endpoint, connection, remote)
        }
        None => {
            let job = args.sending(&static_key, sources.bytes());
            let met = code::send(job, config, (told, &mut *unspent)).await?;
            start = Instant::now(); // people take their time
            met
        }
    };
    report.add_buffers(endpoint.socket_buffers());
    let unfinished = Unfinished::sent(&job.paths, &connection.peer());
    if earlier.is_some() || unfinished.as_ref().is_some_and(Unfinished::broke_off) {
        sources.expected = Expected::Something;
    }
    let sources = Arc::new(sources);
    unfinished.iter().for_each(Unfinished::begin);
    let meter = Meter::start();
    let bar = Bar::start(
        &args.output,
        &connection,
        remote,
        (&meter, earlier.before()),
    );
    let result = tokio::select! {
        result = dfcp_transfer::send(&connection, &sources, &meter) => {
            result.map_err(|error| match error {
                dfcp_transfer::Error::Transport(error) => Ended {
                    again: may_recover(&error),
                    failure: refused_or(error, &own),
                },
                error => files::failure(error).into(),
            })
        }
        failure = interrupted() => Err(failure.into()),
        never = slowed(args, &connection) => match never {},
        never = silence::told(args, &connection) => match never {},
        never = spent(&meter, unspent) => match never {},
    };
    drop(bar);
    report.add_connection(&connection, remote);
    let (code, sent, failure) = match result {
        Ok(sent) => (DONE, sent, None),
        Err(ended) if ended.failure.kind.is_interruption() => {
            (INTERRUPTED, Sent::default(), Some(ended))
        }
        Err(ended) => (FAILED, Sent::default(), Some(ended)),
    };
    earlier.note_reached(&meter);
    report.moved_bytes = meter.progress().bytes();
    report.kept_bytes = meter.diary().kept();
    *asked += meter.diary().asked();
    let (entries, mut outcomes) = (sources.entries(), sent.outcomes);
    earlier.own(&entries, &mut outcomes);
    report.add_outcomes(&entries, &outcomes, meter.diary());
    if failure.is_none() && report.problems.is_empty() {
        unfinished.iter().for_each(Unfinished::end);
    }
    let done = meter.diary().done().into_iter();
    earlier.note_arrived(&entries, done, meter.diary());
    report.left_out.extend(sent.left_out);
    report.add_time(start, *asked, sent.steady_bps);
    part(&endpoint, connection, code, failure).await
}

/// Ends the connection, with the reason where there was a failure.
async fn part(
    endpoint: &Endpoint,
    connection: Connection,
    code: CloseCode,
    failure: Option<Ended>,
) -> Result<(), Ended> {
    let reason = failure
        .as_ref()
        .map_or(String::new(), |ended| ended.failure.to_string());
    connection.close(code, &reason);
    drop(connection);
    match failure {
        // The receiver has said that all is in its place: that it hears the end is its comfort only.
        None => {
            endpoint.flush().await;
            Ok(())
        }
        Some(ended) => {
            farewell(endpoint, code, &reason).await;
            Err(ended)
        }
    }
}

/// Uses the code up when the receiver has agreed to what is offered. Does not end.
async fn spent(meter: &Meter, unspent: &mut Option<code::Unspent>) -> Infallible {
    meter.diary().agreed().await;
    if let Some(code) = unspent.take() {
        code.spend();
    }
    std::future::pending().await
}

/// How often it is looked whether a rate holds that does not give way, and whether the receiver is silent.
const LOOK: Duration = Duration::from_millis(500);

/// Says when such a rate was given up, and to what. Does not end.
async fn slowed(args: &Args, connection: &Connection) -> Infallible {
    let Some((what, rate)) = args.unyielding().filter(|_| args.bwlimit.is_none()) else {
        return std::future::pending().await;
    };
    let ordered = rate.rate();
    let mut told = false;
    loop {
        tokio::time::sleep(LOOK).await;
        let rate = connection.stats().pacing_rate;
        let slow = rate < ordered && rate > Rate::from_bps(0);
        if slow && !told {
            args.output.say(format_args!(
                "more than half of what was sent was lost for two seconds: slowed down to what \
                 arrives, {rate}. Without {what} the rate is found"
            ));
        }
        told = slow;
    }
}
