//! Sweeps.

use super::*;

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
        link(&point.scenario, "bottleneck").config.loss,
        LossModel::Bernoulli(0.1)
    );
    assert_eq!(point.scenario.run.seed, crate::Seed(4));
    assert!(sweep.point(12).is_err());
    // Without [sweep] the scenario itself is the only point.
    let single = Sweep::from_toml(BASE, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(single.len(), 1);
    let point = single.point(0).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(point.scenario, read(BASE));
}

/// Also of a flow, which stands in a list; and what is written with its defaults reads as before.
#[test]
fn a_table_of_a_case_replaces_a_value() {
    let text = format!(
        r#"{BASE}
        [sweep.cases.starts.apart]
        flow.0.start = {{ first = "1 s", every = "2 s" }}
        "#
    );
    let read = |text: &str| Sweep::from_toml(text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let sweep = read(&text);
    let point = sweep.point(0).unwrap_or_else(|e| panic!("{e}"));
    let written = sweep.to_toml_with_defaults().expect("it was read");
    let again = read(&written).point(0).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(point.scenario, again.scenario);
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
        dfcp.control.law,
        ControlLaw::Fixed(Rate::from_bps(500_000_000))
    );
}
