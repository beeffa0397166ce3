//! A live stream: a frame every 20 ms, worth nothing after 100 ms. Both ends are here.
//!
//! `cargo run --example live`

use bytes::Bytes;
use dfcp::{CloseCode, Endpoint, EndpointConfig, Piece, Reliability, TransportConfig};
use std::error::Error;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::MissedTickBehavior;

/// 5 Mbit/s at 50 frames a second.
const FRAME: usize = 12_500;
const FRAMES: usize = 50;
const EVERY: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let bind = "[::1]:0".parse()?;
    let server = Endpoint::bind(EndpointConfig::server(dfcp::generate_key()?, bind))?;
    let (address, key) = (server.local_addr(), server.public_key());
    let viewer = tokio::spawn(watch(server));

    let endpoint = Endpoint::bind(EndpointConfig::client(dfcp::generate_key()?))?;
    // How hard to try is the sender's choice, for this connection only.
    let transport = TransportConfig::default().reliability(Reliability::Deadline(DEADLINE));
    let connection = endpoint.connect_with(transport, address, key).await?;
    let mut video = connection.open_uni().await?;
    let mut clock = tokio::time::interval(EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0..FRAMES {
        clock.tick().await;
        video.write_all(&[number as u8; FRAME]).await?;
        // What is worth one try only needs no stream at all.
        connection.send_datagram(Bytes::from(format!("frame {number}")))?;
    }
    video.finish()?;
    let given_up = video.delivered().await?;
    println!("{given_up} of {} bytes came too late", FRAME * FRAMES);
    endpoint.close(CloseCode::NO_ERROR, "").await;
    println!("{}", viewer.await??);
    Ok(())
}

/// Takes what comes, and says how much that was.
async fn watch(server: Endpoint) -> Result<String, dfcp::Error> {
    let Some(incoming) = server.accept().await else {
        return Err(dfcp::Error::EndpointClosed);
    };
    let connection = incoming.accept();
    let captions = tokio::spawn({
        let connection = connection.clone();
        async move {
            let mut count = 0;
            while connection.read_datagram().await.is_ok() {
                count += 1;
            }
            count
        }
    });
    let mut video = connection.accept_uni().await?;
    let (mut bytes, mut missing) = (0, 0);
    let mut buffer = vec![0; FRAME];
    loop {
        match video.read_piece(&mut buffer).await? {
            Piece::Data(n) => bytes += n,
            Piece::Gap(n) => missing += n,
            Piece::End => break,
        }
    }
    let captions = captions.await.unwrap_or_default();
    Ok(format!(
        "saw {bytes} bytes, missed {missing}, {captions} captions"
    ))
}
