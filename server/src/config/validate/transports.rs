//! Rules of what serves clients (chapter 09 section 5.11).

use std::net::SocketAddr;

use super::{MIB, bytes, range};
use crate::config::problem::Problems;
use crate::config::sections::Config;
use crate::config::values::{ConfigSize, Expiry, parse_expiry};

/// Sizes where the file says nothing, in bytes (chapter 09 section 5.11).
const MESSAGE_SIZE: u64 = 64 * MIB;
const FRAME_SIZE: u64 = 16 * MIB;
const BUFFER_SIZE: u64 = 128 << 10;

/// Addresses parse, of transports that are off, too.
pub(super) fn addresses(config: &Config, problems: &mut Problems) {
    for (key, text) in [
        ("tcp.address", &config.tcp.address),
        ("quic.address", &config.quic.address),
        ("websocket.address", &config.websocket.address),
        ("http.address", &config.http.address),
    ] {
        problems.check(
            text.parse::<SocketAddr>().is_ok(),
            key,
            "is not IP:PORT with a literal IP",
        );
    }
}

/// The chain of WebSocket sizes.
pub(super) fn websocket(config: &Config, problems: &mut Problems) {
    let section = &config.websocket;
    let bus = config.message_bus.max_message_size.0;
    for (name, size) in [
        ("read_buffer_size", section.read_buffer_size),
        ("write_buffer_size", section.write_buffer_size),
        ("max_write_buffer_size", section.max_write_buffer_size),
        ("max_message_size", section.max_message_size),
        ("max_frame_size", section.max_frame_size),
    ] {
        let key = format!("websocket.{name}");
        problems.check(size.is_none_or(|size| size.0 > 0), &key, "must not be 0");
    }
    let or = |size: Option<ConfigSize>, other| size.map_or(other, |size| size.0);
    let write = or(section.write_buffer_size, BUFFER_SIZE);
    problems.check(
        or(section.max_write_buffer_size, u64::MAX) > write,
        "websocket.max_write_buffer_size",
        "must be above websocket.write_buffer_size",
    );
    let message = or(section.max_message_size, MESSAGE_SIZE.min(bus));
    problems.check(
        message <= bus,
        "websocket.max_message_size",
        "must not be above message_bus.max_message_size",
    );
    let frame = or(section.max_frame_size, FRAME_SIZE.min(message));
    problems.check(
        frame <= message && frame <= bus,
        "websocket.max_frame_size",
        "must not be above websocket.max_message_size and message_bus.max_message_size",
    );
}

/// Checked although nothing is served: a file that the original server refuses is refused.
pub(super) fn quic(config: &Config, problems: &mut Problems) {
    let quic = &config.quic;
    let word = u64::from(u32::MAX);
    let streams = quic.max_concurrent_bidi_streams;
    range(
        problems,
        "quic.max_concurrent_bidi_streams",
        streams,
        1,
        word,
    );
    bytes(problems, "quic.initial_mtu", quic.initial_mtu, 1200, 65_535);
    bytes(
        problems,
        "quic.send_window",
        quic.send_window,
        0,
        (1 << 62) - 1,
    );
    bytes(
        problems,
        "quic.receive_window",
        quic.receive_window,
        0,
        word,
    );
    let window = quic.receive_window.0.min(word);
    let stream = quic.stream_receive_window;
    bytes(problems, "quic.stream_receive_window", stream, 1, window);
}

/// The rules of the REST listener.
pub(super) fn http(config: &Config, problems: &mut Problems) {
    let http = &config.http;
    bytes(
        problems,
        "http.max_request_size",
        http.max_request_size,
        0,
        256 * MIB,
    );
    problems.check(
        http.metrics.endpoint.starts_with('/'),
        "http.metrics.endpoint",
        "must start with /",
    );
    if !http.enabled {
        return;
    }
    for (key, file) in [
        ("http.tls.cert_file", &http.tls.cert_file),
        ("http.tls.key_file", &http.tls.key_file),
    ] {
        problems.check(
            !http.tls.enabled || !file.trim().is_empty(),
            key,
            "is mandatory while http.tls.enabled is true",
        );
    }
    cors(config, problems);
    let jwt = &http.jwt;
    problems.check(
        matches!(jwt.algorithm.as_str(), "HS256" | "HS384" | "HS512"),
        "http.jwt.algorithm",
        "must be HS256, HS384 or HS512",
    );
    problems.check(
        parse_expiry(&jwt.access_token_expiry) != Ok(Expiry::ServerDefault),
        "http.jwt.access_token_expiry",
        "must not be the server default",
    );
}

fn cors(config: &Config, problems: &mut Problems) {
    let cors = &config.http.cors;
    if !cors.enabled {
        return;
    }
    let any = |list: &[String]| list.iter().any(|entry| entry == "*");
    problems.check(
        !any(cors.allowed_origins.get(1..).unwrap_or_default()),
        "http.cors.allowed_origins",
        "* is possible as the first entry only",
    );
    let lists = [
        &cors.allowed_methods,
        &cors.allowed_origins,
        &cors.allowed_headers,
        &cors.exposed_headers,
    ];
    problems.check(
        !cors.allow_credentials || !lists.into_iter().any(|list| any(list)),
        "http.cors.allow_credentials",
        "needs lists without *",
    );
}
