use super::*;
use dfcp_proto::{Duration, Instant, Rate};

/// A dumbbell of two pairs; tests add to it or replace lines of it.
const BASE: &str = r#"schema = 1
[run]
duration = "60 s"
warmup = "15 s"
[topology]
kind = "dumbbell"
pairs = 2
[link.default]
rate = "1 Gbit/s"
[link.bottleneck]
delay = "5 ms"
[[flow]]
protocol = "tcp-cubic"
"#;

fn read(text: &str) -> Scenario {
    Scenario::from_toml(text, "test.toml").unwrap_or_else(|e| panic!("{e}"))
}

/// Reads `BASE` with one line replaced and `more` added at the end.
fn changed(old: &str, new: &str) -> Result<Scenario, ScenarioError> {
    assert!(BASE.contains(old), "{old}");
    Scenario::from_toml(&BASE.replace(old, new), "test.toml")
}

fn link<'a>(scenario: &'a Scenario, name: &str) -> &'a LinkSpec {
    let mut links = scenario.links.iter();
    links
        .find(|link| link.name == name)
        .unwrap_or_else(|| panic!("no link {name}"))
}

/// The names of the links of a route.
fn route(scenario: &Scenario, links: &[LinkIndex]) -> Vec<String> {
    links
        .iter()
        .map(|link| scenario.links[link.0].name.clone())
        .collect()
}

