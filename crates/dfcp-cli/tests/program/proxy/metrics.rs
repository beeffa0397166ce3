//! What both sides tell Prometheus.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::{said_by, server, web};
use crate::common::proxying::{client, http, metrics_in, port_in, socks};
use crate::common::{Bench, bytes, eventually, wait};

/// The value of a sample.
fn sample(page: &str, name: &str) -> f64 {
    let mut lines = page.lines().filter_map(|line| line.rsplit_once(' '));
    let found = lines.find(|(sample, _)| *sample == name);
    found
        .unwrap_or_else(|| panic!("no {name} in {page}"))
        .1
        .parse()
        .unwrap()
}

#[test]
fn both_sides_tell_prometheus_what_they_carry() {
    let (bench, page) = (Bench::new(), bytes("page", 300_000));
    let server = server(&bench, &["--permit", "127.0.0.1/32", "--metrics", "0"]);
    let there = metrics_in(&server.says("metrics at"));
    let web = web(page.clone());
    let mut child = client(&bench, server.address, &["--socks", "0", "--metrics", "0"])
        .spawn()
        .unwrap();
    let mut lines = said_by(&mut child);
    let here = metrics_in(&lines.find(|line| line.contains("metrics at")).unwrap());
    let port = port_in(&lines.find(|line| line.contains("SOCKS5")).unwrap());
    let (mut tcp, reply) = socks(port, 1, web);
    assert_eq!(reply, 0);
    tcp.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut heard = Vec::new();
    tcp.read_to_end(&mut heard).unwrap();
    assert!(heard.ends_with(&page));
    // 10.0.0.1 is not permitted.
    assert_eq!(socks(port, 1, "10.0.0.1:80".parse().unwrap()).1, 2);
    let get = |at, path: &str| {
        http(
            at,
            format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(),
        )
    };
    for (at, down) in [(there, "sent"), (here, "received")] {
        let page = get(at, "/metrics");
        assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
        let streams = |status| {
            sample(
                &page,
                &format!("dfcp_proxy_streams_total{{status=\"{status}\"}}"),
            )
        };
        assert_eq!((streams("connected"), streams("forbidden")), (1.0, 1.0));
        let carried =
            format!("dfcp_proxy_carried_bytes_total{{kind=\"tcp\",direction=\"{down}\"}}");
        assert!(sample(&page, &carried) >= 300_000.0, "{page}");
        assert_eq!(sample(&page, "dfcp_connections"), 1.0);
        assert_eq!(sample(&page, "dfcp_connections_established_total"), 1.0);
        assert!(sample(&page, "dfcp_queueing_seconds_count") > 0.0);
        assert!(page.contains("dfcp_smoothed_rtt_seconds{connection=\"0\",peer=\"dfcp-pub-"));
        assert!(get(at, "/healthz").ends_with("\r\n\r\nok\n"));
    }
    let of_key = format!(
        "dfcp_proxy_key_carried_bytes_total{{peer=\"{}\",direction=\"sent\"}}",
        bench.sender_key
    );
    assert!(sample(&get(there, "/metrics"), &of_key) >= 300_000.0);
    assert!(sample(&get(here, "/metrics"), "dfcp_goodput_bytes_total") >= 300_000.0);

    // Requests that are none, and clients that say nothing, keep nobody else waiting.
    let silent: Vec<_> = (0..30)
        .map(|_| TcpStream::connect(there).unwrap())
        .collect();
    for (request, status) in [
        (&b"POST /metrics HTTP/1.1\r\n\r\n"[..], "405"),
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"GET /metrics\r\n\r\n", "400"),
        (b"\xff\xfe\r\n\r\n", "400"),
        (&[b'a'; 8 << 10], "431"),
    ] {
        let answer = http(there, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
    let head = http(there, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    drop(silent);

    // Without its server the client is not well.
    server.signal(nix::sys::signal::Signal::SIGTERM);
    eventually("it notices", || {
        get(here, "/healthz").starts_with("HTTP/1.1 503 ")
    });
    child.kill().unwrap();
    wait(&mut child);
}
