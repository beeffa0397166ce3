//! What a body holds at a time: bytes that were allocated and not freed, in its thread and in those that
//! it has join it. The highest count is kept, so that nothing is missed between two checks.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicIsize, Ordering};

/// Bytes of the threads that share it.
#[derive(Default)]
struct Account {
    live: AtomicIsize,
    peak: AtomicIsize,
}

thread_local! {
    // Neither lazy nor dropped, so that an allocator may use it.
    static ACCOUNT: Cell<Option<&'static Account>> = const { Cell::new(None) };
}

/// Accounts that nobody uses: a fuzzer opens one for each input.
static SPARE: Mutex<Vec<&'static Account>> = Mutex::new(Vec::new());

fn count(bytes: isize) {
    // A thread that ends frees what is left after its own values.
    let _ = ACCOUNT.try_with(|account| {
        if let Some(account) = account.get() {
            let live = account.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
            account.peak.fetch_max(live, Ordering::Relaxed);
        }
    });
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

/// Holds a body to what it may hold, until it is dropped: after everything that the body's threads use.
pub struct Watch {
    account: &'static Account,
    most: usize,
    briefly: usize,
}

impl Watch {
    /// From here on this thread and those that [join](Watch::joiner) may hold `most` bytes more than now.
    pub fn allow(most: usize) -> Self {
        let spare = SPARE.lock().expect("nobody panics with it").pop();
        let account = spare.unwrap_or_else(|| Box::leak(Box::default()));
        account.live.store(0, Ordering::Relaxed);
        account.peak.store(0, Ordering::Relaxed);
        ACCOUNT.with(|own| assert!(own.replace(Some(account)).is_none(), "one at a time"));
        Self {
            account,
            most,
            briefly: 0,
        }
    }

    /// Between two checks so many bytes more may be held.
    #[allow(dead_code)] // not by every body
    pub fn and_briefly(mut self, briefly: usize) -> Self {
        self.briefly = briefly;
        self
    }

    /// From now on `more` may be held beyond that, at any moment.
    #[allow(dead_code)] // not by every body
    pub fn raise(&mut self, more: usize) {
        self.most += more;
    }

    /// To be called first in each further thread of the body.
    #[allow(dead_code)] // not every body has some
    pub fn joiner(&self) -> impl Fn() + Send + Sync + 'static {
        let account = self.account;
        move || ACCOUNT.with(|own| own.set(Some(account)))
    }

    /// That no more is held now, nor was at any moment before.
    pub fn check(&self) {
        let at = |count: &AtomicIsize| count.load(Ordering::Relaxed);
        let (held, peak) = (at(&self.account.live), at(&self.account.peak));
        let (most, ever) = (self.most as isize, (self.most + self.briefly) as isize);
        assert!(held <= most, "{held} bytes are held, {most} may be");
        assert!(peak <= ever, "{peak} bytes were held, {ever} may be");
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        ACCOUNT.with(|own| own.set(None));
        SPARE
            .lock()
            .expect("nobody panics with it")
            .push(self.account);
    }
}
