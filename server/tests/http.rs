//! The HTTP interface against real `biplane` processes: every route as data, the official
//! client's HTTP transport, and requests made of chance.

#[path = "http/contract.rs"]
mod contract;
#[path = "http/edges.rs"]
mod edges;
#[path = "http/fuzz.rs"]
mod fuzz;
#[path = "http/official.rs"]
mod official;
#[path = "http/status.rs"]
mod status;
mod support;
