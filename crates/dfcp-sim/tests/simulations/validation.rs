//! Our senders against ns-2's, in the cheap cells of `validation/README.md`, and against closed
//! forms. The whole table is `validation/RESULTS.md`; ns-2's figures are committed, so nothing but
//! this program runs here. The cells left out are those whose difference has a reason of its own.

use dfcp_sim::report::RunReport;
use dfcp_sim::scenario::Document;
use std::collections::HashMap;
use std::path::PathBuf;

const MBIT: f64 = 1e6;
/// What two implementations of the same algorithm may differ by.
const TOLERANCE: f64 = 0.10;
/// Without random loss there is nothing to differ in but rounding and the first seconds.
const TOLERANCE_WITHOUT_LOSS: f64 = 0.02;

fn validation(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../validation")
        .join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn simulate(text: &str, settings: &[(&str, String)]) -> RunReport {
    let mut document = Document::parse(text, "validation").expect("the text is a scenario");
    for (key, value) in settings {
        let set = document.set(key, value);
        set.unwrap_or_else(|e| panic!("{key} = {value}: {e}"));
    }
    let scenario = document.scenario().unwrap_or_else(|e| panic!("{e}"));
    dfcp_sim::run(&scenario).expect("the network can be built")
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard error of the mean.
fn standard_error(values: &[f64]) -> f64 {
    let (n, centre) = (values.len() as f64, mean(values));
    if values.len() < 2 {
        return 0.0;
    }
    let squares: f64 = values.iter().map(|v| (v - centre).powi(2)).sum();
    (squares / (n - 1.0) / n).sqrt()
}

/// A cell of the table: 100 Mbit/s, measured from 15 to 60 s.
#[derive(Clone, Copy, Debug)]
struct Cell {
    scenario: &'static str,
    tcp: &'static str,
    /// Of each flow.
    rtts_ms: &'static [f64],
    loss: f64,
    buffer: u32,
    discipline: &'static str,
    /// Seeds from 1 to this.
    seeds: u32,
}

const SINGLE: Cell = Cell {
    scenario: "single",
    tcp: "reno",
    rtts_ms: &[10.0],
    loss: 0.0,
    buffer: 1000,
    discipline: "fifo",
    seeds: 1,
};

const LOSSY: Cell = Cell {
    loss: 0.01,
    seeds: 5,
    ..SINGLE
};

const SHARED: Cell = Cell {
    buffer: 416,
    ..SINGLE
};

const CELLS: &[Cell] = &[
    SINGLE,
    Cell {
        tcp: "cubic",
        ..SINGLE
    },
    Cell {
        rtts_ms: &[50.0],
        ..SINGLE
    },
    LOSSY,
    Cell {
        rtts_ms: &[50.0],
        ..LOSSY
    },
    Cell {
        loss: 0.001,
        ..LOSSY
    },
    Cell {
        loss: 0.001,
        rtts_ms: &[50.0],
        ..LOSSY
    },
    Cell {
        tcp: "cubic-819",
        ..LOSSY
    },
    Cell {
        tcp: "cubic-819",
        loss: 0.001,
        ..LOSSY
    },
    Cell {
        scenario: "unequal-10-100",
        rtts_ms: &[10.0, 100.0],
        discipline: "drr",
        ..SHARED
    },
    Cell {
        scenario: "many",
        rtts_ms: &[50.0; 10],
        ..SHARED
    },
];

impl Cell {
    /// The settings that `validation/run-ours` makes.
    fn settings(&self, seed: u32) -> Vec<(&'static str, String)> {
        let ms = |value: &f64| format!("\"{} ns\"", (value * 1e6).round());
        let list = |values: Vec<String>| format!("[{}]", values.join(", "));
        let flows = self.rtts_ms.len();
        let starts = (0..flows).map(|i| match self.scenario {
            "many" => 1000.0 * i as f64 / flows as f64,
            _ => 0.0,
        });
        let shortest = self.rtts_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let limit = match self.discipline {
            "drr" => format!("\"{} B\"", self.buffer * 1500),
            _ => format!("\"{} packets\"", self.buffer),
        };
        let mut settings = vec![
            ("run.seed", seed.to_string()),
            ("topology.pairs", flows.to_string()),
            ("topology.rtt", list(self.rtts_ms.iter().map(ms).collect())),
            ("link.bottleneck.delay", ms(&(0.99 * shortest / 2.0))),
            ("link.bottleneck.loss", self.loss.to_string()),
            (
                "link.bottleneck.queue.discipline",
                format!("\"{}\"", self.discipline),
            ),
            ("link.bottleneck.queue.limit", limit),
            ("flow.0.count", flows.to_string()),
            (
                "flow.0.start",
                list(starts.map(|start| ms(&start)).collect()),
            ),
        ];
        if self.tcp == "cubic-819" {
            settings.push(("tcp.cubic.beta", (819.0 / 1024.0).to_string()));
        }
        settings
    }

    fn template(&self) -> String {
        let family = self.tcp.split('-').next().unwrap_or(self.tcp);
        validation(&format!("ours/ns2-{family}.toml"))
    }
}

/// A row of ns-2's table: goodput, its standard error, mean queue.
#[derive(Debug)]
struct Expected {
    goodput: f64,
    error: f64,
    queue: f64,
}

/// ns-2's rows of a cell, one for each flow, or one for the sum of many.
fn expected(table: &[HashMap<&str, &str>], cell: &Cell) -> Vec<Expected> {
    let number = |row: &HashMap<&str, &str>, column| -> f64 {
        row[column]
            .parse()
            .unwrap_or_else(|e| panic!("{column} of {row:?}: {e}"))
    };
    let rows: Vec<_> = table
        .iter()
        .filter(|row| {
            row["scenario"] == cell.scenario
                && row["tcp"] == cell.tcp
                && row["discipline"] == cell.discipline
                && row["flows"] == cell.rtts_ms.len().to_string()
                && row["buffer_packets"] == cell.buffer.to_string()
                && number(row, "rate_bps") == 100.0 * MBIT
                && number(row, "loss") == cell.loss
                && cell
                    .rtts_ms
                    .iter()
                    .any(|ms| (number(row, "rtt_s") * 1e3 - ms).abs() < 1e-9)
        })
        .map(|row| Expected {
            goodput: number(row, "goodput_bps"),
            error: number(row, "goodput_sd_bps") / (row["seeds"].split(' ').count() as f64).sqrt(),
            queue: number(row, "queue_mean_packets"),
        })
        .collect();
    let wanted = if cell.scenario == "many" {
        1
    } else {
        cell.rtts_ms.len()
    };
    assert_eq!(rows.len(), wanted, "rows of {cell:?}");
    rows
}

#[test]
fn tcp_agrees_with_ns2() {
    let text = validation("reference/ns2.csv");
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().expect("a heading").split(',').collect();
    let table: Vec<HashMap<&str, &str>> = lines
        .map(|line| columns.iter().copied().zip(line.split(',')).collect())
        .collect();
    let mut failures = String::new();
    for cell in CELLS {
        let template = cell.template();
        let reports: Vec<_> = (1..=cell.seeds)
            .map(|seed| simulate(&template, &cell.settings(seed)))
            .collect();
        let rows = expected(&table, cell);
        for (flow, row) in rows.iter().enumerate() {
            let goodputs: Vec<f64> = reports
                .iter()
                .map(|report| match rows.len() {
                    1 => report.flows.iter().map(|flow| flow.goodput_bps).sum(),
                    _ => report.flows[flow].goodput_bps,
                })
                .collect();
            let ours = mean(&goodputs);
            let allowed = if cell.loss > 0.0 {
                TOLERANCE * row.goodput + 2.0 * standard_error(&goodputs).hypot(row.error)
            } else {
                TOLERANCE_WITHOUT_LOSS * row.goodput
            };
            if (ours - row.goodput).abs() > allowed {
                failures += &format!(
                    "flow {flow}: {:.4} Mbit/s, ns-2 {:.4} ± {:.4}, allowed ± {:.4}; \
                     seeds 1 to {}: {goodputs:.0?}\n  {cell:?}\n",
                    ours / MBIT,
                    row.goodput / MBIT,
                    row.error / MBIT,
                    allowed / MBIT,
                    cell.seeds,
                );
            }
            let queue = mean(&reports.iter().map(queue_of_bottleneck).collect::<Vec<_>>());
            if cell.loss == 0.0 && (queue - row.queue).abs() > TOLERANCE * row.queue {
                failures += &format!(
                    "mean queue {queue:.1} packets, ns-2 {:.1}; seeds 1 to {}\n  {cell:?}\n",
                    row.queue, cell.seeds
                );
            }
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

fn queue_of_bottleneck(report: &RunReport) -> f64 {
    let link = report.links.iter().find(|link| link.name == "bottleneck");
    link.expect("a dumbbell has a bottleneck")
        .queue
        .mean_packets
}

/// Goodput, bit/s, of one flow over 100 Mbit/s and 50 ms with independent loss.
fn goodput(flow: &str, loss: f64, seed: u64) -> f64 {
    let text = format!(
        "schema = 1
         [run]
         duration = \"40 s\"
         warmup = \"10 s\"
         seed = {seed}
         [topology]
         kind = \"dumbbell\"
         rtt = \"50 ms\"
         [link.default]
         rate = \"1 Gbit/s\"
         [link.bottleneck]
         rate = \"100 Mbit/s\"
         loss = {loss}
         reverse = {{ loss = 0.0 }}
         [[flow]]
         {flow}"
    );
    simulate(&text, &[]).flows[0].goodput_bps
}

/// 28 bytes of each packet of 1500 are headers of IP and UDP.
const UDP_PAYLOAD: f64 = 1472.0 / 1500.0;

#[test]
fn constant_traffic_loses_what_the_link_loses() {
    let seed = 1;
    for loss in [0.0, 0.01, 0.1, 0.5] {
        let flow = "protocol = \"udp-cbr\"\nudp = { rate = \"100 Mbit/s\" }";
        let measured = goodput(flow, loss, seed);
        let expected = (1.0 - loss) * 100.0 * MBIT * UDP_PAYLOAD;
        // Five standard deviations of a binomial, and a packet at either end.
        let packets = 30.0 * 100.0 * MBIT / 12_000.0;
        let error = 5.0 * (loss / (1.0 - loss) / packets).sqrt() + 2.0 / packets;
        assert!(
            (measured / expected - 1.0).abs() <= error,
            "loss {loss}, seed {seed}: {measured} bit/s, expected {expected} within {error}"
        );
    }
}

#[test]
fn auto_comes_close_to_what_the_link_delivers() {
    let seed = 1;
    for loss in [0.0, 0.01, 0.1] {
        let measured = goodput("protocol = \"auto\"", loss, seed);
        let ideal = (1.0 - loss) * 100.0 * MBIT * UDP_PAYLOAD;
        assert!(
            measured <= ideal * 1.01 && measured >= 0.95 * ideal,
            "loss {loss}, seed {seed}: {measured} bit/s of {ideal}"
        );
    }
}

/// Mathis and others, "The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", 1997:
/// sqrt(3/2) / sqrt(p) segments a round-trip time.
#[test]
fn reno_follows_the_square_root_law() {
    const SEEDS: u32 = 10;
    for loss in [0.01, 0.001] {
        let cell = Cell {
            loss,
            rtts_ms: &[50.0],
            ..LOSSY
        };
        let runs: Vec<f64> = (1..=SEEDS)
            .map(|seed| simulate(&cell.template(), &cell.settings(seed)).flows[0].goodput_bps)
            .collect();
        let law = (1.5 / loss).sqrt() * 1460.0 * 8.0 / 0.05;
        let ratio = mean(&runs) / law;
        assert!(
            (ratio - 1.0).abs() < 0.15,
            "loss {loss}, seeds 1 to {SEEDS}: {ratio:.3} of the law; {runs:.0?}"
        );
    }
}
