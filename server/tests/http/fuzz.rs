//! Requests made of chance at every route: no answer is 500, no node ends, and no request takes
//! for ever.

use std::time::{Duration, Instant};

use super::support::web::{WebCluster, WebRequest, send};
use super::support::{Random, seed};

const REQUESTS: usize = 3_000;
const RAW_REQUESTS: usize = 300;

const PATHS: &[&str] = &[
    "/ping",
    "/health/live",
    "/health/ready",
    "/status",
    "/status/groups",
    "/metrics",
    "/stats",
    "/cluster/metadata",
    "/clients",
    "/clients/*",
    "/options/*",
    "/snapshot",
    "/users/login",
    "/users/refresh-token",
    "/users",
    "/users/*",
    "/users/*/password",
    "/users/*/permissions",
    "/personal-access-tokens/login",
    "/personal-access-tokens",
    "/personal-access-tokens/*",
    "/streams",
    "/streams/*",
    "/streams/*/purge",
    "/streams/*/topics",
    "/streams/*/topics/*",
    "/streams/*/topics/*/purge",
    "/streams/*/topics/*/partitions",
    "/streams/*/topics/*/partitions/*",
    "/streams/*/topics/*/consumer-groups",
    "/streams/*/topics/*/consumer-groups/*",
    "/streams/*/topics/*/messages",
    "/streams/*/topics/*/consumer-offsets",
    "/streams/*/topics/*/consumer-offsets/*",
];

/// Segments of paths: what exists, what does not, and what is no text.
const SEGMENTS: &[&str] = &[
    "0",
    "1",
    "s",
    "t",
    "g",
    "me",
    "iggy",
    "logout",
    "4294967295",
    "4294967296",
    "-1",
    "%ff",
    "%00",
    "a%2Fb",
    "%",
    "..",
    "x%20y",
    "+7",
    "name",
];

const QUERIES: &[&str] = &[
    "consistency=linearizable",
    "consistency=odd",
    "partition_id=0",
    "partition_id=4294967296",
    "kind=last",
    "kind=timestamp",
    "kind=odd",
    "value=18446744073709551615",
    "value=-1",
    "count=0",
    "count=4294967295",
    "auto_commit=true",
    "auto_commit=1",
    "consumer_id=",
    "consumer_id=%ff",
    "ack=none",
    "ack=odd",
    "partitions_count=1",
    "partitions_count=0",
    "segments_count=4294967295",
    "name=%e2%84%aa",
    "primary=255",
    "troubled=true",
    "from=18446744073709551615",
    "&&&==",
];

/// Members of bodies with values of every shape.
const MEMBERS: &[&str] = &[
    "username",
    "password",
    "status",
    "permissions",
    "token",
    "name",
    "expiry",
    "options",
    "current_password",
    "new_password",
    "partitions_count",
    "compression_algorithm",
    "message_expiry",
    "max_topic_size",
    "partitioning",
    "messages",
    "consumer_id",
    "partition_id",
    "offset",
    "compression",
    "snapshot_types",
];

const VALUES: &[&str] = &[
    "0",
    "1",
    "-1",
    "1.5",
    "1e400",
    "18446744073709551615",
    "18446744073709551616",
    "null",
    "true",
    "\"\"",
    "\"x\"",
    "\"name\"",
    "\"active\"",
    "\"none\"",
    "\"gzip\"",
    "\"Stored\"",
    "\"\\ud800\"",
    "\"\\u0000\"",
    "[]",
    "[1]",
    "[\"Test\"]",
    "{}",
    "{\"durability\":\"persisted\"}",
    "{\"a\":\"b\"}",
    "{\"kind\":\"balanced\",\"value\":\"\"}",
    "{\"kind\":\"partition_id\",\"value\":\"AAAAAA==\"}",
    "{\"kind\":\"messages_key\",\"value\":\"eA==\"}",
    "[{\"payload\":\"eA==\"}]",
    "[{\"id\":\"x\",\"payload\":\"eA==\"}]",
    "[{\"payload\":\"eA==\",\"user_headers\":[{\"key\":{\"kind\":\"raw\",\"value\":\"\"},\
     \"value\":{\"kind\":\"bool\",\"value\":\"eA==\"}}]}]",
    "[{\"payload\":\"eA==\",\"user_headers\":\"AQID\"}]",
];

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.between(0, from.len() as u64 - 1) as usize]
}

