//! A request as handlers see it: path parameters, query and body, read with the answers that bad
//! ones get (chapter 08 section 1).

use std::borrow::Cow;
use std::net::SocketAddr;

use biplane_wire::{ErrorCode, Identifier};
use serde::de::DeserializeOwned;

use super::answer::Answer;
use super::route::Method;
use crate::client::http::OwnedIdentifier;

/// A request without its body.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    /// Method; `None` for one this interface does not know.
    pub(crate) method: Option<Method>,
    /// Path as sent.
    pub(crate) path: String,
    /// Query as sent.
    pub(crate) query: String,
    /// `Authorization`, when it is text.
    pub(crate) authorization: Option<String>,
    /// `Content-Type`, when it is text.
    pub(crate) content_type: Option<String>,
    /// `Content-Length`.
    pub(crate) content_length: Option<u64>,
    /// `Origin`.
    pub(crate) origin: Option<String>,
    /// Another node handed it on.
    pub(crate) forwarded: bool,
    /// It asks whether it may be sent (CORS).
    pub(crate) preflight: bool,
    /// The caller asks that to be said for a private network.
    pub(crate) private_network: bool,
    /// The caller.
    pub(crate) peer: SocketAddr,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The user.
    pub(crate) user_id: u32,
    /// The credential, as sessions are kept by it.
    pub(crate) key: String,
    /// When the credential ends, seconds.
    pub(crate) expires: Option<u64>,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Call {
    /// All but the body.
    pub(crate) head: Head,
    /// Path parameters in order, percent-decoded.
    pub(crate) parameters: Vec<String>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Head {
    /// The value of a query key, form-decoded; the last one counts.
    pub(crate) fn query_value(&self, key: &str) -> Option<Cow<'_, str>> {
        form_urlencoded::parse(self.query.as_bytes())
            .filter(|(name, _)| name == key)
            .map(|(_, value)| value)
            .last()
    }

    /// A query value that is read by `read`, or absent.
    ///
    /// # Errors
    /// 400 for a value that does not parse.
    pub(crate) fn query_with<T>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Answer> {
        let Some(value) = self.query_value(key) else {
            return Ok(None);
        };
        match read(&value) {
            Some(value) => Ok(Some(value)),
            None => Err(Answer::text(
                400,
                &format!("Failed to deserialize query string: {key} is not valid"),
            )),
        }
    }

    /// A query value of a type that parses from text.
    ///
    /// # Errors
    /// 400 for a value that does not parse.
    pub(crate) fn query_parsed<T: std::str::FromStr>(
        &self,
        key: &str,
    ) -> Result<Option<T>, Answer> {
        self.query_with(key, |text| text.parse().ok())
    }

    /// Whether a linearizable read is asked for.
    ///
    /// # Errors
    /// 400 for any other consistency.
    pub(crate) fn is_linearizable(&self) -> Result<bool, Answer> {
        let wanted = self.query_with("consistency", |text| match text {
            "serializable" => Some(false),
            "linearizable" => Some(true),
            _ => None,
        })?;
        Ok(wanted.unwrap_or(false))
    }
}

/// Text in a path or a query that names something: a number is a number, all else a name.
pub(crate) fn identifier(text: &str) -> Result<OwnedIdentifier, Answer> {
    if let Ok(number) = text.parse() {
        return Ok(OwnedIdentifier::Numeric(number));
    }
    match text.len() {
        1..=255 => Ok(OwnedIdentifier::Named(text.to_owned())),
        _ => Err(Answer::error(ErrorCode::InvalidIdentifier)),
    }
}

/// Borrows an identifier for a request of the client protocol.
pub(crate) fn borrow(identifier: &OwnedIdentifier) -> Result<Identifier<'_>, Answer> {
    let invalid = || Answer::error(ErrorCode::InvalidIdentifier);
    identifier.get().ok_or_else(invalid)
}

impl Call {
    /// The path parameter at `index`.
    pub(crate) fn parameter(&self, index: usize) -> &str {
        self.parameters.get(index).map_or("", String::as_str)
    }

    /// The path parameter at `index` as a name or a number.
    ///
    /// # Errors
    /// 400, error 6.
    pub(crate) fn identifier(&self, index: usize) -> Result<OwnedIdentifier, Answer> {
        identifier(self.parameter(index))
    }

