//! Names, which are resolved where connections are made: whoever asks for one gets an address that stands for
//! it (RFC 1035; addresses of 198.18.0.0/15, which no host has, RFC 2544).

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{UdpSocket, lookup_host};
use tokio::sync::Semaphore;

use crate::routes::Routes;

/// The port of resolvers.
pub(crate) const PORT: u16 = 53;

/// Sockets over which the C library asks a service of this machine for names instead of DNS (systemd-resolved,
/// nscd). Where they refuse it asks DNS.
pub(crate) const SERVICES: [&[u8]; 3] = [
    b"/run/systemd/resolve/io.systemd.Resolve",
    b"/var/run/nscd/socket",
    b"/run/nscd/socket",
];

/// The network of addresses that stand for names, and how many it has.
const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const COUNT: u32 = 1 << 17;

/// How long programs may remember an answer, seconds: it is true as long as this process lives, unless
/// [`COUNT`] others were asked for.
const TTL: u32 = 60;
/// After which an address that was told, or connected to, may stand for another name: who has remembered it as
/// long as that has as long again to connect. One that stood for another name sooner would lead a program to a
/// host that somebody else has chosen, such as a page that asks for many names.
const KEPT: Duration = Duration::from_secs(2 * TTL as u64);

/// Longest answer: the most that programs without extensions read (RFC 1035 §2.3.4).
const MAX_ANSWER: usize = 512;

/// Names that are looked for here at once: each takes a thread, for half a minute where no name server answers,
/// and of these there are 512 (tokio), which others need, too. Questions beyond that are lost, and asked again.
const LOOKED_FOR: usize = 128;

/// Longest question that is read: 512 bytes are the longest of UDP without extensions (RFC 1035 §2.3.4),
/// which add some options.
const MAX_QUESTION: usize = 4096;

// Types, and the class, of records (RFC 1035 §3.2, RFC 3596 §2.1).
const A: u16 = 1;
const PTR: u16 = 12;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;

// Answers without records (RFC 1035 §4.1.1).
const FORMAT_ERROR: u8 = 1;
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;

/// Names by their addresses, and the other way round.
#[derive(Debug, Default)]
struct Pool {
    names: HashMap<u32, Used>,
    numbers: HashMap<Arc<str>, u32>,
    /// Numbers by their last use, the oldest first.
    order: BTreeMap<u64, u32>,
    uses: u64,
}

/// A name, and when its address was last told or connected to.
#[derive(Debug)]
struct Used {
    name: Arc<str>,
    at: Instant,
    place: u64,
}

impl Pool {
    /// The address of `name`, if need be that of the name that was used longest ago; none if that was just now.
    fn address(&mut self, name: &str, now: Instant) -> Option<Ipv4Addr> {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => {
                let number = self.free(now)?;
                let name: Arc<str> = name.into();
                self.numbers.insert(name.clone(), number);
                let (at, place) = (now, 0);
                self.names.insert(number, Used { name, at, place });
                number
            }
        };
        self.use_now(number, now);
        Some(Ipv4Addr::from_bits(FIRST + number))
    }

    /// A number that stands for nothing, or no more.
    fn free(&mut self, now: Instant) -> Option<u32> {
        // The network's first address is none of a host.
        let next = self.names.len() as u32 + 1;
        if next < COUNT {
            return Some(next);
        }
        let (_, oldest) = self.order.first_key_value()?;
        let oldest = *oldest;
        let used = self.names.get(&oldest)?;
        if now.saturating_duration_since(used.at) < KEPT {
            return None;
        }
        self.order.remove(&used.place);
        self.numbers.remove(&used.name);
        Some(oldest)
    }

    fn use_now(&mut self, number: u32, now: Instant) {
        let Some(used) = self.names.get_mut(&number) else {
            return;
        };
        self.order.remove(&used.place);
        self.uses += 1;
        (used.at, used.place) = (now, self.uses);
        self.order.insert(self.uses, number);
    }

    /// The name that an address stands for, which somebody wants to reach.
    fn name(&mut self, ip: Ipv4Addr, now: Instant) -> Option<Arc<str>> {
        let number = ip.to_bits().checked_sub(FIRST)?;
        let name = self.names.get(&number)?.name.clone();
        self.use_now(number, now);
        Some(name)
    }
}

/// See the module's text.
pub(crate) struct Names {
    routes: Arc<Routes>,
    pool: Mutex<Pool>,
    looking: Semaphore,
}

impl Names {
    pub fn new(routes: Arc<Routes>) -> Self {
        Self {
            routes,
            pool: Mutex::default(),
            looking: Semaphore::new(LOOKED_FOR),
        }
    }

