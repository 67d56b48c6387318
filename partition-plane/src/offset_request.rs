//! The bodies of StoreConsumerOffset and DeleteConsumerOffset (chapter 06 section 10.1).
//!
//! A replicated body is the client's body unchanged, so every replica decodes the same bytes;
//! stream, topic and partition in it are skipped, the group of the header says where it belongs.

use biplane_wire::{Operation, PartitionKey, xxh32};

use crate::consumer_offsets::ConsumerKey;

/// What a store or delete asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetRequest {
    /// Whose position.
    pub key: ConsumerKey,
    /// The new position; `None` for a delete.
    pub offset: Option<u64>,
}

/// The body does not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the consumer offset body does not decode")]
pub struct OffsetRequestError;

const KIND_CONSUMER: u8 = 1;
const KIND_GROUP: u8 = 2;
const NUMERIC: u8 = 1;
const STRING: u8 = 2;

impl OffsetRequest {
    /// Decodes the body of `operation`, which is one of the two.
    ///
    /// # Errors
    ///
    /// When a field is truncated, of an unknown kind, or the acknowledgement level is undefined.
    pub fn decode(operation: Operation, body: &[u8]) -> Result<Self, OffsetRequestError> {
        Self::parse(operation, body).ok_or(OffsetRequestError)
    }

    fn parse(operation: Operation, body: &[u8]) -> Option<Self> {
        let (kind, rest) = body.split_first()?;
        let (id, rest) = identifier(rest)?;
        let key = match *kind {
            KIND_CONSUMER => ConsumerKey::Consumer(id),
            KIND_GROUP => ConsumerKey::Group(id),
            _ => return None,
        };
        let (_, rest) = identifier(rest)?;
        let (_, rest) = identifier(rest)?;
        let (_, rest) = rest.split_first_chunk::<5>()?;
        let (offset, rest) = match operation {
            Operation::StoreConsumerOffset => {
                let (offset, rest) = rest.split_first_chunk::<8>()?;
                (Some(u64::from_le_bytes(*offset)), rest)
            }
            _ => (None, rest),
        };
        match rest.first()? {
            0 | 1 => Some(Self { key, offset }),
            _ => None,
        }
    }
}

/// A numeric identifier, or the hash a named consumer is stored under.
fn identifier(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let ([kind, len], rest) = bytes.split_first_chunk::<2>()?;
    let (value, rest) = rest.split_at_checked(usize::from(*len))?;
    let id = match *kind {
        NUMERIC => u32::from_le_bytes(value.try_into().ok()?),
        STRING if !value.is_empty() && std::str::from_utf8(value).is_ok() => xxh32(value),
        _ => return None,
    };
    Some((id, rest))
}

/// The body of a store or, without an offset, of a delete that this server makes itself.
pub fn encode(key: ConsumerKey, partition: PartitionKey, offset: Option<u64>) -> Vec<u8> {
    let mut out = Vec::with_capacity(33);
    let mut numeric = |prefix: Option<u8>, id: u32| {
        out.extend(prefix);
        out.extend([NUMERIC, 4]);
        out.extend(id.to_le_bytes());
    };
    match key {
        ConsumerKey::Consumer(id) => numeric(Some(KIND_CONSUMER), id),
        ConsumerKey::Group(id) => numeric(Some(KIND_GROUP), id),
    }
    numeric(None, partition.stream);
    numeric(None, partition.topic);
    out.push(1);
    out.extend(partition.partition.to_le_bytes());
    out.extend(offset.iter().flat_map(|offset| offset.to_le_bytes()));
    out.push(1);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITION: PartitionKey = PartitionKey {
        stream: 1,
        topic: 2,
        partition: 3,
    };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn auto_commit_store_is_the_vector() {
        let body = encode(ConsumerKey::Consumer(7), PARTITION, Some(101));
        assert_eq!(
            hex(&body),
            "010104070000000104010000000104020000000103000000650000000000000001"
        );
        let decoded = OffsetRequest::decode(Operation::StoreConsumerOffset, &body).unwrap();
        let want = OffsetRequest {
            key: ConsumerKey::Consumer(7),
            offset: Some(101),
        };
        assert_eq!(decoded, want);
    }

    #[test]
    fn named_consumer_is_stored_under_its_hash() {
        let mut body = vec![KIND_CONSUMER, STRING, 10];
        body.extend(b"consumer-1");
        body.extend(&encode(ConsumerKey::Group(0), PARTITION, None)[7..]);
        let decoded = OffsetRequest::decode(Operation::DeleteConsumerOffset, &body).unwrap();
        assert_eq!(decoded.key, ConsumerKey::Consumer(1_338_303_147));
        assert_eq!(decoded.offset, None);
    }

    #[test]
    fn every_truncation_and_undefined_kind_is_refused() {
        let body = encode(ConsumerKey::Group(7), PARTITION, Some(1));
        for len in 0..body.len() {
            let cut = OffsetRequest::decode(Operation::StoreConsumerOffset, &body[..len]);
            assert_eq!(cut, Err(OffsetRequestError), "length {len}");
        }
        for (at, byte) in [(0, 3), (0, 0), (1, 3), (2, 5), (32, 2), (7, 0)] {
            let mut bytes = body.clone();
            bytes[at] = byte;
            let refused = OffsetRequest::decode(Operation::StoreConsumerOffset, &bytes);
            assert_eq!(refused, Err(OffsetRequestError), "byte {at}");
        }
    }
}
