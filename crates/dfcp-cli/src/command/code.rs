//! `dfcp send PATH...` without a host and `dfcp recv CODE`: two people, a few spoken words.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dfcp::{Connection, Endpoint, EndpointConfig, PublicKey, StaticKey};
use dfcp_command::{Failure, Kind, interrupted, units};
use dfcp_meet::code::Words;
use dfcp_meet::wire::Gone;
use dfcp_meet::{Claim, ClaimConfig, Code, Event, LIFETIME, Machine, Offer, OfferConfig};

use super::Output;
use crate::meet::{self, Announcement, Clock, MeetingOptions, Port, Search, Server};
use crate::net::{Family, Host};
use crate::phrase::WORDS;

/// How long the connection may take once a path is known.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long the receiver waits for it: it learns of the path up to as much earlier.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(20);
/// Less is a mistake: a code is read out, typed, and two machines find each other.
const MIN_LIFETIME: Duration = Duration::from_secs(1);
/// Between two times that the receiver is told which path was taken.
const NOTICE_GAP: Duration = Duration::from_millis(40);

/// Takes the receiver off the end of what `dfcp send` was given. It is a host unless a file has its
/// name, or there is nothing before it: then all are paths, and a code is made.
///
/// # Errors
/// When it is neither.
pub fn split_host(paths: &mut Vec<PathBuf>, host_is_meant: bool) -> Result<Option<Host>, Failure> {
    let is_path = |path: &Path| path.symlink_metadata().is_ok();
    let Some(last) = paths.last() else {
        return Ok(None);
    };
    if !host_is_meant && is_path(last) {
        return Ok(None);
    }
    if paths.len() < 2 {
        return match host_is_meant {
            true => Err(Failure::usage("name the files to send, and then the host")),
            // What is wrong with it the search for files says.
            false => Ok(None),
        };
    }
    match last.to_string_lossy().parse() {
        Ok(host) => {
            paths.pop();
            Ok(Some(host))
        }
        Err(why) => Err(Failure::usage(format!(
            "{} is neither a file nor a host: {why}",
            last.display()
        ))),
    }
}

/// How long a code is good, on a command line.
///
/// # Errors
/// When it is no time, or none that a code can have.
pub fn lifetime(text: &str) -> Result<Duration, String> {
    match units::duration(text)? {
        time if time < MIN_LIFETIME => Err(format!(
            "{} is too short to say a code and type it, which takes some seconds",
            in_words(time)
        )),
        time if time > LIFETIME => {
            Err("a code is good for ten minutes at most, since servers keep none longer".into())
        }
        time => Ok(time),
    }
}

/// As people say it.
fn in_words(time: Duration) -> String {
    match (time.as_secs(), time.subsec_nanos()) {
        (600, 0) => "ten minutes".to_owned(),
        (60, 0) => "a minute".to_owned(),
        (s, 0) if s > 60 && s % 60 == 0 => format!("{} minutes", s / 60),
        // Of what is left of ten minutes.
        (s, _) if s >= 10 => format!("{s} s"),
        _ => format!("{} s", time.as_secs_f64()),
    }
}

/// What an offer by code needs.
pub struct Sending<'a> {
    /// Where to meet.
    pub options: &'a MeetingOptions,
    /// Words of the code, and how long it is good.
    pub words: usize,
    pub lifetime: Duration,
    /// Addresses to use.
    pub family: Family,
    /// This side's key.
    pub key: &'a StaticKey,
    /// How many bytes will be sent: a relay may carry less.
    pub bytes: u64,
    /// What people are told through.
    pub output: &'a Output,
}

/// A code whose receiver has come, and has not agreed to what is offered yet: it may come again, perhaps with
/// more room.
pub struct Unspent {
    offer: Offer,
    clock: Clock,
    words: Words,
    server: Option<Server>,
    /// The one that the server knows.
    socket: UdpSocket,
}

impl Unspent {
    /// Tells the server that it is used. Nobody answers that.
    pub fn spend(mut self) {
        self.offer.spend();
        while let Some((to, datagram)) = self.offer.transmit() {
            let _ = self
                .socket
                .send_to(&datagram, meet::reached_by(&self.socket, to));
        }
    }
}