    /// The name that `ip` stands for.
    pub fn of(&self, ip: IpAddr) -> Option<Arc<str>> {
        match ip {
            IpAddr::V4(ip) => self.pool().name(ip, Instant::now()),
            IpAddr::V6(_) => None,
        }
    }

    fn pool(&self) -> std::sync::MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers questions that come to `socket`. Does not end.
    pub async fn serve(self: Arc<Self>, socket: Arc<UdpSocket>) {
        let mut buffer = [0; MAX_QUESTION];
        loop {
            // An error is what somebody said of an earlier answer.
            let Ok((len, from)) = socket.recv_from(&mut buffer).await else {
                tokio::task::yield_now().await;
                continue;
            };
            let message = buffer[..len].to_vec();
            let (names, socket) = (self.clone(), socket.clone());
            tokio::spawn(async move {
                if let Some(answer) = names.answer(&message).await {
                    let _ = socket.send_to(&answer, from).await;
                }
            });
        }
    }

    /// The answer to a message, unless that is none to answer.
    async fn answer(&self, message: &[u8]) -> Option<Vec<u8>> {
        if message.get(2).is_some_and(|flags| flags & IS_ANSWER != 0) {
            return None;
        }
        let question = match Question::read(message) {
            Ok(question) => question,
            Err(code) => return refusal(message, code),
        };
        let records = match &question {
            Question { kind: PTR, .. } => match self.reverse(&question.name) {
                Some(name) => vec![encode_name(&name)],
                None => return refusal(message, NO_SUCH_NAME),
            },
            Question { kind, name, .. } if self.routes.carries_name(name) => match *kind {
                A => match self.pool().address(name, Instant::now()) {
                    Some(ip) => vec![ip.octets().to_vec()],
                    None => return refusal(message, SERVER_FAILURE),
                },
                // There is such a name, with nothing of that kind.
                _ => Vec::new(),
            },
            Question { name, kind, .. } => {
                let turn = self.looking.try_acquire().ok()?;
                let found = lookup_host((name.as_str(), 0)).await;
                drop(turn);
                let Ok(found) = found else {
                    return refusal(message, NO_SUCH_NAME);
                };
                let found: Vec<IpAddr> = found.map(|at: SocketAddr| at.ip()).collect();
                self.routes.resolved(name, &found);
                let bytes = |ip: &IpAddr| match (ip, *kind) {
                    (IpAddr::V4(ip), A) => Some(ip.octets().to_vec()),
                    (IpAddr::V6(ip), AAAA) => Some(ip.octets().to_vec()),
                    _ => None,
                };
                found.iter().filter_map(bytes).collect()
            }
        };
        Some(question.answered(message, &records))
    }

    /// The name that stands at the address in a name of in-addr.arpa.
    fn reverse(&self, name: &str) -> Option<Arc<str>> {
        let digits = name.strip_suffix(".in-addr.arpa")?;
        let parts: Result<Vec<u8>, _> = digits.rsplit('.').map(str::parse).collect();
        let ip: [u8; 4] = parts.ok()?.try_into().ok()?;
        self.of(Ipv4Addr::from(ip).into())
    }
}

/// What a message asks.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    /// In lower case, without a dot at the end.
    name: String,
    kind: u16,
    /// Where it ends in the message.
    end: usize,
}

/// Length of a message's head.
const HEAD: usize = 12;
/// In the third byte of that.
const IS_ANSWER: u8 = 0x80;
/// What a record has before its bytes, where its name is that of the question.
const RECORD: usize = 12;

impl Question {
    /// Reads a message.
    ///
    /// # Errors
    /// What to answer.
    fn read(message: &[u8]) -> Result<Self, u8> {
        let word = |at: usize| -> Result<u16, u8> {
            let bytes = message.get(at..at + 2).ok_or(FORMAT_ERROR)?;
            Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
        };
        // A question of the ordinary kind, and one of them.
        if word(2)? & 0x7800 != 0 {
            return Err(NOT_IMPLEMENTED);
        }
        if word(4)? != 1 {
            return Err(FORMAT_ERROR);
        }
        let (mut name, mut at) = (String::new(), HEAD);
        loop {
            let len = usize::from(*message.get(at).ok_or(FORMAT_ERROR)?);
            at += 1;
            match len {
                0 => break,
                1..=63 => {}
                _ => return Err(FORMAT_ERROR),
            }
            let label = message.get(at..at + len).ok_or(FORMAT_ERROR)?;
            at += len;
            // Names of hosts have no others (RFC 1123 §2.1), those of services underscores.
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
            if !label.iter().all(is_plain) {
                return Err(NO_SUCH_NAME);
            }
            if !name.is_empty() {
                name.push('.');
            }
            name.extend(
                label
                    .iter()
                    .map(|byte| char::from(byte.to_ascii_lowercase())),
            );
        }
        if name.is_empty() || name.len() > 253 {
            return Err(NO_SUCH_NAME);
        }
        let (kind, class) = (word(at)?, word(at + 2)?);
        match class {
            INTERNET => Ok(Self {
                name,
                kind,
                end: at + 4,
            }),
            _ => Err(NOT_IMPLEMENTED),
        }
    }

