//! How files describe what paths do to packets.

use super::*;
use crate::link::{
    GilbertElliott, Grants, Jitter, JitterModel, Outage, PacketOrder, Spread, TimedGilbertElliott,
    TokenBucket, Wander, Windows,
};

#[test]
fn loss_is_a_probability_a_channel_or_marks() {
    let loss = |text: &str| {
        let scenario = changed("delay", &format!("loss = {text}\ndelay"))?;
        Ok::<_, ScenarioError>(link(&scenario, "bottleneck").config.loss.clone())
    };
    let marks: std::sync::Arc<[bool]> = [false, false, true].into();
    let channel = LossModel::GilbertElliott(GilbertElliott {
        good_to_bad: 0.01,
        bad_to_good: 0.25,
        loss_good: 0.0,
        loss_bad: 1.0,
    });
    let bursts = LossModel::GilbertElliott(GilbertElliott {
        good_to_bad: 0.5,
        bad_to_good: 0.5,
        loss_good: 0.0,
        loss_bad: 1.0,
    });
    let ten = Duration::from_millis(10);
    let timed = LossModel::TimedGilbertElliott(TimedGilbertElliott {
        mean_good: ten,
        mean_bad: ten,
        loss_good: 0.0,
        loss_bad: 1.0,
    });
    for (text, expected) in [
        ("0", LossModel::None),
        ("0.5", LossModel::Bernoulli(0.5)),
        (
            "{ p_good_to_bad = 0.01, p_bad_to_good = 0.25 }",
            channel.clone(),
        ),
        ("{ share = 0.5, burst = 2 }", bursts),
        ("{ share = 0.5, burst = \"10 ms\" }", timed.clone()),
        (
            "{ mean_good = \"10 ms\", mean_bad = \"10 ms\" }",
            timed.clone(),
        ),
        (
            "[0.1, { share = 0.5, burst = \"10 ms\" }]",
            LossModel::Any(vec![LossModel::Bernoulli(0.1), timed]),
        ),
        ("{ mask = \"..x\" }", LossModel::Trace(marks.clone())),
        ("{ mask = \"..x\", repeat = false }", LossModel::Mask(marks)),
    ] {
        assert_eq!(loss(text), Ok(expected), "{text}");
    }
    for (text, words) in [
        ("{ loss_bad = 0.5 }", "never changes"),
        ("{ mask = \"\" }", "no marks"),
        ("{ mask = \"x\", trace = \"x\" }", "exclude each other"),
        ("{ p = 0.1 }", "no key `p`"),
        ("{ share = 0.1 }", "bursts need both"),
        (
            "{ share = 0.9, burst = 2 }",
            "no channel loses the share 0.9",
        ),
        ("{ share = 1, burst = \"1 ms\" }", "no channel"),
        ("{ share = 0.1, burst = \"10\" }", "has no unit"),
        ("{ share = 0.1, burts = 5 }", "Did you mean `burst`"),
        ("{ mean_good = \"1 s\" }", "mean_bad is 0ns, below 1µs"),
        ("[0.1, 2]", "not within 0 to 1"),
    ] {
        let error = loss(text).expect_err(text);
        assert_eq!(error.line, Some(11), "{error}");
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn outages_are_windows_with_what_happens_in_them() {
    let outages = |text: &str| {
        let scenario = changed("delay", &format!("outage = {text}\ndelay"))?;
        let again = Scenario::from_toml(scenario.to_toml_with_defaults(), "again.toml")?;
        assert_eq!(again.links, scenario.links, "{text}");
        Ok::<_, ScenarioError>(link(&scenario, "bottleneck").config.outages.clone())
    };
    let ms = Duration::from_millis;
    let windows = Windows::regular(ms(500), ms(50));
    let basic = "every = \"500 ms\", length = \"50 ms\"";
    let lost = Outage::lost(windows);
    for (text, expected) in [
        ("\"none\"".to_owned(), vec![]),
        (format!("{{ {basic} }}"), vec![lost]),
        (
            format!("{{ {basic}, loss = 0.5 }}"),
            vec![Outage { loss: 0.5, ..lost }],
        ),
        (
            format!("{{ {basic}, packets = \"held\", start = \"1 s\" }}"),
            vec![Outage::held(Windows {
                start: ms(1000),
                ..windows
            })],
        ),
        (
            format!("{{ {basic}, rate_factor = 0.5 }}"),
            vec![Outage {
                rate_factor: 0.5,
                loss: 0.0,
                ..lost
            }],
        ),
        (
            format!("[{{ {basic} }}, {{ {basic}, count = 3, spacing = \"100 ms\" }}]"),
            vec![
                lost,
                Outage::lost(Windows {
                    count: 3,
                    spacing: ms(100),
                    ..windows
                }),
            ],
        ),
        (
            "{ every = \"1 min\", spread = { uniform = [\"1 s\", \"5 s\"] } }".to_owned(),
            vec![Outage::lost(Windows {
                every: ms(60_000),
                length: Duration::ZERO,
                spread: Spread::Uniform(ms(1000), ms(5000)),
                ..windows
            })],
        ),
    ] {
        assert_eq!(outages(&text), Ok(expected), "{text}");
    }
    for (text, words) in [
        ("5", "is no outage: write for example"),
        ("{ length = \"1 s\" }", "needs `every`"),
        (
            "{ every = \"1 s\", length = \"1 s\" }",
            "do not fit into `every`",
        ),
        (
            "{ every = \"1 s\", lenght = \"1 s\" }",
            "Did you mean `length`",
        ),
        (
            "{ every = \"1 s\", length = \"1 ms\", packets = \"hold\" }",
            "Did you mean \"held\"",
        ),
        (
            "{ every = \"1 s\", length = \"1 ms\", spread = \"random\" }",
            "uniform",
        ),
    ] {
        let error = outages(text).expect_err(text);
        assert_eq!(error.line, Some(11), "{error}");
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn jitter_is_a_time_a_distribution_or_a_sum_of_them() {
    let jitter = |text: &str| {
        let scenario = changed("delay", &format!("jitter = {text}\ndelay"))?;
        let again = Scenario::from_toml(scenario.to_toml_with_defaults(), "again.toml")?;
        assert_eq!(again.links, scenario.links, "{text}");
        Ok::<_, ScenarioError>(link(&scenario, "bottleneck").config.jitter.clone())
    };
    let ms = Duration::from_millis;
    let late = JitterModel::Late {
        delay: ms(30),
        share: 0.2,
    };
    let gamma = JitterModel::Gamma {
        mean: ms(8),
        shape: 2.0,
    };
    let spike = JitterModel::Spike {
        below: ms(150),
        windows: Windows::regular(ms(20_000), ms(1000)),
    };
    for (text, expected) in [
        ("\"0 s\"", Jitter::default()),
        ("\"30 ms\"", ms(30).into()),
        ("{ uniform = \"30 ms\" }", ms(30).into()),
        (
            "{ exponential = \"5 ms\" }",
            JitterModel::Exponential(ms(5)).into(),
        ),
        ("{ gamma = { mean = \"8 ms\", shape = 2.0 } }", gamma.into()),
        ("{ late = \"30 ms\", share = 0.2 }", late.into()),
        ("{ wifi = \"30 ms\" }", JitterModel::WiFi(ms(30)).into()),
        (
            "{ spike = \"150 ms\", every = \"20 s\", length = \"1 s\" }",
            spike.into(),
        ),
        (
            "[\"1 ms\", { late = \"30 ms\", share = 0.2 }]",
            vec![JitterModel::Uniform(ms(1)), late].into(),
        ),
    ] {
        assert_eq!(jitter(text), Ok(expected), "{text}");
    }
    for (text, words) in [
        ("{ }", "needs one distribution"),
        ("{ gama = { } }", "Did you mean `gamma`"),
        ("{ wifi = \"100 ms\" }", "not within 1ms to 91ms"),
        ("{ spike = \"1 ms\", every = \"1 s\" }", "the length is 0ns"),
        ("{ late = \"1 ms\", share = 2 }", "not within 0 to 1"),
        ("30", "has no unit"),
    ] {
        let error = jitter(text).expect_err(text);
        assert_eq!(error.line, Some(11), "{error}");
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn what_limits_a_link_is_a_table_or_none() {
    let config = |text: &str| {
        let scenario = changed("delay", &format!("{text}\ndelay"))?;
        let again = Scenario::from_toml(scenario.to_toml_with_defaults(), "again.toml")?;
        assert_eq!(again.links, scenario.links, "{text}");
        Ok::<_, ScenarioError>(link(&scenario, "bottleneck").config.clone())
    };
    let read = |text: &str| config(text).expect(text);
    let bucket = TokenBucket {
        rate: Rate::from_bps(5_000_000),
        burst: 16_000,
    };
    let text = "{ rate = \"5 Mbit/s\", burst = \"16 kB\" }";
    assert_eq!(read(&format!("policer = {text}")).policer, Some(bucket));
    assert_eq!(read(&format!("shaper = {text}")).shaper, Some(bucket));
    assert_eq!(read("shaper = \"none\"").shaper, None);
    let grants = Grants {
        every: Duration::from_millis(4),
        packets: Some(64),
        bytes: None,
    };
    let text = "grants = { every = \"4 ms\", packets = 64 }";
    assert_eq!(read(text).grants, Some(grants));
    let wander = Wander {
        range: Duration::from_millis(214),
        step: Duration::from_secs(1),
    };
    let text = "wander = { range = \"214 ms\", step = \"1 s\" }";
    assert_eq!(read(text).wander, Some(wander));
    assert_eq!(
        read("delay_order = \"kept\"").delay_order,
        PacketOrder::Kept
    );
    for (text, words) in [
        ("policer = 5", "is no table: write for example { rate"),
        ("policer = \"non\"", "or write \"none\""),
        ("shaper = { rate = \"5 Mbit/s\" }", "its burst is zero"),
        (
            "policer = { rate = \"5 Mbit/s\", burst = \"1 kB\" }",
            "a policer with a burst of 1000 B lets no packet of 1500 B through",
        ),
        ("grants = { every = \"1 us\" }", "below 10µs"),
        ("grants = { evry = \"1 ms\" }", "Did you mean `every`"),
        ("wander = { range = \"1 ms\" }", "`step` is 0ns"),
    ] {
        let error = config(text).expect_err(text);
        assert_eq!(error.line, Some(11), "{error}");
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn changes_repeat_and_take_values_in_turn() {
    let scenario = |change: &str| {
        let text = format!("{BASE}\n[[change]]\nlink = \"bottleneck\"\n{change}");
        Scenario::from_toml(&text, "t")
    };
    let delays = |change: &str| {
        let scenario = scenario(&format!("direction = \"forward\"\n{change}"));
        let changes = scenario.expect(change).changes;
        let delay = |c: &ChangeSpec| (c.at.as_nanos() / 1_000_000_000, c.config.delay.as_millis());
        changes.iter().map(delay).collect::<Vec<_>>()
    };
    assert_eq!(
        delays("every = \"15 s\"\ndelay = [\"45 ms\", \"30 ms\"]"),
        [(15, 45), (30, 30), (45, 45), (60, 30)]
    );
    assert_eq!(
        delays("at = \"12 s\"\nevery = \"20 s\"\ntimes = 2\ndelay = \"7 ms\""),
        [(12, 7), (32, 7)]
    );
    // Lists of models are not values that take turns.
    let lossy = scenario("every = \"30 s\"\nloss = [0.1, 0.2]").expect("two models");
    let both = LossModel::Any(vec![LossModel::Bernoulli(0.1), LossModel::Bernoulli(0.2)]);
    assert!(
        lossy
            .changes
            .iter()
            .all(|change| change.config.loss == both)
    );
    for (change, words) in [
        ("delay = \"1 ms\"", "needs `at`"),
        ("at = \"1 s\"\ntimes = 3", "`times` needs `every`"),
        ("every = \"0 s\"", "the interval is zero"),
        ("every = \"1 us\"", "60000000 times"),
        ("at = \"1 s\"\ndelay = [\"1 ms\", \"2 ms\"]", "a list"),
    ] {
        let error = scenario(change).expect_err(change);
        assert!(error.message.contains(words), "{error}");
    }
}
