//! Who reads what a receiver says may go; the receiver stays.

mod common;

use std::io::{BufRead, BufReader};

use common::{Bench, run};

#[test]
fn a_receiver_outlives_who_reads_its_log() {
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
    // Nobody reads what is said any more.
    drop(said);
    let (code, ..) = run(bench.sender().arg(&file).arg(address));
    assert_eq!(code, 0);
    assert!(receiver.try_wait().unwrap().is_none());
    receiver.kill().unwrap();
    receiver.wait().unwrap();
}
