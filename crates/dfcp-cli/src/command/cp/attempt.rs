//! One attempt at a copy: the agent is started, the two sides connect, and the session of files runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dfcp::{Profile, Rate, TransportConfig};
use dfcp_command::{Failure, Kind, interrupted};
use dfcp_transfer::{
    DONE, FAILED, INTERRUPTED, Meter, Outcome, Received, Sent, Sources, Store, name,
};

use super::again::Told;
use super::choice::{self, Aim, Deletion};
use super::control::Work;
use super::link::{Joined, Link};
use super::reach::Side;
use super::{Args, Direction, agent, sync, target};
use crate::command::{self, bounded, farewell};
use crate::files;
use crate::progress::Bar;
use crate::unfinished::Unfinished;

/// How often a side says that it is alive.
pub(super) const PING: Duration = Duration::from_secs(2);

/// The transport's settings; what is sent takes at most `cap`.
pub(super) fn transport(timeout: Duration, cap: Option<Rate>, background: bool) -> TransportConfig {
    let profile = bounded(Profile::auto(), cap, background);
    let transport = command::transport(timeout).keep_alive(Some(PING));
    transport.profile(profile)
}

/// Gives up when the user does: before there is a session to end, or after.
pub(super) async fn unless_interrupted<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let result = tokio::select! {
        biased;
        failure = interrupted() => return Err(failure),
        result = work => result,
    };
    // Who interrupts this interrupts ssh, too, and that is no failure of ssh.
    if result.is_err()
        && let Ok(failure) = tokio::time::timeout(SAME_SIGNAL, interrupted()).await
    {
        return Err(failure);
    }
    result
}

/// A signal to a group of processes has reached all of them before any is given processor time that
/// lasts so long.
pub(super) const SAME_SIGNAL: Duration = Duration::from_millis(50);

/// Starts the agent and copies.
pub(super) async fn start(args: &Args, way: Direction<'_>, told: &mut Told) -> Result<(), Failure> {
    let transport = args.output.observed(transport(
        args.output.timeout(),
        args.bwlimit,
        args.background,
    ))?;
    let side = Side::open(transport, None)?;
    match way {
        Direction::Push {
            paths,
            host,
            target,
        } => start_push(args, &side, (paths, host, target), told).await,
        Direction::Pull {
            host,
            paths,
            target,
        } => start_pull(args, &side, (host, paths, target), told).await,
        Direction::Across { .. } => Ok(()),
    }
}

/// Copies `paths` of this machine to `target` at `host`.
async fn start_push(
    args: &Args,
    side: &Side,
    (paths, host, target): (Vec<PathBuf>, &str, &str),
    told: &mut Told,
) -> Result<(), Failure> {
    let paths = match args.expand {
        true => agent::expand_here(&paths)?,
        false => paths,
    };
    let mut sources = args.choice.scan(&paths)?;
    let delete = args.may_delete(&sources.left_out);
    let work = Work::Receive {
        path: target.to_owned(),
        several: paths.len() > 1,
        choice: args.choice.clone(),
        delete,
        deletes_nothing: args.delete && !delete,
        names: target::names(&sources),
    };
    let (link, ready) = unless_interrupted(Link::open(args, side, host, work)).await?;
    sources.expected = target::expected(ready.there);
    if let Some(name) = &ready.name {
        target::rename(&mut sources, name);
    }
    if ready.goes_on {
        args.output.say(choice::goes_on(target));
    }
    let mut link = unless_interrupted(link.connect(args, side, &ready)).await?;
    told.report.via = Some(link.via());
    push(args, side, &mut link, sources, told).await?;
    if delete {
        let removed = link.removed(args.output.timeout());
        let removed = unless_interrupted(removed).await?;
        args.tell_removed(removed, &mut told.report);
    }
    Ok(())
}

/// Copies `paths` at `host` to `target` of this machine.
async fn start_pull(
    args: &Args,
    side: &Side,
    (host, paths, target): (&str, Vec<String>, &Path),
    told: &mut Told,
) -> Result<(), Failure> {
    let several = paths.len() > 1 || paths.iter().any(|path| path.contains(['*', '?', '[']));
    let names = (!several).then(|| target::last_names(&paths));
    let Aim {
        directory,
        name,
        unfinished,
        goes_on,
    } = args.choice.resolve(target, names.as_deref())?;
    let root = |name: &str| directory.join(name::decode(name).unwrap_or_default());
    if let Some(name) = name.as_ref().filter(|_| args.delete) {
        args.choice.check_home(&root(name))?;
    }
    if goes_on {
        args.output.say(choice::goes_on(&target.to_string_lossy()));
    }
    let wanted = target::wanted(&paths, name.as_deref(), &args.choice);
    let names = match &name {
        Some(name) => vec![name.clone()],
        None => target::last_names(&paths),
    };
    let work = Work::Send {
        paths,
        choice: args.choice.clone(),
        name: name.clone(),
        there: target::has_any(&directory, &names),
    };
    let (link, ready) = unless_interrupted(Link::open(args, side, host, work)).await?;
    told.report.left_out.clone_from(&ready.left_out);
    let delete = args.may_delete(&ready.left_out);
    let store = args
        .choice
        .store(&directory, Deletion::new(args.delete, delete))?;
    let store = Arc::new(store.wanting(wanted));
    let mut link = unless_interrupted(link.connect(args, side, &ready)).await?;
    told.report.via = Some(link.via());
    let unfinished = unfinished.filter(|_| !args.choice.dry_run);
    unfinished.iter().for_each(Unfinished::begin);
    let received = pull(args, side, &mut link, store.clone(), told).await?;
    if sync::is_whole(&received) {
        unfinished.iter().for_each(Unfinished::end);
    }
    if let Some(name) = name.filter(|_| delete) {
        let tidy = sync::Tidy {
            root: root(&name),
            name,
            choice: args.choice.clone(),
            store,
        };
        args.tell_removed(tidy.after(&received)?, &mut told.report);
    }
    Ok(())
}

