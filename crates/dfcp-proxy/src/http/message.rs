//! Heads of HTTP/1.1 messages (RFC 9112), as a proxy reads them and passes them on.
//!
//! Nothing is passed on as it came: a head is read whole, and written again from what was understood, so
//! that who reads it next cannot see other messages in it. What may be understood in two ways is refused.

use httparse::{EMPTY_HEADER, Status as Parsed};

use crate::target::{Target, number};

/// Fields of a head: what web servers usually take.
const MAX_FIELDS: usize = 100;
/// The port of URLs that name none.
const HTTP_PORT: u16 = 80;
/// How this proxy is called in `Via` (RFC 9110 §7.6.3).
const PSEUDONYM: &str = "dfcp";

/// Fields that are for the next hop alone, whatever `Connection` says (RFC 9110 §7.6.1), and those that
/// frame a message, which is framed anew.
const HOP_BY_HOP: [&str; 11] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
];

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The status line to answer a request with.
    pub status: &'static str,
    /// In words.
    pub why: &'static str,
}

const fn bad(why: &'static str) -> Wrong {
    let status = "400 Bad Request";
    Wrong { status, why }
}

/// How long what follows a head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Nothing,
    Bytes(u64),
    Chunks,
    /// To the end of the connection.
    Rest,
}

/// What a head ends with, after its last line.
const END: &[u8] = b"\r\n";

/// A request for a proxy, as it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub target: Target,
    pub head: Vec<u8>,
    pub body: Body,
    /// HEAD: the answer has no body, whatever its head says.
    pub wants_head_only: bool,
    /// A further request may follow.
    pub persists: bool,
    /// Speaks HTTP/1.0, and knows no chunks.
    pub is_old: bool,
    /// Doing it twice does what doing it once does (RFC 9110 §9.2.2), and all of it is here.
    pub may_repeat: bool,
}

/// A response, as it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub head: Vec<u8>,
    pub body: Body,
    /// Another one follows to the same request (1xx).
    pub is_interim: bool,
    /// The host may be asked more over the same connection.
    pub persists: bool,
    /// The program was told that no further request is read after this answer.
    pub closes: bool,
}

impl Response {
    /// Tells the program so.
    pub fn close(&mut self) {
        if !self.closes {
            self.closes = true;
            self.head.truncate(self.head.len() - END.len());
            put(&mut self.head, "Connection", b"close");
            self.head.extend(END);
        }
    }
}

/// What was read of a head: its message and its length, or that there is not all of it yet.
pub(crate) type Read<T> = Result<Option<(T, usize)>, Wrong>;

/// Reads the head of a request.
pub(crate) fn request(bytes: &[u8]) -> Read<Request> {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    let len = match parsed.parse(bytes) {
        Ok(Parsed::Complete(len)) => len,
        Ok(Parsed::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Wrong {
                status: "431 Request Header Fields Too Large",
                why: "its request has more than 100 fields",
            });
        }
        Err(_) => return Err(bad("its request is none of HTTP/1.1")),
    };
    let (Some(method), Some(url), Some(minor)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(bad("its request is none of HTTP/1.1"));
    };
    let (target, authority, path) = split_url(url)?;
    let fields = Fields(parsed.headers);
    let is_old = minor == 0;
    if fields.values("host").count() != 1 && !is_old {
        return Err(bad("a request of HTTP/1.1 has one Host"));
    }
    let body = match fields.framing(is_old)? {
        Framing::None => Body::Nothing,
        Framing::Bytes(n) => Body::Bytes(n),
        Framing::Chunks => Body::Chunks,
        Framing::Other => {
            return Err(Wrong {
                status: "501 Not Implemented",
                why: "its Transfer-Encoding is not chunked",
            });
        }
    };
    let path = match (method, path) {
        // RFC 9112 §3.2.4.
        ("OPTIONS", "") => "*".to_owned(),
        (_, path) if path.starts_with('/') => path.to_owned(),
        (_, path) => format!("/{path}"),
    };
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {authority}\r\n").into_bytes();
    fields.pass_on(&mut head);
    frame(&mut head, body);
    head.extend(format!("Via: 1.{minor} {PSEUDONYM}\r\n\r\n").as_bytes());
    let is_safe = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE");
    let request = Request {
        target,
        head,
        body,
        wants_head_only: method == "HEAD",
        persists: !is_old && !fields.closes(),
        is_old,
        may_repeat: is_safe && body == Body::Nothing,
    };
    Ok(Some((request, len)))
}

