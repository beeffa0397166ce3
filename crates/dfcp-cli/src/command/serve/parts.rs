//! What a service is made of: who is served by which part, and what changes while it runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dfcp::{Admission, Application, Incoming, PublicKey};
use dfcp_command::Failure;
use dfcp_proxy::{Event, Report};
use dfcp_transfer::INTERRUPTED;
use dfcp_tun::Clients;
use tokio::sync::watch;

use super::Whole;
use super::files::{self, Files};
use super::settings::Settings;
use crate::allowed::Allowed;
use crate::command::proxy::desk::{Desk, Terms};
use crate::command::proxy::is_single;
use crate::command::tun::is_detail;
use crate::log::{Fields, Level, Log};
use crate::refusals::Refusals;

/// See the module's text.
pub struct Parts {
    pub files: Option<Files>,
    pub desk: Option<Desk>,
    clients: Option<Links>,
    log: Log,
    refusals: Refusals,
    ending: AtomicBool,
    /// Why it cannot go on.
    gone: watch::Sender<Option<String>>,
}

/// Who may have links: those of the start, whose addresses the device has, as long as the file names them.
struct Links {
    first: Clients,
    now: Mutex<Clients>,
}

impl Links {
    fn allows(&self, key: &PublicKey) -> bool {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        self.first.contains(key) && now.contains(key)
    }
}

/// Terms of all parts that can change.
pub struct Changes {
    files: Option<files::Terms>,
    desk: Option<Terms>,
    clients: Option<Clients>,
}

impl Parts {
    /// Opens what needs no port.
    ///
    /// # Errors
    /// What cannot be had.
    pub fn open(settings: &Settings, log: Log) -> Result<Self, Failure> {
        let whole = &settings.whole;
        let files = settings.recv.as_ref();
        let files = files.map(|taking| Files::open(taking, whole, log.of("recv")));
        let desk = settings.proxy.as_ref();
        let desk = desk.map(|grants| Desk::open(grants, report(log.of("proxy"), whole)));
        let clients = settings.tun.as_ref().map(|link| link.guests.clients());
        let parts = Self {
            files: files.transpose()?,
            desk: desk.transpose()?,
            clients: clients.transpose()?.map(|first| Links {
                now: Mutex::new(first.clone()),
                first,
            }),
            log,
            refusals: Refusals::default(),
            ending: AtomicBool::new(false),
            gone: watch::Sender::default(),
        };
        if let Some(desk) = &parts.desk {
            for mistake in desk.terms.get().allowed.mistakes() {
                log.of("proxy").warn(mistake);
            }
        }
        Ok(parts)
    }

    /// Sections that nobody may use, and why. A service goes on without them: lists of keys are read
    /// whenever somebody comes.
    pub fn nobody(&self) -> Vec<String> {
        let files = self.files.as_ref().and_then(Files::nobody);
        let desk = self
            .desk
            .as_ref()
            .and_then(|desk| desk.terms.get().allowed.nobody());
        let line = |section: &str, why: Option<String>| {
            why.map(|why| format!("nobody is served by [{section}] yet: {why}"))
        };
        [line("recv", files), line("proxy", desk)]
            .into_iter()
            .flatten()
            .collect()
    }

    fn allows(&self, application: Application, key: &PublicKey) -> bool {
        self.admission_to(application, key) == Admission::Welcome
    }

    fn admission_to(&self, application: Application, key: &PublicKey) -> Admission {
        let admission = match application {
            Application::FILES => self.files.as_ref().map(|files| files.admission(key)),
            Application::PROXY => {
                let desk = self.desk.as_ref();
                desk.map(|desk| desk.terms.get().allowed.admission(key))
            }
            Application::LINK => {
                let clients = self.clients.as_ref();
                clients.map(|clients| clients.allows(key).into())
            }
            _ => None,
        };
        admission.unwrap_or(Admission::Unknown)
    }

    fn offers(&self, application: Application) -> bool {
        match application {
            Application::FILES => self.files.is_some(),
            Application::PROXY => self.desk.is_some(),
            Application::LINK => self.clients.is_some(),
            _ => false,
        }
    }

    /// Whether `key` may use anything here.
    pub fn admission(&self, key: &PublicKey) -> Admission {
        let parts = ALL.iter();
        let each = parts.map(|(application, _)| self.admission_to(*application, key));
        let best = each.max().unwrap_or(Admission::Unknown);
        if best != Admission::Welcome {
            self.tell_refused(key, || self.why_not(key));
        }
        best
    }

