//! Every route as data: success, bad input, no permission, not found; on one node and on three,
//! where each request goes to another node than the one before it.

use std::time::Duration;

use super::support::wait_until;
use super::support::web::{WebAnswer, WebCluster, WebRequest, send};

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// Nobody: no token.
    Stranger,
    /// A token that is none.
    Liar,
    /// A user without any permission.
    Guest,
    /// The root user.
    Root,
}

use Who::{Guest, Liar, Root, Stranger};

/// A request and what must come of it. `id` is the error's, 0 where there is none.
struct Case(
    Who,
    &'static str,
    &'static str,
    Option<&'static str>,
    u16,
    u64,
);

const ALL_FALSE: &str = r#"{"permissions":{"global":{"manage_servers":false,"read_servers":false,
    "manage_users":false,"read_users":false,"manage_streams":false,"read_streams":false,
    "manage_topics":false,"read_topics":false,"poll_messages":false,"send_messages":false},
    "streams":null}}"#;
const USER: &str = r#"{"username":"made","password":"secret","status":"active"}"#;
const TOPIC: &str = r#"{"name":"events","partitions_count":2,"compression_algorithm":"none",
    "message_expiry":0,"max_topic_size":0}"#;
const TOPIC_OPTIONS: &str = r#"{"name":"durable","partitions_count":1,
    "compression_algorithm":"gzip","message_expiry":3600000000,"max_topic_size":2000000000,
    "options":{"durability":"persisted","segment_size":"512 MiB"}}"#;
const SEND: &str = r#"{"partitioning":{"kind":"partition_id","value":"AAAAAA=="},
    "messages":[{"id":1,"payload":"aGVsbG8="},{"id":"2","payload":"d29ybGQ=","user_headers":[
    {"key":{"kind":"string","value":"bg=="},"value":{"kind":"uint64","value":"BQAAAAAAAAA="}}]}]}"#;
const SEND_NOWHERE: &str = r#"{"partitioning":{"kind":"partition_id","value":"CQAAAA=="},
    "messages":[{"payload":"aGVsbG8="}]}"#;
const SEND_NOTHING: &str = r#"{"partitioning":{"kind":"balanced","value":""},"messages":[]}"#;
const SEND_MORE: &str = r#"{"partitioning":{"kind":"balanced","value":""},"messages":[],"x":1}"#;
const SNAPSHOT: &str = r#"{"compression":"Stored","snapshot_types":["Test","ServerConfig"]}"#;
const SNAPSHOT_ALL: &str = r#"{"compression":"Stored","snapshot_types":["All","Test"]}"#;