/// Reads the head of a response to a request.
pub(crate) fn response(bytes: &[u8], to: &Request) -> Read<Response> {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut fields);
    let len = match parsed.parse(bytes) {
        Ok(Parsed::Complete(len)) => len,
        Ok(Parsed::Partial) => return Ok(None),
        Err(_) => return Err(bad("the host's answer is none of HTTP/1.1")),
    };
    let (Some(minor), Some(code)) = (parsed.version, parsed.code) else {
        return Err(bad("the host's answer is none of HTTP/1.1"));
    };
    // Nobody asked for another protocol: that field was not passed on.
    if code == 101 || code < 100 {
        return Err(bad("the host's answer is to something that was not asked"));
    }
    let fields = Fields(parsed.headers);
    let is_interim = code < 200;
    let framing = fields.framing(minor == 0)?;
    let has_none = is_interim || to.wants_head_only || matches!(code, 204 | 304);
    let body = match framing {
        // The coding would not be told of: that field is for the next hop, and TE was not passed on.
        Framing::Other => return Err(bad("the host's Transfer-Encoding is not chunked")),
        _ if has_none => Body::Nothing,
        Framing::None => Body::Rest,
        Framing::Bytes(n) => Body::Bytes(n),
        Framing::Chunks => Body::Chunks,
    };
    let reason = parsed.reason.unwrap_or_default();
    let mut head = format!("HTTP/1.1 {code} {reason}\r\n").into_bytes();
    fields.pass_on(&mut head);
    let persists = minor > 0 && !fields.closes() && body != Body::Rest;
    match (body, framing) {
        // These have no length (RFC 9110 §8.6): a program could wait for such a body.
        (Body::Nothing, _) if is_interim || code == 204 => {}
        // The length that a body would have is told of one that is not there.
        (Body::Nothing, Framing::Bytes(n)) => frame(&mut head, Body::Bytes(n)),
        (Body::Chunks, _) if to.is_old => {}
        (body, _) => frame(&mut head, body),
    }
    if !is_interim {
        head.extend(format!("Via: 1.{minor} {PSEUDONYM}\r\n").as_bytes());
    }
    head.extend(END);
    let mut response = Response {
        head,
        body,
        is_interim,
        persists,
        closes: false,
    };
    if !is_interim && (!to.persists || body == Body::Rest) {
        response.close();
    }
    Ok(Some((response, len)))
}

