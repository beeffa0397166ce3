use super::*;
use crate::engine::TcpConfig;
use crate::link::{LinkRate, LossModel};
use crate::queue::{Discipline, Limit};
use crate::tcp::Congestion;
use dfcp_proto::published::{LdpcDegrees, Sending};
use dfcp_proto::{Duration, Instant, Rate, Reliability};

mod errors;
mod paths;
mod sweeps;

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

/// Reads `BASE` with `old` replaced.
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
    let rate = |name| link(&scenario, name).config.rate.clone();
    let gigabits = |n: u64| LinkRate::Constant(Rate::from_bps(n * 1_000_000_000));
    assert_eq!(rate("bottleneck"), gigabits(1));
    assert_eq!(rate("access-right-2"), gigabits(10));
    assert_eq!(rate("access-left-2"), LinkRate::Unlimited);
    let config = |name| &link(&scenario, name).config;
    assert_eq!(config("access-left-1").mtu, Some(9000));
    assert_eq!(config("access-right-1").mtu, Some(1500));
    // The limit of the default, the discipline of its own.
    let queue = config("access-left-2").queue;
    assert_eq!(queue.limit, Limit::Packets(50));
    assert!(matches!(queue.discipline, Discipline::CoDel { .. }));
    // Both ways alike but for `reverse`.
    assert_eq!(config("access-left-2").loss, LossModel::Bernoulli(0.1));
    assert_eq!(config("access-left-2.reverse").loss, LossModel::None);
    assert_eq!(config("access-left-2.reverse").framing, 38);
    assert_eq!(config("access-left-2.reverse").mtu, Some(9000));
    assert_eq!(config("bottleneck.reverse").delay, Duration::from_millis(5));
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
        let delay = |name| link(&scenario, name).config.delay;
        assert_eq!(delay("access-left-1"), Duration::from_millis(near));
        assert_eq!(delay("access-left-2"), Duration::from_millis(far));
    }
    let inferred = read(&two.replace("delay = \"5 ms\"", ""));
    assert_eq!(
        link(&inferred, "bottleneck").config.delay,
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
        let limit = link(&read(&text), "bottleneck").config.queue.limit;
        assert_eq!(limit, Limit::Packets(packets), "{rate} {rtt} {share}");
        // A stated round-trip time comes before the first flow's.
        let text = text.replace("[run]", "[run]\nrtt = \"1 s\"");
        let limit = link(&read(&text), "bottleneck").config.queue.limit;
        assert!(
            matches!(limit, Limit::Packets(n) if n > 9 * packets),
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
            let slow = change.config.rate == LinkRate::Constant(Rate::from_bps(400_000_000));
            (
                change.at.as_nanos() / 1_000_000_000,
                name,
                slow,
                change.config.loss.clone(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (10, "bottleneck", true, LossModel::None),
            (10, "bottleneck.reverse", true, LossModel::None),
            (20, "bottleneck.reverse", true, LossModel::Bernoulli(0.5)),
        ]
    );
    assert_eq!(scenario.changes[0].config.delay, Duration::from_millis(5));
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
        cubic = {{ fast_convergence = false }}
        "#
    );
    let scenario = read(&text);
    let tcp: Vec<&TcpConfig> = (scenario.flows.iter())
        .filter_map(|flow| match &flow.protocol {
            ProtocolSpec::Tcp(tcp) => Some(tcp),
            _ => None,
        })
        .collect();
    assert_eq!(
        (tcp[0].sender.initial_window, tcp[1].sender.initial_window),
        (5, 3)
    );
    assert_eq!(
        (tcp[0].receiver.delayed_ack, tcp[0].sender.mss),
        (None, 1460)
    );
    let Congestion::Cubic(cubic) = &tcp[0].sender.congestion else {
        panic!("{:?}", tcp[0].sender.congestion);
    };
    assert_eq!(
        (cubic.beta, cubic.fast_convergence),
        (717.0 / 1024.0, false)
    );
    assert_eq!(tcp[1].sender.congestion, Congestion::Reno);
}