#[test]
fn errors_name_the_line_and_what_would_be_right() {
    // What is replaced in BASE, by what, the line, words of the message.
    let cases: &[(&str, &str, usize, &[&str])] = &[
        // Unknown keys.
        (
            "warmup",
            "warmpu",
            4,
            &["no key `warmpu`", "Did you mean `warmup`?"],
        ),
        (
            "[run]",
            "[runn]",
            2,
            &["no key `runn`", "Did you mean `run`?"],
        ),
        (
            "delay = \"5 ms\"",
            "dely = \"5 ms\"",
            11,
            &["Did you mean `delay`?"],
        ),
        (
            "pairs = 2",
            "hosts = 2",
            7,
            &["[topology] has no key `hosts`", "`pairs`"],
        ),
        (
            "protocol",
            "tcp = { mms = 1 }\nprotocol",
            13,
            &["no key `mms`", "`mss`"],
        ),
        (
            "delay",
            "queue = { lmit = 1 }\ndelay",
            11,
            &["no key `lmit`", "`limit`"],
        ),
        // Unknown words and names.
        (
            "dumbbell",
            "dumbell",
            6,
            &["Did you mean \"dumbbell\"?", "parking-lot"],
        ),
        ("tcp-cubic", "cubic", 13, &["It can be", "tcp-cubic"]),
        (
            "link.bottleneck",
            "link.botleneck",
            10,
            &["Did you mean `bottleneck`?"],
        ),
        (
            "protocol",
            "from = \"a\"\nto = \"b\"\nprotocol",
            13,
            &["no node `a`", "`source-1`"],
        ),
        // Wrong units.
        (
            "\"1 Gbit/s\"",
            "\"10 ms\"",
            9,
            &["is a time", "\"10 Mbit/s\""],
        ),
        (
            "\"1 Gbit/s\"",
            "\"1 gbit/s\"",
            9,
            &["`gbit/s` is none", "`Gbit/s`"],
        ),
        ("\"1 Gbit/s\"", "1000", 9, &["has no unit", "\"10 Mbit/s\""]),
        ("\"5 ms\"", "5", 11, &["has no unit", "\"10 ms\""]),
        ("\"5 ms\"", "\"5 kB\"", 11, &["is a size", "\"10 ms\""]),
        ("\"60 s\"", "true", 3, &["`duration`", "\"10 ms\""]),
        (
            "delay",
            "queue = { limit = 100 }\ndelay",
            11,
            &["no unit", "\"1000 packets\""],
        ),
        ("delay", "loss = \"1 %\"\ndelay", 11, &["`loss`", "0.01"]),
        // Out of range.
        (
            "\"1 Gbit/s\"",
            "\"-1 Gbit/s\"",
            9,
            &["is negative", "\"10 Mbit/s\""],
        ),
        (
            "\"1 Gbit/s\"",
            "\"0 bit/s\"",
            9,
            &["rate of zero", "loss = 1"],
        ),
        ("\"5 ms\"", "\"-5 ms\"", 11, &["is negative"]),
        (
            "delay",
            "loss = 1.5\ndelay",
            11,
            &["1.5 is not within 0 to 1"],
        ),
        ("pairs = 2", "pairs = 0", 7, &["0 is not within 1"]),
        ("\"15 s\"", "\"70 s\"", 4, &["warm-up", "not shorter"]),
        ("protocol", "weight = 0\nprotocol", 13, &["`weight`"]),
        (
            "protocol",
            "start = \"60 s\"\nprotocol",
            13,
            &["not before the end", "60 s"],
        ),
        (
            "protocol",
            "stop = \"0 s\"\nprotocol",
            13,
            &["not after the start"],
        ),
        (
            "protocol",
            "tcp = { mss = \"1461 B\" }\nprotocol",
            13,
            &["1448 B", "MTU"],
        ),
        // Queues that cannot work.
        (
            "delay",
            "queue = { discipline = \"drr\", limit = \"0 packets\" }\ndelay",
            11,
            &["limit of zero", "\"1000 packets\""],
        ),
        (
            "delay",
            "queue = { limit = \"1 kB\" }\ndelay",
            11,
            &["no packet of 1500 B"],
        ),
        (
            "delay",
            "queue = { weights = { gold = 2 } }\ndelay",
            11,
            &["no flow is of class `gold`"],
        ),
        // What is missing.
        ("schema = 1", "title = \"\"", 1, &["write `schema = 1`"]),
        (
            "schema = 1",
            "schema = 2",
            1,
            &["schema 2", "write `schema = 1`"],
        ),
        (
            "rate = \"1 Gbit/s\"",
            "",
            10,
            &["no rate", "[link.default]"],
        ),
        ("protocol = \"tcp-cubic\"", "", 12, &["needs a `protocol`"]),
        (
            "protocol = \"tcp-cubic\"",
            "protocol = \"udp-cbr\"",
            12,
            &["udp.rate"],
        ),
        (
            "[link.bottleneck]",
            "[link.bottleneck]\nbetween = [\"x\", \"y\"]",
            10,
            &["has a link `bottleneck` already"],
        ),
        (
            "[link.bottleneck]",
            "[link.loop]\nbetween = [\"x\", \"x\"]\n[link.bottleneck]",
            10,
            &["joins `x` with itself"],
        ),
        (
            "protocol = \"tcp-cubic\"",
            "protocol = \"auto\"\n[[flow]]\nname = \"flow-0\"\nprotocol = \"auto\"",
            15,
            &["two flows are called `flow-0`"],
        ),
        (
            "protocol = \"tcp-cubic\"",
            "class = \"c\"\nprotocol = \"auto\"\n[[flow]]\nclass = \"c\"\nweight = 2\nprotocol = \"auto\"",
            17,
            &["class `c` has weight 1", "2 here"],
        ),
        (
            "[[flow]]\nprotocol = \"tcp-cubic\"",
            "",
            1,
            &["no flows", "[[flow]]"],
        ),
        (
            "kind = \"dumbbell\"\npairs = 2",
            "",
            5,
            &["there are no links", "between"],
        ),
        // Not TOML, and values TOML has but scenarios have not.
        ("pairs = 2", "pairs = = 2", 7, &[]),
        ("pairs = 2", "pairs = inf", 7, &["finite"]),
        ("pairs = 2", "pairs = 2026-01-01", 7, &["date"]),
        ("pairs = 2", "pairs = 99999999999999999999", 7, &["large"]),
    ];
    for (old, new, line, words) in cases {
        let error = match changed(old, new) {
            Err(error) => error,
            Ok(_) => panic!("`{new}` passed"),
        };
        let shown = error.to_string();
        assert!(
            shown.starts_with(&format!("test.toml:{line}: ")),
            "`{new}`: {shown}"
        );
        for word in *words {
            assert!(shown.contains(word), "`{new}`: {shown}\nlacks {word}");
        }
    }
}

