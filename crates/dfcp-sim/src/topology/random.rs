//! Connected random graphs with a given number of links: the model G(n, m) of Erdős and Rényi
//! ("On random graphs I", 1959), conditioned on being connected.

use super::{Graph, NodeKind};
use crate::random::{Random, Seed};

/// Draws of G(n, m) before a random tree helps. At 50 nodes and 100 links two in five draws are
/// connected; near n − 1 links hardly any.
const DRAWS: u32 = 100;

/// Why there is no such graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a connected graph of {nodes} nodes has {least} to {most} links, not {links}")]
pub struct ErdosRenyiError {
    /// Nodes asked for.
    pub nodes: usize,
    /// Links asked for.
    pub links: usize,
    /// The number of links of a tree.
    pub least: usize,
    /// The number of links of a complete graph.
    pub most: usize,
}

/// A connected graph of `nodes` hosts and `links` links, every such graph equally likely. Where
/// a hundred draws are not connected, a random tree is drawn first and the rest added to it.
///
/// Nodes `node-1`, …; links `link-1`, …
///
/// # Errors
/// Fewer links than a tree has, or more than a complete graph.
pub fn erdos_renyi(nodes: usize, links: usize, seed: Seed) -> Result<Graph, ErdosRenyiError> {
    let (least, most) = (nodes.saturating_sub(1), nodes * nodes.saturating_sub(1) / 2);
    if nodes == 0 || !(least..=most).contains(&links) {
        return Err(ErdosRenyiError {
            nodes,
            links,
            least,
            most,
        });
    }
    let mut random = seed.stream("topology.erdos-renyi");
    let drawn = (0..DRAWS)
        .map(|_| draw(nodes, links, Vec::new(), &mut random))
        .find(|ends| is_connected(nodes, ends));
    let ends = drawn.unwrap_or_else(|| {
        let tree = tree(nodes, &mut random);
        draw(nodes, links, tree, &mut random)
    });
    let mut graph = Graph::default();
    for n in 1..=nodes {
        graph.node(format!("node-{n}"), NodeKind::Host);
    }
    for (n, ends) in ends.into_iter().enumerate() {
        graph.link(format!("link-{}", n + 1), &[], ends);
    }
    Ok(graph)
}

/// Adds links to `ends` until there are `links`, all different; sorted.
fn draw(
    nodes: usize,
    links: usize,
    mut ends: Vec<(usize, usize)>,
    random: &mut Random,
) -> Vec<(usize, usize)> {
    // Selection sampling (Knuth, TAOCP 2, §3.4.2, algorithm S) over all pairs not yet joined.
    ends.sort_unstable();
    let joined = ends.clone();
    let pairs = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b)));
    let mut free = (nodes * nodes.saturating_sub(1) / 2 - joined.len()) as u64;
    let mut wanted = (links - joined.len()) as u64;
    for pair in pairs.filter(|pair| joined.binary_search(pair).is_err()) {
        if random.below(free) < wanted {
            ends.push(pair);
            wanted -= 1;
        }
        free -= 1;
    }
    ends.sort_unstable();
    ends
}

/// A tree: the nodes in random order, each joined to a random earlier one.
fn tree(nodes: usize, random: &mut Random) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..nodes).collect();
    for i in (1..nodes).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    (1..nodes)
        .map(|i| {
            let (a, b) = (order[i], order[random.below(i as u64) as usize]);
            (a.min(b), a.max(b))
        })
        .collect()
}

fn is_connected(nodes: usize, ends: &[(usize, usize)]) -> bool {
    let mut parts: Vec<usize> = (0..nodes).collect();
    fn root(parts: &mut [usize], mut node: usize) -> usize {
        while parts[node] != node {
            parts[node] = parts[parts[node]];
            node = parts[node];
        }
        node
    }
    let mut left = nodes;
    for &(a, b) in ends {
        let (a, b) = (root(&mut parts, a), root(&mut parts, b));
        if a != b {
            parts[a] = b;
            left -= 1;
        }
    }
    left <= 1
}
