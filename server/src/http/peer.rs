//! Requests to the HTTP listeners of other nodes: one request a connection, the whole answer or a
//! reason, and the certainty whether anything was sent (chapter 08 section 6.2).
//!
//! It speaks to nodes of the same roster only and needs nothing of what general clients have:
//! redirections, pools, names. `httparse` reads the answer's head.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use futures_rustls::TlsConnector;
use futures_rustls::pki_types::ServerName;

use super::answer::Answer;
use super::listener::HttpTlsFiles;
use crate::runtime::{self, TcpStream};
use crate::tls::{self, TlsError};

/// How long an answer may take.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(35);
/// How long a connection may take to come about.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Largest answer, its head included.
const ANSWER_MAX: usize = 64 << 20;
/// Headers of an answer that are looked at.
const HEADERS_MAX: usize = 64;
/// Headers of an answer that are handed on.
const RELAYED: [&str; 3] = ["retry-after", "iggy-view", "iggy-durability"];

/// A request to hand on.
pub(crate) struct Handed<'a> {
    /// Method.
    pub(crate) method: &'static str,
    /// Path with its query.
    pub(crate) target: &'a str,
    /// `Authorization`.
    pub(crate) authorization: Option<&'a str>,
    /// `Content-Type`.
    pub(crate) content_type: Option<&'a str>,
    /// Body.
    pub(crate) body: &'a [u8],
    /// It is handed on for somebody else.
    pub(crate) forwarded: bool,
}

/// What became of it.
#[derive(Debug)]
pub(crate) enum Handover {
    /// The other node's answer, with the headers that are handed on.
    Answered(Answer),
    /// Nothing was sent.
    NotConnected,
    /// It was sent, or a part of it, and the outcome is not known.
    Broken,
    /// It was sent, and there was no answer in time.
    Late,
}

/// The way to the other nodes.
pub(crate) struct Peers {
    tls: Option<TlsConnector>,
}

impl Peers {
    /// With TLS only a node that shows our own certificate is believed.
    pub(crate) fn new(tls: Option<&HttpTlsFiles>) -> Self {
        Self {
            tls: tls.map(|files| TlsConnector::from(Arc::clone(&files.client))),
        }
    }

    /// For a client from outside, that believes who shows the certificate of this file; without a
    /// file it speaks plain HTTP.
    ///
    /// # Errors
    /// [`TlsError`] when the file cannot be used.
    pub(crate) fn believing(certificate: Option<&Path>) -> Result<Self, TlsError> {
        let tls = certificate.map(tls::pinned_to).transpose()?;
        Ok(Self {
            tls: tls.map(|config| TlsConnector::from(Arc::new(config))),
        })
    }

    /// Hands a request to the listener at `address`.
    pub(crate) async fn hand(&self, address: SocketAddr, request: &Handed<'_>) -> Handover {
        let connect = TcpStream::connect(address);
        let Some(Ok(socket)) = runtime::timeout(CONNECT_LIMIT, connect).await else {
            return Handover::NotConnected;
        };
        let _ = socket.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return exchange(socket, address, request).await;
        };
        let session = tls.connect(ServerName::IpAddress(address.ip().into()), socket);
        match runtime::timeout(CONNECT_LIMIT, session).await {
            Some(Ok(session)) => exchange(session, address, request).await,
            _ => Handover::NotConnected,
        }
    }
}

async fn exchange<T>(mut stream: T, address: SocketAddr, request: &Handed<'_>) -> Handover
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let spoken = async {
        let head = head(address, request);
        stream.write_all(head.as_bytes()).await.ok()?;
        stream.write_all(request.body).await.ok()?;
        stream.flush().await.ok()?;
        read_answer(&mut stream).await
    };
    match runtime::timeout(ATTEMPT_LIMIT, spoken).await {
        Some(Some(answer)) => Handover::Answered(answer),
        Some(None) => Handover::Broken,
        None => Handover::Late,
    }
}

fn head(address: SocketAddr, request: &Handed<'_>) -> String {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n",
        request.method, request.target
    );
    let length = request.body.len().to_string();
    for (name, value) in [
        ("authorization", request.authorization),
        ("content-type", request.content_type),
        ("content-length", Some(length.as_str())),
        ("iggy-forwarded", request.forwarded.then_some("1")),
    ] {
        if let Some(value) = value {
            head.push_str(name);
            head.push_str(": ");
            head.push_str(value);
            head.push_str("\r\n");
        }
    }
    head.push_str("\r\n");
    head
}

/// Reads until the answer is complete; `None` when it never is, or is too large.
async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> Option<Answer> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let count = stream.read(&mut chunk).await;
        let ended = match count {
            Ok(0) => true,
            Ok(count) => {
                bytes.extend_from_slice(&chunk[..count]);
                false
            }
            // A TLS peer that just closes the socket; what is complete is complete.
            Err(_) => true,
        };
        if bytes.len() > ANSWER_MAX {
            return None;
        }
        match parse(&bytes, ended) {
            Parsed::Answer(answer) => return Some(answer),
            Parsed::Incomplete if !ended => {}
            Parsed::Incomplete | Parsed::Malformed => return None,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    Answer(Answer),
    Incomplete,
    Malformed,
}

