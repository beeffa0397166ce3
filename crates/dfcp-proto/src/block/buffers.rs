//! Buffers of blocks, used again: a fresh large allocation costs a page fault every 4 KiB.

/// Buffers kept at most.
const MOST: usize = 16;
/// Symbols of blocks that are longer than one are at least as long, bytes: padding is below one byte for each.
const LEAST_SYMBOL: usize = 512;

/// Buffers of blocks that have arrived, which the next blocks of a connection are put into.
#[derive(Debug, Default)]
pub struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    /// An empty one, with whatever capacity it has.
    pub fn take(&mut self) -> Vec<u8> {
        let mut buffer = self.0.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Keeps one; what it holds is not worth clearing.
    pub fn keep(&mut self, buffer: Vec<u8>) {
        if self.0.len() < MOST && buffer.capacity() > 0 {
            self.0.push(buffer);
        }
    }

    /// Lets go of so many that those kept have no more than `bytes`: who sends nothing needs none.
    pub fn trim(&mut self, bytes: u64) {
        let held = |buffers: &[Vec<u8>]| -> u64 {
            let capacities = buffers.iter().map(|buffer| buffer.capacity() as u64);
            capacities.sum()
        };
        while held(&self.0) > bytes && self.0.pop().is_some() {}
    }

    /// `buffer`, or its bytes in one of their length and padding if it has twice as much room: what waits for
    /// long counts as its bytes.
    pub fn fit(&mut self, buffer: Vec<u8>) -> Vec<u8> {
        if buffer.capacity() / 2 <= buffer.len() {
            return buffer;
        }
        let mut own = Vec::with_capacity(buffer.len() + buffer.len() / LEAST_SYMBOL + 1);
        own.extend_from_slice(&buffer);
        self.keep(buffer);
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_by_number_and_by_bytes() {
        let mut buffers = Buffers::default();
        for _ in 0..2 * MOST {
            buffers.keep(Vec::with_capacity(1000));
        }
        buffers.keep(Vec::new());
        assert_eq!(buffers.0.len(), MOST);
        buffers.trim(5500);
        assert_eq!(buffers.0.len(), 5);
        assert_eq!(buffers.take().capacity(), 1000);
        buffers.trim(0);
        assert_eq!(buffers.take().capacity(), 0);
    }

    #[test]
    fn a_few_bytes_leave_a_large_buffer_to_others() {
        let mut buffers = Buffers::default();
        let mut large = Vec::with_capacity(1000);
        large.extend([7; 400]);
        let fit = buffers.fit(large);
        assert_eq!((fit.as_slice(), fit.capacity()), (&[7; 400][..], 401));
        let kept = buffers.take();
        assert_eq!((kept.len(), kept.capacity()), (0, 1000));
        // Where it is half full it stays.
        let mut large = kept;
        large.extend([7; 500]);
        assert_eq!(buffers.fit(large).capacity(), 1000);
    }
}
