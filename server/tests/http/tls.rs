//! The HTTP port with TLS: followers hand on over TLS, pages of other origins are answered, and
//! HTTP/2 is spoken with whoever offers it.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use super::support::web::{WebCluster, WebRequest};
use super::support::web_tls::{Certificate, Session};
use super::support::{PASSWORD, TestFolder, USER, wait_until};

const TOPIC: &str = r#"{"name":"t","partitions_count":3,"compression_algorithm":"none",
    "message_expiry":0,"max_topic_size":0}"#;

fn cluster(nodes: usize) -> (WebCluster, Arc<Certificate>, TestFolder) {
    let folder = TestFolder::new();
    let certificate = Arc::new(Certificate::new(folder.path(), "own"));
    let mut cluster = WebCluster::launch_tls(nodes, Arc::clone(&certificate));
    cluster.wait_ready();
    (cluster, certificate, folder)
}

#[test]
fn a_follower_hands_on_over_tls() {
    let (cluster, _certificate, _folder) = cluster(3);
    let root = cluster.root();
    let primary = cluster.primary(0, &root).expect("a primary");
    let follower = (primary + 1) % 3;
    let post = |node: usize, target: &str, body: &str| {
        cluster.json(node, "POST", target, Some(&root), body)
    };
    let made = post(follower, "/streams", r#"{"name":"s"}"#);
    assert_eq!(made.status, 200, "{}", made.text());
    let view = made.header("iggy-view").expect("the primary's view");
    assert!(view.parse::<u32>().is_ok(), "{view}");
    let made = post(follower, "/streams/s/topics", TOPIC);
    assert_eq!(made.status, 200, "{}", made.text());
    let read = "/streams/s?consistency=linearizable";
    let read = cluster.get(follower, read, Some(&root)).unwrap();
    assert_eq!(read.status, 200, "{}", read.text());
    // Where a redirection leads is told with the scheme of the listener.
    let target = "/streams/s/topics/t/messages?consistency=linearizable&count=1";
    let moved = cluster.get(follower, target, Some(&root)).unwrap();
    assert_eq!(moved.status, 307, "{}", moved.text());
    let location = format!("https://{}{target}", cluster.address(primary));
    assert_eq!(moved.header("location"), Some(location.as_str()));
    for (partition, value) in ["AAAAAA==", "AQAAAA==", "AgAAAA=="].iter().enumerate() {
        let body = format!(
            r#"{{"partitioning":{{"kind":"partition_id","value":"{value}"}},
            "messages":[{{"payload":"aGVsbG8="}}]}}"#
        );
        for node in 0..3 {
            let what = format!("a message for partition {partition} at node {node}");
            let sent = wait_until(&what, Duration::from_secs(10), || {
                let answer = post(node, "/streams/s/topics/t/messages", &body);
                match answer.status {
                    201 => Ok(answer),
                    // Nobody led the partition yet.
                    503 => Err(answer.text()),
                    _ => panic!("{} {}", answer.status, answer.text()),
                }
            });
            let offset = &sent.json()["confirmations"][0]["base_offset"];
            assert_eq!(offset.as_u64(), Some(node as u64), "{}", sent.text());
        }
    }
}

#[test]
fn a_page_of_another_origin_is_answered_over_tls() {
    let (cluster, ..) = cluster(1);
    let ask = |method, bearer| {
        let request = WebRequest {
            method,
            target: "/status",
            bearer,
            more: "origin: https://page\r\naccess-control-request-method: GET\r\n\
                   access-control-request-headers: authorization\r\n",
            ..WebRequest::default()
        };
        cluster.send(0, &request).expect("an answer")
    };
    let preflight = ask("OPTIONS", None);
    assert_eq!(preflight.status, 200);
    let allowed = preflight.header("access-control-allow-headers");
    assert_eq!(allowed, Some("content-type,authorization"));
    let root = cluster.root();
    for (bearer, status) in [(Some(root.as_str()), 200), (None, 401)] {
        let answer = ask("GET", bearer);
        assert_eq!(answer.status, status);
        // Without this the page is not even told why.
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    }
}