/// Whom a URL is for, as it names them, and what of it is for them.
fn split_url(url: &str) -> Result<(Target, &str, &str), Wrong> {
    let scheme = url.get(..7).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("http://") {
        let is_https = url
            .get(..8)
            .is_some_and(|start| start.eq_ignore_ascii_case("https://"));
        return Err(match is_https {
            true => bad("https is asked for by CONNECT: set this as proxy for https"),
            false => bad("this is a proxy, and its request names no http://HOST"),
        });
    }
    let rest = &url[7..];
    if rest.contains('#') {
        return Err(bad("a fragment (#) is not for servers"));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let with_port = match authority
        .rsplit_once(':')
        .filter(|(_, port)| !port.ends_with(']'))
    {
        // RFC 3986 §6.2.3: an empty port is the scheme's.
        Some((host, "")) => format!("{host}:{HTTP_PORT}"),
        Some(_) => authority.to_owned(),
        None => format!("{authority}:{HTTP_PORT}"),
    };
    // A name before an @ is for people who are to take it for the host.
    let is_plain = authority
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-._~:[]".contains(&b));
    let target = Target::parse(&with_port).ok().filter(|_| is_plain);
    let target = target.ok_or(bad("its request names no host"))?;
    Ok((target, authority, path))
}

#[derive(Clone, Copy)]
enum Framing {
    None,
    Bytes(u64),
    Chunks,
    /// Coded in another way.
    Other,
}

/// The fields of a head.
struct Fields<'a>(&'a [httparse::Header<'a>]);

impl<'a> Fields<'a> {
    fn values(&self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let named = self
            .0
            .iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value)
    }

    /// The parts between commas of all fields of a name.
    fn list(&self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let values = self.values(name);
        values.flat_map(|value| value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii))
    }

    /// Whether the connection ends after this message.
    fn closes(&self) -> bool {
        ["connection", "proxy-connection"].into_iter().any(|name| {
            self.list(name)
                .any(|option| option.eq_ignore_ascii_case(b"close"))
        })
    }

    /// How the message is framed. Two answers to that are one too many: whoever reads it next could see
    /// another message where this one ends (request smuggling, RFC 9112 §11.2).
    fn framing(&self, is_old: bool) -> Result<Framing, Wrong> {
        let mut codings = self
            .list("transfer-encoding")
            .filter(|coding| !coding.is_empty());
        let is_coded = self.values("transfer-encoding").next().is_some();
        let mut lengths = self.list("content-length");
        let length = lengths.next();
        if is_coded {
            if length.is_some() {
                return Err(bad(
                    "a message has Content-Length or Transfer-Encoding, not both",
                ));
            }
            if is_old {
                return Err(bad("a message of HTTP/1.0 has no Transfer-Encoding"));
            }
            return Ok(match (codings.next(), codings.next()) {
                (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Framing::Chunks,
                _ => Framing::Other,
            });
        }
        let Some(length) = length else {
            return Ok(Framing::None);
        };
        let value = |text: &[u8]| {
            let text = std::str::from_utf8(text)
                .ok()
                .filter(|text| !text.is_empty());
            text.and_then(number::<u64>)
                .ok_or(bad("its Content-Length is no number"))
        };
        let length = value(length)?;
        for other in lengths {
            if value(other)? != length {
                return Err(bad("it has two different Content-Length"));
            }
        }
        Ok(Framing::Bytes(length))
    }

    /// Writes the fields that are for the far end.
    fn pass_on(&self, head: &mut Vec<u8>) {
        let named: Vec<_> = self.list("connection").collect();
        for field in self.0 {
            let name = field.name;
            let is_own = HOP_BY_HOP.iter().any(|hop| hop.eq_ignore_ascii_case(name))
                || named
                    .iter()
                    .any(|option| option.eq_ignore_ascii_case(name.as_bytes()));
            if !is_own {
                put(head, name, field.value);
            }
        }
    }
}

/// Writes how the message is framed.
fn frame(head: &mut Vec<u8>, body: Body) {
    match body {
        Body::Bytes(n) => put(head, "Content-Length", n.to_string().as_bytes()),
        Body::Chunks => put(head, "Transfer-Encoding", b"chunked"),
        Body::Nothing | Body::Rest => {}
    }
}

fn put(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend(name.as_bytes());
    head.extend(b": ");
    head.extend(value);
    head.extend(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Result<Request, Wrong> {
        request(text.as_bytes()).map(|read| read.expect("a whole head").0)
    }

    fn get() -> Request {
        ask("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n").unwrap()
    }

    #[test]
    fn requests_go_on_in_the_form_for_servers_without_what_was_for_the_proxy() {
        let request = ask(
            "POST http://a.example:8080/x?y HTTP/1.1\r\nHost: other\r\nAccept: */*\r\n\
             Proxy-Connection: keep-alive\r\nProxy-Authorization: secret\r\nConnection: X-Mine, close\r\n\
             X-Mine: 1\r\nTE: trailers\r\nUpgrade: h2c\r\ncontent-length: 3\r\n\r\nabc",
        )
        .unwrap();
        assert_eq!(
            String::from_utf8(request.head).unwrap(),
            "POST /x?y HTTP/1.1\r\nHost: a.example:8080\r\nAccept: */*\r\nContent-Length: 3\r\n\
             Via: 1.1 dfcp\r\n\r\n"
        );
        assert_eq!(request.target.to_string(), "a.example:8080");
        assert_eq!(request.body, Body::Bytes(3));
        assert!(!request.persists && !request.may_repeat);
        let head = |text: &str| String::from_utf8(ask(text).unwrap().head).unwrap();
        for (url, line) in [
            ("http://a", "GET / HTTP/1.1\r\nHost: a\r\n"),
            ("HTTP://a?q", "GET /?q HTTP/1.1\r\nHost: a\r\n"),
            (
                "http://[2001:db8::1]/x",
                "GET /x HTTP/1.1\r\nHost: [2001:db8::1]\r\n",
            ),
            ("http://a:/x", "GET /x HTTP/1.1\r\nHost: a:\r\n"),
        ] {
            let text = format!("GET {url} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(head(&text).starts_with(line), "{url}: {}", head(&text));
        }
        assert!(head("OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("OPTIONS * "));
        assert!(get().persists && get().may_repeat);
        assert!(!ask("GET http://a/ HTTP/1.0\r\n\r\n").unwrap().persists);
    }

    #[test]
    fn what_may_be_read_in_two_ways_is_refused() {
        for (fields, status) in [
            ("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "400"),
            ("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "400"),
            ("Content-Length: 3\r\nContent-Length: 4\r\n", "400"),
            ("Content-Length: 3, 4\r\n", "400"),
            ("Content-Length: +3\r\n", "400"),
            ("Content-Length: 0x3\r\n", "400"),
            ("Content-Length:\r\n", "400"),
            ("Content-Length: 99999999999999999999\r\n", "400"),
            ("Transfer-Encoding: gzip, chunked\r\n", "501"),
            ("Transfer-Encoding: chunked, chunked\r\n", "501"),
            ("Transfer-Encoding: xchunked\r\n", "501"),
            ("Transfer-Encoding:\r\n", "501"),
            ("Transfer-Encoding : chunked\r\n", "400"),
            ("Content-Length: 3\r\n folded\r\n", "400"),
            ("Host: b\r\n", "400"),
            ("X: a\0b\r\n", "400"),
            ("X: a\rb\r\n", "400"),
            ("no field\r\n", "400"),
        ] {
            let text = format!("POST http://a/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let wrong = ask(&text).unwrap_err();
            assert!(wrong.status.starts_with(status), "{fields:?}: {wrong:?}");
        }
        // The same length twice is one.
        let twice = ask("POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n");
        assert_eq!(twice.unwrap().body, Body::Bytes(3));
        for line in [
            "GET / HTTP/1.1",
            "GET https://a/ HTTP/1.1",
            "GET http:///x HTTP/1.1",
            "GET http://u:p@a/ HTTP/1.1",
            "GET http://a:0/ HTTP/1.1",
            "GET http://a:99999/ HTTP/1.1",
            "GET http://a b/ HTTP/1.1",
            "GET http://a/#x HTTP/1.1",
            "GET http://a/ HTTP/2.0",
            "GET http://::1/ HTTP/1.1",
            "GET http://a/",
            "G\u{1}T http://a/ HTTP/1.1",
        ] {
            let wrong = ask(&format!("{line}\r\nHost: a\r\n\r\n")).unwrap_err();
            assert!(wrong.status.starts_with("400"), "{line:?}: {wrong:?}");
        }
        let without_host = ask("GET http://a/ HTTP/1.1\r\n\r\n").unwrap_err();
        assert!(without_host.status.starts_with("400"));
        let old = "POST http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(ask(old).unwrap_err().status.starts_with("400"));
        let many = "A: b\r\n".repeat(101);
        let many = ask(&format!("GET http://a/ HTTP/1.1\r\nHost: a\r\n{many}\r\n"));
        assert!(many.unwrap_err().status.starts_with("431"));
    }

    #[test]
    fn responses_are_framed_as_they_came_and_end_where_they_must() {
        let answer = |text: &str, to: &Request| response(text.as_bytes(), to).unwrap().unwrap().0;
        let head = |response: &Response| String::from_utf8(response.head.clone()).unwrap();
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: 5\r\n\r\n";
        let response = answer(chunked, &get());
        assert_eq!((response.body, response.persists), (Body::Chunks, true));
        assert_eq!(
            head(&response),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nVia: 1.1 dfcp\r\n\r\n"
        );
        let old = ask("GET http://a/ HTTP/1.0\r\n\r\n").unwrap();
        let response = answer(chunked, &old);
        assert!(
            !head(&response).contains("chunked") && head(&response).contains("Connection: close")
        );
        let response = answer("HTTP/1.0 200 OK\r\n\r\n", &get());
        assert_eq!((response.body, response.persists), (Body::Rest, false));
        assert!(head(&response).contains("Connection: close"));
        let response = answer("HTTP/1.1 100 Continue\r\n\r\n", &get());
        assert!(response.is_interim && response.body == Body::Nothing);
        // Only 304 tells the length that there would be.
        for (code, tells) in [(103, false), (204, false), (304, true)] {
            let text = format!("HTTP/1.1 {code} X\r\nContent-Length: 7, 7\r\n\r\n");
            let response = answer(&text, &get());
            assert_eq!(response.body, Body::Nothing);
            let head = head(&response);
            assert_eq!(head.contains("Content-Length: 7\r\n"), tells, "{head}");
        }
        let head_only = ask("HEAD http://a/ HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let response = answer("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", &head_only);
        assert_eq!(response.body, Body::Nothing);
        assert!(head(&response).contains("Content-Length: 7"));
        for bad in [
            "HTTP/1.1 101 Switching\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n\r\n",
            "SSH-2.0-x\r\n\r\n",
        ] {
            assert!(super::response(bad.as_bytes(), &get()).is_err(), "{bad:?}");
        }
    }
}
