//! What becomes of a process in which something panics. Each test starts itself again as that
//! process.

use std::process::{Command, ExitCode, Output};
use std::time::Duration;

const CHILD: &str = "DFCP_TEST_CHILD";

/// Runs this test again in a process of its own.
fn again(test: &str) -> Output {
    let program = std::env::current_exe().expect("runs");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture"]);
    command.env(CHILD, "1").output().expect("starts")
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn a_task_that_panics_ends_a_process_that_waits_for_it() {
    if is_child() {
        dfcp_command::panic::ends_the_process();
        let _: Result<(), _> = dfcp_command::block_on(async {
            tokio::spawn(async { panic!("the reason") });
            std::future::pending().await
        });
    }
    let out = again("a_task_that_panics_ends_a_process_that_waits_for_it");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the reason") && said.contains("panic.rs"),
        "{said}"
    );
    assert!(said.contains("please report"), "{said}");
}

#[test]
fn a_panic_that_is_caught_ends_nothing_and_one_after_it_does() {
    if is_child() {
        dfcp_command::panic::ends_the_process();
        let caught = dfcp_command::panic::caught(|| -> ExitCode { panic!("number {}", 1) });
        assert_eq!(caught.unwrap_err(), "number 1");
        let thread = std::thread::spawn(|| panic!("number {}", 2));
        std::thread::park_timeout(Duration::from_secs(60));
        drop(thread);
        return;
    }
    let out = again("a_panic_that_is_caught_ends_nothing_and_one_after_it_does");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("number 2"), "{said}");
}