    /// Gives a client to the part that it is for.
    pub fn take(&self, incoming: Incoming, links: Option<&dfcp_tun::Server>) {
        let key = incoming.peer();
        if self.ending.load(Ordering::Relaxed) {
            // Not refused, which would mean the key: it may come again when there is another service.
            return incoming.accept().close(INTERRUPTED, "the server ends");
        }
        let asked = incoming.application();
        // Who does not say what it is for is for what its key is.
        let application = asked.or_else(|| {
            let mut open = ALL
                .iter()
                .filter(|(application, _)| self.allows(*application, &key));
            match (open.next(), open.next()) {
                (Some((only, _)), None) => Some(*only),
                _ => None,
            }
        });
        let Some(application) = application.filter(|application| self.offers(*application)) else {
            let offered = ALL
                .iter()
                .filter(|(application, _)| self.offers(*application));
            let offered: Vec<_> = offered.map(|(_, what)| *what).collect();
            return incoming.not_offered(&format!("it has {}", offered.join(", ")));
        };
        if !self.allows(application, &key) {
            let what = ALL.iter().find(|(known, _)| *known == application);
            let what = what.map_or("this", |(_, what)| what);
            self.tell_refused(&key, || format!("it may not use {what}"));
            if let (Application::FILES, Some(files)) = (application, &self.files) {
                files.refused();
            }
            return match self.admission_to(application, &key) {
                Admission::Expired => incoming.expired(),
                _ => incoming.refuse(),
            };
        }
        match (application, &self.files, &self.desk, links) {
            (Application::FILES, Some(files), ..) => files.take(incoming.accept()),
            (Application::PROXY, _, Some(desk), _) => desk.server.take(incoming.accept()),
            (Application::LINK, _, _, Some(links)) => links.take(incoming.accept()),
            _ => incoming.not_offered("it is not ready yet"),
        }
    }

    /// Why no section has `key`: of those that had it once, if any did.
    fn why_not(&self, key: &PublicKey) -> String {
        let files = self.files.as_ref().map(|files| files.why_not(key));
        let terms = self.desk.as_ref().map(|desk| desk.terms.get());
        let desk = terms.map(|terms| terms.allowed.why_not(key));
        let unknown = Allowed::default().why_not(key);
        let mut reasons = files.into_iter().chain(desk);
        reasons.find(|why| *why != unknown).unwrap_or(unknown)
    }

    /// Says that `key` was refused, and why, once.
    fn tell_refused(&self, key: &PublicKey, why: impl FnOnce() -> String) {
        if let Some(line) = self.refusals.news(key, why) {
            let fields = Fields {
                peer: Some(key.to_string()),
                status: Some("refused"),
                ..Fields::default()
            };
            self.log.tell(Level::Warning, &fields, line);
        }
    }

    /// The terms of other settings, all or none.
    ///
    /// # Errors
    /// What cannot be used of them.
    pub fn read(&self, settings: &Settings) -> Result<Changes, Failure> {
        let files = self.files.as_ref().zip(settings.recv.as_ref());
        let desk = self.desk.as_ref().zip(settings.proxy.as_ref());
        Ok(Changes {
            files: files
                .map(|(files, taking)| files.read(taking))
                .transpose()?,
            desk: desk.map(|(desk, grants)| desk.read(grants)).transpose()?,
            clients: settings
                .tun
                .as_ref()
                .map(|link| link.guests.clients())
                .transpose()?,
        })
    }

    /// Serves by these from now on. What somebody should know of it, and what waits for another start.
    pub fn apply(
        &self,
        changes: Changes,
        links: Option<&dfcp_tun::Server>,
    ) -> (Vec<String>, Vec<&'static str>) {
        let (mut news, mut fixed) = (Vec::new(), Vec::new());
        if let Some((files, terms)) = self.files.as_ref().zip(changes.files) {
            let (said, is_fixed) = files.apply(terms);
            news.extend(said);
            fixed.extend(is_fixed.then_some("[recv] beside keys and limits"));
        }
        if let Some((desk, terms)) = self.desk.as_ref().zip(changes.desk) {
            news.extend(desk.apply(terms));
        }
        if let Some((clients, now)) = self.clients.as_ref().zip(changes.clients) {
            *clients.now.lock().unwrap_or_else(PoisonError::into_inner) = now;
            if let Some(links) = links {
                links.keep(|key| clients.allows(key));
            }
        }
        self.refusals.begin_anew();
        (news, fixed)
    }

