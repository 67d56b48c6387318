//! Derivation, rotation and the rules for secrets, against the computed values of chapter 02.

use super::*;

const S1: &str = "0123456789abcdef0123456789abcdef";
const S2: &str = "fedcba9876543210fedcba9876543210";

fn key_hex(secret: &str) -> String {
    hex::encode(MacKey::derive(secret.as_bytes()).0.as_slice())
}

#[test]
fn derived_keys_equal_the_published_ones() {
    assert_eq!(
        key_hex(S1),
        "39ec545024b097198cbf082b239525e97c0da3a60f3a18fd29f7d169de6a54be"
    );
    assert_eq!(
        key_hex(S2),
        "994cce24e8d36eb3275beb564833796d0134ebcb1e21be3de06783a58c5c08bc"
    );
}

#[test]
fn secret_is_taken_as_raw_bytes_without_decoding_or_trimming() {
    assert_ne!(key_hex(S1), key_hex(&format!("{S1} ")));
    assert_ne!(key_hex(S1), key_hex(&S1.to_uppercase()));
    assert_ne!(key_hex(S1), key_hex(&hex::encode(S1)));
}

#[test]
fn only_the_current_key_signs_and_both_verify() {
    let transcript = b"any bytes";
    let old = Keys::from_secrets(S1, None).unwrap();
    let rotating = Keys::from_secrets(S2, Some(S1)).unwrap();
    let new = Keys::from_secrets(S2, None).unwrap();
    let by_old = *old.sign(transcript).as_bytes();
    let by_new = *rotating.sign(transcript).as_bytes();

    assert_eq!(by_new, *new.sign(transcript).as_bytes());
    assert_eq!(
        rotating.verify(transcript, &by_old),
        Some(KeySlot::Previous)
    );
    assert_eq!(rotating.verify(transcript, &by_new), Some(KeySlot::Current));
    assert_eq!(new.verify(transcript, &by_old), None);
    assert_eq!(old.verify(transcript, &by_new), None);
}

#[test]
fn every_flipped_bit_of_a_code_fails_to_verify() {
    let keys = Keys::from_secrets(S1, Some(S2)).unwrap();
    let mac = *keys.sign(b"transcript").as_bytes();
    for bit in 0..MAC_LENGTH * 8 {
        let mut forged = mac;
        forged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(keys.verify(b"transcript", &forged), None, "bit {bit}");
    }
    assert_eq!(keys.verify(b"transcript", &[0; MAC_LENGTH]), None);
}

#[test]
fn secrets_below_32_bytes_are_refused_and_32_are_enough() {
    let short = &S1[1..];
    let too_short = |slot| SecretError::TooShort { slot, length: 31 };
    for (shared, previous, expected) in [
        (S1, None, None),
        (S1, Some(""), None),
        (S1, Some(S2), None),
        ("", None, Some(SecretError::Missing)),
        ("", Some(S2), Some(SecretError::Missing)),
        (short, None, Some(too_short(KeySlot::Current))),
        (S1, Some(short), Some(too_short(KeySlot::Previous))),
        (S1, Some(S1), Some(SecretError::Equal)),
    ] {
        assert_eq!(
            Keys::from_secrets(shared, previous).err(),
            expected,
            "{shared} {previous:?}"
        );
    }
    // The floor counts bytes, not characters.
    assert!(Keys::from_secrets(&"é".repeat(16), None).is_ok());
    assert!(Keys::from_secrets(&"long".repeat(10_000), None).is_ok());
}

#[test]
fn secrets_are_judged_with_authentication_off_too() {
    let short = &S1[1..];
    assert_eq!(check_secrets("", ""), Ok(()));
    assert_eq!(check_secrets(S1, ""), Ok(()));
    assert_eq!(check_secrets("", S1), Ok(()));
    assert_eq!(
        check_secrets(short, ""),
        Err(SecretError::TooShort {
            slot: KeySlot::Current,
            length: 31
        })
    );
    assert_eq!(
        check_secrets("", short),
        Err(SecretError::TooShort {
            slot: KeySlot::Previous,
            length: 31
        })
    );
    assert_eq!(check_secrets(S2, S2), Err(SecretError::Equal));
}

#[test]
fn debug_and_error_texts_hold_no_secret() {
    let keys = Keys::from_secrets(S1, Some(S2)).unwrap();
    assert_eq!(format!("{keys:?}"), "Keys(..)");
    assert_eq!(format!("{keys:#?}"), "Keys(..)");
    let error = Keys::from_secrets("hunter2", None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cluster.auth.shared_secret has 7 bytes, at least 32 are required"
    );
    assert!(!format!("{error:?}").contains("hunter2"));
}
