//! Which flows a fair queue keeps apart, and how much of the link each is due.

use crate::packet::FlowId;

/// The classes of a fair queue and their weights: DRR and WFQ divide the link among the classes
/// that have packets waiting, by weight.
///
/// A flow that is not named is a class of its own, of weight one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    weights: Vec<u32>,
    /// By flow: its class, an index into `weights`.
    class_of: Vec<Option<u32>>,
}

impl Shares {
    /// Every flow a class of its own, of weight one.
    pub fn equal() -> Self {
        Self::default()
    }

    /// Makes one class of all these flows together, and gives it this weight; a flow named twice
    /// belongs to its latest class. A weight of zero counts as one.
    #[must_use]
    pub fn class(mut self, weight: u32, flows: impl IntoIterator<Item = FlowId>) -> Self {
        let class = self.weights.len() as u32;
        self.weights.push(weight.max(1));
        for flow in flows {
            *slot(&mut self.class_of, flow) = Some(class);
        }
        self
    }

    /// Makes this flow a class of its own, of this weight.
    #[must_use]
    pub fn weight(self, flow: FlowId, weight: u32) -> Self {
        self.class(weight, [flow])
    }
}

/// The place of a flow in a table by flow; flows are dense from zero.
fn slot(table: &mut Vec<Option<u32>>, flow: FlowId) -> &mut Option<u32> {
    let index = flow.0 as usize;
    if table.len() <= index {
        table.resize(index + 1, None);
    }
    &mut table[index]
}

/// The shares in force: classes are numbered as they are needed.
#[derive(Clone, Debug)]
pub(super) struct Classes(Shares);

impl Classes {
    pub(super) fn new(shares: Shares) -> Self {
        Self(shares)
    }

    /// The class of a flow; a flow not seen before gets one.
    pub(super) fn of(&mut self, flow: FlowId) -> usize {
        let Shares { weights, class_of } = &mut self.0;
        let class = slot(class_of, flow).get_or_insert_with(|| {
            weights.push(1);
            weights.len() as u32 - 1
        });
        *class as usize
    }

    /// The class of a flow, if it has one by now.
    #[cfg(test)]
    pub(super) fn find(&self, flow: FlowId) -> Option<usize> {
        let class = self.0.class_of.get(flow.0 as usize)?;
        class.map(|class| class as usize)
    }

    pub(super) fn weight(&self, class: usize) -> u32 {
        self.0.weights[class]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_apart_unless_put_together() {
        let shares = Shares::equal()
            .class(3, [FlowId(4), FlowId(5)])
            .weight(FlowId(7), 0);
        let mut classes = Classes::new(shares);
        assert_eq!(classes.find(FlowId(0)), None);
        let [a, b, c, d, e] = [4, 5, 7, 0, 9].map(|flow| classes.of(FlowId(flow)));
        assert_eq!(a, b);
        assert_eq!([a, c, d, e], [0, 1, 2, 3]);
        let weights = [a, c, d, e].map(|class| classes.weight(class));
        assert_eq!(weights, [3, 1, 1, 1]);
        assert_eq!(classes.of(FlowId(9)), e);
        assert_eq!(classes.find(FlowId(9)), Some(e));
    }
}
