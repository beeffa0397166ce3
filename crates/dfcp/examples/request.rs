//! Requests and responses: each in a stream of its own, several at once. Both ends are here.
//!
//! `cargo run --example request`

use dfcp::{CloseCode, Connection, Endpoint, EndpointConfig};
use std::error::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Longest request, bytes.
const MOST: u64 = 1000;

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
    let (first, urgent) = tokio::join!(
        ask(&connection, "what is slow", 0),
        ask(&connection, "what is urgent", 1),
    );
    println!("{}\n{}", first?, urgent?);
    endpoint.close(CloseCode::NO_ERROR, "").await;
    Ok(())
}

async fn ask(connection: &Connection, what: &str, priority: i32) -> Result<String, dfcp::Error> {
    let (mut request, mut response) = connection.open_bi().await?;
    request.set_priority(priority)?;
    request.write_all(what.as_bytes()).await?;
    request.finish()?;
    let mut answer = String::new();
    response.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Answers every request, until the client goes.
async fn serve(connection: Connection) {
    while let Ok((mut response, request)) = connection.accept_bi().await {
        tokio::spawn(async move {
            let mut text = String::new();
            request.take(MOST).read_to_string(&mut text).await?;
            let answer = format!("you asked {text}");
            response.write_all(answer.as_bytes()).await?;
            response.shutdown().await
        });
    }
}
