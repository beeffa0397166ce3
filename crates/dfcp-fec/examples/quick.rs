#[path = "../benches/raptor/cpu_time.rs"]
mod cpu_time;
use cpu_time::cpu_time;
use dfcp_fec::raptor::{RaptorCode, RaptorParameters, State};
fn main() {
    let code = RaptorCode::new(RaptorParameters::published(State::from_seed(1))).unwrap();
    let k = 63536usize;
    let mut r = State::from_seed(77);
    let source: Vec<u8> = (0..k).map(|_| r.next_u32() as u8).collect();
    let encoder = code.encoder(source.clone()).unwrap();
    let mut buffer = Vec::new();
    let kinds: Vec<String> = std::env::args().skip(1).collect();
    let kinds: Vec<&str> = if kinds.is_empty() {
        vec!["same", "loss", "own"]
    } else {
        kinds.iter().map(|s| &s[..]).collect()
    };
    for kind in kinds {
        for percent in [5usize, 10] {
            let need = (k + k * percent / 100).div_ceil(1456);
            let total = (need * 100).div_ceil(95);
            let make = |b: u32| -> Vec<(State, Vec<u8>)> {
                (0..total as u32)
                    .map(|i| {
                        let s = State::from_seed(2).of_packet(b, i);
                        let mut v = vec![0; 1456];
                        encoder.write_symbols(s, &mut v);
                        (s, v)
                    })
                    .collect()
            };
            let blocks: Vec<_> = (0..if kind == "own" { 8 } else { 1 }).map(make).collect();
            let mut times = Vec::new();
            for i in 0..400 {
                let packets = &blocks[i % blocks.len()];
                let mut all: Vec<usize> = (0..total).collect();
                if kind == "same" {
                    all.truncate(need);
                }
                while all.len() > need {
                    all.remove((r.next_u32() as usize) % all.len());
                }
                let start = cpu_time();
                let mut d = code.decoder(std::mem::take(&mut buffer));
                for &p in &all {
                    d.push(packets[p].0, 1456, &packets[p].1).unwrap();
                }
                let ok = d.solve();
                buffer = d.into_buffer();
                let t = cpu_time() - start;
                if ok {
                    assert!(buffer == source);
                }
                if i >= 20 {
                    times.push(t.as_nanos() as f64 / k as f64);
                }
            }
            times.sort_by(f64::total_cmp);
            let m = times.iter().sum::<f64>() / times.len() as f64;
            println!(
                "{kind} {percent}: min {:.1} 10% {:.1} med {:.1} mean {m:.1} ns -> best {:.1} MB/s, 10% {:.1}, med {:.1}",
                times[0],
                times[times.len() / 10],
                times[times.len() / 2],
                1e3 / times[0],
                1e3 / times[times.len() / 10],
                1e3 / times[times.len() / 2]
            );
        }
    }
}
