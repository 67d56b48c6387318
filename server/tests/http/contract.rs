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

/// A request and what must come of it.
#[derive(Debug, Clone, Copy)]
struct Case {
    who: Who,
    method: &'static str,
    target: &'static str,
    status: u16,
    /// Of the error; 0 where there is none.
    id: u64,
    body: Option<&'static str>,
}

impl Case {
    fn read(line: &'static str) -> Self {
        let mut words = line.splitn(6, ' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("six words: {line}"));
        let who = match word() {
            "Stranger" => Stranger,
            "Liar" => Liar,
            "Guest" => Guest,
            "Root" => Root,
            other => panic!("nobody is called {other}: {line}"),
        };
        let (method, target) = (word(), word());
        let status = word().parse().expect("a status");
        let id = word().parse().expect("an error id");
        Self {
            who,
            method,
            target,
            status,
            id,
            body: words.next(),
        }
    }
}

/// The table. Its lines stand in a file of their own, since bodies are long.
const TABLE: &str = include_str!("contract.txt");

fn cases() -> Vec<Case> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines.map(Case::read).collect()
}

/// What the specification says of any answer.
fn check_form(case: &Case, answer: &WebAnswer) {
    let Case {
        who,
        method,
        target,
        ..
    } = case;
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
    for (index, case) in cases().iter().enumerate() {
        let Case {
            who,
            method,
            target,
            body,
            status,
            id,
        } = case;
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
        let all = cases();
        let fitting = || {
            all.iter()
                .filter(|case| case.method == method && fits(pattern, path_of(case.target)))
        };
        let succeeds = fitting().any(|case| case.status < 300);
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
        let refused = fitting().any(|case| case.status == 403 || case.status == 401);
        assert!(
            public || refused || open_to_all || route == "GET /clients/*",
            "{route} is never refused"
        );
    }
}
