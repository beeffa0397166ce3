//! Those who want in without the words, and those who only want to disturb.

use dfcp_meet::pake::{Exchange, Run, Side};
use dfcp_meet::wire::{Body, Letter, MAX_LETTER, Packet, Response};
use dfcp_meet::{Code, Event, Failure, MAX_GUESSES};
use dfcp_proto::Duration;

use crate::world::{Nat, RECEIVER_KEY, SENDER_KEY, SERVER, World, address, allowance, stranger};
use crate::{A, B, assert_met};

/// The session of an offer and the number of it.
fn open(world: &mut World, lan: bool) -> ([u8; 16], u32, dfcp_meet::code::Words) {
    let words = world.words();
    world.offer(A, words.clone(), lan);
    let number = world.number(A);
    let crate::world::Host::Offer(offer) = &world.hosts[&address(A)] else {
        panic!("no offer")
    };
    (offer.session(), number, words)
}

#[test]
fn ten_thousand_wrong_guesses_are_three() {
    let mut world = World::new(1);
    let (session, number, _) = open(&mut world, true);
    let from = address("192.0.2.66:666");
    let mut rng = world.rng.fork("guesser");
    let mut wrong = 0;
    for i in 0..10_000_u32 {
        // All pairs of the four words in turn, but for the right ones: never a lucky guess here.
        let words = format!("{number}-wrong-{}", ["a", "b", "c"][i as usize % 3]);
        let words = words.parse::<Code>().unwrap().words;
        let attempt = rng.array();
        let run = Run {
            side: Side::Receiver,
            session: &session,
            attempt: &attempt,
            words: &words,
        };
        let exchange = Exchange::start(run, &mut rng);
        let body = Body::Hello(exchange.message());
        let letters = say(&mut world, from, session, Letter { attempt, body });
        let Some(Body::Answer(answer)) = letters.first().map(|letter| letter.body.clone()) else {
            world.wait(Duration::from_millis(20)); // too many at once
            continue;
        };
        let keys = exchange.finish(&answer).unwrap();
        let sealed = keys.seal(&dfcp_meet::pake::Introduction {
            key: RECEIVER_KEY,
            candidates: vec![],
        });
        let body = Body::Proof(sealed);
        for letter in say(&mut world, from, session, Letter { attempt, body }) {
            assert!(!matches!(letter.body, Body::Welcome(_)));
            wrong += u32::from(matches!(letter.body, Body::Wrong(_)));
        }
    }
    assert_eq!(wrong, u32::from(MAX_GUESSES));
    let met = |event: &Event| matches!(event, Event::Met(_));
    assert!(!world.of(A).iter().any(met));
    let dead = Failure::Gone(dfcp_meet::wire::Gone::Dead);
    assert_eq!(world.last(A), &Event::Failed(dead));
}

/// Hands a letter to the offer; what it answers.
fn say(
    world: &mut World,
    from: std::net::SocketAddr,
    session: [u8; 16],
    letter: Letter,
) -> Vec<Letter> {
    let now = world.now;
    let offer = world.hosts.get_mut(&address(A)).unwrap().machine();
    offer.handle(now, from, &Packet::direct(&session, &letter.encode()));
    let mut letters = Vec::new();
    while let Some((to, datagram)) = offer.transmit() {
        if let (true, Some(Packet::Direct { letter, .. })) = (to == from, Packet::parse(&datagram))
        {
            letters.extend(Letter::parse(&letter));
        }
    }
    world.drain(address(A));
    letters
}

#[test]
fn a_flood_of_hellos_costs_little_and_lets_the_right_one_in() {
    let mut world = World::new(2);
    let (session, number, words) = open(&mut world, true);
    let from = address("192.0.2.66:666");
    let mut rng = world.rng.fork("flood");
    let start = world.now;
    let mut answered = 0;
    while world.now.saturating_since(start) < Duration::from_secs(5) {
        let attempt = rng.array();
        let run = Run {
            side: Side::Receiver,
            session: &session,
            attempt: &attempt,
            words: &words,
        };
        let message = Exchange::start(run, &mut rng).message();
        let body = Body::Hello(message);
        answered += say(&mut world, from, session, Letter { attempt, body }).len();
        world.wait(Duration::from_millis(2));
    }
    assert!((200..=300).contains(&answered), "{answered}");
    world.claim(B, Code { number, words }, true);
    world.found_locally(B, A);
    world.run_until(|world| world.is_over(A) && world.is_over(B));
    assert!(!assert_met(&world, A, B));
}

