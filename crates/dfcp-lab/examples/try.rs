use dfcp_lab::*; use dfcp_lab::peer::*; use std::time::*;
fn main() {
    let src = std::path::Path::new("/dev/shm/p-src");
    let small = std::path::Path::new("/dev/shm/p-small");
    std::fs::write(small, &std::fs::read(src).unwrap()[..150000]).unwrap();
    let programs = Programs::beside("/tmp/target-peers/release/dfcp".into());
    println!("{:?}", programs.versions());
    let names: Vec<String> = std::env::args().skip(1).collect();
    let peers: Vec<Peer> = if names.is_empty() { Peer::all() } else { names.iter().map(|n| n.parse().unwrap()).collect() };
    let (a, b) = (Host, Host);
    for (i, peer) in peers.iter().enumerate() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let port = 20000 + i as u16;
        let told = plan::Told { sink: b.ipv4(), port, inner: 30000 + 10 * i as u16, rate_bps: 1_000_000_000, round_trip: Duration::from_millis(1), folder: dir.path().into() };
        let mut s = match Session::start(peer, Ends { source: &a, sink: &b }, &told, &programs) { Ok(s) => s, Err(e) => { println!("{peer}: {e}"); continue } };
        for (f, size) in [(small, 150_000), (small, 150_000), (src, 100_000_000)] {
            let t = s.transfer(&Work { source: f, size, limit: Duration::from_secs(8), look: Duration::from_millis(1) });
            println!("{peer}: {t:?}");
        }
        println!("{peer}: tunnel {:?}", s.stop());
    }
}
