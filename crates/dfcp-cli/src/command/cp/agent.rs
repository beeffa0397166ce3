//! `dfcp agent`: the other side of `dfcp cp`, which starts it through ssh. Not for people.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use dfcp::{Connection, Rate};
use dfcp_command::{Failure, Kind, block_on};
use dfcp_transfer::{DONE, FAILED, Meter, Received, Sources, Store, name};
use tokio::io::{Stdin, Stdout, stdin, stdout};

use super::attempt;
use super::choice::{Aim, Deletion};
use super::control::{self, FromAgent, GREETING, Job, Ready, ToAgent, Work};
use super::heard::Heard;
use super::pattern;
use super::reach::{self, HEAD_START, Side};
use super::sync::Tidy;
use super::target;
use super::tunnel::Tunnel;
use crate::command::farewell;
use crate::unfinished::Unfinished;

/// How long the asking side may take to choose a connection.
const CHOICE_LIMIT: Duration = Duration::from_secs(60);

/// What is to be done once there is a connection.
enum Task {
    Send(Sources),
    Receive(Arc<Store>, Option<Tidy>, Option<Unfinished>),
}

/// What a connection stands on.
enum Way {
    /// The pipe says when ssh, or who started it, is gone.
    Udp(Stdin, Stdout),
    Pipe(Tunnel),
}

impl Way {
    /// Returns when the other side is gone and cannot have said so. A path that breaks ssh's own
    /// connection does not end a copy.
    async fn abandoned(&mut self, connection: &Connection) {
        match self {
            Self::Udp(pipe, _) => {
                while let Ok(Some(_)) = control::read(pipe).await {}
                Heard::of(connection).end().await;
            }
            Self::Pipe(tunnel) => tunnel.ended().await,
        }
    }

    /// A last word, which nobody may hear.
    async fn say(&mut self, message: &FromAgent) {
        match self {
            Self::Udp(_, pipe) => {
                let _ = control::say(pipe, message).await;
            }
            Self::Pipe(tunnel) => tunnel.say(message).await,
        }
    }
}

/// Does what the other end of standard input and output asks for.
pub fn run() -> ExitCode {
    match block_on(serve()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit_code(),
    }
}

async fn serve() -> Result<(), Failure> {
    dfcp_command::print(GREETING)?;
    let (mut from, mut to) = (stdin(), stdout());
    let job = match control::message(&mut from).await? {
        Some(ToAgent::Job(job)) => job,
        Some(_) => return Err(Failure::usage("the first message is a job")),
        None => return Ok(()),
    };
    let prepared = match open(&job) {
        Ok(side) => {
            let (asked, addresses) = (
                job.clone(),
                (side.endpoint.public_key().to_string(), side.port()),
            );
            let work = move || prepare(&asked, addresses);
            let ready =
                patiently(work, async || control::say(&mut to, &FromAgent::Busy).await).await;
            ready.map(|ready| (side, ready))
        }
        Err(failure) => Err(failure),
    };
    match prepared {
        Ok((side, (ready, task))) => {
            control::say(&mut to, &FromAgent::Ready(ready)).await?;
            work(&side, &job, task, from, to).await
        }
        Err(failure) => {
            control::say(&mut to, &FromAgent::Failed(failure.clone())).await?;
            Err(failure)
        }
    }
}

/// Does what may take long on a thread of its own, and says meanwhile that it goes on.
async fn patiently<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    mut say_busy: impl AsyncFnMut() -> std::io::Result<()>,
) -> Result<T, Failure> {
    let mut work = tokio::task::spawn_blocking(work);
    loop {
        tokio::select! {
            done = &mut work => return done.map_err(std::io::Error::other)?,
            () = tokio::time::sleep(attempt::PING) => say_busy().await?,
        }
    }
}

