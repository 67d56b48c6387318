//! The state manifest of chapter 04 sections 3.9 and 8.1, valid and broken.

use biplane_wire::*;

fn entry(kind: u8, frontier: u64, length: u64, checksum: u64) -> ManifestEntry {
    ManifestEntry {
        kind,
        frontier,
        length,
        checksum,
    }
}

fn m2() -> Vec<ManifestEntry> {
    vec![
        entry(0, 192, 14, 0x298e_ac84_0308_9f0b),
        entry(1, 195, 11, 0xf5be_ae4d_7cdd_793d),
    ]
}

/// Replaces the trailing hash by the right one.
fn rehash(bytes: &mut [u8]) {
    let (hashed, trailer) = bytes.split_last_chunk_mut::<8>().expect("long enough");
    *trailer = xxh3(hashed).to_le_bytes();
}

fn with_head(entry_size: u8, entries: &[u8], count: u32) -> Vec<u8> {
    let mut bytes = b"ISM1".to_vec();
    bytes.extend(count.to_le_bytes());
    bytes.push(entry_size);
    bytes.extend(entries);
    bytes.extend([0; 8]);
    rehash(&mut bytes);
    bytes
}

#[test]
fn m0_and_m2_round_trip() {
    assert_eq!(
        hex::encode(Manifest::encode(&[])),
        "49534d310000000019c4c2c6afa4031121"
    );
    assert_eq!(xxh3(b"snapshot-bytes"), 0x298e_ac84_0308_9f0b);
    let bytes = Manifest::encode(&m2());
    let manifest = Manifest::decode(&bytes).expect("valid");
    assert_eq!(manifest.len(), 2);
    assert_eq!(manifest.iter().collect::<Vec<_>>(), m2());
    assert_eq!(manifest.get(1), Some(m2()[1]));
    assert_eq!(manifest.get(2), None);
    assert!(
        Manifest::decode(&Manifest::encode(&[]))
            .expect("valid")
            .is_empty()
    );
}

#[test]
fn longer_entries_are_read_and_their_tail_skipped() {
    let plain = Manifest::encode(&m2());
    let mut entries = Vec::new();
    for chunk in plain[9..plain.len() - 8].chunks(25) {
        entries.extend_from_slice(chunk);
        entries.extend([0xAB; 7]);
    }
    let bytes = with_head(32, &entries, 2);
    let manifest = Manifest::decode(&bytes).expect("valid");
    assert_eq!(manifest.iter().collect::<Vec<_>>(), m2());
}

#[test]
fn each_broken_rule_has_its_reason() {
    use ManifestError as Error;
    let good = Manifest::encode(&m2());
    for length in 0..good.len() {
        let expected = if length < 8 {
            Error::Truncated
        } else {
            Error::Checksum
        };
        assert_eq!(Manifest::decode(&good[..length]), Err(expected), "{length}");
    }
    for bit in 0..good.len() * 8 {
        let mut flipped = good.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            Manifest::decode(&flipped),
            Err(Error::Checksum),
            "bit {bit}"
        );
    }
    let mut short = vec![0; 16];
    rehash(&mut short);
    assert_eq!(Manifest::decode(&short), Err(Error::Truncated));
    let mut magic = good.clone();
    magic[3] = b'2';
    rehash(&mut magic);
    assert_eq!(Manifest::decode(&magic), Err(Error::Magic));
    assert_eq!(
        Manifest::decode(&with_head(25, &[], 65_537)),
        Err(Error::TooManyEntries(65_537))
    );
    assert_eq!(
        Manifest::decode(&with_head(24, &[0; 24], 1)),
        Err(Error::EntryTooShort(24))
    );
    assert_eq!(
        Manifest::decode(&with_head(25, &[0; 24], 1)),
        Err(Error::Truncated)
    );
    assert_eq!(
        Manifest::decode(&with_head(25, &[0; 26], 1)),
        Err(Error::Truncated)
    );
    assert_eq!(
        Manifest::decode(&with_head(25, &[0; 25], 2)),
        Err(Error::Truncated)
    );
    let full = vec![entry(2, 0, 0, 0); MANIFEST_ENTRIES_MAX];
    let bytes = Manifest::encode(&full);
    assert_eq!(
        Manifest::decode(&bytes).expect("valid").len(),
        MANIFEST_ENTRIES_MAX
    );
}
