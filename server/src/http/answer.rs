//! What goes back: status, headers, body; and the answers that are errors (chapter 08 section 3).

use biplane_wire::ErrorCode;
use serde::Serialize;

const JSON: &str = "application/json";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// HTTP status.
    pub(crate) status: u16,
    /// Content type of a body.
    pub(crate) content_type: Option<String>,
    /// Other headers.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Body.
    pub(crate) body: Vec<u8>,
    /// No view belongs to it: a ping, a page, or it carries another node's.
    pub(crate) viewless: bool,
    /// The connection ends with it.
    pub(crate) closes: bool,
}

/// What stands in an error's body.
#[derive(Serialize)]
struct ErrorBody<'a> {
    id: u32,
    code: &'a str,
    reason: &'a str,
    field: Option<&'a str>,
}

impl Answer {
    /// No body.
    pub(crate) fn empty(status: u16) -> Self {
        Self {
            status,
            content_type: None,
            headers: Vec::new(),
            body: Vec::new(),
            viewless: false,
            closes: false,
        }
    }

    /// A body of some type.
    pub(crate) fn of(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            content_type: Some(content_type.to_owned()),
            body: body.into(),
            ..Self::empty(status)
        }
    }

    /// Plain text.
    pub(crate) fn text(status: u16, text: &str) -> Self {
        Self::of(status, TEXT, text)
    }

    /// 200 with a JSON body.
    pub(crate) fn json(value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::of(200, JSON, body),
            // A map whose keys are no texts, which none of our shapes has.
            Err(_) => Self::error(ErrorCode::Error),
        }
    }

    /// With one more header.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Without the view.
    pub(crate) fn without_view(mut self) -> Self {
        self.viewless = true;
        self
    }

    /// The connection ends with this answer.
    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    /// True for 2xx and 3xx.
    pub(crate) fn is_success(&self) -> bool {
        (200..400).contains(&self.status)
    }

    /// The answer of an error code.
    pub(crate) fn error(code: ErrorCode) -> Self {
        Self::error_number(code.as_u32())
    }

    /// The answer of an error code that may have no name here.
    pub(crate) fn error_number(number: u32) -> Self {
        let known = ErrorCode::from_u32(number);
        let name = known.map_or("error", ErrorCode::name);
        let answer = Self::failure(
            status_of(number),
            number,
            name,
            &reason(known),
            field(number),
        );
        match number {
            57 | 58 => answer.with("retry-after", "1"),
            _ => answer,
        }
    }

    fn failure(status: u16, id: u32, code: &str, reason: &str, field: Option<&str>) -> Self {
        let body = ErrorBody {
            id,
            code,
            reason,
            field,
        };
        Self {
            status,
            ..Self::json(&body)
        }
    }

    /// An absent entity.
    pub(crate) fn not_found() -> Self {
        Self::failure(404, 404, "not_found", "Resource not found", None)
    }

    /// An answer of the transport (section 3.3): its id is its status.
    pub(crate) fn transport(status: u16, code: &str, reason: &str) -> Self {
        let answer = Self::failure(status, u32::from(status), code, reason, None);
        match status {
            429 | 503 => answer.with("retry-after", "1"),
            _ => answer,
        }
    }

    /// Nobody answered, or nobody can.
    pub(crate) fn no_answer() -> Self {
        let code = ErrorCode::CannotEstablishConnection;
        let reason = "No answer from the cluster yet; retry";
        Self::failure(503, code.as_u32(), code.name(), reason, None).with("retry-after", "1")
    }

    /// True when the request may be repeated elsewhere: 503 with error 58.
    pub(crate) fn is_not_accepted(&self) -> bool {
        self.status == 503 && error_id(&self.body) == Some(58)
    }
}

/// `id` of an error's body.
pub(crate) fn error_id(body: &[u8]) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    value.get("id")?.as_u64()
}

/// The table of section 3.2.
const fn status_of(number: u32) -> u16 {
    match number {
        1009 | 2010 | 3007 | 4000 | 100 | 5000 | 5003 | 5006 | 3021 | 20 => 404,
        40 | 77 | 78 | 53 => 401,
        41 => 403,
        57 | 58 => 503,
        101 => 409,
        _ => 400,
    }
}