/// Reads what has arrived; `ended` when nothing will follow.
fn parse(mut bytes: &[u8], ended: bool) -> Parsed {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let start = match response.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Parsed::Incomplete,
            Err(_) => return Parsed::Malformed,
        };
        let rest = &bytes[start..];
        if !(100..200).contains(&response.code.unwrap_or(0)) {
            return body_of(&response, rest, ended);
        }
        // It only says that the answer will follow.
        bytes = rest;
    }
}

fn body_of(response: &httparse::Response<'_, '_>, rest: &[u8], ended: bool) -> Parsed {
    let status = response.code.unwrap_or(0);
    let value = |name: &str| {
        let mut headers = response.headers.iter();
        let header = headers.find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok()
    };
    let chunked = value("transfer-encoding").is_some_and(|text| text.contains("chunked"));
    let body = if status == 204 || status == 304 {
        Vec::new()
    } else if chunked {
        match unchunk(rest) {
            Some(Some(body)) => body,
            Some(None) => return Parsed::Incomplete,
            None => return Parsed::Malformed,
        }
    } else if let Some(length) = value("content-length") {
        match length.trim().parse::<usize>() {
            Ok(length) if length <= rest.len() => rest[..length].to_vec(),
            Ok(_) => return Parsed::Incomplete,
            Err(_) => return Parsed::Malformed,
        }
    } else if ended {
        rest.to_vec()
    } else {
        return Parsed::Incomplete;
    };
    let mut answer = Answer::empty(status).without_view();
    answer.body = body;
    answer.content_type = value("content-type").map(str::to_owned);
    for name in RELAYED {
        if let Some(value) = value(name) {
            answer = answer.with(name, value);
        }
    }
    Parsed::Answer(answer)
}

/// The content of a chunked body; inner `None` when more must come, outer when it is malformed.
fn unchunk(mut rest: &[u8]) -> Option<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let (start, length) = match httparse::parse_chunk_size(rest).ok()? {
            httparse::Status::Complete(found) => found,
            httparse::Status::Partial => return Some(None),
        };
        if length == 0 {
            return Some(Some(body));
        }
        let length = usize::try_from(length).ok()?;
        let end = start.checked_add(length)?;
        let Some(chunk) = rest.get(start..end) else {
            return Some(None);
        };
        body.extend_from_slice(chunk);
        let Some(after) = rest.get(end..end + 2) else {
            return Some(None);
        };
        if after != b"\r\n" {
            return None;
        }
        rest = &rest[end + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(bytes: &[u8]) -> Answer {
        match parse(bytes, false) {
            Parsed::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_are_read_whole_and_cut_nowhere() {
        let texts: [&[u8]; 3] = [
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\niggy-view: 7\r\nserver: x\r\n\
              content-length: 2\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nIggy-View: 7\r\n\
              Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
              iggy-view: 7\r\ncontent-length: 2\r\n\r\n{}",
        ];
        for text in texts {
            let answer = complete(text);
            assert_eq!((answer.status, answer.body.as_slice()), (200, &b"{}"[..]));
            assert_eq!(answer.content_type.as_deref(), Some("application/json"));
            assert_eq!(answer.headers, [("iggy-view", "7".to_owned())]);
            // Two bytes at the end of a chunked body are not waited for.
            for cut in 0..text.len() - 4 {
                assert_eq!(parse(&text[..cut], false), Parsed::Incomplete, "{cut}");
            }
        }
    }

    #[test]
    fn any_number_of_heads_that_promise_an_answer_is_passed_over() {
        let mut text = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(200_000);
        assert_eq!(parse(&text, false), Parsed::Incomplete);
        text.extend_from_slice(b"HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(complete(&text).status, 204);
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_stream() {
        let text = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n\r\nbusy";
        assert_eq!(parse(text, false), Parsed::Incomplete);
        let Parsed::Answer(answer) = parse(text, true) else {
            panic!("it has ended");
        };
        assert_eq!(answer.body, b"busy");
        assert_eq!(answer.headers, [("retry-after", "1".to_owned())]);
    }

    #[test]
    fn what_is_no_answer_is_malformed() {
        for text in [
            &b"SSH-2.0-x\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nxyz\r\n",
        ] {
            assert_eq!(parse(text, false), Parsed::Malformed);
        }
    }

    #[test]
    fn a_request_is_written_with_what_it_came_with() {
        let request = Handed {
            method: "POST",
            target: "/streams?x=1",
            authorization: Some("Bearer t"),
            content_type: Some("application/json"),
            body: b"{}",
            forwarded: true,
        };
        let text = head(([127, 0, 0, 1], 3000).into(), &request);
        assert!(text.starts_with("POST /streams?x=1 HTTP/1.1\r\n"), "{text}");
        for line in [
            "authorization: Bearer t",
            "content-type: application/json",
            "content-length: 2",
            "iggy-forwarded: 1",
        ] {
            assert!(text.contains(&format!("\r\n{line}\r\n")), "{text}");
        }
    }
}
