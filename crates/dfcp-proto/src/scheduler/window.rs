//! DFCP's rule (DFCP-J §4.5): blocks of a window get symbols for (1 + ε) of what they need, without
//! a word about loss, until they are acknowledged.

use super::{BlockScheduler, BlockView};
use crate::packet::Loss;

/// A window of blocks with redundancy ε.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    blocks: usize,
    epsilon: f64,
}

impl Window {
    /// At most `blocks` unacknowledged blocks (at least one), each sent with redundancy `epsilon`
    /// (0.05 is 5 %; negative or not a number counts as none).
    pub fn new(blocks: usize, epsilon: f64) -> Self {
        Self {
            blocks: blocks.max(1),
            epsilon: epsilon.max(0.0),
        }
    }
}

impl BlockScheduler for Window {
    fn deficit(&self, block: &BlockView, _loss: Loss) -> u32 {
        if block.needed == 0 {
            return 0;
        }
        let redundancy = (f64::from(block.k) * self.epsilon).ceil() as u32;
        let wanted = block.needed.saturating_add(redundancy);
        wanted.saturating_sub(block.in_flight)
    }

    fn max_open_blocks(&self) -> usize {
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deficit(needed: u32, in_flight: u32, loss: f64) -> u32 {
        let block = BlockView::new(100, needed, in_flight, false);
        Window::new(4, 0.05).deficit(&block, Loss::known(loss))
    }

    #[test]
    fn a_block_is_sent_with_its_redundancy_whatever_the_loss() {
        for loss in [0.0, 0.5] {
            assert_eq!(deficit(100, 0, loss), 105);
            assert_eq!(deficit(100, 105, loss), 0);
        }
    }

    #[test]
    fn a_block_gets_symbols_until_it_is_acknowledged() {
        assert_eq!(deficit(1, 0, 0.0), 6);
        assert_eq!(deficit(0, 0, 0.0), 0);
    }
}
