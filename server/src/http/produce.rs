//! The body of a produce request, and the batch that comes of it (chapter 08 section 5.4).

use base64ct::{Base64, Encoding as _};
use biplane_wire::{
    BatchBuilder, ErrorCode, Partitioning, TlvBuilder, TlvField, USER_HEADERS_SIZE_MAX,
};
use serde::{Deserialize, Deserializer, de};

use super::answer::Answer;
use super::shapes::kind_of;
use crate::clock;

/// Largest payload of a message, in bytes.
const PAYLOAD_MAX: usize = 64_000_000;

/// The body. Unknown members next to these two are errors, unlike everywhere else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendBody {
    pub(crate) partitioning: PartitioningBody,
    pub(crate) messages: Vec<MessageBody>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PartitioningBody {
    kind: PartitioningKind,
    value: Bytes,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PartitioningKind {
    Balanced,
    PartitionId,
    MessagesKey,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MessageBody {
    #[serde(default)]
    id: MessageId,
    payload: Bytes,
    #[serde(default)]
    user_headers: Option<UserHeaders>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum UserHeaders {
    Entries(Vec<UserHeader>),
    Raw(Bytes),
}

#[derive(Debug, Deserialize)]
struct UserHeader {
    key: HeaderField,
    value: HeaderField,
}

#[derive(Debug, Deserialize)]
struct HeaderField {
    kind: String,
    value: Bytes,
}

/// Base64 of the standard alphabet, padded.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Base64::decode_vec(&text)
            .map(Self)
            .map_err(|_| de::Error::custom("not base64"))
    }
}

/// 0 lets the server choose.
#[derive(Debug, Default)]
struct MessageId(u128);

impl<'de> Deserialize<'de> for MessageId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Text(String),
            Nothing(()),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(number) => Ok(Self(number.into())),
            Either::Nothing(()) => Ok(Self(0)),
            Either::Text(text) => message_id(&text)
                .map(Self)
                .ok_or_else(|| de::Error::custom("not a message id")),
        }
    }
}

/// Decimal digits, or the hexadecimal digits of a UUID with dashes or without.
fn message_id(text: &str) -> Option<u128> {
    let hex: String = text.chars().filter(|letter| *letter != '-').collect();
    let is_hex = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let dashes = text.len() - hex.len();
    if is_hex && (dashes == 0 || (dashes == 4 && text.len() == 36)) {
        return u128::from_str_radix(&hex, 16).ok();
    }
    let decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    decimal.then(|| text.parse().ok()).flatten()
}

/// Where the messages go.
///
/// # Errors
/// 400, error 3.
pub(crate) fn partitioning(body: &PartitioningBody) -> Result<Partitioning<'_>, Answer> {
    let value = body.value.0.as_slice();
    match (body.kind, value.len()) {
        (PartitioningKind::Balanced, 0) => Ok(Partitioning::Balanced),
        (PartitioningKind::PartitionId, 4) => {
            let bytes = value.try_into().unwrap_or_default();
            Ok(Partitioning::PartitionId(u32::from_le_bytes(bytes)))
        }
        (PartitioningKind::MessagesKey, 1..=255) => Ok(Partitioning::MessagesKey(value)),
        _ => Err(Answer::error(ErrorCode::InvalidCommand)),
    }
}

/// The messages as a producer sends them.
///
/// # Errors
/// 400 with the error of the first message that cannot be sent.
pub(crate) fn batch(messages: &[MessageBody]) -> Result<Vec<u8>, Answer> {
    if messages.is_empty() {
        return Err(Answer::error(ErrorCode::InvalidMessagesCount));
    }
    let now = clock::wall_micros();
    let mut builder = BatchBuilder::new();
    for message in messages {
        let payload = message.payload.0.as_slice();
        match payload.len() {
            0 => return Err(Answer::error(ErrorCode::EmptyMessagePayload)),
            1..=PAYLOAD_MAX => {}
            _ => return Err(Answer::error(ErrorCode::TooBigMessagePayload)),
        }
        let headers = headers(message.user_headers.as_ref())?;
        let id = match message.id.0 {
            0 => random_id()?,
            id => id,
        };
        builder
            .push(id, now, payload, &headers)
            .map_err(|_| Answer::error(ErrorCode::TooManyMessages))?;
    }
    builder
        .finish()
        .map_err(|_| Answer::error(ErrorCode::InvalidMessageTimestampDelta))
}