#[test]
fn a_flow_without_a_route_is_refused() {
    let text = r#"
        schema = 1
        link.default.rate = "1 Mbit/s"
        link.one.between = ["a", "b"]
        link.two.between = ["c", "d"]
        flow = [{ protocol = "auto", from = "a", to = "d" }]
    "#;
    let error = Scenario::from_toml(text, "islands.toml").expect_err("two islands");
    assert_eq!(error.line, Some(6));
    assert!(
        error.message.contains("no route from `a` to `d`"),
        "{error}"
    );
}

#[test]
fn links_inherit_from_the_default_and_from_their_roles() {
    let text = BASE.replace(
        "[link.bottleneck]",
        r#"queue = { limit = "50 packets" }
           loss = 0.1
           [link.access]
           rate = "10 Gbit/s"
           [link.access-left]
           mtu = "9000 B"
           [link.access-left-2]
           rate = "unlimited"
           queue = { discipline = "codel" }
           reverse = { loss = 0.0, framing = "ethernet" }
           [link.bottleneck]"#,
    );
    let scenario = read(&text);
    let rate = |name| link(&scenario, name).params.rate.clone();
    let gigabits = |n: u64| RateSpec::Constant(Rate::from_bps(n * 1_000_000_000));
    assert_eq!(rate("bottleneck"), gigabits(1));
    assert_eq!(rate("access-right-2"), gigabits(10));
    assert_eq!(rate("access-left-2"), RateSpec::Unlimited);
    let params = |name| &link(&scenario, name).params;
    assert_eq!(params("access-left-1").mtu, 9000);
    assert_eq!(params("access-right-1").mtu, 1500);
    // The limit of the default, the discipline of its own.
    let queue = &params("access-left-2").queue;
    assert_eq!(queue.limit, LimitSpec::Packets(50));
    assert!(matches!(queue.discipline, DisciplineSpec::CoDel { .. }));
    // Both ways alike but for `reverse`.
    assert_eq!(params("access-left-2").loss, LossSpec::Bernoulli(0.1));
    assert_eq!(params("access-left-2.reverse").loss, LossSpec::None);
    assert_eq!(params("access-left-2.reverse").framing, 38);
    assert_eq!(params("access-left-2.reverse").mtu, 9000);
    assert_eq!(params("bottleneck.reverse").delay, Duration::from_millis(5));
}

#[test]
fn round_trip_times_are_made_by_the_left_access_links() {
    let text = BASE.replace("pairs = 2", "pairs = 2\nrtt = [\"10 ms\", \"100 ms\"]");
    let rtt = |scenario: &Scenario| -> Vec<Duration> {
        let flows = scenario.flows.iter();
        flows.map(|flow| scenario.rtt(flow)).collect()
    };
    let ms = |n: &[u64]| -> Vec<Duration> { n.iter().map(|n| Duration::from_millis(*n)).collect() };
    let two = text.replace("protocol", "count = 2\nprotocol");
    assert_eq!(rtt(&read(&two)), ms(&[10, 100]));
    // The bottleneck's own delay, or all of the shortest round trip.
    let ways = [("5 ms", 0, 45), ("2 ms", 3, 48)];
    for (stated, near, far) in ways {
        let scenario = read(&two.replace("\"5 ms\"", &format!("\"{stated}\"")));
        assert_eq!(rtt(&scenario), ms(&[10, 100]), "{stated}");
        let delay = |name| link(&scenario, name).params.delay;
        assert_eq!(delay("access-left-1"), Duration::from_millis(near));
        assert_eq!(delay("access-left-2"), Duration::from_millis(far));
    }
    let inferred = read(&two.replace("delay = \"5 ms\"", ""));
    assert_eq!(
        link(&inferred, "bottleneck").params.delay,
        Duration::from_millis(5)
    );
    // Contradictions.
    let error = Scenario::from_toml(&two.replace("\"5 ms\"", "\"6 ms\""), "t").expect_err("longer");
    assert_eq!(
        (error.line, error.message.contains("pair 1")),
        (Some(8), true),
        "{error}"
    );
    let stated = format!("{two}\n[link.access]\ndelay = \"1 ms\"");
    let error = Scenario::from_toml(&stated, "t").expect_err("stated twice");
    assert!(error.message.contains("leave one of them out"), "{error}");
}