/// Sends or receives over the connection that the asking side chooses.
async fn work(side: &Side, job: &Job, task: Task, from: Stdin, to: Stdout) -> Result<(), Failure> {
    let (connection, mut way) = meet(side, job, from, to).await?;
    let ended = tokio::select! {
        ended = transfer(&connection, task) => ended,
        () = way.abandoned(&connection) => Ended::default(),
    };
    if let Some((tidy, received)) = ended.tidy {
        let say_busy = async || {
            way.say(&FromAgent::Busy).await;
            Ok(())
        };
        let tidied = patiently(move || tidy.after(&received), say_busy).await;
        let words = match tidied {
            Ok(removed) => FromAgent::removed(&removed),
            Err(failure) => vec![FromAgent::Failed(failure)],
        };
        for word in words {
            way.say(&word).await;
        }
    }
    let code = if ended.done { DONE } else { FAILED };
    drop(connection);
    farewell(&side.endpoint, code, "").await;
    Ok(())
}

/// Opens a socket for whoever asks.
fn open(job: &Job) -> Result<Side, Failure> {
    let timeout = Duration::from_millis(job.timeout_ms);
    let cap = job.bwlimit_bps.map(Rate::from_bps);
    let side = Side::open(attempt::transport(timeout, cap, job.background), job.ports)?;
    side.expect(control::key(&job.key)?);
    Ok(side)
}

/// Looks at what is to be copied, or where to; the socket is the one of this key at this port.
fn prepare(job: &Job, (key, port): (String, u16)) -> Result<(Ready, Task), Failure> {
    let server = reach::of_ssh().map(|(_, server)| server);
    let mut ready = Ready {
        key,
        port,
        addresses: server.into_iter().chain(reach::own_addresses()).collect(),
        name: None,
        left_out: Vec::new(),
        there: false,
        goes_on: false,
    };
    let task = match &job.work {
        Work::Send {
            paths,
            choice,
            name,
            there,
        } => {
            let mut sources = choice.scan(&expand(paths)?)?;
            if let Some(name) = name {
                target::rename(&mut sources, name);
            }
            ready.left_out.clone_from(&sources.left_out);
            sources.expected = target::expected(*there);
            Task::Send(sources)
        }
        Work::Receive {
            path,
            several,
            choice,
            delete,
            deletes_nothing,
            names,
        } => {
            let path = target::at_home(path);
            let Aim {
                directory,
                name,
                unfinished,
                goes_on,
            } = choice.resolve(&path, (!several).then_some(names))?;
            let looked_for = name.as_ref().map_or(&names[..], std::slice::from_ref);
            ready.there = target::has_any(&directory, looked_for);
            (ready.name, ready.goes_on) = (name.clone(), goes_on);
            let root = |name: &str| directory.join(name::decode(name).unwrap_or_default());
            if let Some(name) = name.as_ref().filter(|_| *delete || *deletes_nothing) {
                choice.check_home(&root(name))?;
            }
            let deletion = Deletion::new(*delete || *deletes_nothing, *delete);
            let store = Arc::new(choice.store(&directory, deletion)?);
            let tidy = name.filter(|_| *delete).map(|name| Tidy {
                root: root(&name),
                name,
                choice: choice.clone(),
                store: store.clone(),
            });
            Task::Receive(store, tidy, unfinished.filter(|_| !choice.dry_run))
        }
    };
    Ok((ready, task))
}

/// Paths of this user as somebody elsewhere wrote them.
pub fn expand_here(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let text = |path: &PathBuf| path.to_string_lossy().trim_start_matches("./").to_owned();
    expand(&paths.iter().map(text).collect::<Vec<_>>())
}

/// The paths, and what matches where one is a pattern.
fn expand(paths: &[String]) -> Result<Vec<PathBuf>, Failure> {
    let (mut expanded, mut unmatched) = (Vec::new(), Vec::new());
    for path in paths {
        let whole = target::at_home(path);
        if std::fs::symlink_metadata(&whole).is_ok() || !path.contains(['*', '?', '[']) {
            expanded.push(whole);
            continue;
        }
        let found = pattern::matching(&whole)
            .map_err(|error| Failure::usage(format!("{path}: {error}")))?;
        if found.is_empty() {
            unmatched.push(whole);
        }
        expanded.extend(found);
    }
    match expanded.is_empty() && !unmatched.is_empty() {
        true => {
            let names = unmatched.iter().map(|path| path.display().to_string());
            let names = names.collect::<Vec<_>>().join(", ");
            let message = format!("{names}: nothing matches");
            Err(Failure::new(Kind::LocalIo, message))
        }
        false => {
            // Which are left out, and the others copied.
            expanded.append(&mut unmatched);
            Ok(expanded)
        }
    }
}

