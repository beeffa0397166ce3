//! Moves a file between two endpoints of one process over loopback and prints throughput and
//! processor time: `cargo run --release -p dfcp --example loopback -- FILE`.

use dfcp::{CloseCode, Endpoint, EndpointConfig, Progress, generate_key};
use std::fs::File;
use std::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: loopback FILE")?;
    let file = File::open(&path)?;
    let size = file.metadata()?.len();
    let server = Endpoint::bind(EndpointConfig::server(
        generate_key()?,
        "127.0.0.1:0".parse()?,
    ))?;
    let (address, key) = (server.local_addr(), server.public_key());
    let client = Endpoint::bind(EndpointConfig::client(generate_key()?))?;
    let target = format!("{path}.copy");
    let start = Instant::now();
    let receiver = tokio::spawn(async move {
        let connection = server.accept().await.expect("a client comes");
        let mut object = connection.accept_object().await?;
        let out = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(target)?;
        let summary = object.recv_object(out, &Progress::default()).await?;
        let stats = connection.stats();
        connection.closed().await;
        Ok::<_, dfcp::Error>((summary, stats))
    });
    let connection = client.connect(address, Some(key)).await?;
    let progress = Progress::default();
    let watch = tokio::spawn({
        let (connection, progress) = (connection.clone(), progress.clone());
        async move {
            while std::env::var_os("TRACE").is_some() {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                let s = connection.stats();
                eprintln!(
                    "{} bw {} pace {} rtt {:?} min {:?} loss {:.4} lost {} spurious {} repair {}",
                    progress.bytes(),
                    s.bandwidth,
                    s.pacing_rate,
                    s.rtt,
                    s.min_rtt,
                    s.loss,
                    s.packets_lost,
                    s.spurious_losses,
                    s.repair_symbols_sent
                );
            }
        }
    });
    let sent = connection
        .send_object(file, size, &progress, |_| {})
        .await?;
    watch.abort();
    let seconds = start.elapsed().as_secs_f64();
    let stats = connection.stats();
    connection.close(CloseCode::NO_ERROR, "done");
    drop(connection);
    let (received, _) = receiver.await??;
    assert_eq!(sent, received);
    println!("{:.3} GB/s, {:?}", size as f64 / seconds / 1e9, stats);
    Ok(())
}