/// The form field an error is about.
const fn field(number: u32) -> Option<&'static str> {
    Some(match number {
        1009 | 1014 => "stream_id",
        2010 | 2016 => "topic_id",
        3007 => "partition_id",
        4000 => "segment_id",
        100 => "client_id",
        1012 | 1013 | 2013 | 2014 | 5004 | 51 => "name",
        4100 => "offset",
        5002 => "consumer_group_id",
        46 => "username",
        _ => return None,
    })
}

/// Text for people. Only the number is known here, so what would be filled in is 0 or empty.
fn reason(code: Option<ErrorCode>) -> String {
    use ErrorCode as E;
    let Some(code) = code else {
        return "Error".to_owned();
    };
    let text = match code {
        E::StreamIdNotFound => "Stream with ID: 0 was not found.",
        E::TopicIdNotFound => "Topic with ID: 0 was not found.",
        E::PartitionNotFound => "Partition with ID: 0 was not found.",
        E::ConsumerGroupIdNotFound => "Consumer group with ID: 0 was not found.",
        E::StreamNameAlreadyExists => "A stream of this name exists already.",
        E::TopicNameAlreadyExists => "A topic of this name exists already.",
        E::ConsumerGroupNameAlreadyExists => "A consumer group of this name exists already.",
        E::UserAlreadyExists => "A user of this name exists already.",
        E::TransientNotAccepted => "Request transiently not accepted; retry, on any replica",
        E::TransientNotCommitted => "Request may have been accepted; its outcome is not known",
        E::AccessTokenMissing => "Access token is missing",
        other => {
            let words = other.name().replace('_', " ");
            let mut letters = words.chars();
            let first = letters.next().map(|letter| letter.to_ascii_uppercase());
            return first.into_iter().chain(letters).collect();
        }
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(answer: &Answer) -> &str {
        std::str::from_utf8(&answer.body).unwrap()
    }

    #[test]
    fn the_vectors_of_the_specification() {
        for (code, status, text) in [
            (
                ErrorCode::InvalidCredentials,
                400,
                concat!(
                    r#"{"id":42,"code":"invalid_credentials","#,
                    r#""reason":"Invalid credentials","field":null}"#
                ),
            ),
            (
                ErrorCode::Unauthorized,
                403,
                concat!(
                    r#"{"id":41,"code":"unauthorized","#,
                    r#""reason":"Unauthorized","field":null}"#
                ),
            ),
            (
                ErrorCode::TransientNotAccepted,
                503,
                concat!(
                    r#"{"id":58,"code":"transient_not_accepted","reason":"#,
                    r#""Request transiently not accepted; retry, on any replica","field":null}"#
                ),
            ),
            (
                ErrorCode::AccessTokenMissing,
                401,
                concat!(
                    r#"{"id":77,"code":"access_token_missing","#,
                    r#""reason":"Access token is missing","field":null}"#
                ),
            ),
            (
                ErrorCode::StreamIdNotFound,
                404,
                concat!(
                    r#"{"id":1009,"code":"stream_id_not_found","#,
                    r#""reason":"Stream with ID: 0 was not found.","field":"stream_id"}"#
                ),
            ),
        ] {
            let answer = Answer::error(code);
            assert_eq!((answer.status, body(&answer)), (status, text));
        }
        assert_eq!(
            body(&Answer::not_found()),
            r#"{"id":404,"code":"not_found","reason":"Resource not found","field":null}"#
        );
    }

    #[test]
    fn only_what_may_be_repeated_says_when() {
        for code in ErrorCode::all() {
            let answer = Answer::error(code);
            let retry = answer
                .headers
                .iter()
                .any(|(name, _)| *name == "retry-after");
            assert_eq!(retry, answer.status == 503, "{code}");
            assert_ne!(answer.status, 500, "{code}");
            assert!(!reason(Some(code)).is_empty(), "{code}");
        }
        assert!(Answer::error(ErrorCode::TransientNotAccepted).is_not_accepted());
        assert!(!Answer::error(ErrorCode::TransientNotCommitted).is_not_accepted());
        assert!(!Answer::transport(504, "x", "y").is_not_accepted());
        assert_eq!(Answer::error_number(999_999).status, 400);
    }
}
