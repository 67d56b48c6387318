//! End to end with the official client, the registry crate `iggy` 0.11.0, against real `biplane`
//! processes: what is sent comes back, a backup's client is served, a primary may be killed again
//! and again, and `biplane dev` starts and stops a cluster.
//!
//! The client brings its own async runtime, which stays inside this test: the server's is another.

#[path = "official_client/abuse.rs"]
mod abuse;
#[path = "official_client/calls.rs"]
mod calls;
#[path = "official_client/crowd.rs"]
mod crowd;
#[path = "official_client/delivery.rs"]
mod delivery;
#[path = "official_client/dev.rs"]
mod dev;
#[path = "official_client/drop_in.rs"]
mod drop_in;
#[path = "official_client/failover.rs"]
mod failover;
#[path = "official_client/high_level.rs"]
mod high_level;
#[path = "http/contract.rs"]
mod http_contract;
#[path = "http/edges.rs"]
mod http_edges;
#[path = "http/fuzz.rs"]
mod http_fuzz;
#[path = "http/official.rs"]
mod http_official;
#[path = "http/status.rs"]
mod http_status;
#[path = "http/tls.rs"]
mod http_tls;
#[allow(dead_code, reason = "shared with other tests")]
mod support;
#[path = "official_client/websocket.rs"]
mod websocket;
