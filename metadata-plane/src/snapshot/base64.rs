//! Base64 with the standard alphabet and padding, as snapshots carry option keys and values.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut word = 0_u32;
        for (at, byte) in chunk.iter().enumerate() {
            word |= u32::from(*byte) << (16 - 8 * at);
        }
        for digit in 0..4 {
            if digit <= chunk.len() {
                let index = (word >> (18 - 6 * digit)) & 63;
                out.push(char::from(ALPHABET[index as usize]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

/// Decodes text; None where it is not exactly what [`encode`] writes.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len() / 4 * 3);
    for (number, chunk) in bytes.chunks(4).enumerate() {
        let is_last = (number + 1) * 4 == bytes.len();
        let padding = chunk.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || (padding > 0 && !is_last) {
            return None;
        }
        let mut word = 0_u32;
        for byte in chunk.iter().take(4 - padding) {
            word = (word << 6) | digit(*byte)?;
        }
        word <<= 6 * padding;
        let decoded = word.to_be_bytes();
        out.extend(decoded.iter().skip(1).take(3 - padding));
        // Bits behind the last byte are zero in the only form that is written.
        if decoded.iter().skip(4 - padding).any(|byte| *byte != 0) {
            return None;
        }
    }
    Some(out)
}

fn digit(byte: u8) -> Option<u32> {
    let index = ALPHABET.iter().position(|letter| *letter == byte)?;
    u32::try_from(index).ok()
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn known_texts_round_trip() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"segment_size", "c2VnbWVudF9zaXpl"),
            (&[0, 0, 0, 0x40, 0, 0, 0, 0], "AAAAQAAAAAA="),
            (&[0xff, 0xfe, 0xfd], "//79"),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).as_deref(), Some(bytes));
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "Zg", "Zg=", "Z===", "Zh==", "Zm9=", "Zg==Zg==", "Zm 9", "====",
        ] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