#[test]
fn reliability_is_a_word_or_one_limit() {
    let with = |value: &str| {
        let text = BASE.replace("tcp-cubic", "auto");
        let text = format!("{text}\ndfcp = {{ reliability = {value} }}\n");
        Document::parse(&text, "test.toml")?.scenario()
    };
    for (value, expected) in [
        ("\"reliable\"", Reliability::Reliable),
        ("\"unreliable\"", Reliability::Unreliable),
        (
            "{ deadline = \"200 ms\" }",
            Reliability::Deadline(Duration::from_millis(200)),
        ),
        ("{ retransmissions = 2 }", Reliability::Retransmissions(2)),
    ] {
        let scenario = with(value).unwrap_or_else(|e| panic!("{value}: {e}"));
        let again = read(scenario.to_toml_with_defaults());
        for read in [&scenario, &again] {
            let ProtocolSpec::Dfcp(dfcp) = &read.flows[0].protocol else {
                panic!("{:?}", read.flows[0].protocol);
            };
            assert_eq!(dfcp.reliability, expected);
        }
    }
    for (value, words) in [
        ("\"sometimes\"", "is unknown"),
        (
            "{ deadline = \"1 s\", retransmissions = 1 }",
            "write one of",
        ),
        ("{}", "write one of"),
        ("{ deadline = 5 }", "has no unit"),
    ] {
        let error = with(value).expect_err(value);
        assert!(error.to_string().contains(words), "{value}: {error}");
    }
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
        link(&scenario, "bottleneck").config.queue.limit,
        Limit::Packets(10)
    );
    assert_eq!(scenario.run.seed, crate::Seed(9));
    let ProtocolSpec::Tcp(tcp) = &scenario.flows[0].protocol else {
        panic!("{:?}", scenario.flows[0].protocol);
    };
    assert_eq!(tcp.sender.initial_window, 7);
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
            .filter(|link| link.config.loss != LossModel::None)
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
    let load_both = |rate: &str, loss: &str| {
        let mut document = document.clone();
        let files = |name: &str| match name {
            "cell.up" => Ok(rate.to_owned()),
            _ => Ok(loss.to_owned()),
        };
        document.load_files(files).expect("all there");
        document.scenario()
    };
    let load = |loss| load_both("0\n1\n", loss);
    let scenario = load(".x\n.").unwrap_or_else(|e| panic!("{e}"));
    let config = &link(&scenario, "bottleneck").config;
    assert_eq!(config.loss, LossModel::Trace([false, true, false].into()));
    let LinkRate::Trace(trace) = &config.rate else {
        panic!("{:?}", config.rate);
    };
    assert_eq!(trace.length(), Duration::from_millis(1));
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
    let error = load_both("3\n2\n", ".").expect_err("time goes back");
    assert_eq!((error.file.as_str(), error.line), ("test.toml", Some(11)));
    let words = "trace `cell.up`: line 2: ";
    assert!(error.message.contains(words), "{error}");
}

#[test]
fn settings_of_published_flows_are_layered_and_survive_being_written_out() {
    let flow = "protocol = \"dfcp\"\npublished = { window = 7, sending = { fixed = 0.25 } }";
    let text = BASE.replace("protocol = \"tcp-cubic\"", flow)
        + r#"
[published]
window = 5
redundancy = 0.05
acknowledge = "each-window"
moment = "decoded"
encoding = "off"
decoding = "off"
completion = "structure"
last_packet = "exact"
block = "1000 B"
symbol = "10 B"
distribution = { robust-soliton = { c = 0.1, delta = 0.01 } }
ldpc_degree = { 12 = 1, 3 = 6, 5 = 3 }
control = "ordered"
payload = "real"
[controller]
response = "10 ms"
"#;
    let scenario = read(&text);
    assert_eq!(scenario, read(scenario.to_toml_with_defaults()));
    let ProtocolSpec::Published(spec) = &scenario.flows[0].protocol else {
        panic!("{:?}", scenario.flows[0].protocol);
    };
    assert_eq!((spec.window, spec.redundancy), (7, 0.05));
    assert_eq!(spec.sending, Sending::Fixed { extra: 0.25 });
    assert_eq!((spec.code().k, spec.code().symbol_size), (100, 10));
    let degrees = LdpcDegrees::Weighted(vec![(3, 6), (5, 3), (12, 1)]);
    assert_eq!(spec.code().ldpc_degrees, degrees);
    assert_eq!(spec.mtu, Some(1500), "the path's");
    let controller = scenario.controller.expect("it has one");
    assert_eq!(controller.response, Duration::from_millis(10));
    // The published code: 2000 check nodes.
    let code = PublishedSpec::default().code();
    assert_eq!((code.k, code.n), (63_536, 65_536));
}