/// Sends over `connection`.
async fn push(
    args: &Args,
    side: &Side,
    link: &mut Joined,
    sources: Sources,
    Told { report, earlier }: &mut Told,
) -> Result<(), Failure> {
    report.left_out.clone_from(&sources.left_out);
    let connection = &link.connection.clone();
    let sources = Arc::new(sources);
    let start = Instant::now();
    let meter = Meter::start();
    let remote = connection.remote_address();
    let bar = remote
        .map(|remote| Bar::start(&args.output, connection, remote, (&meter, earlier.before())));
    let result = tokio::select! {
        biased;
        failure = interrupted() => Err(failure),
        sent = dfcp_transfer::send(connection, &sources, &meter) => {
            sent.map_err(files::failure)
        }
        failure = link.agent_ended(&args.output) => Err(failure),
    };
    drop(bar);
    if let Some(remote) = remote {
        report.add_connection(connection, remote);
    }
    let (code, sent, failure) = match result {
        Ok(sent) => (DONE, sent, None),
        Err(failure) => (code_of(&failure), Sent::default(), Some(failure)),
    };
    earlier.note_reached(&meter);
    report.moved_bytes = meter.progress().bytes();
    report.kept_bytes = meter.diary().kept();
    let (entries, mut outcomes) = (sources.entries(), sent.outcomes);
    earlier.own(&entries, &mut outcomes);
    let told = (&outcomes, &sent.changes);
    args.add_outcomes(&entries, told, (report, meter.diary()));
    let done = meter.diary().done().into_iter();
    earlier.note_arrived(&entries, done, meter.diary());
    report.left_out.extend(sent.left_out);
    report.add_time(start, meter.diary().asked(), sent.steady_bps);
    let reason = failure.as_ref().map_or(String::new(), ToString::to_string);
    connection.close(code, &reason);
    farewell(&side.endpoint, code, &reason).await;
    failure.map_or(Ok(()), Err)
}

fn code_of(failure: &Failure) -> dfcp::CloseCode {
    match failure.kind.is_interruption() {
        true => INTERRUPTED,
        false => FAILED,
    }
}

/// Receives over `connection`.
async fn pull(
    args: &Args,
    side: &Side,
    link: &mut Joined,
    store: Arc<Store>,
    Told { report, earlier }: &mut Told,
) -> Result<Received, Failure> {
    let connection = &link.connection.clone();
    let start = Instant::now();
    let meter = Meter::start();
    let remote = connection.remote_address();
    let bar = remote
        .map(|remote| Bar::start(&args.output, connection, remote, (&meter, earlier.before())));
    let agreed = async |_| Ok(());
    let received = tokio::select! {
        biased;
        failure = interrupted() => {
            farewell(&side.endpoint, INTERRUPTED, "interrupted").await;
            return Err(failure);
        }
        received = dfcp_transfer::receive(connection, store, &meter, agreed) => {
            received.ok_or_else(|| Failure::new(Kind::Unreachable, "the other side is gone"))
        }
        failure = link.agent_ended(&args.output) => Err(failure),
    };
    drop(bar);
    if let Some(remote) = remote {
        report.add_connection(connection, remote);
    }
    earlier.note_reached(&meter);
    report.moved_bytes = meter.progress().bytes();
    report.kept_bytes = meter.diary().kept();
    let mut received = received?;
    earlier.own(&received.entries, &mut received.outcomes);
    let outcomes = (&received.outcomes, &received.changes);
    args.add_outcomes(&received.entries, outcomes, (report, meter.diary()));
    let done = received.outcomes.iter();
    let done = done.filter(|(_, outcome)| **outcome == Outcome::Done);
    let done = done.map(|(place, _)| *place);
    earlier.note_arrived(&received.entries, done, meter.diary());
    report.left_out.append(&mut received.left_out);
    report.add_time(start, Duration::ZERO, meter.steady_bps());
    farewell(&side.endpoint, DONE, "").await;
    match received.failure.take() {
        None => Ok(received),
        Some(error) => Err(files::failure(error)),
    }
}
