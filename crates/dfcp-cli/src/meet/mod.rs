//! Meetings by a spoken code on real sockets: the machines of `dfcp_meet` with a clock, a socket and
//! the local network. The socket is one from the first question to the last byte, because address
//! translators let in what came out of it.

mod lan;
mod port;
mod server;

use std::net::SocketAddr;
use std::time::Duration;

use dfcp_command::{Failure, Kind};
use dfcp_meet::wire::Gone;
use dfcp_meet::{Event, Machine};
use dfcp_proto::{Instant, SecretRng};

use crate::net::Family;
use crate::probe::reach::{Obstacle, is_without_route};
pub use lan::{Announcement, Search};
pub use port::{Port, passes, reached_by};
pub use server::{DEFAULT_PORT, Server};

/// How the two sides of a code find each other.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct MeetingOptions {
    /// Server where both sides of a code find each other, HOST or HOST:PORT [default:
    /// $DFCP_RENDEZVOUS, or `rendezvous = HOST` in the file `config` beside the default key]
    #[arg(long, value_name = "HOST")]
    rendezvous: Option<Server>,
    /// With a code: neither show oneself nor search on the local network
    #[arg(long)]
    no_lan: bool,
}

impl MeetingOptions {
    /// Whether the local network takes part.
    pub fn lan(&self) -> bool {
        !self.no_lan
    }

    /// The server, if one is named anywhere.
    ///
    /// # Errors
    /// When its name is wrong, or without one there is nowhere to look.
    pub fn server(&self) -> Result<Option<Server>, Failure> {
        let server = match &self.rendezvous {
            Some(server) => Some(server.clone()),
            None => server::configured()?,
        };
        match (&server, self.no_lan) {
            (None, true) => Err(Failure::usage(
                "without the local network a code needs a rendezvous server: --rendezvous HOST, \
                 and there `dfcp rendezvous`",
            )),
            _ => Ok(server),
        }
    }
}

/// Time as the machines count it.
#[derive(Clone, Copy, Debug)]
pub struct Clock(std::time::Instant);

