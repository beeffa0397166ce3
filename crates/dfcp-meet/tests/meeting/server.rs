//! What a server lets be done to it, and to others through it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dfcp_meet::wire::{Gone, Packet, REQUEST_LEN, Request, Response, Ticket};
use dfcp_meet::{Action, Asker, RelayLimits, Server, ServerConfig};
use dfcp_proto::{Duration, Instant, SecretRng};

struct Client {
    server: Server,
    now: Instant,
    cookies: std::collections::BTreeMap<SocketAddr, [u8; 16]>,
}

fn server(relay: Option<RelayLimits>) -> Client {
    let config = ServerConfig {
        relay,
        max_relays: 4,
        max_codes: 500,
    };
    let now = Instant::ZERO + Duration::from_secs(1);
    let server = Server::new(config, SecretRng::new(&[1; 32], "server"), now);
    let cookies = Default::default();
    Client {
        server,
        now,
        cookies,
    }
}

fn at(i: u32) -> SocketAddr {
    // Each in a prefix of its own.
    let ip = Ipv4Addr::from(0x0100_0000 + (i << 8));
    SocketAddr::new(IpAddr::V4(ip), 1000)
}

impl Client {
    fn raw(&mut self, from: impl Into<Asker>, datagram: &[u8]) -> Action {
        let action = self.server.handle(self.now, from, datagram);
        if let Action::Send(_, out) = &action {
            assert!(out.len() <= datagram.len(), "amplified");
        }
        action
    }

    /// Asks with a good cookie.
    fn ask(&mut self, from: SocketAddr, request: &Request) -> Option<(SocketAddr, Response)> {
        for _ in 0..2 {
            let cookie = self.cookies.get(&from).copied().unwrap_or_default();
            let Action::Send(to, out) = self.raw(from, &request.encode(5, &cookie)) else {
                return None;
            };
            match Packet::parse(&out) {
                Some(Packet::Response(_, Response::Cookie(cookie))) => {
                    assert_eq!(to.address, from);
                    self.cookies.insert(from, cookie);
                }
                Some(Packet::Response(_, response)) => return Some((to.address, response)),
                other => panic!("{other:?}"),
            }
        }
        panic!("a cookie is never good");
    }

    fn open(&mut self, from: SocketAddr, session: [u8; 16]) -> Option<u32> {
        let owner = session.map(|byte| !byte);
        let open = Request::Open {
            session,
            owner,
            number: 0,
        };
        match self.ask(from, &open)? {
            (_, Response::Opened { number, seen, .. }) => {
                assert_eq!(seen, from);
                Some(number)
            }
            (_, Response::Busy) => None,
            other => panic!("{other:?}"),
        }
    }

    fn join(&mut self, from: SocketAddr, sender: bool) -> Response {
        let join = Request::Join {
            session: [1; 16],
            token: [9; 16],
            sender,
        };
        self.ask(from, &join).expect("an answer").1
    }
}