#[test]
fn buffers_in_bandwidth_delay_products_are_those_of_the_papers() {
    // DFCP-J Table 4: 0.1 BDP at 100 ms; Fig. 17: 1 BDP at 50 ms.
    for (rate, rtt, share, packets) in [
        ("100 Mbit/s", "100 ms", "0.1 bdp", 83),
        ("1 Gbit/s", "100 ms", "0.1 bdp", 833),
        ("10 Gbit/s", "100 ms", "0.1 bdp", 8333),
        ("1 Gbit/s", "50 ms", "1 bdp", 4167),
    ] {
        let bottleneck = format!("rate = \"{rate}\"\nqueue = {{ limit = \"{share}\" }}");
        let text = BASE
            .replace("delay = \"5 ms\"", &bottleneck)
            .replace("pairs = 2", &format!("pairs = 2\nrtt = \"{rtt}\""));
        let limit = link(&read(&text), "bottleneck").params.queue.limit;
        assert_eq!(limit, LimitSpec::Packets(packets), "{rate} {rtt} {share}");
        // A stated round-trip time comes before the first flow's.
        let text = text.replace("[run]", "[run]\nrtt = \"1 s\"");
        let limit = link(&read(&text), "bottleneck").params.queue.limit;
        assert!(
            matches!(limit, LimitSpec::Packets(n) if n > 9 * packets),
            "{limit:?}"
        );
    }
}

#[test]
fn routes_are_shortest_or_as_told() {
    let text = |delay: &str, via: &str| {
        format!(
            r#"
            schema = 1
            link.default = {{ rate = "1 Mbit/s", delay = "10 ms" }}
            link.direct = {{ between = ["a", "d"], delay = "{delay}" }}
            link.ab.between = ["a", "b"]
            link.bd.between = ["b", "d"]
            link.ac.between = ["a", "c"]
            link.cd.between = ["c", "d"]
            flow = [{{ protocol = "auto", from = "a", to = "d" {via} }}]
            "#
        )
    };
    let forward = |text: String| {
        let scenario = read(&text);
        let flow = &scenario.flows[0];
        let backward = route(&scenario, &flow.backward);
        let mirrored: Vec<_> = route(&scenario, &flow.forward)
            .iter()
            .rev()
            .map(|name| format!("{name}.reverse"))
            .collect();
        assert_eq!(backward, mirrored);
        route(&scenario, &flow.forward)
    };
    assert_eq!(forward(text("15 ms", "")), ["direct"]);
    // Equal delay: fewer links.
    assert_eq!(forward(text("20 ms", "")), ["direct"]);
    // Shorter over two links; of two such ways the one listed first.
    assert_eq!(forward(text("21 ms", "")), ["ab", "bd"]);
    assert_eq!(forward(text("15 ms", ", via = \"c\"")), ["ac", "cd"]);
}

