//! What is wrong is refused with its line and what would be right.

use super::*;

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
        (
            "protocol",
            "tcp = { send_window = \"1 kB\" }\nprotocol",
            13,
            &["`send_window`: 1000 B hold no segment of 1448 B"],
        ),
        (
            "protocol",
            "tcp = { rto_min = \"2 min\" }\nprotocol",
            13,
            &["`rto_min`", "\"200 ms\""],
        ),
        (
            "protocol",
            "size = \"9000 TB\"\nprotocol",
            13,
            &["2^32 segments"],
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
        // DFCP as published.
        (
            "protocol",
            "protocol = \"dfcp\"\npublished = { ldpc_degree = 33 }\n#",
            14,
            &["33 is not within 1 to 32", "{ 3 = 6, 5 = 3 }"],
        ),
        (
            "protocol",
            "protocol = \"dfcp\"\npublished = { ldpc_degree = { 0 = 1, 4 = 1 } }\n#",
            14,
            &["0 is not within 1 to 32"],
        ),
        (
            "protocol",
            "protocol = \"dfcp\"\npublished = { ldpc_degree = { 4 = 0 } }\n#",
            14,
            &["0 is not within 1 to 65535"],
        ),
        (
            "protocol",
            "protocol = \"dfcp\"\npublished = { ldpc_degree = { few = 1 } }\n#",
            14,
            &["whole number"],
        ),
        (
            "protocol",
            "protocol = \"dfcp\"\npublished = { ldpc_degree = { 3 = 1, 03 = 1 } }\n#",
            14,
            &["is there twice"],
        ),
        (
            "protocol",
            "protocol = \"dfcp\"\npublished = { ldpc_degree = {} }\n#",
            14,
            &["1 to 8 degrees"],
        ),
        (
            "protocol = \"tcp-cubic\"",
            "protocol = \"dfcp\"\npublished = { sending = { fixd = 0.1 } }",
            14,
            &["no key `fixd`", "`fixed`"],
        ),
        (
            "protocol = \"tcp-cubic\"",
            "protocol = \"dfcp\"\npublished = { sending = \"greedy\" }",
            14,
            &["\"rateless\"", "{ fixed = 0.1 }"],
        ),
        (
            "protocol = \"tcp-cubic\"",
            "protocol = \"dfcp\"\npublished = { control = \"profile\" }",
            14,
            &["no profile", "\"line rate\""],
        ),
        (
            "protocol = \"tcp-cubic\"",
            "protocol = \"dfcp\"\npublished = { block = \"1001 B\", symbol = \"10 B\" }",
            14,
            &["no whole number of symbols", "\"1010 B\""],
        ),
        (
            "protocol = \"tcp-cubic\"",
            "protocol = \"dfcp\"\npublished = { symbol = \"1457 B\" }",
            14,
            &["`symbol`: 1457 B do not fit", "1456 B"],
        ),
        (
            "protocol = \"tcp-cubic\"",
            "protocol = \"dfcp\"\npublished = { mtu = \"9000 B\" }",
            14,
            &["exceed the path's MTU of 1500 B"],
        ),
        (
            "[link.bottleneck]\ndelay = \"5 ms\"\n[[flow]]\nprotocol = \"tcp-cubic\"",
            "[link.access-left]\nrate = \"unlimited\"\n[[flow]]\nprotocol = \"dfcp\"",
            12,
            &["needs a rate at the first link, `access-left-1`"],
        ),
        (
            "protocol = \"tcp-cubic\"",
            "protocol = \"dfcp\"\npublished = { control = \"ordered\" }",
            14,
            &["nobody gives orders", "[controller]"],
        ),
        (
            "[run]",
            "[controller]\nresponse = 50\n[run]",
            3,
            &["`response`: 50 has no unit"],
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
fn a_change_of_discipline_or_weights_is_refused_where_it_stands() {
    let change = |queue: &str| {
        let text = format!(
            "{BASE}\n[[change]]\nat = \"1 s\"\nlink = \"bottleneck\"\nqueue = {{ {queue} }}\n"
        );
        Scenario::from_toml(&text, "test.toml")
    };
    let line = BASE.lines().count() + 5;
    for queue in ["discipline = \"drr\"", "weights = { gold = 2 }"] {
        let error = change(queue).expect_err(queue);
        assert_eq!(error.line, Some(line), "{error}");
        assert!(error.message.contains("`limit`"), "{error}");
    }
    let changed = change("limit = \"7 packets\"").expect("a limit can change");
    assert_eq!(changed.changes[0].config.queue.limit, Limit::Packets(7));
}

#[test]
fn network_coding_that_cannot_be_is_refused_where_it_stands() {
    let scenario = |flow: &str| {
        let text = format!(
            "schema = 1
            link.default.rate = \"1 Mbit/s\"
            link.default.delay = \"5 ms\"
            link.first.between = [\"a\", \"b\"]
            link.second.between = [\"b\", \"c\"]
            link.detour = {{ between = [\"a\", \"d\"], mtu = \"200 B\" }}
            link.fast = {{ between = [\"d\", \"c\"], rate = \"unlimited\" }}
            flow = [{{ protocol = \"coded\", from = \"a\", to = \"c\", {flow} }}]"
        );
        Scenario::from_toml(&text, "test.toml")
    };
    let read = scenario("coded = { paths = [\"d\", \"b\"] }").expect("two paths");
    assert_eq!(route(&read, &read.flows[0].forward), ["detour", "fast"]);
    let (there, back) = &read.flows[0].others[0];
    assert_eq!(route(&read, there), ["first", "second"]);
    assert_eq!(route(&read, back), ["second.reverse", "first.reverse"]);
    let ProtocolSpec::Coded(spec) = &read.flows[0].protocol else {
        panic!("coded");
    };
    assert_eq!(spec.mtu, Some(200), "the least of both paths");
    for (flow, word) in [
        ("via = \"d\", coded.paths = \"b\"", "`via`"),
        ("coded.paths = \"e\"", "no node `e`"),
        (
            "coded = { paths = [\"b\", \"d\"], relay = \"recode\" }",
            "`relay`",
        ),
        (
            "coded = { paths = [\"b\", \"d\"], control = \"line rate\" }",
            "`control`",
        ),
        (
            "via = \"d\", coded = { relay = \"recode\", control = \"line rate\" }",
            "`fast`",
        ),
        (
            "via = \"d\", coded = { relay = \"recode\", blksize = 152 }",
            "`blksize`",
        ),
        ("via = \"d\", coded.mtu = \"201 B\"", "`mtu`"),
        ("coded.control = \"ordered\"", "line rate"),
        ("size = \"10 packets\"", "`size`"),
    ] {
        let error = scenario(flow).expect_err(flow);
        assert_eq!(error.line, Some(8), "{error}");
        assert!(error.message.contains(word), "{flow}: {error}");
    }
    scenario("via = \"d\", coded = { relay = \"recode\", blksize = 151 }").expect("a byte is left");
}
