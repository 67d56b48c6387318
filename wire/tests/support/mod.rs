//! What the integration tests share: vectors in the notation of chapter 01 section 16 and the
//! captured frames.
#![allow(dead_code)] // Each test binary uses a part of this.

use biplane_wire::{Checksum, HEADER_SIZE, Message, body_seal, frame_seal, prepare_identity, xxh3};

/// First 16 bytes of BLAKE3("iggy-cluster"), as on the wire.
pub(crate) const CLUSTER: &str = "21bb05c88727bab88d0ec27be8a72d46";

/// The bytes of a hex string that may contain blanks.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    hex::decode(digits).expect("vectors are hex")
}

/// A header from `offset:hex` runs; `CL` stands for the cluster id.
pub(crate) fn header(runs: &str) -> [u8; HEADER_SIZE] {
    let mut header = [0; HEADER_SIZE];
    for run in runs.split_whitespace() {
        let (offset, digits) = run.split_once(':').expect("a run is offset:hex");
        let offset: usize = offset.parse().expect("a run starts with an offset");
        let bytes = hex(&digits.replace("CL", CLUSTER));
        header[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }
    header
}

/// A frame from runs and a body. Vectors list the size among the runs.
pub(crate) fn frame(runs: &str, body: &str) -> Vec<u8> {
    let mut bytes = header(runs).to_vec();
    bytes.extend(hex(body));
    bytes
}

/// The same as a message.
pub(crate) fn message(runs: &str, body: &str) -> Message {
    Message::from_bytes(&frame(runs, body)).expect("a vector passes the generic check")
}

/// Bytes in the notation of chapter 07 section 15: hex with `{00*N}` for N zero bytes.
pub(crate) fn runs07(text: &str) -> Vec<u8> {
    let compact: String = text.split_whitespace().collect();
    let mut bytes = Vec::new();
    for part in compact.split('{') {
        match part.split_once('}') {
            None => bytes.extend(hex(part)),
            Some((zeros, rest)) => {
                let count = zeros.strip_prefix("00*").expect("runs are zeros");
                bytes.resize(bytes.len() + count.parse::<usize>().expect("a count"), 0);
                bytes.extend(hex(rest));
            }
        }
    }
    bytes
}

/// Stamps the frame seal over whatever stands in the header.
pub(crate) fn reseal(frame: &mut [u8]) {
    let seal = frame_seal(frame.first_chunk().expect("a frame has a header"));
    frame[..16].copy_from_slice(&seal.0.to_le_bytes());
}

/// Stamps the prepare identity over whatever stands in the header.
pub(crate) fn reidentify(frame: &mut [u8]) {
    let identity = prepare_identity(frame.first_chunk().expect("a frame has a header"));
    frame[..16].copy_from_slice(&identity.0.to_le_bytes());
}

/// The checksum field of a hash.
pub(crate) fn widened(hash: u64) -> Checksum {
    Checksum::from_hash(hash)
}

/// XXH3 of a hex string.
pub(crate) fn xxh3_hex(text: &str) -> u64 {
    xxh3(&hex(text))
}

/// One line of `golden/replica-frames.jsonl`.
pub(crate) struct Captured {
    pub(crate) kind: String,
    pub(crate) bytes: Vec<u8>,
}

impl Captured {
    pub(crate) fn message(&self) -> Message {
        Message::from_bytes(&self.bytes).expect("captured frames pass the generic check")
    }
}

/// The frames a peer put on its replica ports.
pub(crate) fn captured_replica_frames() -> Vec<Captured> {
    let lines = include_str!("../golden/replica-frames.jsonl");
    let frames: Vec<_> = lines
        .lines()
        .map(|line| {
            let object: serde_json::Value = serde_json::from_str(line).expect("JSON lines");
            let text = |key: &str| object[key].as_str().expect("a string").to_owned();
            Captured {
                kind: text("kind"),
                bytes: hex(&text("hex")),
            }
        })
        .collect();
    assert_eq!(frames.len(), 120);
    frames
}

/// One line of `golden/client-exchanges.jsonl`.
pub(crate) struct Exchange {
    pub(crate) name: String,
    pub(crate) request: Message,
    pub(crate) reply: Message,
}

/// Request and reply pairs between a client and the peer.
pub(crate) fn captured_exchanges() -> Vec<Exchange> {
    let lines = include_str!("../golden/client-exchanges.jsonl");
    let exchanges: Vec<_> = lines
        .lines()
        .map(|line| {
            let object: serde_json::Value = serde_json::from_str(line).expect("JSON lines");
            let text = |key: &str| object[key].as_str().expect("a string").to_owned();
            let frame = |key: &str| Message::from_bytes(&hex(&text(key))).expect("a frame");
            Exchange {
                name: text("request"),
                request: frame("request_hex"),
                reply: frame("reply_hex"),
            }
        })
        .collect();
    assert_eq!(exchanges.len(), 51);
    exchanges
}

/// The body seal of a hex string.
pub(crate) fn body_seal_hex(text: &str) -> Checksum {
    body_seal(&hex(text))
}
