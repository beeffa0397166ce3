//! Standard input and output as a connection.

use crate::common::{World, bytes, echo, nobody, origin, within};
use dfcp::CloseCode;
use dfcp_proxy::Broken;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

#[tokio::test]
async fn standard_input_and_output_are_carried_to_the_end() {
    let (world, host) = (World::new().await, echo().await);
    let sent = bytes(3, 300_000);
    let mut heard = Vec::new();
    within(world.client.carry(&host.into(), &sent[..], &mut heard))
        .await
        .unwrap();
    assert!(heard == sent);
    let (mut nothing, host) = (Vec::new(), nobody().await);
    let refusal = within(world.client.carry(&host.into(), &b"x"[..], &mut nothing)).await;
    let refusal = refusal.unwrap_err().to_string();
    assert!(refusal.contains("refused"), "{refusal}");
}

#[tokio::test]
async fn standard_input_is_carried_on_after_the_host_has_ended_its_direction() {
    let world = World::new().await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let host = origin(move |mut tcp| {
        let tell = tell.clone();
        async move {
            tcp.write_all(b"bye").await.unwrap();
            tcp.shutdown().await.unwrap();
            let mut heard = Vec::new();
            let _ = tcp.read_to_end(&mut heard).await;
            let _ = tell.send(heard);
        }
    });
    let host = host.await.into();
    let sent = bytes(4, 5_000_000);
    // The input begins once the host's end was heard.
    let ((mut type_in, input), (output, mut screen)) = (duplex(1000), duplex(1000));
    let typing = async {
        let mut heard = String::new();
        screen.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "bye");
        type_in.write_all(&sent).await.unwrap();
        drop(type_in);
    };
    let carry = world.client.carry(&host, input, output);
    let (carried, ()) = within(async { tokio::join!(carry, typing) }).await;
    carried.unwrap();
    // The client leaves as soon as its input is delivered, as the command does.
    world.client_endpoint.close(CloseCode::NO_ERROR, "").await;
    let heard = within(told.recv()).await.unwrap();
    assert!(heard == sent, "{} of {} bytes", heard.len(), sent.len());
}

#[tokio::test]
async fn input_that_the_host_does_not_take_is_a_failure() {
    let world = World::new().await;
    let rude = origin(|mut tcp| async move {
        tcp.write_all(b"bye").await.unwrap();
        tcp.shutdown().await.unwrap();
        let _ = tcp.read(&mut [0]).await;
        tcp.set_zero_linger().unwrap();
    });
    let rude = rude.await.into();
    let ((mut typed, input), (output, mut screen)) = (duplex(1000), duplex(1000));
    let typing = async {
        screen.read_to_end(&mut Vec::new()).await.unwrap();
        while typed.write_all(b"x").await.is_ok() {}
        // No end.
        std::future::pending::<()>().await
    };
    let carry = world.client.carry(&rude, input, output);
    let broken = tokio::select! {
        carried = within(carry) => carried.unwrap_err(),
        () = typing => unreachable!(),
    };
    assert!(matches!(broken, Broken::There(_)), "{broken}");
}