/// A server may have several addresses, and each side knows one of them.
#[test]
fn letters_and_data_leave_from_where_those_ask_whom_they_are_for() {
    let (bytes, seconds) = (10_000, 60);
    let mut client = server(Some(RelayLimits { bytes, seconds }));
    let (session, token) = ([1; 16], [9; 16]);
    let asker = |i, own: [u8; 4]| Asker {
        address: at(i),
        at: Some(own.into()),
    };
    let (sender, receiver) = (asker(1, [192, 0, 2, 1]), asker(2, [192, 0, 2, 2]));
    let mut ask = |from: Asker, request: &Request| {
        client.ask(from.address, &Request::Find { number: 1 });
        let request = request.encode(5, &client.cookies[&from.address]);
        match client.raw(from, &request) {
            Action::Send(to, out) => match Packet::parse(&out) {
                Some(Packet::Response(_, response)) => (to, response),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    let (owner, number, letter) = ([2; 16], 0, vec![7; 50]);
    let open = Request::Open {
        session,
        owner,
        number,
    };
    assert_eq!(ask(sender, &open).0, sender);
    let send = Request::Send {
        session,
        letter: letter.clone(),
    };
    let (to, delivered) = ask(receiver, &send);
    assert_eq!(to, sender);
    let Response::Delivered { ticket, .. } = delivered else {
        panic!("{delivered:?}");
    };
    let reply = Request::Reply {
        session,
        ticket,
        letter,
    };
    assert_eq!(ask(sender, &reply).0, receiver);
    for (end, is_sender) in [(sender, true), (receiver, false)] {
        let join = Request::Join {
            session,
            token,
            sender: is_sender,
        };
        assert_eq!(ask(end, &join).0, end);
    }
    assert_eq!(client.raw(sender, &DATA), Action::Forward(receiver));
    assert_eq!(client.raw(receiver, &DATA), Action::Forward(sender));
}

#[test]
fn nothing_is_kept_or_sent_elsewhere_without_a_cookie() {
    let mut client = server(None);
    let session = [1; 16];
    client.open(at(1), session).unwrap();
    let requests = [
        Request::Open {
            session: [2; 16],
            owner: [3; 16],
            number: 0,
        },
        Request::Find { number: 1 },
        Request::Send {
            session,
            letter: vec![1; 100],
        },
        Request::Close {
            session,
            owner: session.map(|byte| !byte),
            why: Gone::Used,
        },
    ];
    let foreign = client.cookies[&at(1)];
    for request in &requests {
        for cookie in [[0; 16], foreign] {
            let Action::Send(to, out) = client.raw(at(2), &request.encode(5, &cookie)) else {
                panic!("no cookie");
            };
            assert_eq!(to.address, at(2));
            assert!(out.len() * 8 < REQUEST_LEN);
            let parsed = Packet::parse(&out);
            assert!(matches!(
                parsed,
                Some(Packet::Response(5, Response::Cookie(_)))
            ));
        }
    }
    assert_eq!(client.server.stats().codes, 1);
    // Cookies end.
    client.now += Duration::from_secs(300);
    let find = requests[1].encode(5, &foreign);
    let Action::Send(_, out) = client.raw(at(1), &find) else {
        panic!()
    };
    assert!(matches!(
        Packet::parse(&out),
        Some(Packet::Response(_, Response::Cookie(_)))
    ));
}

#[test]
fn letters_go_to_the_sender_and_answers_to_who_wrote_them_only() {
    let mut client = server(None);
    let session = [1; 16];
    client.open(at(1), session).unwrap();
    let letter = vec![7; 50];
    let send = Request::Send {
        session,
        letter: letter.clone(),
    };
    let (to, delivered) = client.ask(at(2), &send).unwrap();
    let Response::Delivered {
        ticket,
        letter: got,
    } = delivered
    else {
        panic!()
    };
    assert_eq!((to, ticket.address, &got), (at(1), at(2), &letter));
    let reply = |session, ticket| Request::Reply {
        session,
        ticket,
        letter: letter.clone(),
    };
    // The sender may answer; nobody else may, nor to anybody else, nor for another session.
    let (to, _) = client.ask(at(1), &reply(session, ticket)).unwrap();
    assert_eq!(to, at(2));
    client.ask(at(3), &Request::Find { number: 1 });
    assert_eq!(client.ask(at(3), &reply(session, ticket)), None);
    let elsewhere = Ticket {
        address: at(4),
        ..ticket
    };
    assert_eq!(client.ask(at(1), &reply(session, elsewhere)), None);
    client.open(at(5), [2; 16]).unwrap();
    assert_eq!(client.ask(at(5), &reply([2; 16], ticket)), None);
    let nobody = Request::Send {
        session: [8; 16],
        letter: letter.clone(),
    };
    assert_eq!(client.ask(at(2), &nobody), None);
}

#[test]
fn only_its_owner_refreshes_or_closes_a_session() {
    let mut client = server(None);
    let session = [1; 16];
    let number = client.open(at(1), session).unwrap();
    let owner = [0; 16];
    let steal = Request::Open {
        session,
        owner,
        number,
    };
    let (_, answer) = client.ask(at(2), &steal).unwrap();
    assert_eq!(answer, Response::Busy);
    let why = Gone::Used;
    let close = |owner| Request::Close {
        session,
        owner,
        why,
    };
    client.ask(at(2), &close(owner));
    assert_eq!(client.server.stats().codes, 1);
    client.ask(at(1), &close(session.map(|byte| !byte)));
    assert_eq!(client.server.stats().codes, 0);
    let (_, gone) = client.ask(at(2), &Request::Find { number }).unwrap();
    assert_eq!(gone, Response::Gone(Gone::Used));
}

#[test]
fn a_flood_of_sessions_fills_a_prefix_and_then_the_table_and_no_more() {
    let mut client = server(None);
    let id = |i: u32| {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&i.to_be_bytes());
        id
    };
    let opened = (0..200).filter(|i| client.open(at(1), id(*i)).is_some());
    assert!(opened.count() <= 32);
    let before = client.server.stats().codes;
    for i in 1000..11_000 {
        client.open(at(i), id(i));
    }
    assert_eq!(client.server.stats().codes, 500);
    assert!(before < 33);
    // They end when nobody refreshes them, and their numbers lead nowhere for a while.
    client.now += Duration::from_secs(40);
    assert!(client.open(at(2), id(1)).is_some());
    assert_eq!(client.server.stats().codes, 1);
    client.now += Duration::from_secs(700);
    assert!(client.open(at(3), id(2)).is_some_and(|number| number < 100));
}

#[test]
fn questions_for_numbers_are_few_for_one_prefix() {
    let mut client = server(None);
    client.ask(at(1), &Request::Find { number: 1 });
    let mut answers = 0;
    for second in 0..60 {
        client.now = Instant::ZERO + Duration::from_secs(2 + second);
        for _ in 0..100 {
            let (_, answer) = client.ask(at(1), &Request::Find { number: 1 }).unwrap();
            answers += u32::from(answer != Response::Busy);
        }
    }
    // A full bucket of 24, and 24 a minute.
    assert!((40..=50).contains(&answers), "{answers}");
    let (_, other) = client.ask(at(2), &Request::Find { number: 1 }).unwrap();
    assert_eq!(other, Response::Gone(Gone::Unknown));
}

const DATA: [u8; 1000] = [0x40; 1000];

#[test]
fn a_relay_carries_between_two_ends_what_it_was_told_to_carry() {
    let relay = RelayLimits {
        bytes: 5_500,
        seconds: 90,
    };
    let mut client = server(Some(relay));
    // No session, no path.
    assert_eq!(client.join(at(1), true), Response::Busy);
    client.open(at(1), [1; 16]).unwrap();
    assert_eq!(client.join(at(1), true), Response::Joined { ready: false });
    assert_eq!(client.raw(at(1), &DATA), Action::Drop);
    assert_eq!(client.join(at(2), false), Response::Joined { ready: true });
    assert_eq!(client.join(at(1), true), Response::Joined { ready: true });
    // Nobody takes an end that is taken, nor both ends.
    assert_eq!(client.join(at(3), false), Response::Busy);
    assert_eq!(client.join(at(1), false), Response::Busy);
    assert_eq!(client.raw(at(3), &DATA), Action::Drop);
    assert_eq!(client.raw(at(1), &DATA), Action::Forward(at(2).into()));
    assert_eq!(client.raw(at(2), &DATA), Action::Forward(at(1).into()));
    // Bytes count both ways.
    let through = (0..10).filter(|_| client.raw(at(1), &DATA) != Action::Drop);
    assert_eq!(through.count(), 3);
    assert_eq!(client.server.stats().relayed_bytes, 5000);
}

#[test]
fn a_relayed_path_ends_with_its_time_or_in_silence() {
    let relay = RelayLimits {
        bytes: u64::MAX,
        seconds: 90,
    };
    let both = |client: &mut Client| {
        client.open(at(1), [1; 16]).unwrap();
        client.join(at(1), true);
        assert_eq!(client.join(at(2), false), Response::Joined { ready: true });
    };
    let mut client = server(Some(relay));
    both(&mut client);
    for second in 0..88 {
        client.now += Duration::from_secs(1);
        assert_eq!(
            client.raw(at(1), &DATA),
            Action::Forward(at(2).into()),
            "{second}"
        );
    }
    client.now += Duration::from_secs(3);
    assert_eq!(client.raw(at(1), &DATA), Action::Drop);
    let mut client = server(Some(relay));
    both(&mut client);
    client.now += Duration::from_secs(61);
    assert_eq!(client.raw(at(1), &DATA), Action::Drop);
    assert_eq!(client.server.stats().relays, 0);
}

#[test]
fn relays_are_few() {
    let relay = Some(RelayLimits {
        bytes: 1000,
        seconds: 90,
    });
    let mut client = server(relay);
    let join = |client: &mut Client, i: u32| {
        let session = [i as u8; 16];
        client.open(at(i), session).unwrap();
        let join = Request::Join {
            session,
            token: session,
            sender: true,
        };
        client.ask(at(i), &join).unwrap().1
    };
    let ready = Response::Joined { ready: false };
    let joined: Vec<_> = (1..10).map(|i| join(&mut client, i) == ready).collect();
    assert_eq!(joined.iter().filter(|joined| **joined).count(), 4);
}

#[test]
fn whatever_arrives_is_survived() {
    let mut client = server(Some(RelayLimits {
        bytes: 10_000,
        seconds: 60,
    }));
    client.open(at(1), [1; 16]).unwrap();
    let mut rng = SecretRng::new(&[4; 32], "noise, seed 4");
    let cookie = client.cookies[&at(1)];
    for _ in 0..20_000 {
        let mut datagram = Request::Find { number: 1 }.encode(5, &cookie);
        datagram[4] = rng.below(12) as u8; // any kind of request, then noise in its fields
        let mut noise = vec![0; rng.below(400) as usize];
        rng.fill(&mut noise);
        datagram[29..29 + noise.len()].copy_from_slice(&noise);
        if rng.below(4) == 0 {
            datagram.truncate(rng.below(512) as usize);
        }
        client.now += Duration::from_millis(rng.below(600));
        client.raw(at(1), &datagram);
    }
}
