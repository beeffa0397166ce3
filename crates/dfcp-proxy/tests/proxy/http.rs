//! Plain HTTP through the local port, as browsers and package managers ask for URLs without TLS.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::common::{World, bytes, echo, nobody, origin, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The next whole request at a host: its head, and its body as it came.
async fn hear(tcp: &mut TcpStream, heard: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    loop {
        if let Some(at) = heard.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(heard[..at + 2].to_vec()).unwrap();
            let rest = &heard[at + 4..];
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "));
            let length = match length {
                Some(length) => Some(length.parse().unwrap()),
                None if head.contains("chunked") => rest
                    .windows(5)
                    .position(|five| five == b"0\r\n\r\n")
                    .map(|at| at + 5),
                None => Some(0),
            };
            if let Some(length) = length.filter(|length| rest.len() >= *length) {
                let body = rest[..length].to_vec();
                heard.drain(..at + 4 + length);
                return Some((head, body));
            }
        }
        if tcp.read_buf(heard).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

/// A host that says back each request, as often as its connection is asked.
async fn mirror(connections: Arc<AtomicUsize>) -> SocketAddr {
    origin(move |mut tcp| {
        connections.fetch_add(1, Ordering::Relaxed);
        async move {
            let mut heard = Vec::new();
            while let Some((head, body)) = hear(&mut tcp, &mut heard).await {
                let body = [head.as_bytes(), b"\n", &body].concat();
                let answer = match head.starts_with("HEAD ") {
                    true => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n".into(),
                    false => [
                        format!(
                            "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n\
                             Transfer-Encoding: chunked\r\n\r\n{:x};ext=1\r\n",
                            body.len()
                        )
                        .as_bytes(),
                        &body,
                        b"\r\n0\r\nTrailer: x\r\n\r\n",
                    ]
                    .concat(),
                };
                tcp.write_all(&answer).await.unwrap();
            }
        }
    })
    .await
}

/// The answer to one request over a connection that stays: its head and its body, which came in chunks.
async fn ask(tcp: &mut TcpStream, request: &[u8]) -> (String, String) {
    tcp.write_all(request).await.unwrap();
    let (mut heard, end): (Vec<u8>, &[u8]) = (
        Vec::new(),
        match request.starts_with(b"HEAD ") {
            true => b"\r\n\r\n",
            false => b"0\r\n\r\n",
        },
    );
    while !heard.ends_with(end) {
        assert!(within(tcp.read_buf(&mut heard)).await.unwrap() > 0);
    }
    let text = String::from_utf8(heard).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn one_connection_asks_several_hosts_one_after_the_other() {
    let world = World::new().await;
    let (first, second) = (Arc::new(AtomicUsize::new(0)), Arc::default());
    let (a, b) = (mirror(first.clone()).await, mirror(second).await);
    let mut tcp = TcpStream::connect(world.local).await.unwrap();
    let get = |host: SocketAddr, path: &str| {
        format!(
            "GET http://{host}{path} HTTP/1.1\r\nHost: elsewhere\r\nProxy-Connection: keep-alive\r\n\
             Cookie: c\r\n\r\n"
        )
    };
    for path in ["/1", "/2?q=1"] {
        let (head, body) = ask(&mut tcp, get(a, path).as_bytes()).await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(
            !head.contains("X-Hop") && head.contains("Via: 1.1 dfcp"),
            "{head}"
        );
        assert!(
            body.contains(&format!(
                "GET {path} HTTP/1.1\r\nHost: {a}\r\nCookie: c\r\n"
            )),
            "{body}"
        );
        assert!(
            !body.contains("Proxy-Connection") && !body.contains("ext=1"),
            "{body}"
        );
    }
    // The same connection to the host was asked twice.
    assert_eq!(first.load(Ordering::Relaxed), 1);
    let (_, body) = ask(&mut tcp, get(b, "/3").as_bytes()).await;
    assert!(body.contains(&format!("Host: {b}")), "{body}");
    let post = format!("POST http://{a}/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    let (_, body) = ask(&mut tcp, post.as_bytes()).await;
    assert!(
        body.contains("Content-Length: 5\r\n") && body.contains("\nhello"),
        "{body}"
    );
    let chunks = format!(
        "POST http://{a}/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         3;x=y\r\nabc\r\n02\r\nde\r\n0\r\nX: y\r\n\r\n"
    );
    let (_, body) = ask(&mut tcp, chunks.as_bytes()).await;
    // Chunks that came together go on as one.
    let passed_on = ["5\r\nabcde\r\n", "3\r\nabc\r\n2\r\nde\r\n"];
    let passed_on = passed_on.map(|chunks| format!("\n{chunks}0\r\n\r\n"));
    assert!(
        passed_on.iter().any(|chunks| body.contains(chunks)),
        "{body}"
    );
    let head = format!("HEAD http://{a}/ HTTP/1.1\r\nHost: a\r\n\r\n");
    let (head, _) = ask(&mut tcp, head.as_bytes()).await;
    assert!(head.contains("Content-Length: 7"), "{head}");
    // And a connection at last.
    let host = echo().await;
    tcp.write_all(format!("CONNECT {host} HTTP/1.1\r\nHost: a\r\n\r\nmine").as_bytes())
        .await
        .unwrap();
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\nmine") {
        assert!(within(tcp.read_buf(&mut heard)).await.unwrap() > 0);
    }
}

#[tokio::test]
async fn a_host_that_ends_after_each_answer_is_asked_anew() {
    let world = World::new().await;
    let host = origin(|mut tcp| async move {
        let mut heard = Vec::new();
        hear(&mut tcp, &mut heard).await.unwrap();
        // It does not say so.
        tcp.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
            .await
            .unwrap();
    });
    let host = host.await;
    let mut tcp = TcpStream::connect(world.local).await.unwrap();
    for _ in 0..5 {
        let get = format!("GET http://{host}/ HTTP/1.1\r\nHost: a\r\n\r\n");
        let (head, _) = ask(&mut tcp, get.as_bytes()).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
}

#[tokio::test]
async fn a_page_of_an_old_host_ends_with_its_connection_and_half_a_page_is_none() {
    let world = World::new().await;
    let sent = bytes(1, 300_000);
    let page = sent.clone();
    let host = origin(move |mut tcp| {
        let page = page.clone();
        async move {
            let mut heard = Vec::new();
            let (head, _) = hear(&mut tcp, &mut heard).await.unwrap();
            tcp.write_all(b"HTTP/1.0 200 OK\r\n\r\n").await.unwrap();
            tcp.write_all(&page).await.unwrap();
            if head.starts_with("GET /half") {
                tcp.set_zero_linger().unwrap();
            }
        }
    });
    let host = host.await;
    let get = format!("GET http://{host}/ HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = world.answer_to(get.as_bytes()).await;
    let at = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8_lossy(&answer[..at]).into_owned();
    assert!(head.contains("Connection: close"), "{head}");
    assert!(answer[at + 4..] == sent, "{} bytes", answer.len() - at - 4);

    let mut tcp = TcpStream::connect(world.local).await.unwrap();
    let get = format!("GET http://{host}/half HTTP/1.1\r\nHost: a\r\n\r\n");
    tcp.write_all(get.as_bytes()).await.unwrap();
    let error = within(tcp.read_to_end(&mut Vec::new())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn what_could_be_two_requests_reaches_no_host() {
    let world = World::new().await;
    let connections = Arc::new(AtomicUsize::new(0));
    let host = mirror(connections.clone()).await;
    for (fields, status) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "400"),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", "400"),
        ("Transfer-Encoding: identity, chunked\r\n", "501"),
        ("Transfer-Encoding : chunked\r\n", "400"),
    ] {
        let request = format!(
            "POST http://{host}/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n0\r\n\r\n\
             GET http://{host}/secret HTTP/1.1\r\nHost: a\r\n\r\n"
        );
        let answer = String::from_utf8(world.answer_to(request.as_bytes()).await).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{fields}: {answer}"
        );
        // Nothing of what follows was understood as anything.
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{fields}: {answer}");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 0);
    // Chunks that are none break the connection, and nothing that follows is a request.
    for size in ["zz", "", " ", ";x", "-0"] {
        let request = format!(
            "POST http://{host}/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             {size}\r\n\r\nGET http://{host}/secret HTTP/1.1\r\nHost: a\r\n\r\n"
        );
        assert_eq!(world.answer_to(request.as_bytes()).await, b"", "{size:?}");
    }
    let refused = format!("GET http://{}/ HTTP/1.1\r\nHost: a\r\n\r\n", nobody().await);
    let answer = String::from_utf8(world.answer_to(refused.as_bytes()).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn a_head_that_does_not_end_is_not_waited_for() {
    let world = World::new().await;
    let mut slow = TcpStream::connect(world.local).await.unwrap();
    let mut answer = Vec::new();
    slow.write_all(b"GET http://a/ HTTP/1.1\r\n").await.unwrap();
    // A line now and then keeps it no longer.
    let drip = async {
        loop {
            if slow.write_all(b"X: y\r\n").await.is_err() {
                break;
            }
            tokio::select! {
                read = slow.read_buf(&mut answer) => if read.unwrap_or(0) == 0 { break },
                () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {}
            }
        }
    };
    within(drip).await;
    assert!(
        answer.starts_with(b"HTTP/1.1 408 "),
        "{:?}",
        String::from_utf8_lossy(&answer)
    );
}

#[tokio::test]
async fn a_host_hears_that_the_program_says_no_more() {
    let world = World::new().await;
    // It answers when it has heard the end.
    let host = origin(|mut tcp| async move {
        let mut heard = Vec::new();
        hear(&mut tcp, &mut heard).await.unwrap();
        assert_eq!(tcp.read_buf(&mut heard).await.unwrap(), 0);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        tcp.write_all(answer).await.unwrap();
    });
    let host = host.await;
    let mut tcp = TcpStream::connect(world.local).await.unwrap();
    let get = format!("GET http://{host}/ HTTP/1.1\r\nHost: a\r\n\r\n");
    tcp.write_all(get.as_bytes()).await.unwrap();
    tcp.shutdown().await.unwrap();
    let mut answer = Vec::new();
    within(tcp.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.ends_with(b"\r\n\r\nok"), "{answer:?}");
}

#[tokio::test]
async fn programs_of_http_1_0_get_no_interim_answers() {
    let world = World::new().await;
    let host = origin(|mut tcp| async move {
        let mut heard = Vec::new();
        hear(&mut tcp, &mut heard).await.unwrap();
        let answer = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        tcp.write_all(answer).await.unwrap();
        let _ = tcp.read(&mut [0]).await;
    });
    let host = host.await;
    for (minor, interim) in [(0, 0), (1, 1)] {
        let get =
            format!("GET http://{host}/ HTTP/1.{minor}\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = String::from_utf8(world.answer_to(get.as_bytes()).await).unwrap();
        assert_eq!(answer.matches(" 103 ").count(), interim, "{answer}");
        assert!(answer.ends_with("ok"), "{answer}");
    }
}

/// Chunks of a byte each: with a write for every one, and with a search and a move of all that waits, a page
/// of them took minutes.
#[tokio::test]
async fn many_small_chunks_are_passed_on_as_few_large_ones() {
    let world = World::new().await;
    let sent = bytes(3, 100_000);
    let page = sent.clone();
    let host = origin(move |mut tcp| {
        let page = page.clone();
        async move {
            let mut heard = Vec::new();
            hear(&mut tcp, &mut heard).await.unwrap();
            let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for byte in page {
                answer.extend([b'1', b'\r', b'\n', byte, b'\r', b'\n']);
            }
            answer.extend(b"0\r\n\r\n");
            tcp.write_all(&answer).await.unwrap();
            let _ = tcp.read(&mut [0]).await;
        }
    });
    let host = host.await;
    let get = format!("GET http://{host}/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answer = world.answer_to(get.as_bytes()).await;
    let at = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let mut rest = &answer[at.unwrap() + 4..];
    let (mut page, mut chunks) = (Vec::new(), 0);
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        rest = &rest[end + 2..];
        if size == 0 {
            break;
        }
        page.extend_from_slice(&rest[..size]);
        chunks += 1;
        rest = &rest[size + 2..];
    }
    assert!(page == sent, "{} bytes", page.len());
    assert!(chunks < sent.len() / 10, "{chunks} chunks");
}

#[tokio::test]
async fn the_head_of_an_answer_that_does_not_end_is_not_waited_for() {
    let world = World::new().await;
    let host = origin(|mut tcp| async move {
        let mut heard = Vec::new();
        hear(&mut tcp, &mut heard).await.unwrap();
        tcp.write_all(b"HTTP/1.1 200 OK\r\nX: ").await.unwrap();
        // A byte now and then keeps nobody.
        while tcp.write_all(b"y").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    });
    let host = host.await;
    let get = format!("GET http://{host}/ HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = world.answer_to(get.as_bytes()).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.contains("did not end within"), "{answer}");
}

/// A host that wants no body says so before there is any; whether the program leaves it away then is not seen,
/// so its connection ends, and the program is told not to ask on it again.
#[tokio::test]
async fn an_answer_before_the_body_says_that_the_connection_ends() {
    let host = origin(|mut tcp| async move {
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") && tcp.read_buf(&mut heard).await.unwrap_or(0) > 0 {}
        let answer = b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 3\r\n\r\nno\n";
        tcp.write_all(answer).await.unwrap();
        let _ = tcp.read_buf(&mut heard).await;
    })
    .await;
    let world = World::new().await;
    let request = format!(
        "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    );
    let answer = world.answer_to(request.as_bytes()).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 417 "), "{answer}");
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nno\n"), "{answer}");
}
