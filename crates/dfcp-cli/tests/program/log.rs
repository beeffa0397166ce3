//! What a receiver says may find no reader, or no room; the receiver stays.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;

use crate::common::{Bench, run};

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

#[cfg(target_os = "linux")]
#[test]
fn a_service_outlives_a_disk_that_is_full_of_its_log() {
    let bench = Bench::new();
    let file = bench.write("file", 1000);
    for form in ["text", "json"] {
        // The system gives it to nobody else so soon.
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = free.local_addr().unwrap().to_string();
        drop(free);
        let text = format!(
            "listen = {at:?}\nlog = {form:?}\nkey = {:?}\n[recv]\noutput-dir = {:?}\nallow = [{:?}]\n",
            bench.path("receiver.key"),
            bench.path(form),
            bench.sender_key
        );
        let settings = bench.path("serve.toml");
        std::fs::write(&settings, text).unwrap();
        let mut service = bench
            .program()
            .arg("serve")
            .arg(&settings)
            .stderr(File::options().write(true).open("/dev/full").unwrap())
            .spawn()
            .unwrap();
        for _ in 0..2 {
            let (code, ..) = run(bench.sender().arg(&file).arg(&at));
            assert_eq!(code, 0, "{form}");
        }
        assert!(service.try_wait().unwrap().is_none(), "{form}");
        service.kill().unwrap();
        service.wait().unwrap();
    }
}
