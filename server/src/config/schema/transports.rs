//! The keys of what serves clients (chapter 09 section 5.11).

use super::{Key, U64, key};
use crate::config::schema::Kind::{Duration, Expiry, Flag, Secret, Size, Text, Texts, Whole};

const CERT: &str = "\"core/certs/iggy_cert.pem\"";
const KEY: &str = "\"core/certs/iggy_key.pem\"";

pub(super) const KEYS: &[Key] = &[
    key("tcp.enabled", Flag, "true", "serve clients over TCP"),
    key(
        "tcp.address",
        Text,
        "\"127.0.0.1:8090\"",
        "IP:PORT; with clustering the port comes from the roster",
    ),
    key(
        "tcp.tls.enabled",
        Flag,
        "false",
        "TLS 1.2 or 1.3 on the same port",
    ),
    key(
        "tcp.tls.self_signed",
        Flag,
        "true",
        "mint a certificate for localhost while cert_file does not exist",
    ),
    key("tcp.tls.cert_file", Text, CERT, "PEM chain"),
    key("tcp.tls.key_file", Text, KEY, "PEM key"),
    key(
        "websocket.enabled",
        Flag,
        "true",
        "serve clients over WebSocket",
    ),
    key(
        "websocket.address",
        Text,
        "\"127.0.0.1:8092\"",
        "IP:PORT; with clustering the port comes from the roster",
    ),
    key(
        "websocket.read_buffer_size",
        Size,
        "",
        "bytes read at once, and kept per connection; unset is 16 KiB",
    ),
    key(
        "websocket.write_buffer_size",
        Size,
        "",
        "bytes gathered before a write; unset is 128 KiB",
    ),
    key(
        "websocket.max_write_buffer_size",
        Size,
        "",
        "bytes that may wait to be written, above write_buffer_size; unset is no limit",
    ),
    key(
        "websocket.max_message_size",
        Size,
        "",
        "largest message of a client, at most message_bus.max_message_size; unset is 64 MiB",
    ),
    key(
        "websocket.max_frame_size",
        Size,
        "",
        "largest WebSocket frame of a client and of a reply, at most max_message_size; unset is \
         16 MiB",
    ),
    key(
        "websocket.accept_unmasked_frames",
        Flag,
        "false",
        "accept clients that do not mask their frames",
    ),
    key(
        "websocket.tls.enabled",
        Flag,
        "false",
        "TLS 1.2 or 1.3 on the same port",
    ),
    key(
        "websocket.tls.self_signed",
        Flag,
        "true",
        "mint a certificate for localhost while cert_file does not exist",
    ),
    key("websocket.tls.cert_file", Text, CERT, "PEM chain"),
    key("websocket.tls.key_file", Text, KEY, "PEM key"),
    key("quic.enabled", Flag, "true", "serve clients over QUIC").not_served(),
    key("quic.address", Text, "\"127.0.0.1:8080\"", "IP:PORT").not_served(),
    key(
        "quic.max_concurrent_bidi_streams",
        U64,
        "1",
        "requests of a connection at once, 1..=4294967295",
    )
    .not_served(),
    key("quic.initial_mtu", Size, "\"1200 B\"", "1200..=65535 bytes").not_served(),
    key(
        "quic.send_window",
        Size,
        "\"64 MiB\"",
        "at most 2^62 - 1 bytes",
    )
    .not_served(),
    key(
        "quic.receive_window",
        Size,
        "\"64 MiB\"",
        "at most 4294967295 bytes",
    )
    .not_served(),
    key(
        "quic.stream_receive_window",
        Size,
        "\"64 MiB\"",
        "above zero, at most receive_window",
    )
    .not_served(),
    key(
        "quic.keep_alive_interval",
        Duration,
        "\"10 s\"",
        "zero is off",
    )
    .not_served(),
    key("quic.max_idle_timeout", Duration, "\"30 s\"", "zero is off").not_served(),
    key(
        "quic.certificate.self_signed",
        Flag,
        "true",
        "mint a certificate at each boot",
    )
    .not_served(),
    key("quic.certificate.cert_file", Text, "\"\"", "PEM chain").not_served(),
    key("quic.certificate.key_file", Text, "\"\"", "PEM key").not_served(),
    key("http.enabled", Flag, "true", "serve the REST API"),
    key("http.address", Text, "\"127.0.0.1:3000\"", "IP:PORT"),
    key(
        "http.max_request_size",
        Size,
        "\"2 MB\"",
        "largest body, at most 256 MiB",
    ),
    key("http.web_ui", Flag, "false", "serve the web interface").not_served(),
    key("http.tls.enabled", Flag, "false", "HTTPS on the same port"),
    key("http.tls.cert_file", Text, CERT, "PEM chain"),
    key("http.tls.key_file", Text, KEY, "PEM key"),
    key(
        "http.cors.enabled",
        Flag,
        "true",
        "answer cross-origin preflights",
    ),
    key(
        "http.cors.allowed_methods",
        Texts,
        "[\"GET\", \"POST\", \"PUT\", \"DELETE\"]",
        "methods",
    ),
    key(
        "http.cors.allowed_origins",
        Texts,
        "[\"*\"]",
        "origins; * only as the first",
    ),
    key(
        "http.cors.allowed_headers",
        Texts,
        "[\"content-type\", \"authorization\"]",
        "request headers",
    ),
    key(
        "http.cors.exposed_headers",
        Texts,
        "[\"iggy-view\"]",
        "response headers",
    ),
    key(
        "http.cors.allow_credentials",
        Flag,
        "false",
        "needs lists without *",
    ),
    key(
        "http.cors.allow_private_network",
        Flag,
        "false",
        "private networks",
    ),
    key("http.metrics.enabled", Flag, "true", "serve metrics"),
    key(
        "http.metrics.endpoint",
        Text,
        "\"/metrics\"",
        "starts with /",
    ),
    key(
        "http.jwt.algorithm",
        Text,
        "\"HS256\"",
        "HS256, HS384 or HS512",
    ),
    key(
        "http.jwt.issuer",
        Text,
        "\"iggy.apache.org\"",
        "issuer of tokens",
    ),
    key(
        "http.jwt.audience",
        Text,
        "\"iggy.apache.org\"",
        "audience of tokens",
    ),
    key(
        "http.jwt.valid_issuers",
        Texts,
        "[\"iggy.apache.org\"]",
        "issuers accepted",
    ),
    key(
        "http.jwt.valid_audiences",
        Texts,
        "[\"iggy.apache.org\"]",
        "audiences accepted",
    ),
    key(
        "http.jwt.access_token_expiry",
        Expiry,
        "\"1 h\"",
        "life of a token; not the server default",
    ),
    key("http.jwt.clock_skew", Duration, "\"5 s\"", "tolerance"),
    key(
        "http.jwt.not_before",
        Duration,
        "\"0 s\"",
        "delay of validity",
    ),
    key("http.jwt.encoding_secret", Secret, "\"\"", "signs"),
    key("http.jwt.decoding_secret", Secret, "\"\"", "verifies"),
    key(
        "http.jwt.use_base64_secret",
        Flag,
        "false",
        "the secrets are base64 text",
    ),
    key("http.jwt.trusted_issuers[].issuer", Text, "", "issuer")
        .not_served()
        .mandatory(),
    key("http.jwt.trusted_issuers[].audience", Text, "", "audience")
        .not_served()
        .mandatory(),
    key("http.jwt.trusted_issuers[].jwks_url", Text, "", "keys")
        .not_served()
        .mandatory(),
    key(
        "http.jwt.trusted_issuers[].user_id",
        Whole(u32::MAX as u64),
        "",
        "user of such tokens, not 0",
    )
    .not_served()
    .mandatory(),
];
