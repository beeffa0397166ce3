//! What a panic does: it ends the process with a message and an exit code. A task or thread that
//! panics would otherwise leave the others waiting for it, and nobody would know why.

use std::any::Any;
use std::cell::Cell;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use crate::Kind;
use crate::output::ERR;

/// How long who reads standard error has for what is said at the end: longer than a log takes to start anew, and
/// short beside the half minute after which peers give a silent process up.
const LAST_WORDS: Duration = Duration::from_secs(5);

thread_local! {
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// From now on a panic of any thread ends the process with [`Kind::Failure`], after the message
/// that says where it was, or without it where nobody reads that.
#[expect(clippy::disallowed_methods)] // time is what a reader is given
pub fn ends_the_process() {
    let message = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if CAUGHT.get() {
            return message(panic);
        }
        // Where no thread is to be had the message alone decides when this ends.
        let _ = std::thread::Builder::new().spawn(|| {
            std::thread::sleep(LAST_WORDS);
            std::process::exit(Kind::Failure as i32);
        });
        ERR.wait_for_the_rest();
        message(panic);
        // Standard error may be gone too.
        let _ = writeln!(
            std::io::stderr(),
            "dfcp: this is a mistake in the program, which ends here; please report it"
        );
        std::process::exit(Kind::Failure as i32);
    }));
}

/// Runs what may fail alone: a panic in it is an error with its message.
///
/// # Errors
/// The panic's message.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    let outer = CAUGHT.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    CAUGHT.set(outer);
    result.map_err(|panic| text(&*panic))
}

fn text(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
    message.unwrap_or("no message").to_owned()
}
