//! `queue`: the buffer of a link and its discipline.

use std::collections::BTreeMap;

use dfcp_proto::Duration;

use crate::queue::{
    CoDelConfig, Discipline, DropFrom, DrrConfig, DualPi2Config, FqCoDelConfig, Limit, PieConfig,
    PriorityMode, QueueConfig, RedConfig, SfqConfig, WfqConfig,
};
use crate::scenario::fields::{
    Bytes, Codec, Count, Fields, Flag, Number, OneOf, OrWord, Section, Time, WEIGHT, quantity,
};
use crate::scenario::tree::{Fault, Node, Table, Value};
use crate::scenario::units::{self, Quantity};

/// `queue`. Parameters of other disciplines have no effect, so that the discipline can be swept.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct QueueSettings {
    discipline: DisciplineName,
    pub limit: LimitSettings,
    priority: PriorityMode,
    pub weights: BTreeMap<String, f64>,
    quantum: u32,
    drop_from: DropFrom,
    buckets: u32,
    perturb: Option<Duration>,
    red: RedConfig,
    codel: CoDelConfig,
    /// Its target and interval are also those of `pie`.
    dual_pi2: DualPi2Config,
    max_burst: Duration,
    /// Of all disciplines; that of `red` and `codel` means nothing.
    ecn: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DisciplineName {
    Fifo,
    Drr,
    Wfq,
    Sfq,
    Red,
    CoDel,
    FqCoDel,
    Pie,
    DualPi2,
}

/// The size of a buffer as the file describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::scenario) enum LimitSettings {
    Fixed(Limit),
    /// Millionths of the bandwidth-delay product.
    Bdp(u64),
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            discipline: DisciplineName::Fifo,
            // Linux's txqueuelen, and the papers' buffer.
            limit: LimitSettings::Fixed(Limit::Packets(1000)),
            priority: PriorityMode::None,
            weights: BTreeMap::new(),
            // One MTU (Shreedhar and Varghese; RFC 8290 says 1514 with the Ethernet header).
            quantum: 1500,
            // As ns-2's DRR does.
            drop_from: DropFrom::Head,
            // RFC 8290 §4.1.
            buckets: 1024,
            perturb: None,
            red: RedConfig::default(),
            codel: CoDelConfig::default(),
            dual_pi2: DualPi2Config::default(),
            max_burst: PieConfig::default().max_burst,
            ecn: false,
        }
    }
}

impl Section for QueueSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        use DisciplineName::{CoDel, Drr, DualPi2, Fifo, FqCoDel, Pie, Red, Sfq, Wfq};
        let disciplines = [
            ("fifo", Fifo),
            ("drr", Drr),
            ("wfq", Wfq),
            ("sfq", Sfq),
            ("red", Red),
            ("codel", CoDel),
            ("fq-codel", FqCoDel),
            ("pie", Pie),
            ("dual-pi2", DualPi2),
        ];
        let drops = [("head", DropFrom::Head), ("tail", DropFrom::Tail)];
        f.item("discipline", &mut self.discipline, OneOf(&disciplines));
        f.item("limit", &mut self.limit, LimitQuantity);
        let priorities = [
            ("none", PriorityMode::None),
            ("control-first", PriorityMode::ControlFirst),
        ];
        f.item("priority", &mut self.priority, OneOf(&priorities));
        f.item("weights", &mut self.weights, Weights);
        f.item("quantum", &mut self.quantum, Bytes(1, 1 << 30));
        f.item("drop", &mut self.drop_from, OneOf(&drops));
        f.item("buckets", &mut self.buckets, Count(1, 1 << 20));
        f.item("perturb", &mut self.perturb, OrWord("never", Time));
        let red = &mut self.red;
        f.item("min_threshold", &mut red.min_threshold, Number(0.0, 1e9));
        f.item("max_threshold", &mut red.max_threshold, Number(1e-3, 1e9));
        f.item(
            "max_probability",
            &mut red.max_probability,
            Number(1e-9, 1.0),
        );
        f.item("weight", &mut red.weight, Number(1e-9, 1.0));
        f.item("gentle", &mut red.gentle, Flag);
        f.item("target", &mut self.codel.target, Time);
        f.item("interval", &mut self.codel.interval, Time);
        let dual = &mut self.dual_pi2;
        f.item("delay_target", &mut dual.target, Time);
        f.item("update_interval", &mut dual.update_interval, Time);
        f.item("max_burst", &mut self.max_burst, Time);
        f.item("coupling", &mut dual.coupling, Number(1e-3, 1e3));
        f.item("l4s_threshold", &mut dual.l4s_threshold, Time);
        f.item("l4s_range", &mut dual.l4s_range, Time);
        f.item("classic_share", &mut dual.classic_share, Number(1e-6, 1.0));
        f.item("ecn", &mut self.ecn, Flag);
    }
}