/// The connection that the asking side chose.
async fn meet(
    side: &Side,
    job: &Job,
    mut from: Stdin,
    to: Stdout,
) -> Result<(Connection, Way), Failure> {
    let chosen = tokio::time::timeout(CHOICE_LIMIT, choose(side, job, &mut from)).await;
    match chosen.map_err(|_| gone())?? {
        Some(connection) => Ok((connection, Way::Udp(from, to))),
        None => {
            let tunnel = Tunnel::start(side.port(), from, to).await?;
            let connection = side.accept().await.ok_or_else(gone)?;
            Ok((connection, Way::Pipe(tunnel)))
        }
    }
}

/// Connects and lets connect until one connection is chosen; `None` for the tunnel.
async fn choose(side: &Side, job: &Job, from: &mut Stdin) -> Result<Option<Connection>, Failure> {
    let client = reach::of_ssh().map(|(client, _)| client);
    let theirs = client.into_iter().chain(job.addresses.iter().copied());
    let theirs = reach::with_port(theirs, job.port);
    let knock = async {
        tokio::time::sleep(HEAD_START).await;
        match side.connect(&theirs).await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    };
    let choice = control::message::<ToAgent>(from);
    tokio::pin!(knock, choice);
    let (mut met, mut chosen, mut knocking) = (Vec::new(), None, true);
    loop {
        if let Some(name) = &chosen {
            let is_it = |connection: &Connection| reach::name(connection).as_ref() == Some(name);
            if let Some(at) = met.iter().position(is_it) {
                return Ok(Some(met.swap_remove(at)));
            }
        }
        tokio::select! {
            connection = &mut knock, if knocking => {
                met.push(connection);
                knocking = false;
            }
            Some(connection) = side.accept() => met.push(connection),
            message = &mut choice, if chosen.is_none() => match message? {
                Some(ToAgent::Use { connection }) => chosen = Some(connection),
                Some(ToAgent::Tunnel) => return Ok(None),
                Some(ToAgent::Job(_)) | None => return Err(gone()),
            }
        }
    }
}

fn gone() -> Failure {
    Failure::new(Kind::Unreachable, "the other side is gone")
}

/// What became of a session, as far as the connection does not say it.
#[derive(Default)]
struct Ended {
    done: bool,
    /// What is to be removed, and what came.
    tidy: Option<(Tidy, Received)>,
}

/// Sends or receives; what became of it is said over the connection.
async fn transfer(connection: &Connection, task: Task) -> Ended {
    let meter = Meter::start();
    match task {
        Task::Send(sources) => {
            let sent = dfcp_transfer::send(connection, &Arc::new(sources), &meter).await;
            let (code, reason) = match &sent {
                Ok(_) => (DONE, String::new()),
                Err(error) => (FAILED, error.to_string()),
            };
            connection.close(code, &reason);
            Ended {
                done: sent.is_ok(),
                tidy: None,
            }
        }
        Task::Receive(store, tidy, unfinished) => {
            let agreed = async |_| Ok(());
            unfinished.iter().for_each(Unfinished::begin);
            let received = dfcp_transfer::receive(connection, store, &meter, agreed).await;
            if received.as_ref().is_some_and(super::sync::is_whole) {
                unfinished.iter().for_each(Unfinished::end);
            }
            // Whoever waits for it hears also that there was nothing to remove.
            let tidy = tidy.map(|tidy| (tidy, received.unwrap_or_default()));
            Ended { done: true, tidy }
        }
    }
}
