//! Files by their names, several at once: a request in a stream of its own, the file as an object, whose
//! number the answer says. Both ends are here.
//!
//! `cargo run --example fetch`

use dfcp::{CloseCode, Connection, Endpoint, EndpointConfig, IncomingObject, Progress, SendStream};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Cursor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Longest name, bytes.
const NAME: u64 = 255;
/// Nobody can fill the memory with more than this, bytes.
const MOST: u64 = 1 << 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let bind = "[::1]:0".parse()?;
    let server = Endpoint::bind(EndpointConfig::server(dfcp::generate_key()?, bind))?;
    let (address, key) = (server.local_addr(), server.public_key());
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            tokio::spawn(serve(incoming.accept()));
        }
    });

    let endpoint = Endpoint::bind(EndpointConfig::client(dfcp::generate_key()?))?;
    let connection = endpoint.connect(address, key).await?;
    let mut asked = BTreeMap::new();
    for name in ["small", "large"] {
        // Both are on their way from here on.
        asked.insert(ask(&connection, name).await?, name);
    }
    while !asked.is_empty() {
        let object = connection.accept_object().await?;
        let Some(name) = asked.remove(&object.index()) else {
            continue; // dropped: nobody asked for it
        };
        println!("{name} has {} bytes", take(object).await?);
    }
    endpoint.close(CloseCode::NO_ERROR, "").await;
    Ok(())
}

/// Asks for a file; the number of the object that it comes as.
async fn ask(connection: &Connection, name: &str) -> Result<u64, dfcp::Error> {
    let (mut request, mut answer) = connection.open_bi().await?;
    request.write_all(name.as_bytes()).await?;
    request.finish()?;
    Ok(answer.read_u64().await?)
}

/// Into memory; `recv_object` writes files, each block where it belongs.
async fn take(object: IncomingObject) -> Result<u64, dfcp::Error> {
    let (mut memory, progress) = (Vec::new(), Progress::default());
    let received = object.recv_object_into(&mut memory, MOST, &progress);
    Ok(received.await?.size)
}

/// Answers every request, until the client goes.
async fn serve(connection: Connection) {
    while let Ok((answer, request)) = connection.accept_bi().await {
        let connection = connection.clone();
        tokio::spawn(async move {
            let mut name = String::new();
            request.take(NAME).read_to_string(&mut name).await?;
            send(&connection, answer, &name).await
        });
    }
}

async fn send(
    connection: &Connection,
    mut answer: SendStream,
    name: &str,
) -> Result<(), dfcp::Error> {
    let size = if name == "small" { 1_000 } else { 1_000_000 };
    let object = connection.open_object().await?;
    object.set_priority(i32::from(name == "small"))?;
    answer.write_u64(object.index()).await?;
    answer.finish()?;
    let (source, progress) = (Cursor::new(vec![7; size]), Progress::default());
    object.send_object(source, size as u64, &progress).await?;
    Ok(())
}
