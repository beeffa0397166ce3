//! The LDPC pre-code: every message node has a number of check nodes, its degree, drawn for it in
//! turn; a check node is the sum of its message nodes, so that it and they sum to zero (DFCP-J
//! eq. (1)).

use super::degrees::DegreeTable;
use super::{MAX_LDPC_DEGREE, RaptorParameters};
use crate::error::FecError;
use std::ops::RangeInclusive;

/// Most degrees that message nodes may have.
pub const MAX_LDPC_DEGREES: usize = 8;

/// Degrees of the LDPC code's message nodes (DFCP-J §4.4: "a given probability distribution").
/// A message node has no more check nodes than there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LdpcDegrees {
    /// The same for all, 1 to [`MAX_LDPC_DEGREE`].
    Constant(u8),
    /// Drawn for each: 1 to [`MAX_LDPC_DEGREES`] degrees, ascending, each with a weight above zero.
    Weighted(Vec<(u8, u16)>),
}

impl LdpcDegrees {
    /// All of `degrees`, equally often.
    pub fn uniform(degrees: RangeInclusive<u8>) -> Self {
        Self::Weighted(degrees.map(|degree| (degree, 1)).collect())
    }

    /// Whether degrees and weights are within limits.
    pub(super) fn check(&self) -> Result<(), FecError> {
        let within = |degree| (1..=MAX_LDPC_DEGREE).contains(&degree);
        let fine = match self {
            Self::Constant(degree) => within(*degree),
            Self::Weighted(list) => {
                (1..=MAX_LDPC_DEGREES).contains(&list.len())
                    && list
                        .iter()
                        .all(|&(degree, weight)| within(degree) && weight > 0)
                    && list.is_sorted_by(|a, b| a.0 < b.0)
            }
        };
        fine.then_some(()).ok_or(FecError::Parameter("LDPC degree"))
    }

    fn table(&self) -> DegreeTable {
        let weights = match self {
            Self::Constant(degree) => vec![((*degree).into(), 1)],
            Self::Weighted(list) => {
                let wide = list
                    .iter()
                    .map(|&(degree, weight)| (degree.into(), weight.into()));
                wide.collect()
            }
        };
        DegreeTable::of_weights(weights)
    }
}

/// Check nodes and their message nodes.
#[derive(Debug)]
pub(super) struct Precode {
    /// Where the lists of the check nodes start in `nodes`, and the end of the last.
    starts: Vec<u32>,
    /// Message nodes of check node 0 and then check node 0 itself, of check node 1, …
    nodes: Vec<u16>,
    /// Check nodes of message node 0, of message node 1, …
    checks: Vec<u16>,
    lists: Lists,
}

/// Where the check nodes of a message node are among all.
#[derive(Debug)]
enum Lists {
    /// As many each.
    Equal(usize),
    /// The start of each, and the end of the last.
    Starts(Vec<u32>),
}

impl Precode {
    /// Draws the graph. A check node that a message node has already is drawn again.
    pub(super) fn new(parameters: &RaptorParameters) -> Self {
        let (k, checks) = (parameters.k, parameters.n - parameters.k);
        if checks == 0 {
            return Self::sorted(k, checks, &[], Lists::Equal(0));
        }
        let table = parameters.ldpc_degrees.table();
        let constant = table.degrees().len() == 1;
        let mut edges = Vec::with_capacity(k as usize * (table.mean().ceil() as usize));
        let mut starts = Vec::new();
        let mut state = parameters.precode;
        for message in 0..k {
            let first = edges.len();
            let degree = if constant {
                table.max()
            } else {
                starts.push(first as u32);
                table.draw(state.next_u32())
            };
            while edges.len() < first + degree.min(checks) as usize {
                let edge = (state.below(checks), message as u16);
                if !edges[first..].contains(&edge) {
                    edges.push(edge);
                }
            }
        }
        let lists = if constant {
            Lists::Equal(table.max().min(checks) as usize)
        } else {
            starts.push(edges.len() as u32);
            Lists::Starts(starts)
        };
        Self::sorted(k, checks, &edges, lists)
    }

    /// Edges by check node, messages ascending.
    fn sorted(k: u32, checks: u32, edges: &[(u32, u16)], lists: Lists) -> Self {
        let mut starts = vec![0u32; checks as usize + 1];
        for &(check, _) in edges {
            starts[check as usize + 1] += 1;
        }
        for check in 0..checks as usize {
            // One more for the check node's own entry.
            starts[check + 1] += starts[check] + 1;
        }
        let mut next = starts.clone();
        let mut nodes = vec![0; edges.len() + checks as usize];
        for &(check, message) in edges {
            let at = &mut next[check as usize];
            nodes[*at as usize] = message;
            *at += 1;
        }
        for check in 0..checks {
            nodes[next[check as usize] as usize] = (k + check) as u16;
        }
        Self {
            starts,
            nodes,
            checks: edges.iter().map(|&(check, _)| check as u16).collect(),
            lists,
        }
    }

    pub(super) fn checks(&self) -> usize {
        self.starts.len() - 1
    }

    /// Message nodes of a check node, ascending, then the check node itself.
    #[inline(always)]
    pub(super) fn nodes(&self, check: usize) -> &[u16] {
        &self.nodes[self.starts[check] as usize..self.starts[check + 1] as usize]
    }

    /// Message nodes of a check node.
    pub(super) fn messages(&self, check: usize) -> &[u16] {
        let nodes = self.nodes(check);
        &nodes[..nodes.len() - 1]
    }

    /// Check nodes of a message node.
    #[inline(always)]
    pub(super) fn checks_of(&self, message: usize) -> &[u16] {
        match &self.lists {
            Lists::Equal(degree) => &self.checks[message * degree..][..*degree],
            Lists::Starts(starts) => {
                &self.checks[starts[message] as usize..starts[message + 1] as usize]
            }
        }
    }

    /// Adds message nodes of one byte to their check nodes: these stay in the first-level cache,
    /// and message nodes are read in order.
    pub(super) fn add_bytes(&self, messages: impl Iterator<Item = u8>, checks: &mut [u8]) {
        let mut add = |byte: u8, own: &[u16]| {
            for &check in own {
                checks[usize::from(check)] ^= byte;
            }
        };
        match &self.lists {
            Lists::Equal(0) => {}
            Lists::Equal(4) => {
                let lists = self.checks.as_chunks::<4>().0;
                let pairs = messages.zip(lists);
                pairs.for_each(|(byte, list)| add(byte, list));
            }
            Lists::Equal(degree) => {
                let lists = self.checks.chunks_exact(*degree);
                let pairs = messages.zip(lists);
                pairs.for_each(|(byte, list)| add(byte, list));
            }
            Lists::Starts(starts) => {
                let pairs = messages.zip(starts.windows(2));
                pairs.for_each(|(byte, ends)| {
                    add(byte, &self.checks[ends[0] as usize..ends[1] as usize]);
                });
            }
        }
    }

    /// Most nodes of any list.
    pub(super) fn max_degree(&self) -> usize {
        (0..self.checks())
            .map(|check| self.nodes(check).len())
            .max()
            .unwrap_or(0)
    }

    pub(super) fn memory(&self) -> usize {
        let lists = match &self.lists {
            Lists::Equal(_) => 0,
            Lists::Starts(starts) => starts.capacity(),
        };
        (self.starts.capacity() + lists) * size_of::<u32>()
            + (self.nodes.capacity() + self.checks.capacity()) * size_of::<u16>()
    }
}