    /// The answer to `message`, whose question this is: with the first records, as many as it has room for.
    fn answered(&self, message: &[u8], records: &[Vec<u8>]) -> Vec<u8> {
        let mut room = MAX_ANSWER.saturating_sub(self.end);
        let fits = |record: &&Vec<u8>| {
            let left = room.checked_sub(RECORD + record.len());
            left.map(|left| room = left).is_some()
        };
        let records: Vec<_> = records.iter().take_while(fits).collect();
        let mut out = head(message, 0, 1, records.len() as u16);
        out.extend(&message[HEAD..self.end]);
        for record in records {
            out.extend((0xc000 | HEAD as u16).to_be_bytes()); // the name of the question
            out.extend(self.kind.to_be_bytes());
            out.extend(INTERNET.to_be_bytes());
            out.extend(TTL.to_be_bytes());
            out.extend((record.len() as u16).to_be_bytes());
            out.extend(record);
        }
        out
    }
}

/// The head of an answer; the message has one, too.
fn head(message: &[u8], code: u8, questions: u16, records: u16) -> Vec<u8> {
    let mut out = message[..2].to_vec();
    // An answer; its opcode and whether recursion is desired are the question's, and it is available.
    out.extend([0x80 | message[2] & 0x79, 0x80 | code]);
    for count in [questions, records, 0, 0] {
        out.extend(count.to_be_bytes());
    }
    out
}

/// An answer without anything, to what has a head.
fn refusal(message: &[u8], code: u8) -> Option<Vec<u8>> {
    if message.len() < HEAD {
        return None;
    }
    match Question::read(message) {
        // Whoever asked compares that.
        Ok(question) => {
            let mut out = head(message, code, 1, 0);
            out.extend(&message[HEAD..question.end]);
            Some(out)
        }
        Err(_) => Some(head(message, code, 0, 0)),
    }
}