/// Makes a code, or takes the one that is left of an earlier time.
async fn open(
    job: &Sending<'_>,
    port: &Port,
    earlier: Option<Unspent>,
) -> Result<(Offer, Clock, Words, Option<Server>), Failure> {
    if let Some(Unspent {
        offer,
        clock,
        words,
        server,
        ..
    }) = earlier
    {
        let offer = offer.again(port.own_addresses(), clock.now());
        return Ok((offer, clock, words, server));
    }
    let server = job.options.server()?;
    let clock = Clock::start();
    let mut rng = meet::generator()?;
    let list: Vec<&str> = WORDS.lines().collect();
    let words = Words::draw(&list, job.words, &mut rng);
    let config = OfferConfig {
        words: words.clone(),
        key: job.key.public(),
        local: port.own_addresses(),
        server: meet::resolve(server.as_ref(), job.options, job.family).await?,
        lan: job.options.lan(),
        lifetime: job.lifetime,
    };
    meet::warn_without_network(&config.local);
    let reached = server.filter(|_| config.server.is_some());
    Ok((Offer::new(config, rng, clock.now()), clock, words, reached))
}

/// Makes a code unless there is an `earlier` one, waits for somebody who has it, and connects. From when somebody
/// came the code is in `unspent`.
///
/// # Errors
/// Why that did not come about.
pub async fn send(
    job: Sending<'_>,
    config: EndpointConfig,
    (earlier, unspent): (Option<Unspent>, &mut Option<Unspent>),
) -> Result<(Endpoint, Connection, SocketAddr), Failure> {
    let port = Port::bind(job.family)?;
    let is_told = earlier.is_some();
    let (mut offer, clock, words, server) = open(&job, &port, earlier).await?;
    let mut told = Told {
        job: &job,
        is_server_named: job.options.server()?.is_some(),
        server,
        words: words.clone(),
        announcement: None,
        peer: None,
    };
    if is_told {
        told.show(offer.number(), offer.left(clock.now()), (&offer, &port))?;
    }
    let path = loop {
        let event = tokio::select! {
            event = meet::next_event(&port, clock, &mut offer) => event?,
            failure = interrupted() => {
                offer.withdraw();
                meet::flush(&port, &mut offer).await;
                return Err(failure);
            }
        };
        match event {
            Event::Found(path) => break path,
            Event::Failed(failure) => return Err(told.why(failure)),
            event => told.tell(event, (&offer, &port))?,
        }
    };
    let Told {
        peer,
        announcement,
        server,
        ..
    } = told;
    drop(announcement);
    let Some(peer) = peer else {
        return Err(Failure::new(Kind::Failure, "a path to nobody"));
    };
    let socket = port.into_std()?;
    let code = Unspent {
        offer,
        clock,
        words,
        server,
        socket: socket.try_clone()?,
    };
    if path.relayed
        && let Err(failure) = warn_of_relay(&job, &code.offer)
    {
        code.spend();
        return Err(failure);
    }
    *unspent = Some(code);
    let notices = path
        .notice
        .map(|notice| notify(&socket, path.remote, notice));
    let notices = notices.transpose()?;
    let endpoint = Endpoint::over(config, socket)?;
    let connected = tokio::select! {
        connected = tokio::time::timeout(CONNECT_LIMIT, endpoint.connect(path.remote, peer)) => connected,
        failure = interrupted() => return Err(failure),
    };
    if let Some(notices) = notices {
        notices.abort();
    }
    let silent = "the other side was reached, and then it fell silent";
    let connection = connected.map_err(|_| Failure::new(Kind::Unreachable, silent))??;
    Ok((endpoint, connection, path.remote))
}

/// Says which path was taken until somebody ends it, from the socket that the endpoint has.
fn notify(
    socket: &UdpSocket,
    to: SocketAddr,
    notice: Vec<u8>,
) -> Result<tokio::task::JoinHandle<()>, Failure> {
    let socket = socket.try_clone()?;
    let to = meet::reached_by(&socket, to);
    // Before the first packet of the connection: the receiver turns to it when it reads this.
    let _ = socket.send_to(&notice, to);
    Ok(tokio::spawn(async move {
        loop {
            tokio::time::sleep(NOTICE_GAP).await;
            let _ = socket.send_to(&notice, to);
        }
    }))
}

/// What a relay counts of so many bytes of files, mostly: heads and acknowledgements are 4 % and a few, and what is
/// lost behind it is sent again.
fn relayed(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 10)
}

