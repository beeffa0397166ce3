//! Datagrams come back as they were, and noise is survived.

use super::*;

fn requests() -> Vec<Request> {
    let (session, owner, letter) = ([1; 16], [2; 16], vec![7; MAX_LETTER]);
    let ticket = Ticket {
        address: "192.0.2.1:5".parse().unwrap(),
        mac: [3; 16],
    };
    vec![
        Request::Open {
            session,
            owner,
            number: 9,
        },
        Request::Find { number: 9 },
        Request::Send {
            session,
            letter: letter.clone(),
        },
        Request::Reply {
            session,
            ticket,
            letter,
        },
        Request::Join {
            session,
            token: owner,
            sender: true,
        },
        Request::Close {
            session,
            owner,
            why: Gone::Dead,
        },
    ]
}

fn responses() -> Vec<Response> {
    let (session, letter) = ([1; 16], vec![7; MAX_LETTER]);
    let seen = "[2001:db8::1]:5".parse().unwrap();
    let relay = Some(Allowance {
        bytes: 5,
        seconds: 6,
    });
    let ticket = Ticket {
        address: "192.0.2.1:5".parse().unwrap(),
        mac: [3; 16],
    };
    vec![
        Response::Cookie(session),
        Response::Opened {
            number: 9,
            seen,
            relay: None,
        },
        Response::Found {
            session,
            seen,
            relay,
        },
        Response::Gone(Gone::Used),
        Response::Busy,
        Response::Delivered {
            ticket,
            letter: letter.clone(),
        },
        Response::Answer { session, letter },
        Response::Joined { ready: true },
    ]
}

#[test]
fn requests_come_back_and_have_one_size() {
    for request in requests() {
        let datagram = request.encode(11, &[4; 16]);
        assert_eq!(datagram.len(), REQUEST_LEN, "{request:?}");
        assert_eq!(Request::parse(&datagram), Some((11, [4; 16], request)));
    }
}

#[test]
fn responses_come_back_and_none_is_larger_than_a_request() {
    for response in responses() {
        let datagram = response.encode(11);
        assert!(datagram.len() <= REQUEST_LEN, "{response:?}");
        assert_eq!(
            Packet::parse(&datagram),
            Some(Packet::Response(11, response))
        );
    }
}

#[test]
fn what_is_cut_or_changed_is_refused_or_read_but_never_a_panic() {
    let mut rng = dfcp_proto::SecretRng::new(&[1; 32], "wire, seed 1");
    let all = requests().into_iter().map(|r| r.encode(1, &[0; 16]));
    let all = all.chain(responses().into_iter().map(|r| r.encode(1)));
    for datagram in all {
        for len in 0..datagram.len() {
            assert_eq!(Request::parse(&datagram[..len]), None);
            let _ = Packet::parse(&datagram[..len]);
            let _ = Letter::parse(&datagram[..len]);
        }
        for _ in 0..2000 {
            let mut broken = datagram.clone();
            for _ in 0..=rng.below(4) {
                let at = rng.below(broken.len() as u64) as usize;
                broken[at] = rng.array::<1>()[0];
            }
            let _ = Request::parse(&broken);
            let _ = Packet::parse(&broken);
            let _ = Letter::parse(&broken[5..]);
        }
    }
}
