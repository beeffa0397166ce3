//! The published code allocates per block, never per packet or symbol, and not what a hostile peer
//! asks for. Each thread counts its own: the harness's main thread allocates while the test runs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use dfcp_fec::raptor::{Degrees, RaptorCode, RaptorParameters, State};

thread_local! {
    // Without destructors and constant at first: reading them allocates nothing.
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        BYTES.set(BYTES.get() + layout.size());
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

/// Allocations that `work` makes, and bytes of them.
fn counted(work: impl FnOnce()) -> (usize, usize) {
    let before = (COUNT.get(), BYTES.get());
    work();
    (COUNT.get() - before.0, BYTES.get() - before.1)
}

#[test]
fn allocations_are_bounded() {
    let good = RaptorParameters::published(State::from_seed(1));
    for (k, n) in [(u32::MAX, u32::MAX), (63_536, u32::MAX), (0, 5)] {
        let parameters = RaptorParameters {
            k,
            n,
            ..good.clone()
        };
        let refused = || assert!(RaptorCode::new(parameters).is_err());
        assert_eq!(counted(refused), (0, 0), "k = {k}, n = {n}");
    }

    // Later blocks have what earlier ones left: a plan is made for packets that come a second time, and
    // has its tables when they come a third time.
    let code = RaptorCode::new(good).unwrap();
    let initial = State::from_seed(3);
    let mut buffers = (vec![7; 63_536], Vec::new());
    for round in 0..5 {
        let encoder = code.encoder(buffers.0).unwrap();
        let mut packets = vec![0u8; 48 * 1456];
        let written = counted(|| {
            for (index, packet) in (0..).zip(packets.chunks_mut(1456)) {
                encoder.write_symbols(initial.of_packet(0, index), packet);
            }
        });
        assert!(round == 0 || written.0 == 0, "{} to write", written.0);
        let mut decoder = code.decoder(buffers.1);
        let pushed = counted(|| {
            for (index, packet) in (0..).zip(packets.chunks(1456)) {
                decoder
                    .push(initial.of_packet(0, index), 1456, packet)
                    .unwrap();
            }
        });
        // Vectors that grow, nodes of the set of states.
        assert!(
            pushed.0 < 30 && pushed.1 < 4 * packets.len(),
            "{pushed:?} to push"
        );
        let solved = counted(|| assert!(decoder.solve()));
        assert!(
            round == 0 || round < 3 && solved.0 < 100 || solved.0 == 0,
            "{} to solve block {round}",
            solved.0
        );
        buffers = (encoder.into_buffer(), decoder.into_buffer());
        assert!(buffers.0 == buffers.1);
    }

    // Packets whose first symbol has a large degree, as many as fit: no quadratic memory.
    let n = 20_000;
    let code = RaptorCode::new(RaptorParameters {
        k: n,
        n,
        degrees: Degrees::IdealSoliton,
        ..code.parameters().clone()
    });
    let code = code.unwrap();
    let mut decoder = code.structural_decoder();
    let large = (0..)
        .map(|index| initial.of_packet(1, index))
        .filter(|state| {
            // Degrees above 2000 of the ideal soliton.
            let first = state.clone().next_u32();
            first > u32::MAX - u32::MAX / 2000
        });
    for state in large.take(25_000) {
        decoder.push(state, 1, &[]).unwrap();
    }
    decoder.limit_inactivation(64);
    let (_, bytes) = counted(|| assert!(!decoder.solve()));
    // Twice the mean of about 11 outputs for each symbol that a block takes, 10 bytes each, and
    // growing vectors are counted twice.
    assert!(bytes < 40 << 20, "{bytes} bytes");
}
