//! A far end that says nothing.

use std::io::ErrorKind;
use std::sync::Arc;

use std::time::Duration;

use super::common::{Events, Plan, World, connect_request, echo, loopback, within};
use dfcp::{Endpoint, EndpointConfig, TransportConfig};
use dfcp_proxy::{Client, ClientConfig, FastOpen};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server that takes streams and says nothing: a program that was told at once that it is connected is not
/// left waiting.
#[tokio::test]
async fn an_answer_that_never_comes_is_not_waited_for() {
    let key = || dfcp::generate_key().unwrap();
    let (server_key, client_key) = (key(), key());
    let transport = || dfcp_proxy::transport(TransportConfig::default());
    let config = EndpointConfig::server(server_key.clone(), loopback());
    let config = config.transport(transport()).authorize(|_| true);
    let server = Endpoint::bind(config).unwrap();
    let at = server.local_addr();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Some(incoming) = server.accept().await {
            let connection = incoming.accept();
            while let Ok(stream) = connection.accept_bi().await {
                held.push(stream);
            }
        }
    });
    let endpoint = EndpointConfig::client(client_key).transport(transport());
    let events = Events::default();
    let client = Client::start(ClientConfig {
        endpoint: Endpoint::bind(endpoint).unwrap(),
        resolve: Arc::new(move || Box::pin(async move { Ok(vec![at]) })),
        server_key: server_key.public(),
        fast_open: FastOpen::Always,
        report: events.report(),
    });
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let local = listener.local_addr().unwrap();
    tokio::spawn(async move { client.serve_local(listener).await });
    let mut tcp = TcpStream::connect(local).await.unwrap();
    tcp.write_all(b"CONNECT 127.0.0.1:9 HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    let mut heard = Vec::new();
    let error = within(tcp.read_to_end(&mut heard)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    events.find("does not answer").await;
}

/// A server that another one has replaced, whose word that it knows nothing is not believed: the client asks
/// for a connection long before the silence has lasted for the timeout.
#[tokio::test]
async fn a_silent_connection_is_replaced_where_the_server_makes_another() {
    let plan = || Plan {
        delay: Duration::from_millis(1),
        timeout: Duration::from_secs(3600),
        ..Plan::default()
    };
    let (mut world, host) = (World::with(plan()).await, echo().await);
    let mut open = world.connect(host).await;
    open.write_all(b"x").await.unwrap();
    within(open.read_exact(&mut [0])).await.unwrap();
    world.replace_server(&plan());
    open.write_all(b"x").await.unwrap();
    let error = within(open.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let (mut tcp, reply) = within(world.socks(&connect_request(host))).await;
    assert_eq!(reply, 0);
    tcp.write_all(b"y").await.unwrap();
    within(tcp.read_exact(&mut [0])).await.unwrap();
}
