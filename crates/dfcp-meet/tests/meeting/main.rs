//! Both sides and the server in one network in virtual time.

mod hostile;
mod server;
mod world;

use dfcp_meet::wire::Gone;
use dfcp_meet::{Code, Event, Failure, LIFETIME};
use dfcp_proto::{Duration, SecretRng};
use world::{Nat, RECEIVER_KEY, SENDER_KEY, SERVER, World, address, allowance};

const A: &str = "198.51.100.1:7000";
const B: &str = "198.51.101.1:7000";

/// Runs an offer at `a` and a claim at `b` to their ends.
fn meet(world: &mut World, a: &str, b: &str) {
    let words = world.words();
    world.offer(a, words.clone(), false);
    let number = world.number(a);
    world.claim(b, Code { number, words }, false);
    world.run_until(|world| world.is_over(a) && world.is_over(b));
}

/// Both found each other; whether over the relay.
fn assert_met(world: &World, a: &str, b: &str) -> bool {
    assert!(
        world.of(a).contains(&Event::Met(RECEIVER_KEY)),
        "{:?}",
        world.of(a)
    );
    assert!(
        world.of(b).contains(&Event::Met(SENDER_KEY)),
        "{:?}",
        world.of(b)
    );
    let path = |host| match world.last(host) {
        Event::Found(path) => path.clone(),
        event => panic!("{host}: {event:?}"),
    };
    let (sender, receiver) = (path(a), path(b));
    assert_eq!(sender.relayed, receiver.relayed);
    if sender.relayed {
        assert_eq!([sender.remote, receiver.remote], [address(SERVER); 2]);
    }
    sender.relayed
}

#[test]
fn two_meet_through_a_server_whatever_is_lost_copied_or_late() {
    for seed in 0..150 {
        let mut world = World::new(seed).with_server(None);
        world.loss = seed % 3 * 100;
        world.copies = seed / 3 % 3 * 100;
        meet(&mut world, A, B);
        let Event::Found(path) = world.last(A) else {
            panic!("seed {seed}: {:?}", world.of(A));
        };
        assert_eq!((path.remote, path.relayed), (address(B), false));
        assert!(!assert_met(&world, A, B));
    }
}

#[test]
fn two_meet_on_the_local_network_without_a_server() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.loss = seed % 4 * 50;
        let words = world.words();
        world.offer("192.168.1.2:7000", words.clone(), true);
        let number = world.number("192.168.1.2:7000");
        world.claim("192.168.1.3:7000", Code { number, words }, true);
        world.found_locally("192.168.1.3:7000", "192.168.1.2:7000");
        world.run_until(|world| world.is_over("192.168.1.2:7000"));
        let Event::Found(path) = world.last("192.168.1.2:7000") else {
            panic!("{:?}", world.of("192.168.1.2:7000"));
        };
        assert_eq!(path.remote, address("192.168.1.3:7000"));
    }
}

#[test]
fn a_claim_that_finds_one_session_twice_spends_one_guess() {
    let mut world = World::new(1).with_server(None);
    let words = world.words();
    world.offer(A, words, true);
    let number = world.number(A);
    let wrong = Code {
        number,
        words: "1-not-these".parse::<Code>().unwrap().words,
    };
    world.claim(B, wrong, true);
    world.found_locally(B, A);
    world.run_until(|world| world.is_over(B));
    assert_eq!(world.last(B), &Event::Failed(Failure::WrongCode(2)));
    assert_eq!(world.last(A), &Event::WrongGuess(2));
}

#[test]
fn translators_are_punched_through_or_gone_around() {
    use Nat::{Cone, None, Symmetric};
    let cases = [
        (None, None, false),
        (Cone, None, false),
        (None, Cone, false),
        (Cone, Cone, false),
        (Symmetric, None, false),
        (None, Symmetric, false),
        // A port for each destination, and only these let in: nobody knows which to send to.
        (Symmetric, Cone, true),
        (Cone, Symmetric, true),
        (Symmetric, Symmetric, true),
    ];
    for (a_nat, b_nat, relayed) in cases {
        for seed in 0..5 {
            println!("{a_nat:?}, {b_nat:?}");
            let mut world = World::new(seed).with_server(Some(allowance()));
            let a = if a_nat == None { A } else { "10.0.1.2:7000" };
            let b = if b_nat == None { B } else { "10.0.2.2:7000" };
            world.place(a, "198.51.100.9", a_nat);
            world.place(b, "198.51.101.9", b_nat);
            meet(&mut world, a, b);
            assert_eq!(assert_met(&world, a, b), relayed);
        }
    }
}

