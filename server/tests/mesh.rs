//! The replica mesh with real processes: links that break in every way a test can break them, nodes
//! that do not fit together, TLS, and strangers at the replica port.
//!
//! What needs root (a network that delays, loses and cuts) is `tests/netns`, outside of the test
//! command.

#[path = "mesh/client_tls.rs"]
mod client_tls;
#[path = "mesh/faults.rs"]
mod faults;
#[path = "mesh/hostile.rs"]
mod hostile;
#[path = "mesh/load.rs"]
mod load;
#[path = "mesh/modes.rs"]
mod modes;
#[path = "mesh/nodes.rs"]
mod nodes;
#[path = "mesh/proxy.rs"]
mod proxy;
#[allow(dead_code, reason = "shared with the tests of the official client")]
mod support;
#[path = "mesh/tls.rs"]
mod tls;
