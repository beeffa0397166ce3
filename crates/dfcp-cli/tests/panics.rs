//! A panic in any task ends the program.

mod common;

use std::io::{BufRead, BufReader};

use common::{Bench, run, wait};

#[test]
fn a_session_that_panics_ends_the_receiver() {
    let bench = Bench::new();
    let file = bench.write("file", 1000);
    let mut receiver = bench.recv(&["--allow", &bench.sender_key]).spawn().unwrap();
    let mut said = BufReader::new(receiver.stderr.take().unwrap()).lines();
    let mut says = |words: &str| {
        let mut lines = said.by_ref().map_while(Result::ok);
        lines.find(|line| line.contains(words)).unwrap()
    };
    let listening = says("listening on ");
    let address = listening.rsplit(' ').next().unwrap();
    let (code, ..) = run(bench.sender().arg(&file).arg(address));
    assert_eq!(code, 0);
    says("connected");
    // A session says who connected, and panics where nothing can be said.
    drop(said);
    let (code, ..) = run(bench
        .sender()
        .args(["--timeout", "2s"])
        .arg(&file)
        .arg(address));
    assert_ne!(code, 0);
    assert_eq!(wait(&mut receiver).code(), Some(1));
}
