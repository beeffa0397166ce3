//! Routes: shortest propagation delay, then fewest links; ties go to the link listed first
//! (Dijkstra 1959).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use dfcp_proto::Duration;

use super::model::{LinkIndex, NodeIndex};

/// A one-way link as routing sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    pub from: NodeIndex,
    pub to: NodeIndex,
    pub delay: Duration,
}

/// The network, and the trees of shortest paths found so far.
pub(super) struct Routes<'a> {
    hops: &'a [Hop],
    leaving: Vec<Vec<LinkIndex>>,
    trees: BTreeMap<NodeIndex, Vec<Option<LinkIndex>>>,
}

impl<'a> Routes<'a> {
    pub fn new(nodes: usize, hops: &'a [Hop]) -> Self {
        let mut leaving = vec![Vec::new(); nodes];
        for (index, hop) in hops.iter().enumerate() {
            leaving[hop.from.0].push(LinkIndex(index));
        }
        Self {
            hops,
            leaving,
            trees: BTreeMap::new(),
        }
    }

    /// The links through all `stops` in order; `None` where a part has no route.
    pub fn through(&mut self, stops: &[NodeIndex]) -> Option<Vec<LinkIndex>> {
        let mut route = Vec::new();
        for ends in stops.windows(2) {
            route.extend(self.between(ends[0], ends[1])?);
        }
        Some(route)
    }

    /// The links through `via` that do not pass an end on their way: one of several paths.
    pub fn past(&self, from: NodeIndex, via: NodeIndex, to: NodeIndex) -> Option<Vec<LinkIndex>> {
        let mut route = self.walk(&self.tree(from, Some(to)), from, via)?;
        route.extend(self.walk(&self.tree(via, Some(from)), via, to)?);
        Some(route)
    }

    fn between(&mut self, from: NodeIndex, to: NodeIndex) -> Option<Vec<LinkIndex>> {
        if !self.trees.contains_key(&from) {
            let tree = self.tree(from, None);
            self.trees.insert(from, tree);
        }
        self.walk(self.trees.get(&from)?, from, to)
    }

    /// The links from the root of a tree to a node.
    fn walk(
        &self,
        tree: &[Option<LinkIndex>],
        from: NodeIndex,
        to: NodeIndex,
    ) -> Option<Vec<LinkIndex>> {
        let mut route = Vec::new();
        let mut at = to;
        while at != from {
            let link = tree[at.0]?;
            route.push(link);
            at = self.hops[link.0].from;
        }
        route.reverse();
        Some(route)
    }

    /// For each node the link by which it is reached from `source`, never through `closed`.
    fn tree(&self, source: NodeIndex, closed: Option<NodeIndex>) -> Vec<Option<LinkIndex>> {
        let mut best = vec![(Duration::MAX, u32::MAX); self.leaving.len()];
        let mut reached_by = vec![None; self.leaving.len()];
        best[source.0] = (Duration::ZERO, 0);
        let mut open = BinaryHeap::from([Reverse((best[source.0], source))]);
        while let Some(Reverse((cost, node))) = open.pop() {
            if cost > best[node.0] || Some(node) == closed {
                continue;
            }
            for &link in &self.leaving[node.0] {
                let hop = self.hops[link.0];
                let next = (cost.0.saturating_add(hop.delay), cost.1 + 1);
                if next < best[hop.to.0] {
                    best[hop.to.0] = next;
                    reached_by[hop.to.0] = Some(link);
                    open.push(Reverse((next, hop.to)));
                }
            }
        }
        reached_by
    }
}
