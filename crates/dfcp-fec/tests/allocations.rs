//! The dense code allocates per block, never per symbol. Each thread counts its own allocations: the
//! harness's main thread allocates while the test runs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use dfcp_fec::{BlockSpec, SchemeId, scheme};

thread_local! {
    // Without a destructor and constant at first: reading it allocates nothing.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn counted(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn dense_allocates_per_block_only() {
    let (k, size) = (256u32, 1280);
    let spec = BlockSpec::new(k, size, 5).unwrap();
    let mut encoder = scheme(SchemeId::Dense)
        .encoder(spec, vec![3; spec.source_len()])
        .unwrap();
    let received: Vec<u32> = (0..k).filter(|esi| esi % 8 != 3).chain(k..k + 40).collect();
    let mut symbols: Vec<Vec<u8>> = received.iter().map(|_| vec![0; 1280]).collect();
    let written = counted(|| {
        for (&esi, symbol) in received.iter().zip(&mut symbols) {
            encoder.write_symbol(esi, symbol).unwrap();
        }
    });
    assert_eq!(written, 0, "write_symbol");

    let mut decoder = scheme(SchemeId::Dense).decoder(spec, Vec::new()).unwrap();
    let empty = decoder.memory();
    let mut late = 0;
    let pushed = counted(|| {
        for (&esi, symbol) in received.iter().zip(&symbols) {
            // The push that makes the block solvable inverts a matrix: once per block.
            let allocations = counted(|| assert!(decoder.push(esi, symbol).is_ok()));
            late = late.max(allocations);
        }
    });
    assert_eq!(decoder.needed(), 0);
    // The list of 32 repair symbols grows a few times, and the inversion takes a few vectors.
    assert!(
        pushed <= 16 && late <= 8,
        "{pushed} allocations, {late} in one push"
    );
    assert!(
        decoder.memory() - empty < 4096,
        "repair symbols take no memory of their own"
    );
    assert!(counted(|| assert!(decoder.solve().unwrap())) <= 8, "solve");
    assert!(decoder.into_buffer() == vec![3; spec.source_len()]);
}
