//! The LDPC pre-code: every message node has a number of check nodes, drawn for it in turn; a check
//! node is the sum of its message nodes, so that it and they sum to zero (DFCP-J eq. (1)).

use super::RaptorParameters;

/// Check nodes and their message nodes.
#[derive(Debug)]
pub(super) struct Precode {
    /// Where the lists of the check nodes start in `nodes`, and the end of the last.
    starts: Vec<u32>,
    /// Message nodes of check node 0 and then check node 0 itself, of check node 1, …
    nodes: Vec<u16>,
    /// Check nodes of message node 0, of message node 1, …, as many each.
    checks: Vec<u16>,
    degree: usize,
}

impl Precode {
    /// Draws the graph. A check node that a message node has already is drawn again.
    pub(super) fn new(parameters: &RaptorParameters) -> Self {
        let (k, checks) = (parameters.k, parameters.n - parameters.k);
        let degree = checks.min(parameters.ldpc_degree.into()) as usize;
        let mut edges = Vec::with_capacity(k as usize * degree);
        let mut state = parameters.precode;
        for message in 0..k {
            let first = edges.len();
            while edges.len() < first + degree {
                let edge = (state.below(checks), message as u16);
                if !edges[first..].contains(&edge) {
                    edges.push(edge);
                }
            }
        }
        Self {
            checks: edges.iter().map(|&(check, _)| check as u16).collect(),
            degree,
            ..Self::sorted(k, checks, &edges)
        }
    }

    /// Edges by check node, messages ascending.
    fn sorted(k: u32, checks: u32, edges: &[(u32, u16)]) -> Self {
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
            checks: Vec::new(),
            degree: 0,
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
        &self.checks[message * self.degree..][..self.degree]
    }

    /// Adds message nodes of one byte to their check nodes: these stay in the first-level cache,
    /// and message nodes are read in order.
    pub(super) fn add_bytes(&self, messages: impl Iterator<Item = u8>, checks: &mut [u8]) {
        let mut add = |byte: u8, own: &[u16]| {
            for &check in own {
                checks[usize::from(check)] ^= byte;
            }
        };
        if self.degree == 4 {
            let lists = self.checks.as_chunks::<4>().0;
            let pairs = messages.zip(lists);
            pairs.for_each(|(byte, list)| add(byte, list));
        } else if self.degree > 0 {
            let lists = self.checks.chunks_exact(self.degree);
            let pairs = messages.zip(lists);
            pairs.for_each(|(byte, list)| add(byte, list));
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
        self.starts.capacity() * size_of::<u32>()
            + (self.nodes.capacity() + self.checks.capacity()) * size_of::<u16>()
    }
}