#[test]
fn what_is_replayed_changed_or_made_up_leads_nobody_astray() {
    for seed in 0..40 {
        let mut world = World::new(seed).with_server(Some(allowance()));
        let (a, b) = ("10.0.1.2:7000", "10.0.2.2:7000");
        if seed % 2 == 0 {
            world.place(a, "198.51.100.9", Nat::Cone);
            world.place(b, "198.51.101.9", Nat::Cone);
        }
        let (a, b) = if seed % 2 == 0 { (a, b) } else { (A, B) };
        let words = world.words();
        world.offer(a, words.clone(), false);
        let number = world.number(a);
        world.claim(b, Code { number, words }, false);
        let targets = [address(a), address(b), address(SERVER)];
        let mut rng = world.rng.fork("disturber");
        world.run_until(|world| {
            if rng.below(3) == 0 && !world.heard.is_empty() {
                let pick = rng.below(world.heard.len() as u64) as usize;
                let mut datagram = world.heard[pick].clone();
                for _ in 0..rng.below(3) {
                    let at = rng.below(datagram.len() as u64) as usize;
                    datagram[at] = rng.array::<1>()[0];
                }
                if rng.below(4) == 0 {
                    datagram.truncate(rng.below(datagram.len() as u64) as usize);
                }
                let to = targets[rng.below(3) as usize];
                let from = stranger(&mut rng);
                world.forge(from, to, datagram);
            }
            world.is_over(a) && world.is_over(b)
        });
        let met = |host, key| world.of(host).contains(&Event::Met(key));
        assert!(met(a, RECEIVER_KEY) && met(b, SENDER_KEY), "seed {seed}");
        let Event::Found(path) = world.last(a) else {
            panic!("seed {seed}: {:?}", world.of(a));
        };
        let right = ["198.51.101.1", "198.51.101.9", "203.0.113.1"];
        assert!(
            right.contains(&path.remote.ip().to_string().as_str()),
            "{path:?}"
        );
    }
}

#[test]
fn a_server_that_lies_learns_one_guess_and_cannot_pretend_to_be_the_sender() {
    let mut world = World::new(3).with_server(None);
    let words = world.words();
    world.claim(B, Code { number: 7, words }, false);
    // It answers itself, as a sender that does not know the words.
    let (mut rng, session) = (world.rng.fork("liar"), [5; 16]);
    let guess = "7-my-guess".parse::<Code>().unwrap().words;
    world.server = None;
    let mut proofs = 0;
    for _ in 0..200 {
        if world.is_over(B) {
            break;
        }
        let Some(datagram) = world.heard.pop() else {
            world.step();
            continue;
        };
        let Some((nonce, _, request)) = dfcp_meet::wire::Request::parse(&datagram) else {
            continue;
        };
        let seen = address(B);
        let answer = match request {
            dfcp_meet::wire::Request::Find { .. } => Response::Found {
                session,
                seen,
                relay: None,
            },
            dfcp_meet::wire::Request::Send { letter, .. } => {
                let letter = Letter::parse(&letter).unwrap();
                let attempt = letter.attempt;
                let body = match letter.body {
                    Body::Hello(hello) => {
                        let run = Run {
                            side: Side::Sender,
                            session: &session,
                            attempt: &attempt,
                            words: &guess,
                        };
                        let exchange = Exchange::start(run, &mut rng);
                        let message = exchange.message();
                        exchange.finish(&hello).unwrap();
                        Body::Answer(message)
                    }
                    _ => {
                        proofs += 1;
                        Body::Welcome(vec![7; MAX_LETTER - 17])
                    }
                };
                let letter = Letter { attempt, body }.encode();
                Response::Answer { session, letter }
            }
            _ => continue,
        };
        world.forge(address(SERVER), seen, answer.encode(nonce));
        world.step();
    }
    world.run_until(|world| world.is_over(B));
    assert!(proofs > 0);
    assert_eq!(world.of(B), [Event::Failed(Failure::Silent)]);
}
