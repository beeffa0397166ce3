//! HTTP at the local port: CONNECT (RFC 9110 §9.3.6), which carries connections and looks at no request,
//! and [requests for URLs](plain).

mod message;
pub(crate) mod plain;

pub(crate) use message::request;

use crate::local::{Asked, Inbox, Mistake, Speech, Wish};
use crate::status::Refusal;
use crate::target::Target;

/// How a request for a connection begins.
const CONNECT: &[u8] = b"CONNECT ";
/// Longest head of a request, bytes: what web servers usually take.
const MAX_HEAD: usize = 16 << 10;

/// A response that ends the connection.
fn response(status: &str, headers: &str, text: &str) -> Vec<u8> {
    let length = text.len() + 1;
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n{headers}\r\n{text}\n"
    );
    response.into_bytes()
}

/// What a program hears at the end of its request. A success has no content (RFC 9110 §9.3.6).
pub(crate) fn answer(outcome: Result<(), &Refusal>) -> Vec<u8> {
    match outcome {
        Ok(()) => b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec(),
        Err(refusal) => {
            let (status, error) = refusal.status.http();
            let header = format!("Proxy-Status: dfcp; error={error}\r\n");
            response(status, &header, &refusal.message)
        }
    }
}

/// Reads what a program asks for: the head of a request for a connection; others are read where they are
/// served.
pub(crate) async fn wish(inbox: &mut Inbox<'_>) -> Result<Asked, Mistake> {
    while inbox.bytes.len() < CONNECT.len() && CONNECT.starts_with(&inbox.bytes) {
        inbox.more().await?;
    }
    match inbox.bytes.starts_with(CONNECT) {
        true => connect(inbox).await.map(Asked::Connection),
        false => Ok(Asked::Requests(std::mem::take(&mut inbox.bytes))),
    }
}

async fn connect(inbox: &mut Inbox<'_>) -> Result<Wish, Mistake> {
    let mut seen = 0;
    let end = loop {
        // The end may have come in two pieces.
        let from = usize::saturating_sub(seen, 2);
        if let Some(at) = end_of_head(&inbox.bytes[from..]) {
            break Some(from + at);
        }
        seen = inbox.bytes.len();
        if seen > MAX_HEAD {
            break None;
        }
        inbox.more().await?;
    };
    let Some(end) = end.filter(|end| *end <= MAX_HEAD) else {
        let why = "the head of its request is longer than 16 KiB";
        let status = "431 Request Header Fields Too Large";
        return Err(Mistake::new(why, response(status, "", why)));
    };
    let rest = inbox.bytes.split_off(end);
    let target = target_of(&inbox.bytes)?;
    let speech = Speech::Http;
    Ok(Wish {
        speech,
        target,
        rest,
    })
}

/// Where the empty line ends that ends a head. A line ends with LF, and a CR before that says nothing
/// more (RFC 9112 §2.2): no other reader follows that could see it differently.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let ends = (0..bytes.len()).filter(|at| bytes[*at] == b'\n');
    ends.into_iter().find_map(|at| match bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// Whom the request in `head` is for.
fn target_of(head: &[u8]) -> Result<Target, Mistake> {
    let malformed = |why: &str| Mistake::new(why, response("400 Bad Request", "", why));
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = std::str::from_utf8(line).map_err(|_| malformed("its request is not text"))?;
    let mut words = line.split(' ');
    let (Some("CONNECT"), Some(authority), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(malformed("its request is not METHOD TARGET VERSION"));
    };
    let minor = version.strip_prefix("HTTP/1.").unwrap_or_default();
    if minor.len() != 1 || !minor.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed("its version of HTTP is not 1.0 or 1.1"));
    }
    Target::parse(authority).map_err(|why| malformed(&why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_with_an_empty_line() {
        for (bytes, end) in [
            ("a\r\n\r\nb", Some(5)),
            ("a\n\nb", Some(3)),
            ("a\r\n\nb", Some(4)),
            ("a\n\r\nb", Some(4)),
            ("a\n\rb\n", None),
            ("a\r\rb", None),
            ("a\n\r", None),
            ("a\n", None),
            ("", None),
        ] {
            assert_eq!(end_of_head(bytes.as_bytes()), end, "{bytes:?}");
        }
    }

    #[test]
    fn the_host_is_the_authority_of_the_request() {
        for (head, target) in [
            (
                "CONNECT a.example:443 HTTP/1.1\r\nHost: b\r\n\r\n",
                "a.example:443",
            ),
            (
                "CONNECT [2001:db8::1]:22 HTTP/1.0\r\n\r\n",
                "[2001:db8::1]:22",
            ),
            ("CONNECT a:1 HTTP/1.1\nHost: a:1\n\n", "a:1"),
        ] {
            assert_eq!(target_of(head.as_bytes()).unwrap().to_string(), target);
        }
        for (head, status) in [
            ("CONNECT a HTTP/1.1\r\n\r\n", "400"),
            ("CONNECT a:x HTTP/1.1\r\n\r\n", "400"),
            ("CONNECT  HTTP/1.1\r\n\r\n", "400"),
            ("CONNECT a:1 b HTTP/1.1\r\n\r\n", "400"),
            ("CONNECT a:1 HTTP/2\r\n\r\n", "400"),
            ("CONNECT a:1\r\n\r\n", "400"),
            ("CONNECT a:+1 HTTP/1.1\r\n\r\n", "400"),
            ("CONNECT a:1 HTTP/1.1\rHost: a\r\n\r\n", "400"),
            ("CONNECT a:1\r HTTP/1.1\r\n\r\n", "400"),
        ] {
            let mistake = target_of(head.as_bytes()).unwrap_err();
            let answer = String::from_utf8(mistake.answer).unwrap();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{head}: {answer}"
            );
        }
    }
}
