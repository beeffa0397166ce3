//! A transfer that gives way to everybody else.

use dfcp_sim::report::RunReport;
use dfcp_sim::scenario::Document;

/// Two flows through 50 Mbit/s, 40 ms and a queue of one bandwidth-delay product: `first` from the
/// beginning, `second` from 10 s on.
fn run(seed: u64, loss: f64, first: &str, second: &str) -> RunReport {
    let link = format!(
        "rate = \"50 Mbit/s\"\ndelay = \"20 ms\"\nloss = {loss}\nqueue = {{ limit = \"1 bdp\" }}"
    );
    run_over(&link, seed, first, second)
}

/// The same over another link.
fn run_over(link: &str, seed: u64, first: &str, second: &str) -> RunReport {
    run_until(50, link, seed, first, second)
}

/// The same with a TCP that ends after so many seconds.
fn run_until(stop: u32, link: &str, seed: u64, first: &str, second: &str) -> RunReport {
    let flow = |name: &str, kind: &str, start: u32| match kind {
        "" => String::new(),
        "background" => format!(
            "[[flow]]\nname = \"{name}\"\nprotocol = \"auto\"\nfrom = \"a\"\nto = \"b\"\n\
             start = \"{start} s\"\ndfcp = {{ control = \"path-model-background\" }}\n"
        ),
        tcp => format!(
            "[[flow]]\nname = \"{name}\"\nprotocol = \"{tcp}\"\nfrom = \"a\"\nto = \"b\"\n\
             start = \"{start} s\"\nstop = \"{stop} s\"\n"
        ),
    };
    let text = format!(
        "schema = 1\n[run]\nseed = {seed}\nduration = \"50 s\"\nsample = \"off\"\n[link.wire]\n\
         between = [\"a\", \"b\"]\n{link}\n{}{}",
        flow("first", first, 0),
        flow("second", second, 10)
    );
    let document = Document::parse(&text, "test.toml").expect("valid");
    dfcp_sim::run(&document.scenario().expect("valid")).expect("can be built")
}

/// Bits a second of each flow, from its start on.
fn goodputs(report: &RunReport) -> Vec<f64> {
    report.flows.iter().map(|flow| flow.goodput_bps).collect()
}

#[test]
fn cubic_keeps_what_it_has_alone_whoever_comes_first() {
    for seed in [1, 2] {
        let alone = goodputs(&run(seed, 0.0, "", "tcp-cubic"))[0];
        let second = goodputs(&run(seed, 0.0, "background", "tcp-cubic"))[1];
        assert!(second > 0.95 * alone, "seed {seed}: {second} of {alone}");
        let alone = goodputs(&run(seed, 0.0, "tcp-cubic", ""))[0];
        let first = goodputs(&run(seed, 0.0, "tcp-cubic", "background"))[0];
        assert!(first > 0.95 * alone, "seed {seed}: {first} of {alone}");
    }
}

/// Where a queue is too short to stand, its overflows tell of others; and who was there when this sender
/// came back is left alone for longer.
#[test]
fn cubic_keeps_most_of_what_it_has_through_a_short_queue() {
    let link = "rate = \"100 Mbit/s\"\ndelay = \"5 ms\"\nqueue = { limit = \"0.3 bdp\" }";
    for seed in [1, 2] {
        let alone = goodputs(&run_over(link, seed, "", "tcp-cubic"))[0];
        let second = goodputs(&run_over(link, seed, "background", "tcp-cubic"))[1];
        assert!(second > 0.92 * alone, "seed {seed}: {second} of {alone}");
    }
}

/// On a slow path few packets fill the queue, and a packet in each round trip is much.
#[test]
fn cubic_keeps_what_it_has_on_a_slow_path_and_the_path_is_used_when_it_left() {
    let link = "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = { limit = \"1 bdp\" }";
    for seed in [1, 2] {
        let alone = goodputs(&run_over(link, seed, "", "tcp-cubic"))[0];
        let second = goodputs(&run_over(link, seed, "background", "tcp-cubic"))[1];
        assert!(second > 0.95 * alone, "seed {seed}: {second} of {alone}");
        let long = link.replace("1 bdp", "3 bdp");
        let around = goodputs(&run_until(20, &long, seed, "background", "tcp-cubic"))[0];
        assert!(around > 0.6 * 10e6, "seed {seed}: {around}");
    }
}

#[test]
fn an_idle_path_is_used_whatever_it_loses() {
    for (seed, loss) in [(1, 0.0), (2, 0.1)] {
        let limit = 50e6 * (1.0 - loss);
        let goodput = goodputs(&run(seed, loss, "background", ""))[0];
        assert!(goodput > 0.7 * limit, "seed {seed}, {loss} lost: {goodput}");
        let both = goodputs(&run(seed, loss, "background", "background"));
        let sum = both[0] + both[1];
        assert!(sum > 0.7 * limit, "seed {seed}, {loss} lost: {both:?}");
    }
}
