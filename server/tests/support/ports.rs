//! Free loopback ports, held until the moment a server needs them.
//!
//! They are taken from below the range the kernel uses for outgoing connections. A port inside it
//! can be handed to any dialer while its server is down for a restart, and a node that dials its
//! own dead peer in that range can even connect to itself.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports that are bound by this process until dropped.
#[derive(Debug)]
pub(crate) struct HeldPorts {
    pub(crate) ports: Vec<u16>,
    _listeners: Vec<TcpListener>,
}

impl HeldPorts {
    /// Any `count` free ports.
    pub(crate) fn any(count: u16) -> Self {
        Self::shaped(&(0..count).collect::<Vec<_>>())
    }

    /// Free ports at these distances from a base that is found.
    pub(crate) fn shaped(distances: &[u16]) -> Self {
        for _ in 0..2_000 {
            let base = candidate();
            let listeners: Vec<TcpListener> = distances
                .iter()
                .map_while(|distance| {
                    TcpListener::bind((Ipv4Addr::LOCALHOST, base.checked_add(*distance)?)).ok()
                })
                .collect();
            if listeners.len() == distances.len() {
                let ports = distances.iter().map(|distance| base + distance).collect();
                return Self {
                    ports,
                    _listeners: listeners,
                };
            }
        }
        panic!("no {} free ports on the loopback", distances.len());
    }

    /// True when every port can be bound, so nobody listens there.
    pub(crate) fn are_free(ports: &[u16]) -> bool {
        ports
            .iter()
            .all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
    }
}

/// The next base to try. Steps are larger than the shape of any caller, so that two test
/// processes that start at different places seldom meet.
fn candidate() -> u16 {
    const LOW: u32 = 12_000;
    static STEP: AtomicU32 = AtomicU32::new(0);
    let high = outgoing_range_start().clamp(LOW + 4_000, 60_000) - 2_000;
    let step = STEP.fetch_add(1, Ordering::Relaxed);
    let offset = std::process::id()
        .wrapping_mul(7_919)
        .wrapping_add(step.wrapping_mul(13));
    u16::try_from(LOW + offset % (high - LOW)).expect("below 60,000")
}

/// First port the kernel gives to outgoing connections; its usual value where it cannot be read.
fn outgoing_range_start() -> u32 {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(32_768)
}