#[test]
fn parking_lot_flows_cross_the_bottlenecks_of_the_paper() {
    let text = BASE
        .replace("\"dumbbell\"\npairs = 2", "\"parking-lot\"")
        .replace("protocol", "count = 3\nprotocol");
    let scenario = read(&text);
    let crossed: Vec<Vec<String>> = (scenario.flows.iter())
        .map(|flow| {
            let mut names = route(&scenario, &flow.forward);
            names.retain(|name| name.starts_with("bottleneck"));
            names
        })
        .collect();
    assert_eq!(crossed[0], ["bottleneck-1", "bottleneck-2"]);
    assert_eq!(crossed[1], ["bottleneck-1"]);
    assert_eq!(crossed[2], ["bottleneck-2"]);
}

#[test]
fn replicas_take_pairs_starts_and_sizes_in_turn() {
    let flow = r#"
        name = "f"
        count = 4
        start = ["0 s", "10 s"]
        size = ["150 kB", "unlimited"]
        class = "all"
        protocol"#;
    let scenario = read(&BASE.replace("protocol", flow));
    let flows = &scenario.flows;
    let names: Vec<_> = flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(names, ["f-1", "f-2", "f-3", "f-4"]);
    assert!(flows.iter().all(|flow| flow.class == "all"));
    let seconds = |n: u64| Instant::from_nanos(n * 1_000_000_000);
    assert_eq!((flows[2].start, flows[3].start), (seconds(0), seconds(10)));
    assert_eq!((flows[2].size, flows[3].size), (Some(150_000), None));
    assert_eq!((flows[0].from, flows[1].to), (flows[2].from, flows[3].to));
    assert_ne!(flows[0].from, flows[1].from);
}

#[test]
fn random_flows_stay_in_range_and_follow_the_seed() {
    let flow = r#"
        count = 200
        from = "random"
        to = "random"
        start = { uniform = ["1 s", "20 s"] }
        size = { uniform = ["10 packets", "600 packets"] }
        tcp = { mss = "1000 B" }
        protocol"#;
    let text = BASE.replace("protocol", flow);
    let scenario = read(&text);
    let range = Instant::from_nanos(1_000_000_000)..=Instant::from_nanos(20_000_000_000);
    for flow in &scenario.flows {
        assert!(range.contains(&flow.start), "{:?}", flow.start);
        let packets = flow.size.expect("limited") / 1000;
        assert!((10..=600).contains(&packets), "{packets}");
        assert_ne!(flow.from, flow.to);
        for end in [flow.from, flow.to] {
            let name = &scenario.nodes[end.0].name;
            assert!(name.starts_with('s'), "{name} is no host");
        }
    }
    assert_eq!(scenario, read(&text));
    let other = read(&text.replace("[run]", "[run]\nseed = 2"));
    assert_ne!(scenario.flows, other.flows);
}

