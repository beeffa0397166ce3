//! What becomes of a process in which something panics. Each test starts itself again as that
//! process.

use std::io::Write;
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const CHILD: &str = "DFCP_TEST_CHILD";

/// This test again, in a process of its own.
fn child(test: &str) -> Command {
    let program = std::env::current_exe().expect("runs");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture"]);
    command.env(CHILD, "1");
    command
}

/// Runs it.
fn again(test: &str) -> Output {
    child(test).output().expect("starts")
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

#[test]
fn a_panic_ends_a_process_whose_standard_error_nobody_reads() {
    if is_child() {
        dfcp_command::panic::ends_the_process();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut stuck = std::io::stderr().lock();
            tell.send(()).unwrap();
            stuck.write_all(&[b'x'; 1 << 20])
        });
        told.recv().unwrap();
        panic!("nobody reads this");
    }
    let mut child = child("a_panic_ends_a_process_whose_standard_error_nobody_reads");
    let mut child = child.stderr(Stdio::piped()).spawn().expect("starts");
    let start = Instant::now();
    let code = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status.code(),
            None if start.elapsed() > Duration::from_secs(60) => {
                child.kill().unwrap();
                panic!("it waits for a reader");
            }
            None => std::thread::park_timeout(Duration::from_millis(20)),
        }
    };
    assert_eq!(code, Some(1));
}

#[test]
fn what_was_said_before_a_panic_is_not_lost() {
    const LINES: usize = 500;
    if is_child() {
        dfcp_command::panic::ends_the_process();
        dfcp_command::output::attended(|| {
            for i in 0..LINES {
                dfcp_command::tell!("line {i} {}", "x".repeat(10_000));
            }
            panic!("the last word");
        });
    }
    let mut again = child("what_was_said_before_a_panic_is_not_lost");
    // Finding names for a trace takes longer than writing lines.
    let out = again.env("RUST_BACKTRACE", "0").output().expect("starts");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1));
    let told: Vec<_> = said.lines().filter(|l| l.starts_with("line ")).collect();
    assert_eq!(told.len(), LINES);
    assert!(said.contains("the last word") && said.contains("please report"));
}
