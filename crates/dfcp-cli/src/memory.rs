//! Memory that the C library keeps: after a peak what is free lies between pieces that are in use, and it gives the
//! pages of that back only where it is asked to (malloc_trim(3)).

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// How often is looked: seldom beside what giving back costs, which is some tens of milliseconds for 200 MB.
const PERIOD: Duration = Duration::from_secs(10);
/// What is kept at least that it is worth it: more than a connection's buffers for reuse.
const WORTH: u64 = 16 << 20;

/// Gives back what is kept, while the process runs.
pub async fn give_back() {
    let mut looks = Looks::default();
    loop {
        sleep(PERIOD).await;
        if looks.rests() {
            let _ = spawn_blocking(sys::trim).await;
        }
    }
}

#[derive(Default)]
struct Looks {
    /// What was kept at the last one.
    before: u64,
}

impl Looks {
    /// Whether more was kept at two looks in a row than is in use. What comes and goes is left alone.
    fn rests(&mut self) -> bool {
        let (kept, used) = sys::kept_and_used();
        let rests = kept.min(std::mem::replace(&mut self.before, kept));
        rests > WORTH.max(used)
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod sys {
    /// Bytes that lie in memory and are free, and those in use.
    pub fn kept_and_used() -> (u64, u64) {
        // SAFETY: it takes nothing, gives numbers, and takes the locks that it needs.
        let told = unsafe { libc::mallinfo2() };
        let used = (told.uordblks + told.hblkhd) as u64;
        (anonymous().saturating_sub(used), used)
    }

    /// Bytes of the process in memory that no file has.
    fn anonymous() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        let kib: u64 = number.and_then(|kib| kib.parse().ok()).unwrap_or(0);
        kib * 1024
    }

    pub fn trim() {
        // SAFETY: it touches free memory alone, and takes the locks that it needs.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Other allocators give back by themselves, or cannot be asked.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod sys {
    pub fn kept_and_used() -> (u64, u64) {
        (0, 0)
    }

    pub fn trim() {}
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_after_a_peak_is_given_back_and_what_is_in_use_stays() {
        let mut looks = Looks::default();
        // What stays lies between what goes, as small things of streams lie between their buffers.
        let (mut goes, mut stays) = (Vec::new(), Vec::new());
        for n in 0..2000_usize {
            goes.push(vec![1_u8; 100_000]);
            stays.push(vec![n as u8; 1000]);
        }
        assert!(!looks.rests() && !looks.rests(), "it is in use");
        let (before, _) = sys::kept_and_used();
        drop(goes);
        let (peak, _) = sys::kept_and_used();
        assert!(peak > before + 150_000_000, "{peak}, {before} before");
        assert!(!looks.rests(), "it may be wanted again at once");
        assert!(looks.rests());
        sys::trim();
        let (after, _) = sys::kept_and_used();
        assert!(after < before + 20_000_000, "{after}, {before} before");
        assert!(
            stays
                .iter()
                .enumerate()
                .all(|(n, of)| *of == [n as u8; 1000])
        );
    }
}
