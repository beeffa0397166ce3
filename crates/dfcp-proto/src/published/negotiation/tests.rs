use super::*;
use proptest::prelude::*;

fn initial() -> State {
    State::new(100, 200, 300).expect("valid")
}

fn config() -> Config {
    Config::default()
}

fn round_trip(offer: &Offer, answered: Option<State>) -> Result<(Offer, Option<State>), Refusal> {
    let mut out = Vec::new();
    offer.emit(answered, &mut out);
    assert_eq!(out.len(), OFFER_LEN);
    Offer::parse(&out, offer.code.precode)
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
                        offer.code.degrees = degrees;
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
fn the_window_is_lowered_to_the_receive_budget_and_only_lowering_is_an_answer() {
    let mut config = config();
    let offer = Offer::new(&config, initial()).expect("within limits");
    assert_eq!(u64::from(offer.window), config.receive_budget / 63_536);
    config.receive_budget = 10 * 63_536;
    let settled = offer.clone().fit(&config).expect("ten blocks have room");
    assert_eq!(settled.window, 10);
    assert!(offer.allows(&settled) && !settled.allows(&offer));
    let other = Offer {
        epsilon: 7,
        ..settled
    };
    assert!(!offer.allows(&other));
    config.receive_budget = 63_535;
    assert_eq!(offer.fit(&config), Err(Refusal::Memory));
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
    assert_eq!(refused(|o| o.code.k = 0), limits);
    assert_eq!(refused(|o| o.code.k = 65_537), limits);
    assert_eq!(refused(|o| o.code.n = o.code.k - 1), limits);
    assert_eq!(refused(|o| o.code.n = u32::MAX), limits);
    assert_eq!(refused(|o| o.code.symbol_size = 0), limits);
    assert_eq!(refused(|o| o.code.symbol_size = u16::MAX), limits);
    assert_eq!(refused(|o| o.window = 0), limits);
    assert_eq!(refused(|o| o.epsilon = u32::MAX), limits);
    assert_eq!(refused(|o| o.code.ldpc_degree = 0), limits);
    let degrees = Degrees::RobustSoliton {
        c_millionths: 0,
        delta_millionths: 1,
    };
    let mut soliton = good.clone();
    soliton.code.degrees = degrees;
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

proptest! {
    #[test]
    fn any_payload_is_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..60)) {
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