#[test]
fn changes_lie_over_one_another() {
    let text = format!(
        r#"{BASE}
        [[change]]
        at = "20 s"
        link = "bottleneck"
        loss = 0.5
        direction = "reverse"
        [[change]]
        at = "10 s"
        link = "bottleneck"
        rate = "400 Mbit/s"
        "#
    );
    let scenario = read(&text);
    let seen: Vec<_> = (scenario.changes.iter())
        .map(|change| {
            let name = scenario.links[change.link.0].name.as_str();
            let slow = change.params.rate == RateSpec::Constant(Rate::from_bps(400_000_000));
            (
                change.at.as_nanos() / 1_000_000_000,
                name,
                slow,
                change.params.loss.clone(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (10, "bottleneck", true, LossSpec::None),
            (10, "bottleneck.reverse", true, LossSpec::None),
            (20, "bottleneck.reverse", true, LossSpec::Bernoulli(0.5)),
        ]
    );
    assert_eq!(scenario.changes[0].params.delay, Duration::from_millis(5));
    let error = Scenario::from_toml(&text.replace("\"20 s\"", "20"), "t").expect_err("no unit");
    assert_eq!(error.line, Some(16), "{error}");
}

#[test]
fn transports_inherit_and_follow_the_path() {
    let text = format!(
        r#"{BASE}
        tcp = {{ initial_window = 5, cubic = {{ variant = "linux-2.6.26" }} }}
        [[flow]]
        protocol = "tcp-newreno"
        [tcp]
        initial_window = 3
        timestamps = false
        delayed_ack = "off"
        cubic = {{ c = 0.5 }}
        "#
    );
    let scenario = read(&text);
    let tcp: Vec<&TcpSpec> = (scenario.flows.iter())
        .filter_map(|flow| match &flow.protocol {
            ProtocolSpec::Tcp(tcp) => Some(tcp),
            _ => None,
        })
        .collect();
    assert_eq!((tcp[0].initial_window, tcp[1].initial_window), (5, 3));
    assert_eq!((tcp[0].delayed_ack, tcp[0].mss), (None, 1460));
    let CongestionSpec::Cubic(cubic) = &tcp[0].congestion else {
        panic!("{:?}", tcp[0].congestion);
    };
    assert_eq!((cubic.beta, cubic.c), (717.0 / 1024.0, 0.5));
    assert_eq!(tcp[1].congestion, CongestionSpec::NewReno);
}

#[test]
fn defaults_are_written_out_and_read_back() {
    let scenario = read(BASE);
    let written = scenario.to_toml_with_defaults();
    for line in [
        "limit = \"1000 packets\"",
        "rto_min = \"200 ms\"",
        "framing = \"ip\"",
    ] {
        assert!(written.contains(line), "{written}\nlacks {line}");
    }
    let again = read(written);
    assert_eq!(again, scenario);
    // A default that is stated changes nothing, anything else does.
    let stated = read(&BASE.replace("delay", "mtu = \"1500 B\"\ndelay"));
    assert_eq!(stated.links, scenario.links);
    let same = read(&BASE.replace("[run]", "[run]\nseed = 1"));
    assert_eq!(same.hash(), scenario.hash());
    let other = read(&BASE.replace("[run]", "[run]\nseed = 2"));
    assert_ne!(other.hash(), scenario.hash());
}

#[test]
fn values_are_set_from_outside_by_path() {
    let mut document = Document::parse(BASE, "test.toml").expect("parses");
    for (path, value) in [
        ("link.bottleneck.queue.limit", "10 packets"),
        ("link.access-left-1.rate", "\"2 Mbit/s\""),
        ("flow.0.tcp.initial_window", "7"),
        ("run.seed", "9"),
    ] {
        document.set(path, value).unwrap_or_else(|e| panic!("{e}"));
    }
    let scenario = document.scenario().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        link(&scenario, "bottleneck").params.queue.limit,
        LimitSpec::Packets(10)
    );
    assert_eq!(scenario.run.seed, crate::Seed(9));
    let ProtocolSpec::Tcp(tcp) = &scenario.flows[0].protocol else {
        panic!("{:?}", scenario.flows[0].protocol);
    };
    assert_eq!(tcp.initial_window, 7);
    for (path, value, words) in [
        ("flow.3.size", "1 kB", "there is no `flow.3`"),
        ("schema.x", "1", "`schema` is no table"),
        ("link..loss", "1", "is no path"),
        ("", "1", "is no path"),
    ] {
        let error = document.set(path, value).expect_err(path);
        assert!(error.to_string().contains(words), "{error}");
    }
    // A wrong value shows itself in place of a line.
    document.set("link.bottleneck.loss", "2").expect("a path");
    let error = document.scenario().expect_err("2 is no probability");
    assert!(
        error.to_string().starts_with("link.bottleneck.loss=2: "),
        "{error}"
    );
}

#[test]
fn loss_is_a_probability_a_channel_or_marks() {
    let loss = |text: &str| {
        let scenario = changed("delay", &format!("loss = {text}\ndelay"))?;
        Ok::<_, ScenarioError>(link(&scenario, "bottleneck").params.loss.clone())
    };
    let marks: std::sync::Arc<[bool]> = [false, false, true].into();
    let channel = LossSpec::GilbertElliott {
        p_good_to_bad: 0.01,
        p_bad_to_good: 0.25,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    for (text, expected) in [
        ("0", LossSpec::None),
        ("0.5", LossSpec::Bernoulli(0.5)),
        ("{ p_good_to_bad = 0.01, p_bad_to_good = 0.25 }", channel),
        ("{ mask = \"..x\" }", LossSpec::Trace(marks.clone())),
        ("{ mask = \"..x\", repeat = false }", LossSpec::Mask(marks)),
    ] {
        assert_eq!(loss(text), Ok(expected), "{text}");
    }
    for (text, words) in [
        ("{ loss_bad = 0.5 }", "never changes"),
        ("{ mask = \"\" }", "no marks"),
        ("{ mask = \"x\", trace = \"x\" }", "exclude each other"),
        ("{ p = 0.1 }", "no key `p`"),
    ] {
        let error = loss(text).expect_err(text);
        assert_eq!(error.line, Some(11), "{error}");
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn links_may_be_added_to_ready_made_topologies_and_drawn_from_random_ones() {
    let more = "[link.tap]\nbetween = [\"left\", \"probe\"]\n[link.bottleneck]";
    let scenario = read(&BASE.replace("[link.bottleneck]", more));
    assert!(scenario.nodes.iter().any(|node| node.name == "probe"));
    assert_eq!(
        link(&scenario, "tap.reverse").from.0,
        scenario.nodes.len() - 1
    );

    let random = |marked: f64| {
        let text = format!(
            r#"
            schema = 1
            topology = {{ kind = "erdos-renyi", nodes = 50, links = 200, marked = {marked} }}
            link.default.rate = "5 Mbit/s"
            link.marked.loss = 0.03
            flow = [{{ protocol = "auto", from = "random", to = "random" }}]
            "#
        );
        let links = read(&text).links;
        links
            .iter()
            .filter(|link| link.params.loss != LossSpec::None)
            .count()
            / 2
    };
    assert_eq!((random(0.0), random(1.0)), (0, 200));
    // Standard deviation 7.
    assert!((65..=135).contains(&random(0.5)), "{}", random(0.5));
}

#[test]
fn traces_are_loaded_by_the_caller() {
    let text = BASE.replace(
        "delay",
        "rate = { trace = \"cell.up\" }\nloss = { trace = \"wifi.loss\" }\ndelay",
    );
    let mut document = Document::parse(&text, "test.toml").expect("parses");
    let error = document.scenario().expect_err("nothing loaded");
    assert!(error.message.contains("not loaded"), "{error}");
    let missing = document.load_files(|_| Err("no such file".to_owned()));
    let missing = missing.expect_err("missing").to_string();
    assert!(
        missing.starts_with("test.toml:11: cannot read"),
        "{missing}"
    );
    let load = |loss: &str| {
        let mut document = document.clone();
        let files = |name: &str| match name {
            "cell.up" => Ok("0\n1\n".to_owned()),
            _ => Ok(loss.to_owned()),
        };
        document.load_files(files).expect("all there");
        document.scenario()
    };
    let scenario = load(".x\n.").unwrap_or_else(|e| panic!("{e}"));
    let params = &link(&scenario, "bottleneck").params;
    assert_eq!(params.loss, LossSpec::Trace([false, true, false].into()));
    assert!(matches!(&params.rate, RateSpec::Trace(trace) if trace.text.starts_with('0')));
    let other = load("..").unwrap_or_else(|e| panic!("{e}"));
    assert_ne!(
        scenario.hash(),
        other.hash(),
        "what a trace holds is part of the scenario"
    );
    assert!(
        load("?")
            .expect_err("no mark")
            .message
            .contains("`?` is no mark")
    );
}

#[test]
fn sweeps_are_grids_of_values_and_seeds() {
    let text = format!(
        r#"{BASE}
        [sweep]
        seeds = "3..4"
        grid.link.bottleneck.loss = [0.0, 0.1]
        [[sweep.zip]]
        topology.pairs = [1, 5, 9]
        flow.0.count = [2, 10, 18]
        "#
    );
    let sweep = Sweep::from_toml(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(sweep.len(), 2 * 3 * 2);
    let names: Vec<_> = sweep.parameters().collect();
    assert_eq!(
        names,
        ["link.bottleneck.loss", "topology.pairs", "flow.0.count"]
    );
    let point = sweep.point(9).unwrap_or_else(|e| panic!("{e}"));
    let values: Vec<_> = point.parameters.iter().map(|p| p.text.as_str()).collect();
    assert_eq!(
        (values.as_slice(), point.seed),
        (["0.1", "5", "10"].as_slice(), 4)
    );
    assert_eq!(point.scenario.flows.len(), 10);
    assert_eq!(
        link(&point.scenario, "bottleneck").params.loss,
        LossSpec::Bernoulli(0.1)
    );
    assert_eq!(point.scenario.run.seed, crate::Seed(4));
    assert!(sweep.point(12).is_err());
    // Without [sweep] the scenario itself is the only point.
    let single = Sweep::from_toml(BASE, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(single.len(), 1);
    let point = single.point(0).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(point.scenario, read(BASE));
}

#[test]
fn swept_quantities_are_numbers_for_plots() {
    let text = format!("{BASE}[sweep]\ngrid.link.bottleneck.delay = [\"10 ms\", \"1 s\"]");
    let sweep = Sweep::from_toml(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let point = sweep.point(0).unwrap_or_else(|e| panic!("{e}"));
    let Parameter {
        text, number, unit, ..
    } = &point.parameters[0];
    assert_eq!((text.as_str(), *number, *unit), ("10 ms", Some(0.01), "s"));
}

#[test]
fn sweep_errors_name_the_line_of_the_value() {
    let cases: &[(&str, usize, &str)] = &[
        (
            "grid.link.bottleneck.loss = [0.0,\n2.0]",
            16,
            "not within 0 to 1",
        ),
        (
            "grid.link.botleneck.loss = [0.0]",
            15,
            "Did you mean `bottleneck`?",
        ),
        ("grid.flow.7.size = [\"1 kB\"]", 15, "there is no `flow.7`"),
        ("grid.topology.pairs = 3", 15, "[3]"),
        ("grid.topology.pairs = []", 15, "no values"),
        ("gird.topology.pairs = [1]", 15, "Did you mean `grid`?"),
        ("seeds = \"4..1\"", 15, "\"1..10\""),
        ("seeds = [1, -1]", 15, "-1 should be"),
        ("grid.run.seed = [1]", 15, "sweep.seeds"),
        (
            "zip = [{ topology.pairs = [1, 2], flow.0.count = [1] }]",
            15,
            "zipped",
        ),
        (
            "grid.topology.pairs = [1]\nzip = [{ topology.pairs = [2] }]",
            16,
            "swept twice",
        ),
    ];
    for (lines, line, words) in cases {
        let text = format!("{BASE}[sweep]\n{lines}\n");
        let error = Sweep::from_toml(&text, "test.toml")
            .expect_err(lines)
            .to_string();
        assert!(
            error.starts_with(&format!("test.toml:{line}: ")),
            "{lines}: {error}"
        );
        assert!(error.contains(words), "{lines}: {error}");
    }
}

#[test]
fn a_sweep_over_protocols_keeps_the_settings_of_each() {
    let text = format!(
        r#"{BASE}tcp = {{ initial_window = 3 }}
        dfcp = {{ control = "500 Mbit/s" }}
        [sweep]
        grid.flow.0.protocol = ["tcp-cubic", "auto"]
        "#
    );
    let sweep = Sweep::from_toml(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let second = sweep.point(1).unwrap_or_else(|e| panic!("{e}"));
    let ProtocolSpec::Dfcp(dfcp) = &second.scenario.flows[0].protocol else {
        panic!("{:?}", second.scenario.flows[0].protocol);
    };
    assert_eq!(
        dfcp.control,
        ControlSpec::Fixed(Rate::from_bps(500_000_000))
    );
}
