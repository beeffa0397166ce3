//! kcptun and hysteria2: a process on each side, and TCP through them.
//!
//! TCP enters at a port of the source host and leaves at one of the sink host, both on loopback.
//! The tunnel is up before a transfer begins, as it is in use.

use std::io;
use std::path::Path;

use super::plan::{Ready, Side, Step, Told, arguments};
use super::program::{Missing, Programs};

/// Where TCP enters, on the source host.
pub(super) fn entrance(told: &Told) -> u16 {
    told.inner
}

/// Where it leaves, on the sink host.
pub(super) fn exit(told: &Told) -> u16 {
    told.inner + 1
}

/// Bytes of a UDP datagram that fills an IPv4 packet of 1500.
const DATAGRAM: u64 = 1472;

/// kcptun as its users run it for speed: mode `fast3`, its default code of 10 data and 3 parity
/// shards, its default AES, no compression; windows beyond what the path holds, as it has no
/// congestion control that would fill less.
pub(super) fn kcptun(told: &Told, programs: &Programs) -> Result<Vec<Step>, Missing> {
    let client = programs.find("kcptun-client")?;
    let server = programs.find("kcptun-server")?;
    let window = format!("{}", kcptun_window(told));
    let common = || {
        let mut all = arguments![
            "--key",
            "comparison",
            "--mode",
            "fast3",
            "--nocomp",
            "--quiet"
        ];
        all.extend(arguments!["--mtu", DATAGRAM.to_string(), "--smuxver", "2"]);
        all.extend(arguments!["--sndwnd", &window, "--rcvwnd", &window]);
        all.extend(arguments!["--datashard", "10", "--parityshard", "3"]);
        all.extend(arguments!["--sockbuf", "16777216", "--smuxbuf", "67108864"]);
        all.extend(arguments!["--streambuf", "33554432"]);
        all
    };
    let mut serve = common();
    let to = format!("127.0.0.1:{}", exit(told));
    serve.extend(arguments!["-l", format!(":{}", told.port), "-t", to]);
    let mut connect = common();
    let listen = format!("127.0.0.1:{}", entrance(told));
    let remote = format!("{}:{}", told.sink, told.port);
    connect.extend(arguments!["-l", listen, "-r", remote]);
    Ok(vec![
        Step {
            role: "tunnel's server",
            side: Side::Sink,
            program: server,
            arguments: serve,
            ready: Ready::Udp(told.port),
        },
        Step {
            role: "tunnel's client",
            side: Side::Source,
            program: client,
            arguments: connect,
            ready: Ready::Tcp(entrance(told)),
        },
    ])
}

/// Packets: what the path and a queue as long again hold, and at least kcptun's own default.
fn kcptun_window(told: &Told) -> u64 {
    let bytes = told.rate_bps as f64 / 8.0 * told.round_trip.as_secs_f64();
    ((2.0 * bytes / DATAGRAM as f64) as u64).clamp(512, 32768)
}

/// hysteria2 told the path's rate both ways, with TCP forwarding.
pub(super) fn hysteria(told: &Told, programs: &Programs) -> Result<Vec<Step>, Missing> {
    let program = programs.find("hysteria")?;
    programs.find("dfcp-peer-quinn")?; // makes the certificate
    let step = |role, side, command: &str, ready| Step {
        role,
        side,
        program: program.clone(),
        arguments: arguments![
            command,
            "--disable-update-check",
            "--config",
            told.folder.join(format!("{command}.yaml"))
        ],
        ready,
    };
    Ok(vec![
        step(
            "tunnel's server",
            Side::Sink,
            "server",
            Ready::Udp(told.port),
        ),
        step(
            "tunnel's client",
            Side::Source,
            "client",
            Ready::Tcp(entrance(told)),
        ),
    ])
}

/// Writes hysteria2's `server.yaml` and `client.yaml`; the certificate lies beside them.
///
/// # Errors
/// When they cannot be written.
pub(super) fn write_hysteria(told: &Told, folder: &Path) -> io::Result<()> {
    let path = |name: &str| folder.join(name).display().to_string();
    // JSON strings are YAML strings.
    let text = |value: String| serde_json::Value::from(value).to_string();
    let server = format!(
        "listen: {}\ntls:\n  cert: {}\n  key: {}\nauth:\n  type: password\n  password: comparison\n",
        text(format!(":{}", told.port)),
        text(path("cert.pem")),
        text(path("key.pem")),
    );
    let bandwidth = text(format!("{} bps", told.rate_bps));
    let client = format!(
        "server: {}\nauth: comparison\ntls:\n  sni: localhost\n  insecure: true\nbandwidth:\n  up: \
         {bandwidth}\n  down: {bandwidth}\ntcpForwarding:\n  - listen: {}\n    remote: {}\n",
        text(format!("{}:{}", told.sink, told.port)),
        text(format!("127.0.0.1:{}", entrance(told))),
        text(format!("127.0.0.1:{}", exit(told))),
    );
    std::fs::write(folder.join("server.yaml"), server)?;
    std::fs::write(folder.join("client.yaml"), client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn told(rate_bps: u64, round_trip: Duration) -> Told {
        Told {
            sink: [198, 18, 0, 2].into(),
            port: 20000,
            inner: 30000,
            rate_bps,
            round_trip,
            folder: "/nowhere".into(),
        }
    }

    #[test]
    fn windows_hold_two_products_of_rate_and_delay() {
        let window = |rate, ms| kcptun_window(&told(rate, Duration::from_millis(ms)));
        assert_eq!(window(100_000_000, 50), 849); // 625 kB ÷ 1472, twice
        assert_eq!(window(20_000_000, 1), 512);
        assert_eq!(window(1_000_000_000, 2000), 32768);
    }

    #[test]
    fn hysteria_is_told_rate_ports_and_certificate() {
        let folder = tempfile::tempdir().unwrap();
        write_hysteria(&told(100_000_000, Duration::ZERO), folder.path()).unwrap();
        let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let client = read("client.yaml");
        for line in [
            "server: \"198.18.0.2:20000\"",
            "  up: \"100000000 bps\"",
            "  - listen: \"127.0.0.1:30000\"",
            "    remote: \"127.0.0.1:30001\"",
        ] {
            assert!(
                client.lines().any(|found| found == line),
                "{line}\n{client}"
            );
        }
        let server = read("server.yaml");
        assert!(server.starts_with("listen: \":20000\"\n"), "{server}");
        assert!(server.contains("cert.pem\"\n"), "{server}");
    }
}
