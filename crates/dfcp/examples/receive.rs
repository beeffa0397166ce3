//! Receives one file, from anyone, into a file that is not there yet.
//!
//! `cargo run --example receive -- FILE [ADDRESS:PORT]`

use dfcp::{Endpoint, EndpointConfig, Progress};
use std::error::Error;
use std::fs::File;

/// Nobody can fill the disk with more than this, bytes.
const MOST: u64 = 1 << 30;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("into which file?")?;
    let bind = arguments.next().unwrap_or("[::]:4433".into()).parse()?;

    let endpoint = Endpoint::bind(EndpointConfig::server(dfcp::generate_key()?, bind))?;
    println!("{} {}", endpoint.local_addr(), endpoint.public_key());
    let incoming = endpoint.accept().await.ok_or("the socket failed")?;
    // Here is the place to look at incoming.peer(), and to refuse it.
    let connection = incoming.accept();
    let mut object = connection.accept_object().await?;
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).open(path)?;
    let progress = Progress::default();
    let received = object.recv_object(file, MOST, &progress).await?;
    println!("received {} bytes", received.size);
    // The sender closes once it knows that all has arrived.
    connection.closed().await;
    Ok(())
}
