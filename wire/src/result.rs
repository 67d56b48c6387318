//! The result section at the start of a framed reply body (chapter 01 section 14.2).
//!
//! ```text
//! success    00000000 | payload
//! rejection  01000000 | 00000000 | code u32
//! ```

use crate::error::DecodeError;

/// The whole body of a success without payload, and the section of one with payload.
pub const RESULT_OK: [u8; 4] = [0; 4];
/// Length of a rejection body.
pub const RESULT_REJECTION_SIZE: usize = 12;

/// The body of a rejection with an error code.
#[must_use]
pub const fn rejection(code: u32) -> [u8; RESULT_REJECTION_SIZE] {
    let code = code.to_le_bytes();
    [1, 0, 0, 0, 0, 0, 0, 0, code[0], code[1], code[2], code[3]]
}

/// The body of a success with `payload`.
#[must_use]
pub fn success(payload: &[u8]) -> Vec<u8> {
    [&RESULT_OK, payload].concat()
}

/// A decoded result section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultSection<'a> {
    /// No error; what follows the section.
    Success(&'a [u8]),
    /// The error code of the first entry.
    Rejection(u32),
}

impl<'a> ResultSection<'a> {
    /// Reads the section at the start of `body`.
    ///
    /// # Errors
    ///
    /// A section that is cut short is malformed, never a success.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        Self::decode_measured(body).map(|(section, _)| section)
    }

    /// As [`ResultSection::decode`], with the length of the section in bytes.
    ///
    /// # Errors
    ///
    /// A section that is cut short is malformed, never a success.
    pub fn decode_measured(body: &'a [u8]) -> Result<(Self, usize), DecodeError> {
        let have = body.len();
        let truncated = |need| DecodeError::Truncated {
            field: "result section",
            need,
            have,
        };
        let (count, rest) = body.split_first_chunk::<4>().ok_or(truncated(4))?;
        let count = u32::from_le_bytes(*count);
        if count == 0 {
            return Ok((Self::Success(rest), 4));
        }
        let entry = rest
            .first_chunk::<8>()
            .ok_or(truncated(RESULT_REJECTION_SIZE))?;
        let [_, _, _, _, code @ ..] = *entry;
        let length = u64::from(count) * 8 + 4;
        match usize::try_from(length) {
            Ok(length) if length <= have => Ok((Self::Rejection(u32::from_le_bytes(code)), length)),
            _ => Err(DecodeError::Length {
                field: "result section",
                length,
            }),
        }
    }
}
