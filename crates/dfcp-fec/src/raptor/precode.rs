//! The LDPC pre-code: every message node has a number of check nodes, drawn for it in turn; a check
//! node is the sum of its message nodes, so that it and they sum to zero (DFCP-J eq. (1)).

use super::RaptorParameters;
use super::taus88::State;

/// Check nodes and their message nodes.
#[derive(Debug)]
pub(super) struct Precode {
    /// Where the lists of the check nodes start in `nodes`, and the end of the last.
    starts: Vec<u32>,
    /// Message nodes of check node 0 and then check node 0 itself, of check node 1, …
    nodes: Vec<u16>,
}

impl Precode {
    /// Draws the graph: `ldpc_degree` outputs for each message node, none if there are no checks.
    pub(super) fn new(parameters: &RaptorParameters) -> Self {
        let (k, checks) = (parameters.k, parameters.n - parameters.k);
        let degree = u32::from(parameters.ldpc_degree) * u32::from(checks > 0);
        let mut drawn = Vec::with_capacity((k * degree) as usize);
        let mut state: State = parameters.precode;
        let mut mine = Vec::with_capacity(degree as usize);
        for message in 0..k {
            mine.clear();
            for _ in 0..degree {
                let check = state.below(checks);
                // Drawn twice, it cancels: check ← check ⊕ message ⊕ message.
                match mine.iter().position(|&other| other == check) {
                    Some(at) => drop(mine.swap_remove(at)),
                    None => mine.push(check),
                }
            }
            drawn.extend(mine.iter().map(|&check| (check, message as u16)));
        }
        Self::sorted(k, checks, &drawn)
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
        Self { starts, nodes }
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

    /// Most nodes of any list.
    pub(super) fn max_degree(&self) -> usize {
        (0..self.checks())
            .map(|check| self.nodes(check).len())
            .max()
            .unwrap_or(0)
    }

    pub(super) fn memory(&self) -> usize {
        self.starts.capacity() * size_of::<u32>() + self.nodes.capacity() * size_of::<u16>()
    }
}