fn random_id() -> Result<u128, Answer> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|_| Answer::no_answer())?;
    Ok(u128::from_le_bytes(random).max(1))
}

fn headers(headers: Option<&UserHeaders>) -> Result<Vec<u8>, Answer> {
    let bytes = match headers {
        None => Vec::new(),
        Some(UserHeaders::Raw(bytes)) => bytes.0.clone(),
        Some(UserHeaders::Entries(entries)) => {
            let mut block = TlvBuilder::new();
            for entry in entries {
                let (key, value) = (field(&entry.key)?, field(&entry.value)?);
                block.push(key, value);
                if block.bytes().len() > USER_HEADERS_SIZE_MAX {
                    break;
                }
            }
            block.into_bytes()
        }
    };
    if bytes.len() > USER_HEADERS_SIZE_MAX {
        return Err(Answer::error(ErrorCode::TooBigUserHeaders));
    }
    Ok(bytes)
}

fn field(field: &HeaderField) -> Result<TlvField<'_>, Answer> {
    let invalid = || Answer::error(ErrorCode::InvalidHeaderKind);
    let kind = kind_of(&field.kind).ok_or_else(invalid)?;
    let data = field.value.0.as_slice();
    let sized = kind.value_size().is_none_or(|size| size == data.len());
    if !sized || !(1..=255).contains(&data.len()) {
        return Err(invalid());
    }
    Ok(TlvField { kind, data })
}

#[cfg(test)]
mod tests {
    use biplane_wire::{Batch, Verify};

    use super::*;

    fn read(text: &str) -> Result<SendBody, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn the_example_of_the_specification() {
        let body = read(
            r#"{"partitioning":{"kind":"partition_id","value":"AwAAAA=="},
                "messages":[{"id":0,"payload":"aGVsbG8=","user_headers":[]}]}"#,
        )
        .unwrap();
        assert_eq!(
            partitioning(&body.partitioning).ok(),
            Some(Partitioning::PartitionId(3))
        );
        let bytes = batch(&body.messages).unwrap();
        let batch = Batch::decode(&bytes, Verify::Checksums).unwrap();
        let frame = batch.frames().next().unwrap();
        assert_eq!(frame.payload, b"hello");
        assert_ne!(frame.header.id(), 0, "the server chooses an id");
    }

    #[test]
    fn ids_are_numbers_or_texts() {
        let wanted = 0x0189_0a5d_ac96_774b_bcce_b302_099a_8057;
        for text in [
            "01890a5d-ac96-774b-bcce-b302099a8057",
            "01890a5dac96774bbcceb302099a8057",
        ] {
            assert_eq!(message_id(text), Some(wanted), "{text}");
        }
        assert_eq!(
            message_id("340282366920938463463374607431768211455"),
            Some(u128::MAX)
        );
        for text in ["", "-1", "x", "340282366920938463463374607431768211456"] {
            assert_eq!(message_id(text), None, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_sent_is_refused_with_its_error() {
        let body = |message: &str| {
            read(&format!(
                r#"{{"partitioning":{{"kind":"balanced","value":""}},"messages":[{message}]}}"#
            ))
        };
        let refused = |message: &str| {
            let body = body(message).unwrap();
            let answer = batch(&body.messages).unwrap_err();
            super::super::answer::error_id(&answer.body).unwrap()
        };
        assert_eq!(refused(""), 4009);
        assert_eq!(refused(r#"{"payload":""}"#), 4024);
        assert_eq!(
            refused(
                r#"{"payload":"eA==","user_headers":[{"key":{"kind":"string","value":"bg=="},
                "value":{"kind":"uint64","value":"BQ=="}}]}"#
            ),
            4040
        );
        assert!(body(r#"{"payload":"no base64"}"#).is_err());
        assert!(read(r#"{"partitioning":{"kind":"x","value":""},"messages":[]}"#).is_err());
        let more = r#"{"partitioning":{"kind":"balanced","value":""},"messages":[],"x":1}"#;
        assert!(read(more).is_err(), "unknown members are errors here");
    }

    #[test]
    fn a_partitioning_whose_value_does_not_fit_is_refused() {
        for (kind, value) in [
            ("balanced", "AA=="),
            ("partition_id", "AAA="),
            ("messages_key", ""),
        ] {
            let body = read(&format!(
                r#"{{"partitioning":{{"kind":"{kind}","value":"{value}"}},"messages":[]}}"#
            ))
            .unwrap();
            assert_eq!(partitioning(&body.partitioning).unwrap_err().status, 400);
        }
    }
}