/// In this order: what one makes, others need.
const CASES: &[Case] = &[
    // The node.
    Case(Stranger, "GET", "/ping", None, 200, 0),
    Case(Stranger, "POST", "/ping", Some("{}"), 405, 0),
    Case(Stranger, "GET", "/health/live", None, 200, 0),
    Case(Stranger, "GET", "/health/ready", None, 200, 0),
    Case(Stranger, "GET", "/nowhere", None, 404, 0),
    Case(Stranger, "GET", "/streams/", None, 404, 0),
    Case(Root, "GET", "/stats", None, 200, 0),
    Case(Guest, "GET", "/stats", None, 403, 41),
    Case(Stranger, "GET", "/stats", None, 401, 77),
    Case(Liar, "GET", "/stats", None, 401, 40),
    Case(Root, "GET", "/status", None, 200, 0),
    Case(Guest, "GET", "/status", None, 403, 41),
    Case(Stranger, "GET", "/metrics", None, 401, 77),
    Case(Guest, "GET", "/metrics", None, 200, 0),
    Case(Guest, "GET", "/cluster/metadata", None, 200, 0),
    Case(Liar, "GET", "/cluster/metadata", None, 401, 40),
    Case(Root, "GET", "/clients", None, 200, 0),
    Case(Guest, "GET", "/clients", None, 403, 41),
    Case(Root, "GET", "/clients/4000000", None, 404, 404),
    Case(Root, "GET", "/clients/x", None, 400, 0),
    Case(Guest, "GET", "/options/topic", None, 200, 0),
    Case(Guest, "GET", "/options/stream", None, 200, 0),
    Case(Guest, "GET", "/options/user", None, 200, 0),
    Case(Root, "GET", "/options/moon", None, 400, 3),
    Case(Root, "POST", "/snapshot", Some(SNAPSHOT), 200, 0),
    Case(Root, "POST", "/snapshot", Some(SNAPSHOT_ALL), 400, 3),
    Case(Root, "POST", "/snapshot", Some("{}"), 422, 0),
    Case(Guest, "POST", "/snapshot", Some(SNAPSHOT), 403, 41),
    // Logins.
    Case(
        Stranger,
        "POST",
        "/users/login",
        Some(r#"{"username":"iggy","password":"iggy","version":"x"}"#),
        200,
        0,
    ),
    Case(
        Stranger,
        "POST",
        "/users/login",
        Some(r#"{"username":"iggy","password":"wrong"}"#),
        400,
        42,
    ),
    Case(
        Stranger,
        "POST",
        "/users/login",
        Some(r#"{"username":"x","password":"x"}"#),
        400,
        42,
    ),
    Case(Stranger, "POST", "/users/login", Some("{"), 400, 0),
    Case(Stranger, "POST", "/users/login", Some("{}"), 422, 0),
    Case(
        Stranger,
        "POST",
        "/users/refresh-token",
        Some(r#"{"token":""}"#),
        401,
        40,
    ),
    Case(
        Stranger,
        "POST",
        "/personal-access-tokens/login",
        Some(r#"{"token":"none"}"#),
        401,
        53,
    ),
    // Users.
    Case(Root, "POST", "/users", Some(USER), 200, 0),
    Case(Root, "POST", "/users", Some(USER), 400, 46),
    Case(Guest, "POST", "/users", Some(USER), 403, 41),
    Case(
        Root,
        "POST",
        "/users",
        Some(r#"{"username":"ab","password":"secret","status":"active"}"#),
        400,
        43,
    ),
    Case(
        Root,
        "POST",
        "/users",
        Some(r#"{"username":"abc","password":"s","status":"active"}"#),
        400,
        44,
    ),
    Case(
        Root,
        "POST",
        "/users",
        Some(r#"{"username":"abc","password":"secret","status":"odd"}"#),
        422,
        0,
    ),
    Case(Root, "GET", "/users", None, 200, 0),
    Case(Guest, "GET", "/users", None, 403, 41),
    Case(Root, "GET", "/users/made", None, 200, 0),
    Case(Root, "GET", "/users/0", None, 200, 0),
    Case(Guest, "GET", "/users/me", None, 200, 0),
    Case(Guest, "GET", "/users/0", None, 403, 41),
    Case(Root, "GET", "/users/nobody", None, 404, 404),
    Case(
        Root,
        "PUT",
        "/users/made",
        Some(r#"{"username":"remade","status":"inactive"}"#),
        204,
        0,
    ),
    Case(
        Root,
        "PUT",
        "/users/remade",
        Some(r#"{"options":{"a":"b"}}"#),
        400,
        4041,
    ),
    Case(Root, "PUT", "/users/nobody", Some("{}"), 404, 20),
    Case(Guest, "PUT", "/users/remade", Some("{}"), 403, 41),
    Case(
        Root,
        "PUT",
        "/users/remade/permissions",
        Some(ALL_FALSE),
        204,
        0,
    ),
    Case(
        Root,
        "PUT",
        "/users/remade/permissions",
        Some(r#"{"permissions":null}"#),
        204,
        0,
    ),
    Case(
        Root,
        "PUT",
        "/users/0/permissions",
        Some(ALL_FALSE),
        400,
        49,
    ),
    Case(
        Guest,
        "PUT",
        "/users/remade/permissions",
        Some(ALL_FALSE),
        403,
        41,
    ),
    Case(
        Root,
        "PUT",
        "/users/remade/permissions",
        Some(r#"{"permissions":{"global":{}}}"#),
        422,
        0,
    ),
    Case(
        Root,
        "PUT",
        "/users/remade/password",
        Some(r#"{"current_password":"secret","new_password":"changed"}"#),
        204,
        0,
    ),
    Case(
        Root,
        "PUT",
        "/users/remade/password",
        Some(r#"{"current_password":"secret","new_password":"again"}"#),
        400,
        42,
    ),
    Case(
        Guest,
        "PUT",
        "/users/remade/password",
        Some(r#"{"current_password":"changed","new_password":"again"}"#),
        403,
        41,
    ),
    Case(Guest, "DELETE", "/users/remade", None, 403, 41),
    Case(Root, "DELETE", "/users/remade", None, 204, 0),
    Case(Root, "DELETE", "/users/remade", None, 404, 20),
    Case(Root, "DELETE", "/users/0", None, 400, 48),
    // Tokens.
    Case(
        Root,
        "POST",
        "/personal-access-tokens",
        Some(r#"{"name":"robot","expiry":0}"#),
        200,
        0,
    ),
    Case(
        Root,
        "POST",
        "/personal-access-tokens",
        Some(r#"{"name":"robot","expiry":0}"#),
        400,
        51,
    ),
    Case(
        Root,
        "POST",
        "/personal-access-tokens",
        Some(r#"{"name":"ab","expiry":0}"#),
        400,
        50,
    ),
    Case(Root, "GET", "/personal-access-tokens", None, 200, 0),
    Case(Stranger, "GET", "/personal-access-tokens", None, 401, 77),
    Case(
        Root,
        "DELETE",
        "/personal-access-tokens/robot",
        None,
        204,
        0,
    ),
    Case(
        Root,
        "DELETE",
        "/personal-access-tokens/robot",
        None,
        404,
        20,
    ),
    // Streams.
    Case(
        Root,
        "POST",
        "/streams",
        Some(r#"{"name":"orders"}"#),
        200,
        0,
    ),
    Case(
        Root,
        "POST",
        "/streams",
        Some(r#"{"name":"orders"}"#),
        400,
        1012,
    ),
    Case(Root, "POST", "/streams", Some(r#"{"name":""}"#), 400, 1013),
    Case(
        Guest,
        "POST",
        "/streams",
        Some(r#"{"name":"mine"}"#),
        403,
        41,
    ),
    Case(Root, "GET", "/streams", None, 200, 0),
    Case(Guest, "GET", "/streams", None, 403, 41),
    Case(
        Root,
        "GET",
        "/streams?consistency=linearizable",
        None,
        200,
        0,
    ),
    Case(Root, "GET", "/streams?consistency=odd", None, 400, 0),
    Case(Root, "GET", "/streams/orders", None, 200, 0),
    Case(Root, "GET", "/streams/0", None, 200, 0),
    Case(Guest, "GET", "/streams/orders", None, 403, 41),
    Case(Root, "GET", "/streams/nothing", None, 404, 404),
    Case(
        Root,
        "PUT",
        "/streams/orders",
        Some(r#"{"name":"shop"}"#),
        204,
        0,
    ),
    Case(
        Root,
        "PUT",
        "/streams/nothing",
        Some(r#"{"name":"x"}"#),
        404,
        1009,
    ),
    Case(
        Guest,
        "PUT",
        "/streams/shop",
        Some(r#"{"name":"x"}"#),
        403,
        41,
    ),
    // Topics and partitions.
    Case(Root, "GET", "/streams/nothing/topics", None, 200, 0),
    Case(Root, "POST", "/streams/shop/topics", Some(TOPIC), 200, 0),
    Case(Root, "POST", "/streams/shop/topics", Some(TOPIC), 400, 2013),
    Case(
        Root,
        "POST",
        "/streams/shop/topics",
        Some(TOPIC_OPTIONS),
        200,
        0,
    ),
    Case(
        Root,
        "POST",
        "/streams/shop/topics",
        Some(
            r#"{"name":"x","partitions_count":1001,"compression_algorithm":"none",
            "message_expiry":0,"max_topic_size":0}"#,
        ),
        400,
        2015,
    ),
    Case(
        Root,
        "POST",
        "/streams/shop/topics",
        Some(
            r#"{"name":"x","partitions_count":1,"compression_algorithm":"none",
            "message_expiry":0,"max_topic_size":0,"options":{"colour":"red"}}"#,
        ),
        400,
        4041,
    ),
    Case(
        Root,
        "POST",
        "/streams/nothing/topics",
        Some(TOPIC),
        404,
        1009,
    ),
    Case(Guest, "POST", "/streams/shop/topics", Some(TOPIC), 403, 41),
    Case(Root, "GET", "/streams/shop/topics", None, 200, 0),
    Case(Guest, "GET", "/streams/shop/topics", None, 403, 41),
    Case(Root, "GET", "/streams/shop/topics/events", None, 200, 0),
    Case(Guest, "GET", "/streams/shop/topics/events", None, 403, 41),
    Case(Root, "GET", "/streams/shop/topics/nothing", None, 404, 404),
    Case(
        Root,
        "PUT",
        "/streams/shop/topics/durable",
        Some(r#"{"name":"kept","compression_algorithm":"none","message_expiry":0,"max_topic_size":0}"#),
        204,
        0,
    ),
    Case(
        Root,
        "PUT",
        "/streams/shop/topics/kept",
        Some(r#"{"name":"kept","max_topic_size":5}"#),
        400,
        1019,
    ),
    Case(
        Root,
        "PUT",
        "/streams/shop/topics/kept",
        Some(r#"{"name":"kept","options":{"durability":"replicated"}}"#),
        400,
        4041,
    ),
    Case(
        Root,
        "PUT",
        "/streams/shop/topics/nothing",
        Some(r#"{"name":"x"}"#),
        404,
        2010,
    ),
    Case(
        Guest,
        "PUT",
        "/streams/shop/topics/kept",
        Some(r#"{"name":"x"}"#),
        403,
        41,
    ),
    Case(
        Root,
        "POST",
        "/streams/shop/topics/events/partitions",
        Some(r#"{"partitions_count":2}"#),
        200,
        0,
    ),
    Case(
        Root,
        "POST",
        "/streams/shop/topics/events/partitions",
        Some(r#"{"partitions_count":0}"#),
        400,
        2015,
    ),
    Case(
        Guest,
        "POST",
        "/streams/shop/topics/events/partitions",
        Some(r#"{"partitions_count":1}"#),
        403,
        41,
    ),
    Case(
        Root,
        "POST",
        "/streams/shop/topics/nothing/partitions",
        Some(r#"{"partitions_count":1}"#),
        404,
        2010,
    ),
    Case(
        Root,
        "DELETE",
        "/streams/shop/topics/events/partitions?partitions_count=1",
        None,
        204,
        0,
    ),
    Case(
        Root,
        "DELETE",
        "/streams/shop/topics/events/partitions?partitions_count=900",
        None,
        400,
        2019,
    ),
    Case(
        Root,
        "DELETE",
        "/streams/shop/topics/events/partitions",
        None,
        400,
        0,
    ),
    Case(
        Guest,
        "DELETE",
        "/streams/shop/topics/events/partitions?partitions_count=1",
        None,
        403,
        41,
    ),
    Case(
        Root,
        "DELETE",
        "/streams/shop/topics/events/partitions/0?segments_count=1",
        None,
        204,
        0,
    ),
    Case(
        Root,
        "DELETE",
        "/streams/shop/topics/events/partitions/x?segments_count=1",
        None,
        400,
        0,
    ),
    Case(
        Root,
        "DELETE",
        "/streams/shop/topics/events/partitions/77?segments_count=1",
        None,
        404,
        3007,
    ),
    Case(
        Guest,
        "DELETE",
        "/streams/shop/topics/events/partitions/0?segments_count=1",
        None,
        403,
        41,
    ),
    // Consumer groups.
    Case(
        Root,
        "POST",
        "/streams/shop/topics/events/consumer-groups",
        Some(r#"{"name":"workers"}"#),
        200,
        0,
    ),
    Case(
        Root,
        "POST",
        "/streams/shop/topics/events/consumer-groups",
        Some(r#"{"name":"workers"}"#),
        400,
        5004,
    ),
    Case(
        Root,
        "POST",
        "/streams/shop/topics/nothing/consumer-groups",
        Some(r#"{"name":"x"}"#),
        404,
        2010,
    ),
    Case(
        Guest,
        "POST",
        "/streams/shop/topics/events/consumer-groups",
        Some(r#"{"name":"x"}"#),
        403,
        41,
    ),
    Case(
        Root,
        "GET",
        "/streams/shop/topics/events/consumer-groups",
        None,
        200,
        0,
    ),
    Case(
        Root,
        "GET",
        "/streams/nothing/topics/events/consumer-groups",
        None,
        404,
        1009,
    ),
    Case(
        Root,
        "GET",
        "/streams/shop/topics/nothing/consumer-groups",
        None,
        404,
        2010,
    ),
    Case(
        Guest,
        "GET",
        "/streams/shop/topics/events/consumer-groups",
        None,
        403,
        41,
    ),
    Case(
        Root,
        "GET",
        "/streams/shop/topics/events/consumer-groups/workers",
        None,
        200,
        0,
    ),
    Case(
        Root,
        "GET",
        "/streams/shop/topics/events/consumer-groups/nothing",
        None,
        404,
        404,
    ),
    Case(
        Guest,
        "DELETE",
        "/streams/shop/topics/events/consumer-groups/workers",
        None,
        403,
        41,
    ),
    Case(
        Root,
        "DELETE",
        "/streams/shop/topics/events/consumer-groups/workers",
        None,
        204,
        0,
    ),
    Case(
        Root,
        "DELETE",
        "/streams/shop/topics/events/consumer-groups/workers",
        None,
        404,
        5000,
    ),
    // Messages.
    Case(
        Root,
        "POST",
        "/streams/shop/topics/events/messages",
        Some(SEND),
        201,
        0,
    ),
    Case(
        Root,
        "POST",
        "/streams/shop/topics/kept/messages?ack=replicated",
        Some(SEND),
        201,
        0,
    ),
    Case(
        Root,
        "POST",
        "/streams/shop/topics/events/messages?ack=odd",
        Some(SEND),
        400,
        0,
    ),
    Case(
        Root,
        "POST",
        "/streams/shop/topics/events/messages",
        Some(SEND_NOWHERE),
        404,
        20,
    ),
    Case(
        Root,
        "POST",
        "/streams/shop/topics/nothing/messages",
        Some(SEND),
        404,
        20,
    ),
    Case(
        Root,
        "POST",
        "/streams/shop/topics/events/messages",
        Some(SEND_NOTHING),
        400,
        4009,
    ),
    Case(
        Root,
        "POST",
        "/streams/shop/topics/events/messages",
        Some(SEND_MORE),
        422,
        0,
    ),
    Case(
        Guest,
        "POST",
        "/streams/shop/topics/events/messages",
        Some(SEND_MORE),
        403,
        41,
    ),
    Case(
        Root,
        "GET",
        "/streams/shop/topics/events/messages?partition_id=0&kind=first&count=5",
        None,
        200,
        0,
    ),
    Case(
        Root,
        "GET",
        "/streams/shop/topics/events/messages?kind=odd",
        None,
        400,
        0,
    ),
    Case(
        Root,
        "GET",
        "/streams/shop/topics/events/messages?partition_id=77",
        None,
        404,
        3007,
    ),
    Case(
        Root,
        "GET",
        "/streams/shop/topics/nothing/messages",
        None,
        404,
        404,
    ),
    Case(
        Guest,
        "GET",
        "/streams/shop/topics/events/messages",
        None,
        403,
        41,
    ),
    // Offsets.
    Case(
        Root,
        "GET",
        "/streams/shop/topics/events/consumer-offsets",
        None,
        404,
        404,
    ),
    Case(
        Root,
        "PUT",
        "/streams/shop/topics/events/consumer-offsets",
        Some(r#"{"consumer_id":7,"partition_id":0,"offset":1}"#),
        204,
        0,
    ),
    Case(
        Root,
        "PUT",
        "/streams/shop/topics/events/consumer-offsets",
        Some(r#"{"consumer_id":"named","partition_id":0,"offset":0}"#),
        204,
        0,
    ),
    Case(
        Root,
        "PUT",
        "/streams/shop/topics/events/consumer-offsets",
        Some(r#"{"offset":0}"#),
        400,
        6,
    ),
    Case(
        Root,
        "PUT",
        "/streams/shop/topics/events/consumer-offsets",
        Some(r#"{"partition_id":0,"offset":1000}"#),
        400,
        4100,
    ),
    Case(
        Root,
        "PUT",
        "/streams/shop/topics/events/consumer-offsets",
        Some(r#"{"partition_id":77,"offset":0}"#),
        404,
        3007,
    ),
    Case(
        Guest,
        "PUT",
        "/streams/shop/topics/events/consumer-offsets",
        Some(r#"{"partition_id":0,"offset":0}"#),
        403,
        41,
    ),
    Case(
        Root,
        "GET",
        "/streams/shop/topics/events/consumer-offsets?consumer_id=7&partition_id=0",
        None,
        200,
        0,
    ),
    Case(
        Guest,
        "GET",
        "/streams/shop/topics/events/consumer-offsets?consumer_id=7",
        None,
        403,
        41,
    ),
    Case(
        Guest,
        "DELETE",
        "/streams/shop/topics/events/consumer-offsets/7?partition_id=0",
        None,
        403,
        41,
    ),
    Case(
        Root,
        "DELETE",
        "/streams/shop/topics/events/consumer-offsets/7?partition_id=0",
        None,
        204,
        0,
    ),
    Case(
        Root,
        "DELETE",
        "/streams/shop/topics/events/consumer-offsets/7?partition_id=0",
        None,
        404,
        3021,
    ),
    Case(
        Root,
        "DELETE",
        "/streams/shop/topics/events/consumer-offsets/7",
        None,
        400,
        6,
    ),
    // The end of it.
    Case(
        Guest,
        "DELETE",
        "/streams/shop/topics/kept/purge",
        None,
        403,
        41,
    ),
    Case(
        Root,
        "DELETE",
        "/streams/shop/topics/kept/purge",
        None,
        204,
        0,
    ),
    Case(
        Root,
        "DELETE",
        "/streams/shop/topics/nothing/purge",
        None,
        404,
        2010,
    ),
    Case(Guest, "DELETE", "/streams/shop/topics/kept", None, 403, 41),
    Case(Root, "DELETE", "/streams/shop/topics/kept", None, 204, 0),
    Case(Root, "DELETE", "/streams/shop/topics/kept", None, 404, 2010),
    Case(Guest, "DELETE", "/streams/shop/purge", None, 403, 41),
    Case(Root, "DELETE", "/streams/shop/purge", None, 204, 0),
    Case(Root, "DELETE", "/streams/nothing/purge", None, 404, 1009),
    Case(Guest, "DELETE", "/streams/shop", None, 403, 41),
    Case(Root, "DELETE", "/streams/shop", None, 204, 0),
    Case(Root, "DELETE", "/streams/shop", None, 404, 1009),
    Case(Stranger, "DELETE", "/users/logout", None, 401, 77),
    Case(Root, "DELETE", "/users/logout", None, 204, 0),
    // A logout does not end the token.
    Case(
        Root,
        "POST",
        "/streams",
        Some(r#"{"name":"after"}"#),
        200,
        0,
    ),
];

/// What the specification says of any answer.
fn check_form(case: &Case, answer: &WebAnswer) {
    let Case(who, method, target, ..) = case;
    let what = format!("{who:?} {method} {target}: {answer:?}");
    let viewless = target.starts_with("/ping") || target.starts_with("/health");
    let view = answer.header("iggy-view").is_some();
    let success = (200..400).contains(&answer.status);
    assert_eq!(view, success && !viewless, "the view: {what}");
    let retry = answer.header("retry-after").is_some();
    assert_eq!(
        retry,
        matches!(answer.status, 503 | 429),
        "retry-after: {what}"
    );
    if answer.status == 204 {
        assert!(answer.body.is_empty(), "{what}");
    }
    if answer.status == 405 {
        assert!(answer.header("allow").is_some(), "{what}");
    }
    assert_eq!(
        answer.header("access-control-allow-origin"),
        Some("*"),
        "{what}"
    );
    let json = answer
        .header("content-type")
        .is_some_and(|kind| kind == "application/json");
    if json {
        answer.json();
    }
}

fn run(nodes: usize) {
    let cluster = WebCluster::start(nodes, "");
    let root = cluster.root();
    let body = r#"{"username":"guest","password":"secret","status":"active","permissions":null}"#;
    let made = cluster.json(0, "POST", "/users", Some(&root), body);
    assert_eq!(made.status, 200, "{}", made.text());
    let guest = wait_until("the guest on every node", Duration::from_secs(10), || {
        for node in 1..nodes {
            let answer = cluster.get(node, "/users/guest", Some(&root))?;
            if answer.status != 200 {
                return Err(answer.text());
            }
        }
        Ok(cluster.token(nodes - 1, "guest", "secret"))
    });
    for (index, case) in CASES.iter().enumerate() {
        let Case(who, method, target, body, status, id) = case;
        let bearer = match who {
            Stranger => None,
            Liar => Some("eyJhbGciOiJIUzI1NiJ9.e30.AAAA"),
            Guest => Some(guest.as_str()),
            Root => Some(root.as_str()),
        };
        let request = WebRequest {
            method,
            target,
            bearer,
            content_type: body.map(|_| "application/json"),
            body: body.map(str::as_bytes),
            ..WebRequest::default()
        };
        let node = index % nodes;
        let ask = || {
            let answer = send(cluster.address(node), &request)?;
            if answer.status == *status && answer.error_id().unwrap_or(0) == *id
                || answer.status == 200 && *status == 200
            {
                return Ok(answer);
            }
            Err(format!("{} {}", answer.status, answer.text()))
        };
        let what = format!("case {index} at node {node}: {who:?} {method} {target} to be {status}");
        // A follower may be a little behind, and so may a partition that was just made.
        let patient = nodes > 1 || target.contains("/messages") || target.contains("offsets");
        let limit = if patient { 5 } else { 0 };
        let answer = wait_until(&what, Duration::from_secs(limit), ask);
        check_form(case, &answer);
    }
}

#[test]
fn every_route_on_one_node() {
    run(1);
}

#[test]
fn every_route_on_three_nodes() {
    run(3);
}

/// Method and path of every route of chapter 08 section 4, `*` for a parameter.
const ROUTES: &str = "GET /ping|GET /stats|GET /cluster/metadata|GET /clients|GET /clients/*|\
    GET /options/*|POST /snapshot|GET /metrics|POST /users/login|POST /users/refresh-token|\
    DELETE /users/logout|GET /users|POST /users|GET /users/*|PUT /users/*|DELETE /users/*|\
    PUT /users/*/password|PUT /users/*/permissions|POST /personal-access-tokens/login|\
    GET /personal-access-tokens|POST /personal-access-tokens|DELETE /personal-access-tokens/*|\
    GET /streams|POST /streams|GET /streams/*|PUT /streams/*|DELETE /streams/*|\
    DELETE /streams/*/purge|GET /streams/*/topics|POST /streams/*/topics|\
    GET /streams/*/topics/*|PUT /streams/*/topics/*|DELETE /streams/*/topics/*|\
    DELETE /streams/*/topics/*/purge|POST /streams/*/topics/*/partitions|\
    DELETE /streams/*/topics/*/partitions|DELETE /streams/*/topics/*/partitions/*|\
    GET /streams/*/topics/*/consumer-groups|POST /streams/*/topics/*/consumer-groups|\
    GET /streams/*/topics/*/consumer-groups/*|DELETE /streams/*/topics/*/consumer-groups/*|\
    GET /streams/*/topics/*/messages|POST /streams/*/topics/*/messages|\
    GET /streams/*/topics/*/consumer-offsets|PUT /streams/*/topics/*/consumer-offsets|\
    DELETE /streams/*/topics/*/consumer-offsets/*";

fn fits(pattern: &str, path: &str) -> bool {
    let (wanted, found): (Vec<_>, Vec<_>) =
        (pattern.split('/').collect(), path.split('/').collect());
    wanted.len() == found.len()
        && wanted
            .iter()
            .zip(&found)
            .all(|(wanted, found)| *wanted == "*" || wanted == found)
}

/// Routes whose success the table cannot state: it needs what an answer before it said.
const ELSEWHERE: [&str; 3] = [
    "POST /users/refresh-token",
    "POST /personal-access-tokens/login",
    "GET /clients/*",
];

#[test]
fn the_table_leaves_no_route_out() {
    let routes: Vec<&str> = ROUTES.split('|').collect();
    assert_eq!(routes.len(), 46);
    for route in routes {
        let (method, pattern) = route.split_once(' ').expect("method and path");
        let path_of = |target: &'static str| target.split('?').next().unwrap_or(target);
        let cases = || {
            CASES
                .iter()
                .filter(|case| case.1 == method && fits(pattern, path_of(case.2)))
        };
        let succeeds = cases().any(|case| case.4 < 300);
        assert!(
            succeeds || ELSEWHERE.contains(&route),
            "{route} never succeeds"
        );
        let public = matches!(
            route,
            "GET /ping"
                | "POST /users/login"
                | "POST /users/refresh-token"
                | "POST /personal-access-tokens/login"
        );
        let open_to_all = matches!(
            route,
            "GET /cluster/metadata"
                | "GET /options/*"
                | "GET /metrics"
                | "DELETE /users/logout"
                | "GET /personal-access-tokens"
                | "POST /personal-access-tokens"
                | "DELETE /personal-access-tokens/*"
        );
        let refused = cases().any(|case| case.4 == 403 || case.4 == 401);
        let single = matches!(route, "GET /clients/*" | "GET /streams/*/topics/*/consumer-groups/*");
        assert!(
            public || refused || open_to_all || single,
            "{route} is never refused"
        );
    }
}