#[test]
fn behind_one_translator_the_local_addresses_are_taken() {
    let mut world = World::new(1).with_server(Some(allowance()));
    let (a, b) = ("192.168.1.2:7000", "192.168.1.3:7000");
    world.place(a, "198.51.100.9", Nat::Symmetric);
    world.place(b, "198.51.100.9", Nat::Symmetric);
    meet(&mut world, a, b);
    assert!(!assert_met(&world, a, b));
    let Event::Found(path) = world.last(a) else {
        panic!()
    };
    assert_eq!(path.remote, address(b));
}

#[test]
fn without_a_relay_there_is_no_path_and_both_say_so() {
    let mut world = World::new(1).with_server(None);
    let (a, b) = ("10.0.1.2:7000", "10.0.2.2:7000");
    world.place(a, "198.51.100.9", Nat::Symmetric);
    world.place(b, "198.51.101.9", Nat::Symmetric);
    meet(&mut world, a, b);
    for host in [a, b] {
        assert_eq!(world.last(host), &Event::Failed(Failure::NoPath), "{host}");
    }
}

/// Claims with other words than those of the code.
fn guess_wrong(world: &mut World, host: &str, number: u32) {
    let words = "1-not-these".parse::<Code>().unwrap().words;
    world.claim(host, Code { number, words }, false);
    world.run_until(|world| world.is_over(host));
}

#[test]
fn three_wrong_guesses_kill_a_code_and_fewer_do_not() {
    for wrong in 0..4_u8 {
        let mut world = World::new(u64::from(wrong)).with_server(None);
        let words = world.words();
        world.offer(A, words.clone(), false);
        let number = world.number(A);
        for i in 0..wrong {
            let host = format!("198.51.102.{}:7000", i + 1);
            guess_wrong(&mut world, &host, number);
            // The sender leaves after the last: what it says of it may come too late.
            let dead = Event::Failed(Failure::Gone(Gone::Dead));
            let failed = Event::Failed(Failure::WrongCode(2 - i));
            let said = world.last(&host);
            assert!(said == &failed || (i == 2 && said == &dead), "{said:?}");
        }
        world.claim(B, Code { number, words }, false);
        world.run_until(|world| world.is_over(B) && world.is_over(A));
        if wrong < 3 {
            assert!(!assert_met(&world, A, B));
        } else {
            assert_eq!(world.last(A), &Event::Failed(Failure::Gone(Gone::Dead)));
            assert_eq!(world.last(B), &Event::Failed(Failure::Gone(Gone::Dead)));
        }
    }
}

#[test]
fn a_code_is_good_once() {
    let mut world = World::new(1).with_server(None);
    let words = world.words();
    world.offer(A, words.clone(), false);
    let number = world.number(A);
    let code = Code { number, words };
    world.claim(B, code.clone(), false);
    world.run_until(|world| world.is_over(A) && world.is_over(B));
    assert!(!assert_met(&world, A, B));
    let late = "198.51.102.1:7000";
    world.claim(late, code, false);
    world.run_until(|world| world.is_over(late));
    assert_eq!(world.last(late), &Event::Failed(Failure::Gone(Gone::Used)));
}

#[test]
fn of_two_who_come_at_once_one_gets_in() {
    for seed in 0..30 {
        let mut world = World::new(seed).with_server(None);
        let words = world.words();
        world.offer(A, words.clone(), false);
        let number = world.number(A);
        let code = Code { number, words };
        let both = [B, "198.51.102.1:7000"];
        for host in both {
            world.claim(host, code.clone(), false);
        }
        world.run_until(|world| world.is_over(A) && both.iter().all(|host| world.is_over(host)));
        let met = |host: &&str| world.of(host).contains(&Event::Met(SENDER_KEY));
        assert_eq!(both.iter().filter(|host| met(host)).count(), 1);
        let used = Event::Failed(Failure::Gone(Gone::Used));
        assert!(both.iter().any(|host| world.last(host) == &used));
    }
}

