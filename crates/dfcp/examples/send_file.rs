//! Sends a file to whoever runs the example `receive`.
//!
//! `cargo run --example send_file -- FILE HOST:PORT PUBLIC-KEY`

use dfcp::{CloseCode, Endpoint, EndpointConfig, Progress, PublicKey};
use std::error::Error;
use std::fs::File;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what| arguments.next().ok_or(what);
    let (path, remote) = (next("which file?")?, next("to which HOST:PORT?")?);
    let key: PublicKey = next("which public key has the receiver?")?.parse()?;

    let endpoint = Endpoint::bind(EndpointConfig::client(dfcp::generate_key()?))?;
    let connection = endpoint.connect(remote, key).await?;
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let progress = Progress::default(); // may be looked at from elsewhere meanwhile
    let sent = connection.send_object(file, size, &progress).await?;
    println!("sent {} bytes", sent.size);
    endpoint.close(CloseCode::NO_ERROR, "").await;
    Ok(())
}
