//! The mesh of this process against raw sockets, and against other meshes of this process: what
//! chapter 02 says about bytes, point by point. What needs a process that dies or freezes is in
//! `server/tests/mesh.rs`.

mod frames;
mod handshakes;
mod pressure;
mod support;
mod tls;