fn warn_of_relay(job: &Sending<'_>, offer: &Offer) -> Result<(), Failure> {
    let Some(relay) = offer.relay() else {
        return Ok(());
    };
    let needed = relayed(job.bytes);
    if needed > relay.bytes {
        let message = format!(
            "the two sides cannot reach each other directly, and the relay carries at most {} of \
             the {} that {} take on the way: send less at a time, ask its owner for more \
             (dfcp rendezvous --relay-bytes), or let the receiver open a UDP port (dfcp recv \
             --listen)",
            units::bytes(relay.bytes),
            units::bytes(needed),
            units::bytes(job.bytes)
        );
        return Err(Failure::new(Kind::Unreachable, message));
    }
    job.output.say(format_args!(
        "no direct path: data go over the server's relay, which cannot read them (at most {} in {} s)",
        units::bytes(relay.bytes),
        relay.seconds
    ));
    Ok(())
}

/// What a sender has told people so far.
struct Told<'a> {
    job: &'a Sending<'a>,
    is_server_named: bool,
    /// While it answers.
    server: Option<Server>,
    words: Words,
    announcement: Option<Announcement>,
    peer: Option<PublicKey>,
}

impl Told<'_> {
    fn tell(&mut self, event: Event, at: (&Offer, &Port)) -> Result<(), Failure> {
        let output = self.job.output;
        match event {
            Event::Ready(number) => self.show(number, self.job.lifetime, at)?,
            Event::WithoutServer(failure) => {
                let why = meet::explain(failure, self.server.as_ref());
                dfcp_command::tell!("dfcp: warning: {why}; {}", meet::LAN_IS_LEFT);
                self.server = None;
            }
            Event::ServerLost => {
                let server = self
                    .server
                    .as_ref()
                    .map_or(String::new(), |s| format!(" {s}"));
                dfcp_command::tell!(
                    "dfcp: warning: the rendezvous server{server} has fallen silent: until it answers \
                     again, the code is of use on the local network only. Does `dfcp rendezvous` run \
                     there?"
                );
            }
            Event::ServerBack => {
                output.say("the rendezvous server answers again; the code is good")
            }
            Event::WrongGuess(left) => dfcp_command::tell!(
                "dfcp: somebody tried wrong words; guesses left before the code is dead: {left}"
            ),
            Event::Met(key) => {
                output.say(format_args!("the other side knows the code; it is {key}"));
                self.peer = Some(key);
            }
            Event::Found(_) | Event::Failed(_) => {}
        }
        Ok(())
    }

    fn show(
        &mut self,
        number: u32,
        left: Duration,
        (offer, port): (&Offer, &Port),
    ) -> Result<(), Failure> {
        if self.job.options.lan() {
            match Announcement::start(number, &offer.session(), port.number()?) {
                Ok(announcement) => self.announcement = Some(announcement),
                Err(why) if self.server.is_some() => self.job.output.say(format_args!(
                    "cannot show itself on the local network: {why}"
                )),
                Err(why) => {
                    let message = format!("the local network cannot be used: {why}");
                    return Err(Failure::new(Kind::Unreachable, message));
                }
            }
        }
        let words = self.words.clone();
        let code = Code { number, words };
        let server = self.server.as_ref();
        let named = server.map_or(String::new(), |server| format!(" --rendezvous {server}"));
        // Without it nothing can come of this: it is shown even to those who want little said.
        let time = in_words(left);
        dfcp_command::tell!("dfcp: on the other side, within {time}: dfcp recv {code}{named}");
        if !self.is_server_named {
            self.job.output.say(
                "no rendezvous server is named (--rendezvous): only the local network is searched",
            );
        }
        Ok(())
    }

    fn why(&self, failure: dfcp_meet::Failure) -> Failure {
        let sentence = match failure {
            dfcp_meet::Failure::Gone(Gone::Expired) => format!(
                "nobody came within {}: the code has expired, nothing was sent; send again for a new one",
                in_words(self.job.lifetime)
            ),
            dfcp_meet::Failure::Gone(Gone::Dead) => {
                "too many wrong codes were tried: this one is dead, nothing was sent; send again \
                 for a new one"
                    .to_owned()
            }
            failure => return meet::explain(failure, self.server.as_ref()),
        };
        Failure::new(Kind::Authentication, sentence)
    }
}