fn encode_name(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.') {
        out.push(label.len() as u8); // at most 63
        out.extend(label.as_bytes());
    }
    out.push(0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str, kind: u16) -> Vec<u8> {
        let mut out = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        out.extend(encode_name(name));
        out.extend(kind.to_be_bytes());
        out.extend(INTERNET.to_be_bytes());
        out
    }

    fn names(carried: &[&str], direct: &[&str]) -> Names {
        let read = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Names::new(Arc::new(Routes::new(read(carried), read(direct))))
    }

    /// The code of an answer, and the bytes of its records.
    fn read(answer: &[u8]) -> (u8, Vec<Vec<u8>>) {
        assert_eq!(answer[..2], [0xab, 0xcd]);
        assert_eq!(answer[2] & 0x80, 0x80);
        let count = u16::from_be_bytes([answer[6], answer[7]]);
        let mut records = Vec::new();
        if count > 0 {
            let mut at = Question::read(answer).unwrap().end;
            for _ in 0..count {
                let len = u16::from_be_bytes([answer[at + 10], answer[at + 11]]);
                at += 12;
                records.push(answer[at..at + usize::from(len)].to_vec());
                at += usize::from(len);
            }
            assert_eq!(at, answer.len());
        }
        (answer[3] & 15, records)
    }

    #[tokio::test]
    async fn names_have_addresses_that_stand_for_them() {
        let names = names(&[], &[]);
        let ask = async |name: &str, kind| read(&names.answer(&message(name, kind)).await.unwrap());
        let (code, records) = ask("www.Example.org", A).await;
        assert_eq!(code, 0);
        let ip: [u8; 4] = records[0][..].try_into().unwrap();
        assert_eq!(ip[..2], [198, 18]);
        assert_eq!(names.of(ip.into()).as_deref(), Some("www.example.org"));
        assert_eq!(ask("www.example.org", A).await.1[0], ip);
        assert_ne!(ask("example.org", A).await.1[0], ip);
        assert_eq!(ask("www.example.org", AAAA).await, (0, Vec::new()));
        let reverse = format!("{}.{}.{}.{}.in-addr.arpa", ip[3], ip[2], ip[1], ip[0]);
        assert_eq!(ask(&reverse, PTR).await.1, [encode_name("www.example.org")]);
        assert_eq!(ask("1.2.0.192.in-addr.arpa", PTR).await.0, NO_SUCH_NAME);
        assert_eq!(ask("1.2.in-addr.arpa", PTR).await.0, NO_SUCH_NAME);
    }

    #[tokio::test]
    async fn names_that_are_not_carried_are_resolved_here() {
        let names = names(&["*.example.org"], &[]);
        let answer = names.answer(&message("localhost", A)).await.unwrap();
        let (_, records) = read(&answer);
        assert!(records.contains(&vec![127, 0, 0, 1]), "{records:?}");
        let missing = names.answer(&message("no-such.invalid", A)).await.unwrap();
        assert_eq!(read(&missing).0, NO_SUCH_NAME);
    }

    #[tokio::test]
    async fn what_is_no_question_gets_no_address() {
        let names = names(&[], &[]);
        let whole = message("a.b", A);
        for len in 0..whole.len() {
            let answer = names.answer(&whole[..len]).await;
            assert_eq!(answer.is_some(), len >= HEAD, "{len}");
            if let Some(answer) = answer {
                assert_eq!(read(&answer), (FORMAT_ERROR, Vec::new()), "{len}");
            }
        }
        for (at, byte, code) in [
            (2, 0x10, NOT_IMPLEMENTED), // a status
            (5, 2, FORMAT_ERROR),       // two questions
            (12, 0xc0, FORMAT_ERROR),   // a name elsewhere
            (13, b' ', NO_SUCH_NAME),
            (20, 3, NOT_IMPLEMENTED), // another class
        ] {
            let mut wrong = whole.clone();
            wrong[at] = byte;
            let answer = names.answer(&wrong).await.unwrap();
            assert_eq!(read(&answer).0, code, "{at}");
        }
        // What is an answer itself, also to one question.
        for questions in [1, 2] {
            let mut answer = whole.clone();
            answer[2] |= 0x80;
            answer[5] = questions;
            assert_eq!(names.answer(&answer).await, None);
        }
        let root = message("", A);
        assert_eq!(read(&names.answer(&root).await.unwrap()).0, NO_SUCH_NAME);
    }

    /// Whoever can make a program ask for names would choose where its connections go.
    #[test]
    fn addresses_are_used_again_when_there_are_no_others_and_nobody_counts_on_them() {
        let (mut pool, start) = (Pool::default(), Instant::now());
        let first = pool.address("first", start).unwrap();
        let second = pool.address("second", start).unwrap();
        for n in 0..COUNT - 3 {
            assert!(pool.address(&n.to_string(), start).is_some());
        }
        // All were told just now.
        let (soon, late) = (start + KEPT - Duration::from_secs(1), start + KEPT);
        assert_eq!(pool.address("one more", soon), None);
        assert_eq!(pool.name(first, soon).as_deref(), Some("first"));
        // The first one was connected to since.
        assert_eq!(pool.address("one more", late), Some(second));
        assert_eq!(pool.name(second, late).as_deref(), Some("one more"));
        assert_eq!(pool.address("first", late), Some(first));
        assert_ne!(pool.address("second", late), Some(second));
        assert_eq!(pool.names.len(), pool.numbers.len());
        assert_eq!(pool.names.len(), pool.order.len());
        assert_eq!(pool.name(Ipv4Addr::new(198, 20, 0, 0), late), None);
        assert_eq!(pool.name(Ipv4Addr::new(198, 18, 0, 0), late), None);
    }

    /// A name server may say more than programs read, or than a datagram has room for.
    #[tokio::test]
    async fn an_answer_is_as_long_as_programs_read_whatever_a_name_server_says() {
        let message = message("a.example.org", AAAA);
        let question = Question::read(&message).unwrap();
        for (count, told) in [(0, 0), (3, 3), (17, 17), (18, 17), (10_000, 17)] {
            let answer = question.answered(&message, &vec![vec![7; 16]; count]);
            assert!(answer.len() <= 512, "{}", answer.len());
            assert_eq!(read(&answer), (0, vec![vec![7; 16]; told]));
        }
    }

    /// They would take all threads that look for names of others, and more.
    #[tokio::test]
    async fn no_more_names_are_looked_for_at_once_than_there_are_threads_for() {
        let names = names(&["*.example.org"], &[]);
        let asked = message("localhost", A);
        let all = names.looking.try_acquire_many(LOOKED_FOR as u32).unwrap();
        assert_eq!(names.answer(&asked).await, None);
        // Of what is carried nobody is asked.
        let carried = names.answer(&message("a.example.org", A)).await;
        assert_eq!(read(&carried.unwrap()).1.len(), 1);
        drop(all);
        assert!(names.answer(&asked).await.is_some());
    }
}
