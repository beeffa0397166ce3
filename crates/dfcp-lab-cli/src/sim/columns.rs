//! The columns of results: what a run measured, as rows of tables and as lines of JSON.
//!
//! One list each names the figures of a flow, a link and a run; tables, JSON and
//! `docs/simulator.md` use these names. Figures are only ever added.

use dfcp_sim::report::{FlowReport, LinkReport, RunReport, RunSummary};
use serde::{Serialize, Serializer};

use super::table::{Cell, Column, Kind, Table};

/// A figure: its name, its kind, and how to get it.
pub struct Metric<T> {
    /// Name of the column, and key in JSON.
    pub name: &'static str,
    kind: Kind,
    get: fn(&T) -> Cell,
}

impl<T> Metric<T> {
    fn column(&self) -> Column {
        Column {
            name: self.name.to_owned(),
            kind: Some(self.kind),
        }
    }
}

macro_rules! kinds {
    ($($name:ident $kind:ident),*) => {$(
        const fn $name<T>(name: &'static str, get: fn(&T) -> Cell) -> Metric<T> {
            let kind = Kind::$kind;
            Metric { name, kind, get }
        }
    )*};
}

kinds!(text Text, integer Integer, real Real, flag Flag);

/// Figures of a flow.
pub const FLOW: &[Metric<FlowReport>] = &[
    text("flow", |flow| flow.name.as_str().into()),
    text("class", |flow| flow.class.as_str().into()),
    text("protocol", |flow| flow.protocol.as_str().into()),
    real("start_s", |flow| flow.start_s.into()),
    real("goodput_bps", |flow| flow.goodput_bps.into()),
    real("limit_bps", |flow| flow.limit_bps.into()),
    real("share", |flow| flow.share().into()),
    real("throughput_bps", |flow| flow.throughput_bps.into()),
    real("fct_s", |flow| flow.fct_s.into()),
    integer("bytes", |flow| flow.bytes.into()),
    integer("bytes_sent", |flow| flow.bytes_sent.into()),
    integer("packets_sent", |flow| flow.packets_sent.into()),
    integer("packets_retransmitted", |flow| {
        flow.packets_retransmitted.into()
    }),
    integer("spurious_losses", |flow| flow.spurious_losses.into()),
    integer("receiver_drops", |flow| flow.receiver_drops.into()),
    real("loss", |flow| flow.loss.into()),
    real("overhead", |flow| flow.overhead.into()),
    real("rtt_mean_s", |flow| flow.rtt_mean_s.into()),
    integer("dropped_full", |flow| flow.drops.full.into()),
    integer("dropped_early", |flow| flow.drops.early.into()),
    integer("dropped_loss", |flow| flow.drops.loss.into()),
    integer("dropped_mtu", |flow| flow.drops.mtu.into()),
    integer("dropped_policed", |flow| flow.drops.policed.into()),
    real("convergence_s", |flow| flow.convergence_s.into()),
    flag("finished", |flow| flow.finished.into()),
    integer("bytes_missing", |flow| flow.bytes_missing.into()),
    real("excess", |flow| flow.excess.into()),
    real("block_time_s", |flow| flow.block_time_s.into()),
];

/// Figures of a link.
pub const LINK: &[Metric<LinkReport>] = &[
    text("link", |link| link.name.as_str().into()),
    real("utilisation", |link| link.utilisation.into()),
    integer("packets", |link| link.packets.into()),
    real("drop_rate", |link| link.drop_rate.into()),
    integer("dropped_full", |link| link.drops.full.into()),
    integer("dropped_early", |link| link.drops.early.into()),
    integer("dropped_loss", |link| link.drops.loss.into()),
    integer("dropped_mtu", |link| link.drops.mtu.into()),
    integer("dropped_policed", |link| link.drops.policed.into()),
    integer("marked", |link| link.marked.into()),
    real("queue_mean_packets", |link| link.queue.mean_packets.into()),
    real("queue_mean_bytes", |link| link.queue.mean_bytes.into()),
    real("queue_p50_packets", |link| link.queue.p50_packets.into()),
    real("queue_p95_packets", |link| link.queue.p95_packets.into()),
    real("queue_p99_packets", |link| link.queue.p99_packets.into()),
    integer("queue_max_packets", |link| link.queue.max_packets.into()),
    real("sojourn_mean_s", |link| link.queue.sojourn_mean_s.into()),
    real("sojourn_p95_s", |link| link.queue.sojourn_p95_s.into()),
    real("sojourn_max_s", |link| link.queue.sojourn_max_s.into()),
];

/// Figures of a run that its flows' rows repeat, so that one table suffices to plot them.
const RUN_IN_FLOWS: &[Metric<RunSummary>] = &[
    real("jain", |run| run.jain.into()),
    real("utilisation", |run| run.utilisation.into()),
    real("stability", |run| run.stability.into()),
    real("friendliness", |run| run.friendliness.into()),
    real("simulated_s", |run| run.simulated_s.into()),
];