fn target(random: &mut Random) -> String {
    let mut path = String::new();
    for segment in pick(random, PATHS).split('/').skip(1) {
        path.push('/');
        path.push_str(if segment == "*" {
            pick(random, SEGMENTS)
        } else {
            segment
        });
    }
    for index in 0..random.between(0, 3) {
        path.push(if index == 0 { '?' } else { '&' });
        path.push_str(pick(random, QUERIES));
    }
    path
}

fn body(random: &mut Random) -> Vec<u8> {
    let mut text = String::from("{");
    for index in 0..random.between(0, 6) {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&format!(
            "\"{}\":{}",
            pick(random, MEMBERS),
            pick(random, VALUES)
        ));
    }
    text.push('}');
    let mut bytes = text.into_bytes();
    if random.one_in(8) {
        let at = random.between(0, bytes.len() as u64 - 1) as usize;
        bytes[at] = random.next() as u8;
    }
    if random.one_in(20) {
        bytes = random.bytes(40);
    }
    bytes
}

#[test]
fn no_request_is_answered_with_500_or_ends_a_node() {
    let mut random = Random::new(seed("no_request_is_answered_with_500_or_ends_a_node"));
    let mut cluster = WebCluster::start(1, "");
    let root = cluster.root();
    let mut statuses = std::collections::BTreeMap::new();
    for _ in 0..REQUESTS {
        let (target, body) = (target(&mut random), body(&mut random));
        let method = pick(
            &mut random,
            &["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"],
        );
        // What ends the only user's access would end the test's sense.
        let is_root = target.starts_with("/users/0")
            || target.starts_with("/users/iggy")
            || target.starts_with("/users/me");
        if is_root && method != "GET" {
            continue;
        }
        let sends_body = method != "GET" && !random.one_in(10);
        let request = WebRequest {
            method,
            target: &target,
            bearer: (!random.one_in(20)).then_some(root.as_str()),
            content_type: (!random.one_in(20)).then_some("application/json"),
            body: sends_body.then_some(body.as_slice()),
            ..WebRequest::default()
        };
        let started = Instant::now();
        let shown = || format!("{method} {target} {:?}", String::from_utf8_lossy(&body));
        let answer = send(cluster.address(0), &request)
            .unwrap_or_else(|error| panic!("{}: {error}", shown()));
        let took = started.elapsed();
        assert!(took < Duration::from_secs(15), "{}: {took:?}", shown());
        assert_ne!(answer.status, 500, "{}: {}", shown(), answer.text());
        assert!((200..600).contains(&answer.status), "{}", shown());
        *statuses.entry(answer.status).or_insert(0u32) += 1;
    }
    for _ in 0..RAW_REQUESTS {
        let mut bytes = format!(
            "{} {} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
            pick(&mut random, &["GET", "POST", "BREW", ""]),
            target(&mut random)
        )
        .into_bytes();
        for _ in 0..random.between(1, 6) {
            let at = random.between(0, bytes.len() as u64 - 1) as usize;
            bytes[at] = random.next() as u8;
        }
        bytes.extend_from_slice(b"\r\n\r\n");
        // The head may be so broken that the connection just ends.
        if let Ok(answer) = raw_shutting(cluster.address(0), &bytes) {
            assert_ne!(answer, 500, "{:?}", String::from_utf8_lossy(&bytes));
        }
    }
    println!("answers by status: {statuses:?}");
    assert!(
        statuses.len() >= 6,
        "the requests are of many kinds: {statuses:?}"
    );
    cluster.check_alive();
    let logs = cluster.logs();
    assert!(!logs.contains("panicked"), "{logs}");
    assert_eq!(cluster.get(0, "/stats", Some(&root)).unwrap().status, 200);
}

/// Sends, ends the sending side, and reads; the status of what comes back.
fn raw_shutting(address: std::net::SocketAddr, bytes: &[u8]) -> Result<u16, String> {
    use std::io::{Read as _, Write as _};
    let told = |error: std::io::Error| error.to_string();
    let mut socket = std::net::TcpStream::connect(address).map_err(told)?;
    socket
        .set_read_timeout(Some(Duration::from_secs(15)))
        .map_err(told)?;
    socket.write_all(bytes).map_err(told)?;
    socket.shutdown(std::net::Shutdown::Write).map_err(told)?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).map_err(told)?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    status.ok_or(text)
}