    /// What is open: carried connections, and sessions that bring files.
    pub fn open_now(&self) -> (u64, u64) {
        let desk = self.desk.as_ref();
        let carried = desk.map_or(0, |desk| desk.server.traffic().counts().open_connections);
        let files = self.files.as_ref();
        let sessions = files.map_or(0, |files| files.tally().counts().open);
        (carried, sessions)
    }

    /// Takes nobody new.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Waits until what is open has ended, `limit` at most.
    pub async fn drain(&self, limit: Duration) {
        let desk = async {
            if let Some(desk) = &self.desk {
                desk.server.drain(limit).await;
            }
        };
        let files = async {
            if let Some(files) = &self.files {
                files.drain(limit).await;
            }
        };
        tokio::join!(desk, files);
    }

    /// Why it does not do all of its work, if so.
    pub fn ailing(&self) -> Option<String> {
        if self.ending.load(Ordering::Relaxed) {
            return Some("it ends".to_owned());
        }
        self.files.as_ref().and_then(Files::ailing)
    }

    /// Waits until it cannot go on, and says why.
    pub async fn failed(&self) -> String {
        let mut gone = self.gone.subscribe();
        let why = gone.wait_for(Option::is_some).await;
        why.ok().and_then(|why| why.clone()).unwrap_or_default()
    }

    /// It cannot go on.
    pub fn fail(&self, why: String) {
        self.gone.send_replace(Some(why));
    }
}

/// Applications, and what people call them.
const ALL: [(Application, &str); 3] = [
    (Application::FILES, "files (`dfcp send`)"),
    (Application::PROXY, "a proxy (`dfcp proxy`, `dfcp run`)"),
    (Application::LINK, "IP links (`dfcp tun connect`)"),
];

/// Tells of what happens at a server of proxies: of single connections if that is wanted.
fn report(log: Log, whole: &Whole) -> Report {
    let (verbose, quiet) = (whole.verbose, whole.quiet);
    Arc::new(move |event| {
        if !quiet && (verbose || !is_single(&event)) {
            tell(log, &event);
        }
    })
}

/// Tells of what happens at links: of what connections carried if that is wanted.
pub fn report_links(log: Log, whole: &Whole) -> dfcp_tun::Report {
    let (verbose, quiet) = (whole.verbose, whole.quiet);
    Arc::new(move |event| match event {
        event if quiet || (!verbose && is_detail(&event)) => {}
        dfcp_tun::Event::Connection(event) => tell(log, &event),
        event => log.say(event),
    })
}

fn tell(log: Log, event: &Event) {
    let mut fields = Fields::default();
    let level = describe(event, &mut fields);
    log.tell(level, &fields, event);
}

/// What a log has of an event in fields, and how grave it is.
fn describe(event: &Event, fields: &mut Fields) -> Level {
    let mut level = Level::Info;
    match event {
        Event::Of(peer, event) => {
            fields.peer = Some(peer.to_string());
            return describe(event, fields);
        }
        Event::Came { peer, from } => {
            fields.peer = Some(peer.to_string());
            fields.from = Some(from.to_string());
            fields.status = Some("came");
        }
        Event::Left(peer) => {
            fields.peer = Some(peer.to_string());
            fields.status = Some("left");
        }
        Event::Slowed { peer, .. } => {
            fields.peer = Some(peer.to_string());
            fields.status = Some("slowed");
        }
        Event::Exhausted { peer, .. } => {
            fields.peer = Some(peer.to_string());
            fields.status = Some("exhausted");
            level = Level::Warning;
        }
        Event::Opened(target) => {
            fields.host = Some(target.to_string());
            fields.status = Some("connected");
        }
        Event::Failed { target, refusal } => {
            fields.host = Some(target.to_string());
            fields.status = Some(refusal.status.word());
        }
        Event::Unassociated(refusal) => fields.status = Some(refusal.status.word()),
        Event::Stuck(_) | Event::Lacking(_) => level = Level::Warning,
        _ => {}
    }
    level
}