#[test]
fn who_speaks_no_tls_gets_nothing() {
    let (cluster, ..) = cluster(1);
    let plain = b"GET /ping HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(super::support::web::raw(cluster.address(0), plain).is_err());
    let stranger = TestFolder::new();
    let other = Certificate::new(stranger.path(), "other");
    assert!(
        other.session(cluster.address(0), &["http/1.1"]).is_err(),
        "another certificate is not believed"
    );
    assert_eq!(cluster.get(0, "/ping", None).unwrap().status, 200);
}

/// Kinds of HTTP/2 frames (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The little of HTTP/2 that a client needs for one request at a time.
struct Http2(Session);

impl Http2 {
    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a short payload");
        let mut bytes = length.to_be_bytes()[1..].to_vec();
        bytes.extend_from_slice(&[kind, flags]);
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(payload);
        self.0.write_all(&bytes).expect("the session takes it");
    }

    fn next(&mut self) -> (u8, u8, u32, Vec<u8>) {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).expect("a frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).expect("its payload");
        (head[3], head[4], stream, payload)
    }

    /// A request on a stream of its own; the first field of the answer, which is its status, and
    /// its body.
    fn ask(&mut self, stream: u32, fields: &[(&str, &str)], body: Option<&str>) -> (u8, String) {
        // Literal fields with new names, not indexed, without Huffman's code (RFC 7541).
        let mut block = Vec::new();
        for (name, value) in fields {
            block.push(0);
            for text in [name, value] {
                assert!(text.len() < 127 + 128, "a length of at most two bytes");
                match text.len() {
                    length @ ..127 => block.push(length as u8),
                    length => block.extend_from_slice(&[127, (length - 127) as u8]),
                }
                block.extend_from_slice(text.as_bytes());
            }
        }
        let end = if body.is_some() { 0 } else { END_STREAM };
        self.frame(HEADERS, END_HEADERS | end, stream, &block);
        if let Some(body) = body {
            self.frame(DATA, END_STREAM, stream, body.as_bytes());
        }
        let (mut status, mut text) = (0, Vec::new());
        loop {
            let (kind, flags, of, payload) = self.next();
            match kind {
                SETTINGS if flags & ACK == 0 => self.frame(SETTINGS, ACK, 0, &[]),
                HEADERS if of == stream && status == 0 => status = payload[0],
                DATA if of == stream => text.extend_from_slice(&payload),
                _ => {}
            }
            let ends = matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0;
            if of == stream && ends {
                return (status, String::from_utf8(text).expect("text"));
            }
        }
    }
}

/// Statuses as the static table of field blocks has them.
const OK: u8 = 0x80 | 8;
const BAD_REQUEST: u8 = 0x80 | 12;
const NOT_FOUND: u8 = 0x80 | 13;

#[test]
fn http2_is_spoken_with_whoever_offers_it() {
    let (cluster, certificate, _folder) = cluster(1);
    let address = cluster.address(0);
    let session = certificate
        .session(address, &["h2", "http/1.1"])
        .expect("a session");
    assert_eq!(session.conn.alpn_protocol(), Some(&b"h2"[..]));
    let mut http2 = Http2(session);
    http2
        .0
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .unwrap();
    http2.frame(SETTINGS, 0, 0, &[]);
    let authority = address.to_string();
    let request = |method: &'static str, path: &'static str| {
        [
            (":method", method),
            (":scheme", "https"),
            (":authority", authority.as_str()),
            (":path", path),
        ]
    };
    let (status, body) = http2.ask(1, &request("GET", "/ping"), None);
    assert_eq!((status, body.as_str()), (OK, "pong"));
    let (status, _) = http2.ask(3, &request("GET", "/nowhere"), None);
    assert_eq!(status, NOT_FOUND);
    let mut login = request("POST", "/users/login").to_vec();
    login.push(("content-type", "application/json"));
    let wrong = r#"{"username":"iggy","password":"wrong"}"#;
    assert_eq!(http2.ask(5, &login, Some(wrong)).0, BAD_REQUEST);
    let right = format!(r#"{{"username":"{USER}","password":"{PASSWORD}"}}"#);
    let (status, body) = http2.ask(7, &login, Some(&right));
    assert_eq!(status, OK, "{body}");
    let identity: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert!(identity["access_token"]["token"].is_string(), "{body}");
    // Who offers only the older one gets that.
    let session = certificate.session(address, &["http/1.1"]).unwrap();
    assert_eq!(session.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
}