/// Further figures of a run.
const RUN_ALONE: &[Metric<RunSummary>] = &[
    integer("events", |run| run.events.into()),
    integer("packets", |run| run.packets.into()),
];

/// The columns of tables of flows.
pub fn flow_columns() -> Vec<Column> {
    let flow = FLOW.iter().map(Metric::column);
    flow.chain(RUN_IN_FLOWS.iter().map(Metric::column))
        .collect()
}

/// The columns of tables of links.
pub fn link_columns() -> Vec<Column> {
    LINK.iter().map(Metric::column).collect()
}

/// A row for each flow, under [`flow_columns`].
pub fn flow_rows(report: &RunReport) -> Vec<Vec<Cell>> {
    let row = |flow: &FlowReport| {
        let own = FLOW.iter().map(|metric| (metric.get)(flow));
        let run = RUN_IN_FLOWS.iter();
        own.chain(run.map(|metric| (metric.get)(&report.summary)))
            .collect()
    };
    report.flows.iter().map(row).collect()
}

/// A row for each link, under [`link_columns`].
pub fn link_rows(report: &RunReport) -> Vec<Vec<Cell>> {
    let row = |link: &LinkReport| LINK.iter().map(|metric| (metric.get)(link)).collect();
    report.links.iter().map(row).collect()
}

/// Figures by name, in order; a JSON object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record(Vec<(&'static str, Cell)>);

impl Record {
    /// The figures of a flow.
    pub fn flow(flow: &FlowReport) -> Self {
        Self::default().with(FLOW, flow)
    }

    /// The figures of a run.
    pub fn run(summary: &RunSummary) -> Self {
        let record = Self::default().with(RUN_IN_FLOWS, summary);
        record.with(RUN_ALONE, summary)
    }

    /// One figure more.
    pub fn and(mut self, name: &'static str, value: impl Into<Cell>) -> Self {
        self.0.push((name, value.into()));
        self
    }

    fn with<T>(mut self, metrics: &[Metric<T>], of: &T) -> Self {
        let values = metrics.iter().map(|metric| (metric.name, (metric.get)(of)));
        self.0.extend(values);
        self
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// The time series side by side: a row for each flow or link and time, a column for each quantity.
pub fn series_table(report: &RunReport) -> Table {
    let mut quantities: Vec<&str> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for series in &report.series {
        if !quantities.contains(&series.quantity.as_str()) {
            quantities.push(&series.quantity);
        }
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    let mut table = Table::untyped(["name", "time_s"].iter().chain(&quantities).copied());
    for name in names {
        let own = |quantity: &&str| {
            let mut all = report.series.iter();
            all.find(|series| series.name == name && series.quantity == *quantity)
        };
        let own: Vec<_> = quantities.iter().map(own).collect();
        let present = || own.iter().flatten();
        let length = present().map(|series| series.values.len()).max();
        let interval = present().map(|series| series.interval_s).next();
        for index in 0..length.unwrap_or(0) {
            // A sample stands at the end of the interval it covers.
            let time = (index + 1) as f64 * interval.unwrap_or(0.0);
            let mut row = vec![name.into(), Cell::from(round(time))];
            let value = |series: &Option<&dfcp_sim::report::Series>| {
                Cell::from(series.and_then(|series| series.values.get(index).copied()))
            };
            row.extend(own.iter().map(value));
            table.push(row);
        }
    }
    table
}

/// To the nanosecond: multiples of 0.1 shall not read 0.30000000000000004.
fn round(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use dfcp_sim::report::Series;

    #[test]
    fn json_has_the_promised_keys() {
        let flow = FlowReport {
            name: "a".into(),
            overhead: Some(f64::NAN),
            ..FlowReport::default()
        };
        let json = |record| serde_json::to_value(record).unwrap();
        let flow = json(Record::flow(&flow));
        let run = json(Record::run(&RunSummary::default()).and("wall_s", 0.5));
        for key in ["flow", "protocol", "goodput_bps", "fct_s", "bytes", "loss"] {
            assert!(flow.get(key).is_some(), "{key}");
        }
        for key in ["jain", "utilisation", "events", "packets", "wall_s"] {
            assert!(run.get(key).is_some(), "{key}");
        }
        assert!(flow["overhead"].is_null(), "not a number is no value");
    }

    #[test]
    fn series_of_one_name_share_rows() {
        let series = |name: &str, quantity: &str, values: &[f64]| Series {
            name: name.into(),
            quantity: quantity.into(),
            interval_s: 0.1,
            values: values.into(),
        };
        let report = RunReport {
            series: vec![
                series("a", "goodput_bps", &[1.0, 2.0, 3.0]),
                series("a", "rtt_s", &[0.5]),
                series("link", "queue_packets", &[7.0]),
            ],
            ..RunReport::default()
        };
        let table = series_table(&report);
        let rows: Vec<_> = table
            .rows()
            .iter()
            .map(|row| {
                row.iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(",")
            })
            .collect();
        assert_eq!(
            rows,
            ["a,0.1,1,0.5,", "a,0.2,2,,", "a,0.3,3,,", "link,0.1,,,7"]
        );
    }
}
