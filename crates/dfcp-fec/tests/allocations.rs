//! The dense code allocates per block, never per symbol, and a solve of RaptorQ no more than it says. Each
//! thread counts its own allocations: the harness's main thread allocates while a test runs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use dfcp_fec::{BlockSpec, SchemeId, scheme};

thread_local! {
    // Without a destructor and constant at first: reading it allocates nothing.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    LIVE.set(LIVE.get() + bytes);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        count(layout.size() as isize);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
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

/// Bytes that `work` holds at most beyond what was held before.
fn peak(work: impl FnOnce()) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    work();
    (PEAK.get() - before) as usize
}

/// ESIs that a sender may choose.
fn choices(k: u32) -> Vec<(&'static str, Vec<u32>)> {
    // xorshift32 (Marsaglia 2003).
    let mut state = 0x9e37_79b9_u32;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state & 0xff_ffff
    };
    let some = k / 10 + 1;
    vec![
        ("a tenth lost", (some..k + some).collect()),
        ("repair symbols only", (k..2 * k).collect()),
        ("many more than needed", (k..2 * k + 300).collect()),
        (
            "in steps of 256",
            (0..k)
                .map(|i| k + (i << 8) % 0xff_0000 + (i >> 12))
                .collect(),
        ),
        (
            "at random",
            (0..k + 50).map(|_| k + random() % 0xf0_0000).collect(),
        ),
        (
            "half at random",
            (0..k / 2)
                .chain((k / 2..k).map(|_| k + random() % 0xf0_0000))
                .collect(),
        ),
    ]
}

#[test]
fn a_solve_of_raptorq_takes_no_more_memory_than_it_says() {
    for (k, size) in [
        (1, 64),
        (10, 1280),
        (64, 1280),
        (300, 256),
        (1000, 1280),
        (8192, 256),
        (8192, 8),
    ] {
        for (name, esis) in choices(k) {
            let spec = BlockSpec::new(k, size, 0).unwrap();
            let mut decoder = scheme(SchemeId::RaptorQ).decoder(spec, Vec::new()).unwrap();
            for esi in esis {
                decoder.push(esi, &vec![7; size as usize]).unwrap();
            }
            let (said, operations) = (decoder.solve_memory(), decoder.solve_operations());
            let took = peak(|| {
                let _ = decoder.solve();
            });
            println!("K = {k}, T = {size}, {name}: {took} of {said} bytes");
            assert!(
                took <= said,
                "K = {k}, T = {size}, {name}: {took} of {said} bytes"
            );
            assert!(
                k < 1000 || operations == 0 || said < 4 * took,
                "{said} is said of {took}"
            );
        }
    }
}