    /// The path parameter at `index` as a number.
    ///
    /// # Errors
    /// 400 as plain text.
    pub(crate) fn number(&self, index: usize) -> Result<u32, Answer> {
        let text = self.parameter(index);
        text.parse()
            .map_err(|_| Answer::text(400, "Invalid URL: a path segment is not a number"))
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// 415 for another content type, 400 for what is no JSON, 422 for the wrong shape.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Answer> {
        if !is_json(self.head.content_type.as_deref()) {
            let text = "Expected request with `Content-Type: application/json`";
            return Err(Answer::text(415, text));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            let status = match error.classify() {
                serde_json::error::Category::Data => 422,
                _ => 400,
            };
            let (line, column) = (error.line(), error.column());
            // The error's own text may quote the body, which may hold a password.
            let what = if status == 422 {
                "does not have the shape this request needs"
            } else {
                "is not JSON"
            };
            Answer::text(
                status,
                &format!("The body {what}: line {line}, column {column}"),
            )
        })
    }
}

fn is_json(content_type: Option<&str>) -> bool {
    let Some(essence) = content_type.and_then(|text| text.split(';').next()) else {
        return false;
    };
    let essence = essence.trim().to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn head(method: Method, path: &str, query: &str) -> Head {
        Head {
            method: Some(method),
            path: path.to_owned(),
            query: query.to_owned(),
            authorization: None,
            content_type: None,
            content_length: None,
            origin: None,
            forwarded: false,
            preflight: false,
            private_network: false,
            peer: ([127, 0, 0, 1], 1).into(),
        }
    }

    #[test]
    fn query_values_are_decoded_and_the_last_one_counts() {
        let head = head(Method::Get, "/", "a=1&b=x%20y+z&a=2&flag=yes");
        assert_eq!(head.query_parsed::<u32>("a"), Ok(Some(2)));
        assert_eq!(head.query_value("b").as_deref(), Some("x y z"));
        assert_eq!(head.query_parsed::<u32>("c"), Ok(None));
        assert_eq!(head.query_parsed::<bool>("flag").unwrap_err().status, 400);
    }

    #[test]
    fn a_consistency_that_does_not_exist_is_refused() {
        let ask = |query: &str| head(Method::Get, "/", query).is_linearizable();
        assert_eq!(ask(""), Ok(false));
        assert_eq!(ask("consistency=serializable"), Ok(false));
        assert_eq!(ask("consistency=linearizable"), Ok(true));
        assert_eq!(ask("consistency=strong").unwrap_err().status, 400);
    }

    #[test]
    fn numbers_are_numbers_and_all_else_is_a_name() {
        assert_eq!(identifier("7"), Ok(OwnedIdentifier::Numeric(7)));
        let large = "4294967296";
        assert_eq!(
            identifier(large),
            Ok(OwnedIdentifier::Named(large.to_owned()))
        );
        assert!(identifier("").is_err());
        assert!(identifier(&"x".repeat(256)).is_err());
    }

    #[test]
    fn bodies_are_told_apart_by_what_is_wrong_with_them() {
        #[derive(Debug, serde::Deserialize)]
        struct Body {
            #[allow(dead_code)] // Only whether it is there matters.
            name: String,
        }
        let read = |content_type: Option<&str>, body: &str| {
            let call = Call {
                head: Head {
                    content_type: content_type.map(str::to_owned),
                    ..head(Method::Post, "/", "")
                },
                parameters: Vec::new(),
                body: body.as_bytes().to_vec(),
            };
            call.json::<Body>().map_err(|answer| answer.status)
        };
        let json = Some("application/json; charset=utf-8");
        assert!(read(json, r#"{"name":"x","more":1}"#).is_ok());
        assert_eq!(read(None, r#"{"name":"x"}"#).unwrap_err(), 415);
        assert_eq!(
            read(Some("text/plain"), r#"{"name":"x"}"#).unwrap_err(),
            415
        );
        assert_eq!(read(json, r#"{"name":"#).unwrap_err(), 400);
        assert_eq!(read(json, r#"{"name":1}"#).unwrap_err(), 422);
        assert_eq!(read(json, "").unwrap_err(), 400);
    }
}
