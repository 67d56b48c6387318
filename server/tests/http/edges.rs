//! What the table of routes cannot say: shapes of answers, tokens, who forwards what to whom, and
//! what happens at the limits.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::support::wait_until;
use super::support::web::{WebCluster, WebRequest, raw, send};

const TOPIC: &str = r#"{"name":"t","partitions_count":3,"compression_algorithm":"none",
    "message_expiry":0,"max_topic_size":0,"options":{"durability":"persisted"}}"#;

fn message(partition: u8) -> String {
    let value = ["AAAAAA==", "AQAAAA==", "AgAAAA=="][usize::from(partition)];
    format!(
        r#"{{"partitioning":{{"kind":"partition_id","value":"{value}"}},
        "messages":[{{"id":1,"payload":"aGVsbG8="}},
        {{"id":"340282366920938463463374607431768211455","payload":"d29ybGQ="}}]}}"#
    )
}

fn with_topic(nodes: usize, more: &str) -> (WebCluster, String) {
    let cluster = WebCluster::start(nodes, more);
    let root = cluster.root();
    let made = cluster.json(0, "POST", "/streams", Some(&root), r#"{"name":"s"}"#);
    assert_eq!(made.status, 200, "{}", made.text());
    let body = made.text();
    let expected = r#","name":"s","size":"0 B","messages_count":0,"topics_count":0,"topics":[],"#;
    assert!(body.starts_with(r#"{"id":0,"created_at":"#), "{body}");
    assert!(
        body.ends_with(&format!(r#"{expected}"options":{{}}}}"#)),
        "{body}"
    );
    let topic = cluster.json(0, "POST", "/streams/s/topics", Some(&root), TOPIC);
    assert_eq!(topic.status, 200, "{}", topic.text());
    let options = &topic.json()["options"];
    assert_eq!(options["durability"]["value"], "persisted");
    assert_eq!(options["durability"]["explicit"], true);
    assert_eq!(options["segment_size"]["value"], "1073741824");
    assert_eq!(options["segment_size"]["explicit"], false);
    (cluster, root)
}

#[test]
fn messages_come_back_as_json_says_they_were_sent() {
    let (cluster, root) = with_topic(1, "");
    let target = "/streams/s/topics/t/messages";
    let sent = cluster.json(0, "POST", target, Some(&root), &message(0));
    assert_eq!(sent.status, 201, "{}", sent.text());
    assert_eq!(sent.header("iggy-durability"), Some("persisted"));
    assert_eq!(
        sent.text(),
        r#"{"confirmations":[{"stream_id":0,"topic_id":0,"partition_id":0,"base_offset":0}]}"#
    );
    let again = cluster.json(0, "POST", target, Some(&root), &message(0));
    assert_eq!(again.json()["confirmations"][0]["base_offset"], 2);
    let unheard = format!("{target}?ack=none");
    let unheard = cluster.json(0, "POST", &unheard, Some(&root), &message(0));
    assert_eq!((unheard.status, unheard.body.len()), (202, 0));
    assert_eq!(unheard.header("iggy-durability"), Some("none"));
    let polled = wait_until("six messages", Duration::from_secs(5), || {
        let answer = cluster.get(0, &format!("{target}?count=100"), Some(&root))?;
        let text = answer.text();
        let six = text.contains(r#""count":6"#);
        six.then_some(text.clone()).ok_or(text)
    });
    // Ids of 39 digits are bare numbers.
    assert!(
        polled.contains(r#""id":340282366920938463463374607431768211455,"offset":1"#),
        "{polled}"
    );
    assert!(polled.starts_with(r#"{"partition_id":0,"current_offset":5,"count":6,"messages":["#));
    assert!(polled.contains(r#""payload":"aGVsbG8=","user_headers":[]}"#));
    let topic = cluster.get(0, "/streams/s/topics/t", Some(&root)).unwrap();
    assert_eq!(topic.json()["messages_count"], 6);
}

#[test]
fn tokens_are_issued_renewed_and_exchanged() {
    let cluster = WebCluster::start(1, "");
    let root = cluster.root();
    let renewed = cluster.json(
        0,
        "POST",
        "/users/refresh-token",
        None,
        &format!(r#"{{"token":"{root}"}}"#),
    );
    assert_eq!(renewed.status, 200, "{}", renewed.text());
    let json = renewed.json();
    let expiry = json["access_token"]["expiry"].as_u64().expect("seconds");
    let now = std::time::UNIX_EPOCH
        .elapsed()
        .expect("after 1970")
        .as_secs();
    assert!((now + 3590..=now + 3610).contains(&expiry), "{expiry}");
    let fresh = json["access_token"]["token"].as_str().expect("a token");
    assert_ne!(fresh, root);
    for token in [fresh, root.as_str()] {
        assert_eq!(cluster.get(0, "/stats", Some(token)).unwrap().status, 200);
    }
    let made = cluster.json(
        0,
        "POST",
        "/personal-access-tokens",
        Some(&root),
        r#"{"name":"robot","expiry":0}"#,
    );
    let raw_token = made.json()["token"].as_str().expect("a token").to_owned();
    // Its raw text is a bearer, for reads and for writes.
    let stats = cluster.get(0, "/stats", Some(&raw_token)).unwrap();
    assert_eq!(stats.status, 200, "{}", stats.text());
    let body = r#"{"name":"by-robot"}"#;
    let written = cluster.json(0, "POST", "/streams", Some(&raw_token), body);
    assert_eq!(written.status, 200, "{}", written.text());
    let exchanged = cluster.json(
        0,
        "POST",
        "/personal-access-tokens/login",
        None,
        &format!(r#"{{"token":"{raw_token}"}}"#),
    );
    assert_eq!(exchanged.status, 200, "{}", exchanged.text());
    assert_eq!(exchanged.json()["user_id"], 0);
    // A scheme of another spelling is no token at all.
    let request = WebRequest {
        method: "GET",
        target: "/stats",
        more: &format!("authorization: bearer {root}\r\n"),
        ..WebRequest::default()
    };
    let answer = send(cluster.address(0), &request).unwrap();
    assert_eq!((answer.status, answer.error_id()), (401, Some(77)));
}

#[test]
fn limits_are_kept_and_said() {
    let cluster = WebCluster::start(1, "");
    let root = cluster.root();
    let target = "/streams";
    let large = vec![b'x'; 2_000_001];
    let request = WebRequest {
        method: "POST",
        target,
        bearer: Some(&root),
        content_type: Some("application/json"),
        body: Some(&large),
        ..WebRequest::default()
    };
    let answer = send(cluster.address(0), &request).expect("an answer");
    assert_eq!(answer.status, 413);
    assert_eq!(answer.header("connection"), Some("close"));
    // Without a length it is noticed on the way.
    let mut chunked = format!(
        "POST /streams HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {root}\r\n\
         content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    for _ in 0..40 {
        chunked.extend_from_slice(b"ffff\r\n");
        chunked.extend_from_slice(&[b'x'; 0xffff]);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    // The rest may not be read any more; an answer that arrives says why.
    if let Ok(answer) = raw(cluster.address(0), &chunked) {
        assert_eq!(answer.status, 413);
    }
    // A small one in chunks is a body like any other.
    let small = format!(
        "POST /streams HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {root}\r\nconnection: close\r\n\
         content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n\
         8\r\n{{\"name\":\r\n5\r\n\"ab\"}}\r\n0\r\n\r\n"
    );
    let answer = raw(cluster.address(0), small.as_bytes()).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let wrong = WebRequest {
        content_type: Some("text/plain"),
        body: Some(b"{}"),
        ..request.clone()
    };
    assert_eq!(send(cluster.address(0), &wrong).unwrap().status, 415);
    assert_eq!(cluster.get(0, "/stats", Some(&root)).unwrap().status, 200);
}

#[test]
fn a_page_of_another_origin_is_told_what_it_may() {
    let cluster = WebCluster::start(1, "");
    let request = WebRequest {
        method: "OPTIONS",
        target: "/streams",
        more: "origin: http://page\r\naccess-control-request-method: POST\r\n",
        ..WebRequest::default()
    };
    let answer = send(cluster.address(0), &request).unwrap();
    assert_eq!(answer.status, 200);
    for (name, value) in [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-methods", "GET,POST,PUT,DELETE"),
        ("access-control-allow-headers", "content-type,authorization"),
    ] {
        assert_eq!(answer.header(name), Some(value));
    }
    let answer = cluster.get(0, "/stats", None).unwrap();
    assert_eq!(
        answer.header("access-control-expose-headers"),
        Some("iggy-view")
    );
}

#[test]
fn one_connection_serves_many_requests() {
    let cluster = WebCluster::start(1, "");
    let mut socket = TcpStream::connect(cluster.address(0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    for _ in 0..3 {
        socket
            .write_all(b"GET /ping HTTP/1.1\r\nhost: x\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"pong") {
            let mut part = [0; 512];
            let count = socket.read(&mut part).expect("an answer");
            assert_ne!(count, 0, "the connection stays");
            answer.extend_from_slice(&part[..count]);
        }
    }
}

#[test]
fn a_follower_hands_on_what_is_not_its_own() {
    let (mut cluster, root) = with_topic(3, "");
    let primary = cluster.primary(0, &root).expect("a primary");
    let follower = (primary + 1) % 3;
    // A token of one node is good on the others, and a write at a follower is the primary's.
    let made = cluster.json(follower, "POST", "/streams", Some(&root), r#"{"name":"x"}"#);
    assert_eq!(made.status, 200, "{}", made.text());
    assert!(made.header("iggy-view").is_some());
    let request = WebRequest {
        method: "POST",
        target: "/streams",
        bearer: Some(&root),
        content_type: Some("application/json"),
        body: Some(br#"{"name":"y"}"#),
        more: "iggy-forwarded: 1\r\n",
    };
    let answer = send(cluster.address(follower), &request).unwrap();
    assert_eq!(
        (answer.status, answer.error_id()),
        (503, Some(58)),
        "one hop only"
    );
    let read = cluster
        .get(follower, "/streams/x?consistency=linearizable", Some(&root))
        .unwrap();
    assert_eq!(read.status, 200, "the primary has it: {}", read.text());
    let target = "/streams/s/topics/t/messages?consistency=linearizable&count=1";
    let moved = cluster.get(follower, target, Some(&root)).unwrap();
    assert_eq!(moved.status, 307);
    let location = format!("http://{}{target}", cluster.address(primary));
    assert_eq!(moved.header("location"), Some(location.as_str()));
    // Wherever a partition is led, every node takes its messages.
    for partition in 0..3 {
        for node in 0..3 {
            let target = "/streams/s/topics/t/messages";
            let what = format!("a message for partition {partition} at node {node}");
            let sent = wait_until(&what, Duration::from_secs(10), || {
                let answer = cluster.json(node, "POST", target, Some(&root), &message(partition));
                match answer.status {
                    201 => Ok(answer),
                    // Nobody led the partition yet.
                    503 => Err(answer.text()),
                    _ => panic!("{} {}", answer.status, answer.text()),
                }
            });
            assert_eq!(sent.header("iggy-durability"), Some("persisted"));
        }
    }
    // A follower looks for the new primary for as long as an election takes.
    cluster.kill9(primary);
    let started = Instant::now();
    let made = cluster.json(follower, "POST", "/streams", Some(&root), r#"{"name":"z"}"#);
    let took = started.elapsed();
    assert!(
        matches!(made.status, 200 | 502),
        "{} {} after {took:?}",
        made.status,
        made.text()
    );
    if made.status == 502 {
        // The primary died while it had the request; the outcome is not known.
        let again = cluster.json(
            follower,
            "POST",
            "/streams",
            Some(&root),
            r#"{"name":"z2"}"#,
        );
        assert_eq!(again.status, 200, "{}", again.text());
    }
    cluster.restart(primary);
    cluster.wait_ready();
    wait_until(
        "the stream on the node that was away",
        Duration::from_secs(20),
        || {
            let answer = cluster.get(primary, "/streams/x", Some(&root))?;
            (answer.status == 200).then_some(()).ok_or(answer.text())
        },
    );
}

/// Operators find any group and who leads it, on every node alike.
#[test]
fn groups_are_listed_by_page_with_who_leads_them() {
    let (cluster, root) = with_topic(3, "");
    let target = "/streams/s/topics";
    let body = TOPIC.replace("\"t\"", "\"Other\"");
    let made = cluster.json(0, "POST", target, Some(&root), &body);
    assert_eq!(made.status, 200, "{}", made.text());
    let list = |node: usize, query: &str| {
        let answer = cluster.get(node, &format!("/status/groups{query}"), Some(&root))?;
        match answer.status {
            200 => Ok(answer.json()),
            _ => Err(answer.text()),
        }
    };
    let agreed = wait_until("one primary of each group", Duration::from_secs(15), || {
        let pages = [list(0, "")?, list(1, "")?, list(2, "")?];
        let leaders = |page: &serde_json::Value| -> Option<Vec<u64>> {
            let groups = page["groups"].as_array()?.iter();
            let leader = |group: &serde_json::Value| match group["status"].as_str()? {
                "normal" => group["primary"].as_u64(),
                _ => None,
            };
            groups.map(leader).collect()
        };
        let found: Vec<_> = pages.iter().map(leaders).collect();
        let six = found[0].as_ref().is_some_and(|found| found.len() == 6);
        let all = six && found.iter().all(|other| *other == found[0]);
        let agreed = all.then(|| found[0].clone()).flatten();
        agreed.ok_or(format!("{pages:?}"))
    });
    let page = list(1, "?from=2&count=3").unwrap();
    assert_eq!((&page["total"], &page["matched"]), (&6.into(), &6.into()));
    let groups = page["groups"].as_array().expect("groups");
    let names = groups.iter().map(|group| {
        let text = |key: &str| group[key].as_str().expect("a name").to_owned();
        (text("stream"), text("topic"), group["partition"].as_u64())
    });
    let name = |topic: &str, partition| ("s".to_owned(), topic.to_owned(), Some(partition));
    let expected = [name("t", 2), name("Other", 0), name("Other", 1)];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    assert_eq!(list(2, "?name=other").unwrap()["matched"], 3);
    assert_eq!(list(2, "?name=s/t/1").unwrap()["matched"], 1);
    assert_eq!(list(2, "?name=nowhere").unwrap()["matched"], 0);
    assert_eq!(list(0, "?from=9").unwrap()["groups"], serde_json::json!([]));
    for primary in 0..3 {
        let led = agreed.iter().filter(|leader| **leader == primary).count();
        let page = list(0, &format!("?primary={primary}")).unwrap();
        assert_eq!(page["matched"], led, "{page}");
    }
}

/// A page of a node with many partitions comes at once, and is no larger for them. How many
/// thousands is `BIPLANE_SCRAPE_TOPICS`.
#[test]
fn a_scrape_of_many_partitions_is_quick_and_small() {
    let topics = std::env::var("BIPLANE_SCRAPE_TOPICS");
    let topics: usize = topics.map_or(1, |text| text.parse().expect("a number of topics"));
    let cluster = WebCluster::start(1, "");
    let root = cluster.root();
    let made = cluster.json(0, "POST", "/streams", Some(&root), r#"{"name":"s"}"#);
    assert_eq!(made.status, 200, "{}", made.text());
    for topic in 0..topics {
        let body = TOPIC
            .replace("\"t\"", &format!("\"t{topic}\""))
            .replace("\"partitions_count\":3", "\"partitions_count\":1000");
        let made = cluster.json(0, "POST", "/streams/s/topics", Some(&root), &body);
        assert_eq!(made.status, 200, "{}", made.text());
    }
    let groups = |page: &str| {
        let name = "biplane_partition_groups{state=\"normal\"} ";
        let line = page.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line[name.len()..].parse::<usize>().ok())
    };
    wait_until("every partition to work", Duration::from_secs(400), || {
        let page = cluster.get(0, "/metrics", Some(&root))?.text();
        let found = groups(&page);
        (found == Some(1000 * topics))
            .then_some(())
            .ok_or(format!("{found:?}"))
    });
    let mut took: Vec<Duration> = (0..5)
        .map(|_| {
            let started = Instant::now();
            let page = cluster.get(0, "/metrics", Some(&root)).expect("a page");
            assert!(page.body.len() < 256 * 1024, "{} bytes", page.body.len());
            started.elapsed()
        })
        .collect();
    took.sort_unstable();
    println!("scrapes of {} partitions: {took:?}", 1000 * topics);
    // The machine may be busy with other things for a moment, not five times.
    assert!(took[0] < Duration::from_millis(200), "{took:?}");
    // So does a page of groups, whatever has to be looked at for it.
    for query in [
        "from=900",
        "name=t0/99",
        "troubled=true&name=no",
        "primary=0",
    ] {
        let target = format!("/status/groups?{query}&count=1000000");
        let mut took: Vec<Duration> = (0..5)
            .map(|_| {
                let started = Instant::now();
                let page = cluster.get(0, &target, Some(&root)).expect("a page");
                assert_eq!(page.json()["total"], 1000 * topics);
                let size = page.body.len();
                assert!(size < 128 * 1024, "{size} bytes of {query}");
                started.elapsed()
            })
            .collect();
        took.sort_unstable();
        println!("groups by {query}: {took:?}");
        assert!(took[0] < Duration::from_millis(200), "{query}: {took:?}");
    }
}