impl Clock {
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Randomness for a machine.
pub fn generator() -> Result<SecretRng, Failure> {
    // A key is 32 bytes of the system's randomness.
    let seed = dfcp::generate_key()?;
    Ok(SecretRng::new(seed.secret(), "meeting"))
}

/// Longest datagram of a meeting, and more.
const BUFFER: usize = 2048;
/// What waits for a machine without a timer: it is over.
const NEVER: Duration = Duration::from_secs(3600);

/// Runs a machine until it has something to say.
pub async fn next_event(
    port: &Port,
    clock: Clock,
    machine: &mut impl Machine,
) -> Result<Event, Failure> {
    let mut buffer = [0; BUFFER];
    loop {
        flush(port, machine).await;
        if let Some(event) = machine.event() {
            return Ok(event);
        }
        let now = clock.now();
        let wait = machine
            .timeout()
            .map_or(NEVER, |at| at.saturating_since(now));
        tokio::select! {
            received = port.receive(&mut buffer) => {
                let (len, from) = received?;
                machine.handle(clock.now(), from, &buffer[..len]);
            }
            () = tokio::time::sleep(wait) => machine.on_timeout(clock.now()),
        }
    }
}

/// Sends what a machine has to send.
pub async fn flush(port: &Port, machine: &mut impl Machine) {
    while let Some((to, datagram)) = machine.transmit() {
        port.send(to, &datagram).await;
    }
}

/// What a warning about a server ends with.
pub const LAN_IS_LEFT: &str = "only the local network is left";

/// An address of the server that the socket reaches. Where the local network takes part as well, a server that
/// has none is told and left out.
///
/// # Errors
/// When its name is not known, or there is no way to it.
pub async fn resolve(
    server: Option<&Server>,
    options: &MeetingOptions,
    family: Family,
) -> Result<Option<SocketAddr>, Failure> {
    let Some(server) = server else {
        return Ok(None);
    };
    match address(server, family).await {
        Err(failure) if options.lan() => {
            dfcp_command::tell!("dfcp: warning: rendezvous server: {failure}; {LAN_IS_LEFT}");
            Ok(None)
        }
        found => found.map(Some),
    }
}

async fn address(server: &Server, family: Family) -> Result<SocketAddr, Failure> {
    let host = server.host();
    let addresses = host.resolve(family).await?;
    // Nobody needs to wait for an answer to what cannot leave.
    let first = choose(addresses, |address| !is_without_route(&[*address]));
    first.ok_or_else(|| {
        let message = Obstacle::NoRoute.explain(&server.to_string(), host.port());
        Failure::new(Kind::Unreachable, message)
    })
}

/// The address of a server that is asked, of those that there is a `way` to: the socket reaches both families, and
/// one of IPv4 lets translators be seen behind.
fn choose(addresses: Vec<SocketAddr>, way: impl Fn(&SocketAddr) -> bool) -> Option<SocketAddr> {
    addresses
        .into_iter()
        .filter(way)
        .min_by_key(SocketAddr::is_ipv6)
}

/// Says that nobody elsewhere can take part, where this machine has no address that others reach.
pub fn warn_without_network(own: &[SocketAddr]) {
    if own.is_empty() {
        dfcp_command::tell!(
            "dfcp: warning: this machine has no network: only what runs on it can be found; see `ip address`"
        );
    }
}

fn gone(why: Gone, named: &str) -> String {
    match why {
        Gone::Unknown => {
            return format!(
                "no sender has this number{named}: the code is wrong or long over; ask for it again (if \
                 the server was just started anew, wait ten seconds)"
            );
        }
        Gone::Expired => {
            "the code has expired: its time is over (ten minutes at most), or its sender has left; ask \
             for a new one"
        }
        Gone::Used => "the code was used already: each is good once; ask for a new one",
        Gone::Dead => "the code is dead: too many wrong ones were tried; ask for a new one",
    }
    .to_owned()
}

/// Why there is no meeting, in words, with what to do about it.
pub fn explain(failure: dfcp_meet::Failure, server: Option<&Server>) -> Failure {
    use dfcp_meet::Failure as Why;
    let named = server.map_or(String::new(), |server| format!(" at {server}"));
    let (kind, message) = match failure {
        Why::WrongCode(left) => (
            Kind::Authentication,
            format!(
                "wrong code: these are not its words. {}",
                match left {
                    0 => "It is dead now, after too many guesses: ask for a new one".into(),
                    left => format!("Guesses left: {left}. Nothing was received"),
                }
            ),
        ),
        Why::Gone(why) => (Kind::Authentication, gone(why, &named)),
        Why::NotFound => (
            Kind::Unreachable,
            match server {
                None => "no sender with this number answers on the local network: the code is \
                     wrong or over, or the sender is elsewhere. Then both sides need --rendezvous \
                     HOST (a machine that both reach and that runs `dfcp rendezvous`)"
                    .into(),
                Some(_) => format!("no sender with this number answers, neither here nor{named}"),
            },
        ),
        Why::ServerSilent => (
            Kind::Unreachable,
            format!(
                "the rendezvous server{named} does not answer: it does not run, or UDP is blocked; \
                 there: dfcp rendezvous"
            ),
        ),
        Why::ServerBusy => (
            Kind::Unreachable,
            format!("the rendezvous server{named} takes no more at the moment; try again later"),
        ),
        Why::Silent => (
            Kind::Unreachable,
            "the other side was found but does not answer: it has just left, or UDP is blocked"
                .into(),
        ),
        Why::NoPath => (
            Kind::Unreachable,
            format!(
                "the two sides found each other but cannot reach each other: firewalls or address \
                 translators (symmetric NAT) are between them. {} Or let the receiver open a UDP \
                 port: dfcp recv --listen, dfcp send PATH... HOST:PORT",
                match server {
                    Some(server) => format!(
                        "The server {server} relays nothing; its owner can change that: dfcp \
                         rendezvous --relay."
                    ),
                    None => "A rendezvous server may help: --rendezvous HOST on both sides.".into(),
                }
            ),
        ),
        Why::NoRelay => (
            Kind::Unreachable,
            format!(
                "the two sides cannot reach each other, and the relay{named} did not join them: it \
                 has no room, or the other side has left"
            ),
        ),
    };
    Failure::new(kind, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_at_an_address_that_there_is_a_way_to() {
        let all = ["[2001:db8::1]:1", "192.0.2.1:1", "192.0.2.2:1"].map(|at| at.parse().unwrap());
        let [six, four, last] = all;
        let of = |way: &[SocketAddr]| choose(all.to_vec(), |at| way.contains(at));
        assert_eq!(of(&all), Some(four));
        assert_eq!(of(&[six, last]), Some(last));
        // A network without IPv4, and a name with addresses of both families.
        assert_eq!(of(&[six]), Some(six));
        assert_eq!(of(&[]), None);
    }
}
