//! What a body holds at a time: bytes that its thread allocated and has not freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Neither lazy nor dropped, so that an allocator may use it.
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends frees what is left after its own values.
    let _ = LIVE.try_with(|live| live.set(live.get().wrapping_add(bytes)));
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller's.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Holds bodies to what they may hold.
pub struct Watch {
    before: isize,
    most: usize,
}

impl Watch {
    /// From here on this thread may hold `most` bytes more than it does now.
    pub fn allow(most: usize) -> Self {
        let before = LIVE.with(Cell::get);
        Self { before, most }
    }

    /// To be asked while the body runs: what was freed since is not seen.
    pub fn check(&self) {
        let held = LIVE.with(Cell::get) - self.before;
        let most = self.most;
        assert!(
            held <= most as isize,
            "{held} bytes are held, {most} may be"
        );
    }
}
