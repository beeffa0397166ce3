//! The backbone of the Energy Sciences Network as RC-UDP uses it (its Fig. 4 and §IV): 16 nodes,
//! 20 links, 100 Gbit/s, but 10 Gbit/s to Boston and Boise.
//!
//! The paper's map is only a picture. The sites and links here are ours, chosen to match those
//! counts and ESnet's known course; delays are great-circle distances at 5 µs/km.

use super::{Graph, NodeKind};
use dfcp_proto::{Duration, Rate};

/// Ends and great-circle distance, rounded to 10 km.
const LINKS: [(&str, &str, u32); 20] = [
    ("seattle", "boise", 650),
    ("boise", "denver", 1020),
    ("seattle", "sacramento", 1010),
    ("sacramento", "sunnyvale", 140),
    ("sacramento", "denver", 1430),
    ("sunnyvale", "el-paso", 1550),
    ("denver", "albuquerque", 540),
    ("albuquerque", "el-paso", 370),
    ("denver", "kansas-city", 900),
    ("el-paso", "houston", 1090),
    ("houston", "nashville", 1070),
    ("kansas-city", "chicago", 660),
    ("chicago", "nashville", 640),
    ("chicago", "cleveland", 490),
    ("nashville", "atlanta", 350),
    ("atlanta", "washington", 870),
    ("cleveland", "washington", 490),
    ("washington", "new-york", 330),
    ("new-york", "boston", 310),
    ("cleveland", "boston", 880),
];

/// Light in fibre.
const DELAY_PER_KM: Duration = Duration::from_micros(5);

/// The graph. Nodes are cities in lower case; links are named `seattle-boise`, …, with the role
/// `backbone` (100 Gbit/s) or `spur` (10 Gbit/s).
pub fn esnet() -> Graph {
    let mut graph = Graph::default();
    for (from, to, km) in LINKS {
        let ends = [from, to].map(|name| {
            let known = graph.nodes.iter().position(|node| node.name == name);
            known.unwrap_or_else(|| graph.node(name, NodeKind::Host))
        });
        let slow = [from, to].iter().any(|n| matches!(*n, "boston" | "boise"));
        let (role, gigabits) = if slow {
            ("spur", 10)
        } else {
            ("backbone", 100)
        };
        graph.link(format!("{from}-{to}"), &[role], (ends[0], ends[1]));
        if let Some(link) = graph.links.last_mut() {
            link.delay = Some(DELAY_PER_KM * km);
            link.rate = Some(Rate::from_bps(gigabits * 1_000_000_000));
        }
    }
    graph
}