impl QueueSettings {
    /// With the limit in packets or bytes.
    ///
    /// # Errors
    /// Says what does not fit together.
    pub fn config(&self, limit: Limit) -> Result<QueueConfig, String> {
        let &Self {
            quantum,
            drop_from,
            buckets,
            perturb,
            red,
            dual_pi2,
            max_burst,
            ecn,
            ..
        } = self;
        let codel = CoDelConfig { ecn, ..self.codel };
        let discipline = match self.discipline {
            DisciplineName::Fifo => Discipline::Fifo,
            DisciplineName::Drr => Discipline::Drr(DrrConfig { quantum, drop_from }),
            DisciplineName::Wfq => Discipline::Wfq(WfqConfig { drop_from }),
            DisciplineName::Sfq => Discipline::Sfq(SfqConfig {
                buckets,
                quantum,
                perturb,
                drop_from,
            }),
            DisciplineName::Red => Discipline::Red(RedConfig { ecn, ..red }),
            DisciplineName::CoDel => Discipline::CoDel(codel),
            DisciplineName::FqCoDel => Discipline::FqCoDel(FqCoDelConfig {
                codel,
                buckets,
                quantum,
            }),
            DisciplineName::Pie => Discipline::Pie(PieConfig {
                target: dual_pi2.target,
                update_interval: dual_pi2.update_interval,
                max_burst,
                ecn,
            }),
            DisciplineName::DualPi2 => Discipline::DualPi2(dual_pi2),
        };
        let zero = matches!(limit, Limit::Packets(0) | Limit::Bytes(0));
        if zero && discipline != Discipline::Fifo {
            return Err(
                "a limit of zero leaves this discipline nothing to choose from: write for example \
                 limit = \"1000 packets\", or discipline = \"fifo\" for a link without buffer"
                    .to_owned(),
            );
        }
        if self.discipline == DisciplineName::Red && red.min_threshold >= red.max_threshold {
            return Err(format!(
                "min_threshold {} is not below max_threshold {}",
                red.min_threshold, red.max_threshold
            ));
        }
        if codel.interval.is_zero() || perturb == Some(Duration::ZERO) {
            return Err("`interval` and `perturb` must be longer than zero".to_owned());
        }
        if dual_pi2.update_interval.is_zero() {
            return Err("`update_interval` must be longer than zero".to_owned());
        }
        Ok(QueueConfig {
            discipline,
            limit,
            priority: self.priority,
        })
    }
}

/// Packets, bytes, bandwidth-delay products, or `"unlimited"`.
struct LimitQuantity;

impl Codec<LimitSettings> for LimitQuantity {
    fn read(&self, node: &Node) -> Result<LimitSettings, Fault> {
        use LimitSettings::{Bdp, Fixed};
        let text = match &node.value {
            Value::String(text) => text.as_str(),
            _ => "",
        };
        if text == "unlimited" {
            return Ok(Fixed(Limit::Unlimited));
        }
        let unit = Quantity::parse(text).map_or("", |quantity| quantity.unit);
        let has = |units: units::Units| units.iter().any(|(name, _)| *name == unit);
        if has(units::SIZE) {
            quantity(node, units::SIZE, "150 kB").map(|bytes| Fixed(Limit::Bytes(bytes)))
        } else if has(units::BDP) {
            quantity(node, units::BDP, "0.1 bdp").map(Bdp)
        } else {
            quantity(node, units::PACKETS, "1000 packets")
                .map(|packets| Fixed(Limit::packets(packets)))
                .map_err(|fault| fault.and(", \"150 kB\", \"0.1 bdp\" or \"unlimited\""))
        }
    }

    fn write(&self, value: &LimitSettings) -> Option<Value> {
        Some(Value::String(match value {
            LimitSettings::Fixed(Limit::Unlimited) => "unlimited".to_owned(),
            LimitSettings::Fixed(Limit::Packets(n)) => units::format(*n as u64, units::PACKETS),
            LimitSettings::Fixed(Limit::Bytes(n)) => units::format(*n, units::SIZE),
            LimitSettings::Bdp(millionths) => format!("{} bdp", *millionths as f64 / 1e6),
        }))
    }
}

/// `{ class = weight, … }`.
struct Weights;

impl Codec<BTreeMap<String, f64>> for Weights {
    fn read(&self, node: &Node) -> Result<BTreeMap<String, f64>, Fault> {
        let table = node.table()?;
        let entries = table.0.iter();
        entries
            .map(|entry| Ok((entry.key.clone(), WEIGHT.read(&entry.node)?)))
            .collect()
    }

    fn write(&self, value: &BTreeMap<String, f64>) -> Option<Value> {
        let mut table = Table::default();
        for (class, weight) in value {
            table.put(class, Value::Float(*weight));
        }
        Some(Value::Table(table))
    }
}
