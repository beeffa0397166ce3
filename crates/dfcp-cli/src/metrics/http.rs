//! As much of HTTP/1.1 as a scraper needs: GET and HEAD, a connection for each.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Longest head of a request, bytes: what web servers usually take is twice that.
const MAX_HEAD: usize = 8 << 10;
/// How long a request and its answer may take: half of the interval at which Prometheus asks by default
/// for a quick one, and no slow client keeps its place for longer.
const LIMIT: Duration = Duration::from_secs(5);
/// Requests that are answered at once. One more takes the place of the oldest, which has had the time of
/// seven others: clients that say nothing keep nobody out.
const AT_ONCE: usize = 8;
/// Pause after nobody could be accepted: what was missing, such as open files, may be there then.
const STUCK_PAUSE: Duration = Duration::from_millis(100);

/// What is answered to a path.
pub struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Answer {
    /// A page of metrics.
    pub fn metrics(body: String) -> Self {
        let (status, content_type) = ("200 OK", "text/plain; version=0.0.4; charset=utf-8");
        Self {
            status,
            content_type,
            body,
        }
    }

    /// A line.
    pub fn text(status: &'static str, line: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{line}\n"),
        }
    }
}

/// Open files for when there are no more, which is when somebody looks: one for the request, and one in which
/// the system lists what is open.
#[derive(Clone)]
struct Spare(Arc<Mutex<Vec<File>>>);

impl Spare {
    fn new() -> Self {
        let spare = Self(Arc::default());
        spare.fill();
        spare
    }

    fn fill(&self) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while files.len() < 2 {
            match File::open("/dev/null") {
                Ok(file) => files.push(file),
                Err(_) => return,
            }
        }
    }

    /// Closes them; false if there are none.
    fn free(&self) -> bool {
        let files = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        !files.is_empty()
    }
}

/// Answers at `listener`. Does not end.
pub async fn serve(
    listener: TcpListener,
    answer: Arc<impl Fn(&str) -> Answer + Send + Sync + 'static>,
) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    let spare = Spare::new();
    loop {
        match listener.accept().await {
            Ok((tcp, _)) => {
                open.retain(|request| !request.is_finished());
                if open.len() == AT_ONCE
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                let (answer, spare) = (answer.clone(), spare.clone());
                let request = tokio::spawn(async move {
                    // Whoever is too slow, or leaves, gets nothing.
                    let _ = timeout(LIMIT, converse(tcp, &*answer)).await;
                    spare.fill();
                });
                open.push_back(request.abort_handle());
            }
            Err(_) if spare.free() => {}
            Err(_) => {
                sleep(STUCK_PAUSE).await;
                spare.fill();
            }
        }
    }
}

async fn converse(mut tcp: TcpStream, answer: &(impl Fn(&str) -> Answer + Sync)) -> io::Result<()> {
    let mut head = Vec::new();
    let is_whole = |head: &[u8]| head.windows(4).any(|four| four == b"\r\n\r\n");
    while !is_whole(&head) {
        let left = MAX_HEAD - head.len();
        if left == 0 {
            let why = "the head of the request is longer than 8 KiB";
            let answer = Answer::text("431 Request Header Fields Too Large", why);
            return say(&mut tcp, &answer, true).await;
        }
        if (&mut tcp).take(left as u64).read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let (answer, with_body) = match path_of(&head) {
        Ok((path, with_body)) => (answer(path), with_body),
        Err(answer) => (answer, true),
    };
    say(&mut tcp, &answer, with_body).await
}

/// The path that a request is for, and whether it wants more than the head of the answer.
fn path_of(head: &[u8]) -> Result<(&str, bool), Answer> {
    let malformed = || Answer::text("400 Bad Request", "that is no request of HTTP/1.1");
    let line = head.split(|byte| *byte == b'\r').next();
    let line = line.and_then(|line| std::str::from_utf8(line).ok());
    let words: Vec<_> = line.ok_or_else(malformed)?.split(' ').collect();
    let [method, target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else {
        return Err(malformed());
    };
    let path = target.split('?').next().unwrap_or_default();
    match method {
        "GET" => Ok((path, true)),
        "HEAD" => Ok((path, false)),
        _ => Err(Answer::text("405 Method Not Allowed", "GET and HEAD only")),
    }
}

async fn say(tcp: &mut TcpStream, answer: &Answer, with_body: bool) -> io::Result<()> {
    let Answer {
        status,
        content_type,
        body,
    } = answer;
    // RFC 9110 §15.5.6 wants to be told what is allowed.
    let allow = match status.starts_with("405") {
        true => "Allow: GET, HEAD\r\n",
        false => "",
    };
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if with_body {
        text.push_str(body);
    }
    tcp.write_all(text.as_bytes()).await?;
    tcp.shutdown().await?;
    // What the client says meanwhile is read, or the system would take the answer back with a RST.
    let mut ignored = [0; 1024];
    while tcp.read(&mut ignored).await? > 0 {}
    Ok(())
}
