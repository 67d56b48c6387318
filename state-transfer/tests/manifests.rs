//! The manifests of chapter 04 sections 8.1 and 8.2, and what each plane makes of them.

mod support;

use biplane_state_transfer::{PlaneKind, check_offer};
use biplane_wire::{GroupId, Op};
use support::{golden, partition_group};

fn plane_of(group: GroupId) -> PlaneKind {
    match group.is_metadata() {
        true => PlaneKind::Metadata,
        false => PlaneKind::Partition,
    }
}

#[test]
fn manifests_of_the_specification_are_judged_by_their_plane() {
    let entries = |dump: &str| {
        let bytes = golden(dump);
        let manifest = biplane_wire::Manifest::decode(&bytes).expect("a manifest");
        manifest.iter().collect::<Vec<_>>()
    };
    let m1 = entries(include_str!("golden/manifest_m1.txt"));
    let m2 = entries(include_str!("golden/manifest_m2.txt"));
    let m3 = entries(include_str!("golden/manifest_m3.txt"));
    assert_eq!(entries(include_str!("golden/manifest_ml.txt")), m2);
    let (metadata, partition) = (plane_of(GroupId::METADATA), plane_of(partition_group()));
    assert!(check_offer(metadata, &m2, Op(195), 100).is_ok());
    assert!(check_offer(partition, &m3, Op(77), 100).is_ok());
    assert!(
        check_offer(partition, &m1, Op(17), 100).is_ok(),
        "no segments, offsets alone"
    );
    assert!(
        check_offer(partition, &m3, Op(78), 100).is_err(),
        "offsets of another op"
    );
    assert!(
        check_offer(partition, &m3, Op(77), 9).is_err(),
        "a segment of 10 bytes"
    );
    assert!(check_offer(partition, &m2, Op(195), 100).is_err());
    assert!(check_offer(metadata, &m1, Op(17), 100).is_err());
    let twice = [m3.clone(), m3].concat();
    assert!(check_offer(partition, &twice, Op(77), 100).is_err());
    let twice = [m2.clone(), m2].concat();
    assert!(check_offer(metadata, &twice, Op(195), 100).is_err());
    assert!(
        check_offer(partition, &[], Op(0), 100).is_err(),
        "an empty manifest is no offer"
    );
    assert!(check_offer(metadata, &[], Op(0), 100).is_err());
}

#[test]
fn manifests_that_are_none_are_refused() {
    use biplane_wire::ManifestError;
    let decode = |bytes: &[u8]| biplane_wire::Manifest::decode(bytes).map(|found| found.len());
    let m2 = golden(include_str!("golden/manifest_m2.txt"));
    let mut b1 = m2.clone();
    b1[6] = 0xff;
    assert_eq!(decode(&b1), Err(ManifestError::Checksum));
    assert_eq!(decode(&m2[..m2.len() - 1]), Err(ManifestError::Checksum));
    assert_eq!(decode(&m2[..5]), Err(ManifestError::Truncated));
    let rejected = |dump: &str| decode(&golden(dump)).expect_err("it is no manifest");
    assert_eq!(
        rejected(include_str!("golden/manifest_b4.txt")),
        ManifestError::Magic
    );
    let b5 = rejected(include_str!("golden/manifest_b5.txt"));
    assert_eq!(b5, ManifestError::TooManyEntries(65_537));
    let b6 = rejected(include_str!("golden/manifest_b6.txt"));
    assert_eq!(b6, ManifestError::EntryTooShort(24));
    assert_eq!(
        rejected(include_str!("golden/manifest_b7.txt")),
        ManifestError::Truncated
    );
    assert_eq!(
        rejected(include_str!("golden/manifest_b8.txt")),
        ManifestError::Truncated
    );
}