/// What a claim by code needs.
pub struct Receiving<'a> {
    /// The code that was typed.
    pub code: &'a Code,
    /// Where to meet.
    pub options: &'a MeetingOptions,
    /// This side's key.
    pub key: &'a StaticKey,
    /// What people are told through.
    pub output: &'a Output,
}

/// Finds the sender who has the code, and takes the path to it: the endpoint, which lets in this
/// sender alone.
///
/// # Errors
/// Why that did not come about.
pub async fn receive(
    job: Receiving<'_>,
    transport: dfcp::TransportConfig,
) -> Result<(Endpoint, PublicKey), Failure> {
    let code = job.code;
    check_words(code)?;
    let server = job.options.server()?;
    let port = Port::bind(Family::Any)?;
    let clock = Clock::start();
    let config = ClaimConfig {
        code: code.clone(),
        key: job.key.public(),
        local: port.own_addresses(),
        server: meet::resolve(server.as_ref(), job.options, Family::Any).await?,
        lan: job.options.lan(),
    };
    meet::warn_without_network(&config.local);
    let reached = server.clone().filter(|_| config.server.is_some());
    let search = match job.options.lan() {
        true => Search::start(code.number).map_err(|why| {
            job.output
                .say(format_args!("cannot search the local network: {why}"));
        }),
        false => Err(()),
    };
    if server.is_none() {
        job.output.say(
            "no rendezvous server is named (--rendezvous): only the local network is searched",
        );
    }
    let mut claim = Claim::new(config, meet::generator()?, clock.now());
    let mut peer = None;
    let path = loop {
        let sighting = async {
            match &search {
                Ok(search) => search.next().await,
                Err(()) => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            event = meet::next_event(&port, clock, &mut claim) => event?,
            sighting = sighting => {
                claim.found_locally(clock.now(), sighting.session, &sighting.addresses);
                continue;
            }
            failure = interrupted() => return Err(failure),
        };
        match event {
            Event::Found(path) => break path,
            Event::Failed(failure) => return Err(meet::explain(failure, reached.as_ref())),
            Event::Met(key) => {
                job.output
                    .say(format_args!("found the sender; it is {key}"));
                peer = Some(key);
            }
            _ => {}
        }
    };
    drop(search);
    let Some(peer) = peer else {
        return Err(Failure::new(Kind::Failure, "a path to nobody"));
    };
    if path.relayed {
        job.output
            .say("no direct path: data come over the server's relay, which cannot read them");
    }
    let socket = port.into_std()?;
    let config = EndpointConfig::server(job.key.clone(), socket.local_addr()?)
        .transport(transport)
        .authorize(move |key| *key == peer);
    Ok((Endpoint::over(config, socket)?, peer))
}

/// The sender's connection.
///
/// # Errors
/// If it does not come, or the user has enough.
pub async fn arrival(endpoint: &Endpoint) -> Result<dfcp::Incoming, Failure> {
    let silent = || {
        let message = "the sender was found, and then it fell silent";
        Failure::new(Kind::Unreachable, message)
    };
    tokio::select! {
        incoming = tokio::time::timeout(ARRIVAL_LIMIT, endpoint.accept()) => {
            incoming.ok().flatten().ok_or_else(silent)
        }
        failure = interrupted() => Err(failure),
    }
}

/// A word that no code has is a typing error: it costs no guess.
fn check_words(code: &Code) -> Result<(), Failure> {
    match code
        .words
        .iter()
        .find(|word| !WORDS.lines().any(|known| known == *word))
    {
        None => Ok(()),
        Some(word) => Err(Failure::new(
            Kind::Authentication,
            format!("wrong code: no code has the word {word:?} in it; no guess was spent"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_file_is_no_host() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let split = |last: &[&str], meant| {
            let mut paths = vec![file.clone()];
            paths.extend(last.iter().map(PathBuf::from));
            let host = split_host(&mut paths, meant).ok()?;
            Some((paths.len(), host.map(|host| host.to_string())))
        };
        assert_eq!(split(&[], false), Some((1, None)));
        let host = Some("example.org:4433".to_owned());
        assert_eq!(split(&["example.org"], false), Some((1, host)));
        assert_eq!(split(&[file.to_str().unwrap()], false), Some((2, None)));
        assert_eq!(split(&["no/such/file"], false), None);
        assert_eq!(split(&[], true), None);
    }
}