#[test]
fn a_code_ends_after_its_time_and_when_its_sender_leaves() {
    let mut world = World::new(1).with_server(None);
    let words = world.words();
    world.offer(A, words.clone(), false);
    let number = world.number(A);
    world.wait(LIFETIME - Duration::from_secs(2));
    assert_eq!(world.last(A), &Event::Ready(number));
    world.wait(Duration::from_secs(3));
    let expired = Event::Failed(Failure::Gone(Gone::Expired));
    assert_eq!(world.last(A), &expired);
    world.claim(B, Code { number, words }, false);
    world.run_until(|world| world.is_over(B));
    assert_eq!(world.last(B), &expired);

    let mut world = World::new(2).with_server(None);
    let words = world.words();
    world.offer(A, words.clone(), false);
    let number = world.number(A);
    world.hosts.remove(&address(A)); // killed: it says nothing
    world.wait(Duration::from_secs(40));
    world.claim(B, Code { number, words }, false);
    world.run_until(|world| world.is_over(B));
    assert_eq!(world.last(B), &expired);
}

#[test]
fn who_finds_nobody_says_what_was_looked_for() {
    let claim = |world: &mut World, lan| {
        let words = world.words();
        world.claim(B, Code { number: 7, words }, lan);
        world.run_until(|world| world.is_over(B));
        world.last(B).clone()
    };
    let unknown = Event::Failed(Failure::Gone(Gone::Unknown));
    assert_eq!(claim(&mut World::new(1).with_server(None), false), unknown);
    assert_eq!(claim(&mut World::new(1).with_server(None), true), unknown);
    let not_found = Event::Failed(Failure::NotFound);
    assert_eq!(claim(&mut World::new(1), true), not_found);
    let mut silent = World::new(1).with_server(None);
    silent.loss = 1000;
    assert_eq!(
        claim(&mut silent, false),
        Event::Failed(Failure::ServerSilent)
    );
}

#[test]
fn an_offer_goes_on_without_a_server_if_there_is_a_local_network() {
    for lan in [true, false] {
        let mut world = World::new(1).with_server(None);
        world.loss = 1000;
        let words = world.words();
        world.offer(A, words, lan);
        world.wait(Duration::from_secs(6));
        let silent = Failure::ServerSilent;
        match lan {
            true => {
                assert_eq!(world.of(A)[0], Event::WithoutServer(silent));
                assert!(matches!(world.last(A), Event::Ready(_)));
            }
            false => assert_eq!(world.of(A), [Event::Failed(silent)]),
        }
    }
}

#[test]
fn a_server_that_was_started_anew_learns_the_number_again() {
    let mut world = World::new(5).with_server(None);
    let words = world.words();
    world.offer(A, words.clone(), false);
    let number = world.number(A);
    let rng = SecretRng::new(&[7; 32], "another server");
    world.server = Some(dfcp_meet::Server::new(Default::default(), rng, world.now));
    world.wait(Duration::from_secs(15));
    world.claim(B, Code { number, words }, false);
    world.run_until(|world| world.is_over(A) && world.is_over(B));
    assert!(!assert_met(&world, A, B));
}

#[test]
fn a_sender_learns_that_its_server_died_and_that_it_is_back() {
    let mut world = World::new(7).with_server(None);
    let words = world.words();
    world.offer(A, words.clone(), true);
    let number = world.number(A);
    let server = world.server.take();
    world.run_until(|world| world.last(A) == &Event::ServerLost);
    assert_eq!(world.of(A), [Event::Ready(number), Event::ServerLost]);
    // Another process, which knows nothing of the number.
    drop(server);
    let mut world = world.with_server(None);
    world.run_until(|world| world.last(A) == &Event::ServerBack);
    world.claim(B, Code { number, words }, false);
    world.run_until(|world| world.is_over(A) && world.is_over(B));
    assert!(!assert_met(&world, A, B));
}
