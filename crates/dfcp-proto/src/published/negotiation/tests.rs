use super::*;
use proptest::prelude::*;

fn initial() -> State {
    State::new(100, 200, 300).expect("valid")
}

fn config() -> Config {
    Config::default()
}

fn raptor(offer: &mut Offer) -> &mut RaptorParameters {
    match &mut offer.code {
        Code::Raptor(code) => code,
        other => panic!("{other:?}"),
    }
}

fn round_trip(offer: &Offer, answered: Option<State>) -> Result<(Offer, Option<State>), Refusal> {
    let mut out = Vec::new();
    offer.emit(answered, &mut out);
    assert_eq!(out.len(), OFFER_LEN);
    Offer::parse(&out, initial())
}

#[test]
fn every_mode_is_carried() {
    let config = config();
    let base = Offer::new(&config, initial()).expect("defaults are within limits");
    let soliton = Degrees::RobustSoliton {
        c_millionths: 30_000,
        delta_millionths: 500_000,
    };
    for degrees in [Degrees::Shokrollahi, Degrees::IdealSoliton, soliton] {
        for acknowledge in [
            Acknowledge::EachBlock,
            Acknowledge::EachWindow,
            Acknowledge::Off,
        ] {
            for moment in [Moment::Received, Moment::Decoded] {
                for encoding in [Codec::On, Codec::Off] {
                    for payload in [Payload::Real, Payload::Virtual] {
                        let mut offer = Offer {
                            acknowledge,
                            moment,
                            encoding,
                            payload,
                            ..base.clone()
                        };
                        raptor(&mut offer).degrees = degrees;
                        for answered in [None, Some(initial())] {
                            assert_eq!(round_trip(&offer, answered), Ok((offer.clone(), answered)));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn several_ldpc_degrees_follow_the_payload() {
    let lists = [
        LdpcDegrees::uniform(3..=5),
        LdpcDegrees::Weighted(vec![(4, 1)]),
        LdpcDegrees::Weighted((1..=8).map(|degree| (4 * degree, u16::MAX)).collect()),
    ];
    for ldpc_degrees in lists {
        for message in [None, Some(5_000_000)] {
            let mut config = Config {
                message,
                ..config()
            };
            if let Code::Raptor(code) = &mut config.code {
                code.ldpc_degrees = ldpc_degrees.clone();
            }
            let offer = Offer::new(&config, initial()).expect("within limits");
            let mut out = Vec::new();
            offer.emit(Some(initial()), &mut out);
            let read = Offer::parse(&out, initial());
            assert_eq!(read, Ok((offer.clone(), Some(initial()))));
            assert!(
                offer.allows(&offer)
                    && !Offer::new(&Config::default(), initial()).is_ok_and(|o| o.allows(&offer))
            );
            // A constant degree besides, a list cut short, one that is too long.
            let refused = |change: &dyn Fn(&mut Vec<u8>)| {
                let mut other = out.clone();
                change(&mut other);
                Offer::parse(&other, initial()).err()
            };
            assert_eq!(refused(&|bytes| bytes[2] = 4), Some(Refusal::Limits));
            assert_eq!(refused(&|bytes| bytes[15] += 1), Some(Refusal::Version));
            assert_eq!(
                refused(&|bytes| bytes.truncate(out.len() - 1)),
                Some(Refusal::Version)
            );
            let nine = refused(&|bytes| {
                bytes.resize(out.len() + 3 * (9 - usize::from(bytes[15])), 1);
                bytes[15] = 9;
            });
            assert_eq!(nine, Some(Refusal::Limits));
        }
    }
}

#[test]
fn the_window_is_lowered_to_the_receive_budget_and_only_lowering_is_an_answer() {
    let mut config = config();
    let offer = Offer::new(&config, initial()).expect("within limits");
    // Three times the intermediate symbols, 256 more of them, 16 packets of 72 bytes, the record.
    let block = 3 * 65_536 + 256 + 16 * 72 + 256;
    assert_eq!(u64::from(offer.window), config.receive_budget / block);
    config.receive_budget = 10 * block;
    let settled = offer.clone().fit(&config).expect("ten blocks have room");
    assert_eq!(settled.window, 10);
    assert!(offer.allows(&settled) && !settled.allows(&offer));
    let other = Offer {
        epsilon: 7,
        ..settled
    };
    assert!(!offer.allows(&other));
    config.receive_budget = block - 1;
    assert_eq!(offer.fit(&config), Err(Refusal::Memory));
}

/// One packet of the last block of a window makes a receiver note all of them.
#[test]
fn a_window_of_next_to_nothing_costs_no_more_than_the_budget() {
    let config = config();
    let mut offer = Offer::new(&config, initial()).expect("within limits");
    offer.code = Code::RaptorQ {
        k: 1,
        symbol_size: 64,
    };
    offer.window = u32::MAX;
    for payload in [Payload::Real, Payload::Virtual] {
        let config = Config {
            payload,
            ..config.clone()
        };
        let offer = Offer {
            payload,
            ..offer.clone()
        };
        let settled = offer.fit(&config).expect("lowered");
        let records = u64::from(settled.window) * RECORD as u64;
        assert!(2 * records <= config.receive_budget, "{records}");
        assert!(settled.window >= 10_000, "the papers' window");
    }
}

#[test]
fn numbers_outside_limits_are_refused() {
    let config = config();
    let good = Offer::new(&config, initial()).expect("within limits");
    let refused = |change: fn(&mut Offer)| {
        let mut offer = good.clone();
        change(&mut offer);
        offer.fit(&config)
    };
    let limits = Err(Refusal::Limits);
    assert_eq!(refused(|o| raptor(o).k = 0), limits);
    assert_eq!(refused(|o| raptor(o).k = 65_537), limits);
    assert_eq!(refused(|o| raptor(o).n = 63_535), limits);
    assert_eq!(refused(|o| raptor(o).n = u32::MAX), limits);
    assert_eq!(refused(|o| raptor(o).symbol_size = 0), limits);
    assert_eq!(refused(|o| raptor(o).symbol_size = u16::MAX), limits);
    assert_eq!(refused(|o| o.window = 0), limits);
    assert_eq!(refused(|o| o.epsilon = u32::MAX), limits);
    let ldpc = |list: &[(u8, u16)]| {
        let mut offer = good.clone();
        raptor(&mut offer).ldpc_degrees = LdpcDegrees::Weighted(list.to_vec());
        offer.fit(&config)
    };
    assert!(ldpc(&[(3, 1), (32, u16::MAX)]).is_ok());
    for list in [
        &[][..],
        &[(0, 1)],
        &[(3, 1), (33, 1)],
        &[(3, 0)],
        &[(4, 1), (3, 1)],
    ] {
        assert_eq!(ldpc(list), limits, "{list:?}");
    }
    assert_eq!(
        refused(|o| raptor(o).ldpc_degrees = LdpcDegrees::Constant(0)),
        limits
    );
    let degrees = Degrees::RobustSoliton {
        c_millionths: 0,
        delta_millionths: 1,
    };
    let mut soliton = good.clone();
    raptor(&mut soliton).degrees = degrees;
    assert_eq!(soliton.fit(&config), limits);
    let sizes = Offer {
        payload: Payload::Virtual,
        ..good.clone()
    };
    assert_eq!(sizes.fit(&config), Err(Refusal::Payload));
    for epsilon in [f64::NAN, -1.0, f64::INFINITY] {
        let mut strange = Config::default();
        strange.redundancy.epsilon = epsilon;
        let offer = Offer::new(&strange, initial()).map(|o| o.epsilon);
        assert!(offer == Ok(0) || offer == limits.clone().map(|o: Offer| o.epsilon));
    }
}

#[test]
fn rc_udps_parameters_are_carried_and_blocks_that_do_not_make_up_the_message_refused() {
    let config = Config::rc_udp(Some(10_000_000));
    let offer = Offer::new(&config, initial()).expect("within limits");
    let message = offer.message.expect("its length is known");
    assert_eq!((message.blocks, message.block), (10, 977 * 1024));
    let mut out = Vec::new();
    offer.emit(Some(initial()), &mut out);
    assert_eq!(out.len(), OFFER_LEN + MESSAGE_LEN);
    let parsed = Offer::parse(&out, initial()).map(|(offer, _)| offer);
    assert_eq!(parsed, Ok(offer.clone()));
    assert!(Offer::parse(&out[..OFFER_LEN], initial()).is_err());
    for (at, what) in [(44, "S_m"), (52, "N"), (56, "B"), (4, "K"), (12, "L")] {
        let mut other = out.clone();
        other[at + 1] ^= 1;
        let refused = Offer::parse(&other, initial()).and_then(|(offer, _)| offer.fit(&config));
        let refusals = [Refusal::Message, Refusal::Limits];
        assert!(refused.is_err_and(|r| refusals.contains(&r)), "{what}");
    }
    let none = Config::rc_udp(None);
    let stream = Offer::new(&none, initial()).expect("within limits");
    assert!(stream.message.is_none() && !offer.allows(&stream) && !stream.allows(&offer));
    let too_long = Config::rc_udp(Some(u64::MAX));
    assert_eq!(Offer::new(&too_long, initial()), Err(Refusal::Message));
}

#[test]
fn symbols_too_small_to_be_worth_solving_are_refused_where_they_have_bytes() {
    let config = config();
    let good = Offer::new(&config, initial()).expect("within limits");
    let (k, with) = (8192, |symbol_size, payload| Offer {
        code: Code::RaptorQ {
            k: 8192,
            symbol_size,
        },
        payload,
        ..good.clone()
    });
    assert_eq!(with(63, Payload::Real).fit(&config), Err(Refusal::Limits));
    let fits = with(64, Payload::Real).fit(&config).expect("is taken");
    assert_eq!(fits.code.k(), k);
    let virtual_config = Config {
        payload: Payload::Virtual,
        ..config.clone()
    };
    assert!(with(1, Payload::Virtual).fit(&virtual_config).is_ok());
    let greedy = Offer {
        epsilon: 1_000_001,
        ..good
    };
    assert_eq!(greedy.fit(&config), Err(Refusal::Limits));
}

#[test]
fn raptorq_numbers_outside_limits_are_refused_before_memory_is_spent() {
    for (k, symbol_size) in [
        (0, 1024),
        (977, 0),
        (8193, 1024),
        (56_403, 1),
        (u32::MAX, 65_535),
    ] {
        let config = Config {
            code: Code::RaptorQ { k, symbol_size },
            ..Config::rc_udp(None)
        };
        let offer = Offer::new(&config, initial());
        assert_eq!(offer, Err(Refusal::Limits), "{k} {symbol_size}");
    }
}

proptest! {
    #[test]
    fn any_payload_is_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..90)) {
        let config = Config::default();
        for version in [None, Some(VERSION)] {
            if let (Some(version), Some(first)) = (version, bytes.first_mut()) {
                *first = version;
            }
            if let Ok((offer, _)) = Offer::parse(&bytes, initial()) {
                let _ = offer.fit(&config);
            }
        }
    }
}
