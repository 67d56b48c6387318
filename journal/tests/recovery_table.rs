//! What a scan concludes from every combination of header and body condition, at every place in
//! a log: first, in the middle, last, and alone.

mod support;

use biplane_journal::{MemoryDisk, OpenError, RecordForm, WalConfig};
use biplane_wire::{Checksum, HEADER_SIZE, Op};
use support::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Header {
    Intact,
    Flipped,
    Zeroed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Body {
    Intact,
    Flipped,
    /// The bytes of the body and of the seal are zeros.
    Zeroed,
    /// The file ends inside the body.
    Short,
}

const HEADERS: [Header; 3] = [Header::Intact, Header::Flipped, Header::Zeroed];
const BODIES: [Body; 4] = [Body::Intact, Body::Flipped, Body::Zeroed, Body::Short];

/// Spoils one record. The body is long enough to hold whole sectors.
fn spoil(record: &mut Vec<u8>, header: Header, body: Body) {
    match header {
        Header::Intact => {}
        Header::Flipped => record[200] ^= 4,
        Header::Zeroed => record[..HEADER_SIZE].fill(0),
    }
    match body {
        Body::Intact => {}
        Body::Flipped => record[HEADER_SIZE + 17] ^= 4,
        Body::Zeroed => record[HEADER_SIZE..].fill(0),
        Body::Short => record.truncate(HEADER_SIZE + 40),
    }
}

/// Four ops with bodies of three sectors, the one at `index` spoiled.
fn spoiled_file(config: &WalConfig, index: usize, header: Header, body: Body) -> Vec<u8> {
    let mut parent = Checksum::ZERO;
    let mut file = Vec::new();
    for number in 0..4 {
        let content: Vec<u8> = (0..1500).map(|at| (at % 251) as u8 + 1).collect();
        let message = prepare_with_body(config.scope.group, number + 1, parent, &content);
        parent = checksum(&message);
        let mut record = record_of(config, &message);
        if number as usize == index {
            spoil(&mut record, header, body);
        }
        file.extend(record);
    }
    file
}

/// The entries are these, and above them only unknown ones: where the size of a record is gone
/// with its header, it may have been as many short ones as fit.
fn assert_begins(entries: &[i64], wanted: &[i64], case: &str) {
    assert!(entries.starts_with(wanted), "{case}: {entries:?}");
    let newer = &entries[wanted.len()..];
    assert!(
        newer.len() <= 7 && newer.iter().all(|op| *op < 0),
        "{case}: {entries:?}"
    );
}

#[test]
fn interior_damage_is_unknown_whatever_its_kind() {
    for config in configs() {
        for index in 0..3 {
            for header in HEADERS {
                for body in BODIES {
                    let file = spoiled_file(&config, index, header, body);
                    let recovered = recover_bytes(&config, &file, 0).unwrap();
                    let mut wanted: Vec<i64> = vec![1, 2, 3, 4];
                    if (header, body) != (Header::Intact, Body::Intact) {
                        wanted[index] = -wanted[index];
                    }
                    // A short record swallows what it needs of its successor, which is garbage
                    // then: its header is gone.
                    if header == Header::Intact && body == Body::Short {
                        wanted[index + 1] = -wanted[index + 1];
                    }
                    // Where no header says which op was there, it may have been a newer one.
                    let is_last_garbage = header == Header::Intact && index == 2;
                    if header != Header::Intact || (body == Body::Short && !is_last_garbage) {
                        wanted.push(-5);
                    }
                    let case = format!("{:?} {index} {header:?} {body:?}", config.form);
                    match header {
                        Header::Zeroed => assert_begins(&summary(&recovered), &wanted, &case),
                        _ if body == Body::Short => {
                            assert_begins(&summary(&recovered), &wanted, &case);
                        }
                        _ => assert_eq!(summary(&recovered), wanted, "{case}"),
                    }
                    assert!(recovered.chain_breaks.is_empty(), "{case}");
                    let spoiled = (header, body) != (Header::Intact, Body::Intact);
                    assert_eq!(recovered.damage.is_empty(), !spoiled, "{case}");
                }
            }
        }
    }
}

#[test]
fn a_last_record_is_cut_only_with_evidence_of_an_interrupted_write() {
    for config in configs() {
        for header in HEADERS {
            for body in BODIES {
                let file = spoiled_file(&config, 3, header, body);
                let recovered = recover_bytes(&config, &file, 0).unwrap();
                let case = format!("{:?} {header:?} {body:?}", config.form);
                let spoiled = (header, body) != (Header::Intact, Body::Intact);
                // Zeros over a whole sector, or the end of the file inside a record with a
                // believable header, are what an interrupted write leaves.
                let torn = body == Body::Zeroed
                    || (header, body) == (Header::Intact, Body::Short)
                    // The header alone is less than a sector, but where it starts one, the part
                    // of it before the next boundary is long enough to tell.
                    || (header == Header::Zeroed && lost_head(&file, &config));
                let wanted: &[i64] = match (spoiled, torn) {
                    (false, _) => &[1, 2, 3, 4],
                    (true, true) => &[1, 2, 3],
                    (true, false) => &[1, 2, 3, -4],
                };
                match (header, body) {
                    (Header::Flipped, Body::Short) | (Header::Zeroed, _) if !torn => {
                        assert_begins(&summary(&recovered), wanted, &case);
                    }
                    _ => assert_eq!(summary(&recovered), wanted, "{case}"),
                }
                assert_eq!(recovered.torn.is_some(), spoiled && torn, "{case}");
            }
        }
    }
}

/// Whether the first sector slice of the last record is all zeros, its header being zeroed.
fn lost_head(file: &[u8], config: &WalConfig) -> bool {
    let intact = spoiled_file(config, 9, Header::Intact, Body::Intact);
    let start = intact.len() / 4 * 3;
    let boundary = (start / 512 + 1) * 512;
    file[start..boundary.min(file.len())]
        .iter()
        .all(|byte| *byte == 0)
}

#[test]
fn the_only_record_of_a_log_is_treated_like_a_last_one() {
    for config in configs() {
        let content = vec![9; 1500];
        let message = prepare_with_body(config.scope.group, 1, Checksum::ZERO, &content);
        let record = record_of(&config, &message);
        for cut in 0..record.len() {
            let recovered = recover_bytes(&config, &record[..cut], 0).unwrap();
            assert!(summary(&recovered).is_empty(), "cut at {cut}");
            assert_eq!(recovered.torn.is_some(), cut > 0, "cut at {cut}");
        }
        for byte in 0..record.len() {
            let mut flipped = record.clone();
            flipped[byte] ^= 0x10;
            let recovered = recover_bytes(&config, &flipped, 0).unwrap();
            // A view can change under an identity, so only the seal vouches for it.
            let harmless = (52..56).contains(&byte) && config.form == RecordForm::Bare;
            let wanted: &[i64] = if harmless { &[1] } else { &[-1] };
            let case = format!("{:?} byte {byte}", config.form);
            match byte {
                48..52 => assert_begins(&summary(&recovered), wanted, &case),
                _ => assert_eq!(summary(&recovered), wanted, "{case}"),
            }
            assert!(
                recovered.torn.is_none(),
                "a flipped byte is not a torn write"
            );
        }
    }
}

#[test]
fn every_cut_of_a_log_leaves_the_whole_records_before_it() {
    for config in configs() {
        let prepares = chain(config.scope.group, 1, 5);
        let file = file_of(&config, &prepares);
        let mut ends = vec![0];
        for message in &prepares {
            ends.push(ends.last().unwrap() + record_of(&config, message).len());
        }
        for cut in 0..=file.len() {
            let recovered = recover_bytes(&config, &file[..cut], 0).unwrap();
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            let wanted: Vec<i64> = (1..=whole as i64).collect();
            assert_eq!(summary(&recovered), wanted, "cut at {cut}");
            let torn = recovered.torn.map(|torn| torn.offset as usize);
            assert_eq!(
                torn,
                (ends[whole] < cut).then_some(ends[whole]),
                "cut at {cut}"
            );
        }
    }
}

#[test]
fn zeros_behind_the_last_record_are_a_write_that_never_arrived() {
    for config in configs() {
        let mut file = file_of(&config, &chain(config.scope.group, 1, 2));
        let len = file.len();
        file.resize(len + 3000, 0);
        let recovered = recover_bytes(&config, &file, 0).unwrap();
        assert_eq!(summary(&recovered), [1, 2]);
        let torn = recovered.torn.unwrap();
        assert_eq!((torn.offset, torn.len), (len as u64, 3000));
    }
}

#[test]
fn a_tail_of_something_else_altogether_is_cut_and_one_that_went_bad_is_not() {
    for config in configs() {
        let file = spoiled_file(&config, 9, Header::Intact, Body::Intact);
        let start = file.len() / 4 * 3;
        let garble = |file: &mut Vec<u8>, from: usize, to: usize| {
            for (index, byte) in file[from..to].iter_mut().enumerate() {
                *byte = (index * 37 % 251) as u8 ^ 0x5c;
            }
        };
        let last = |file: &[u8]| {
            let recovered = recover_bytes(&config, file, 0).unwrap();
            (summary(&recovered)[3..].to_vec(), recovered.torn.is_some())
        };
        // Every sector of the last record holds something else.
        let mut all = file.clone();
        garble(&mut all, start, file.len());
        assert_eq!(last(&all), (vec![], true));
        // So does the one with the header.
        let mut head = file.clone();
        garble(&mut head, start, start + 256);
        assert_eq!(last(&head), (vec![], true));
        // Bursts of the size of a few bytes are no lost sector, wherever they strike.
        for at in (start..file.len() - 8).step_by(5) {
            let mut burst = file.clone();
            garble(&mut burst, at, at + 8);
            let (entries, torn) = last(&burst);
            assert!(!torn, "burst at {at}");
            if entries != [4] {
                assert_begins(&entries, &[-4], &format!("burst at {at}"));
            }
        }
    }
}

#[test]
fn zeros_in_the_middle_of_a_payload_prove_nothing_in_a_sealed_log() {
    for (config, torn) in [(metadata_config(), true), (partition_config(), false)] {
        let group = config.scope.group;
        let one = prepare_of(group, 1, Checksum::ZERO, 0);
        let mut content = vec![3; 3000];
        content[700..2500].fill(0);
        let two = prepare_with_body(group, 2, checksum(&one), &content);
        let mut file = file_of(&config, &[one, two]);
        let last = file.len() - 60;
        file[last] ^= 1;
        let recovered = recover_bytes(&config, &file, 0).unwrap();
        assert_eq!(recovered.torn.is_some(), torn);
        // Bodies of metadata prepares have no such zeros; a sealed record with zeros at its end
        // has lost its seal.
        let seal = file.len() - 1100;
        file[seal..].fill(0);
        assert!(recover_bytes(&config, &file, 0).unwrap().torn.is_some());
    }
}

#[test]
fn an_unreadable_sector_is_damage_and_an_unreadable_file_an_error() {
    for config in configs() {
        let file = spoiled_file(&config, 9, Header::Intact, Body::Intact);
        let mut disk = MemoryDisk::new();
        disk.put(&config.path, &file);
        let sectors = file.len().div_ceil(512) as u64;
        for sector in 0..sectors {
            let view = Unreadable {
                disk: disk.clone(),
                sectors: sector..sector + 1,
            };
            let recovered = biplane_journal::recover(&config, &view, Op(0)).unwrap();
            let ops: Vec<i64> = summary(&recovered).iter().map(|op| op.abs()).collect();
            assert!(ops.starts_with(&[1, 2, 3, 4]), "sector {sector}: {ops:?}");
            let damaged = summary(&recovered).iter().filter(|op| **op < 0).count();
            // Two records of 1,756 bytes, and what may have been newer.
            assert!(
                (1..=15).contains(&damaged),
                "sector {sector}: {damaged} damaged"
            );
            assert!(recovered.torn.is_none(), "sector {sector}");
        }
        let view = Unreadable {
            disk,
            sectors: 0..sectors,
        };
        let failed = biplane_journal::recover(&config, &view, Op(0));
        assert!(matches!(failed, Err(OpenError::Disk(_))));
    }
}

#[test]
fn two_interrupted_records_are_both_cut_and_a_damaged_one_before_them_is_not() {
    let config = metadata_config();
    let mut file = spoiled_file(&config, 1, Header::Intact, Body::Flipped);
    let record_len = file.len() / 4;
    file[record_len * 2 + 300..record_len * 3].fill(0);
    file[record_len * 3 + 300..].fill(0);
    let recovered = recover_bytes(&config, &file, 0).unwrap();
    assert_eq!(summary(&recovered), [1, -2]);
    assert_eq!(recovered.torn.unwrap().offset as usize, record_len * 2);
}

#[test]
fn repairs_out_of_order_are_read_back_in_order() {
    let config = metadata_config();
    let prepares = chain(config.scope.group, 1, 6);
    let order = [0, 1, 4, 5, 2, 3].map(|index: usize| prepares[index].clone());
    let recovered = recover_bytes(&config, &file_of(&config, &order), 0).unwrap();
    assert_eq!(summary(&recovered), [1, 2, 3, 4, 5, 6]);
    assert_eq!(recovered.contiguous_head(), Op(6));
    assert_eq!(recovered.commit_max, Op(5));
}

#[test]
fn the_later_record_of_an_op_counts() {
    let config = metadata_config();
    let first = chain(config.scope.group, 1, 3);
    let second = chain_after(config.scope.group, checksum(&first[1]), 3, 4, 1);
    let mut file = file_of(&config, &[&first[..], &second[..]].concat());
    let recovered = recover_bytes(&config, &file, 0).unwrap();
    assert_eq!(summary(&recovered), [1, 2, 3, 4]);
    assert_eq!(identities(&recovered)[2].1, checksum(&second[0]));
    // When the later one is damaged, the earlier one must not come back in its place.
    let start = file_of(&config, &first).len();
    file[start + HEADER_SIZE] ^= 1;
    let recovered = recover_bytes(&config, &file, 0).unwrap();
    assert_eq!(summary(&recovered), [1, 2, -3, 4]);
}

#[test]
fn a_damaged_copy_of_an_intact_record_takes_nothing_away() {
    let config = metadata_config();
    let prepares = chain(config.scope.group, 1, 3);
    // The first that was repaired, or a second one that may have strayed there.
    for (bad, expected) in [(1, &[1, 2, 3][..]), (3, &[1, 2, 3, -4])] {
        let mut file = Vec::new();
        for (index, number) in [0, 1, 2, 1].into_iter().enumerate() {
            let mut record = record_of(&config, &prepares[number]);
            if index == bad {
                record[HEADER_SIZE + 1] ^= 1;
            }
            file.extend(record);
        }
        let recovered = recover_bytes(&config, &file, 0).unwrap();
        assert_eq!(summary(&recovered), expected, "record {bad} is damaged");
    }
}

#[test]
fn chain_breaks_are_reported_and_nothing_is_cut() {
    let config = metadata_config();
    let first = chain(config.scope.group, 1, 3);
    let second = chain_after(config.scope.group, Checksum(77), 4, 5, 0);
    let file = file_of(&config, &[&first[..], &second[..]].concat());
    let recovered = recover_bytes(&config, &file, 0).unwrap();
    assert_eq!(summary(&recovered), [1, 2, 3, 4, 5]);
    assert_eq!(recovered.chain_breaks, [Op(4)]);
    assert_eq!(recovered.contiguous_head(), Op(3));
}

#[test]
fn a_record_forged_inside_a_damaged_body_is_not_believed() {
    let config = partition_config();
    let group = config.scope.group;
    let forged = record_of(&config, &prepare_of(group, 3, Checksum(5), 0));
    let mut body = vec![7; 100];
    body.extend(&forged);
    let one = prepare_of(group, 1, Checksum::ZERO, 0);
    let two = prepare_with_body(group, 2, checksum(&one), &body);
    let three = prepare_of(group, 3, checksum(&two), 0);
    let four = prepare_of(group, 4, checksum(&three), 0);
    for with_real in [true, false] {
        let mut file = record_of(&config, &one);
        let start = file.len();
        file.extend(record_of(&config, &two));
        if with_real {
            file.extend(record_of(&config, &three));
        }
        file.extend(record_of(&config, &four));
        file[start] ^= 1;
        let recovered = recover_bytes(&config, &file, 0).unwrap();
        let wanted: &[i64] = if with_real {
            &[1, -2, 3, 4, -5]
        } else {
            &[1, -2, -3, -4, -5]
        };
        assert_eq!(
            summary(&recovered),
            wanted,
            "real op 3 present: {with_real}"
        );
    }
}

#[test]
fn ops_below_the_floor_are_left_out_and_the_one_at_it_is_kept() {
    let config = metadata_config();
    let file = file_of(&config, &chain(config.scope.group, 1, 6));
    let recovered = recover_bytes(&config, &file, 4).unwrap();
    assert_eq!(summary(&recovered), [4, 5, 6]);
    assert_eq!(recovered.contiguous_head(), Op(6));
    let above = recover_bytes(&config, &file, 9).unwrap();
    assert!(above.entries.is_empty());
    assert!(
        !above.is_empty(),
        "the file is not that of a node that never ran"
    );
    assert_eq!(above.contiguous_head(), Op(9));
    assert_eq!(above.head(), Op(0));
}

#[test]
fn a_log_that_begins_with_records_of_others_refuses_to_open() {
    let config = metadata_config();
    let own = file_of(&config, &chain(config.scope.group, 1, 2));
    let mut elsewhere = config.clone();
    elsewhere.scope.cluster.0 ^= 1;
    assert!(recover_bytes(&config, &own, 0).is_ok());
    // Nothing but theirs, and theirs with ours behind: which of the two strayed is not known.
    let theirs = file_of(&config, &chain(PARTITION, 1, 3));
    let both = [&theirs[..], &own[..]].concat();
    for (config, file) in [(&elsewhere, &own), (&config, &theirs), (&config, &both)] {
        let refused = Some(OpenError::Foreign {
            path: config.path.clone(),
            offset: 0,
        });
        assert_eq!(recover_bytes(config, file, 0).err(), refused);
    }
    // A header of ours in front says whose file it is, also without its body.
    let mut file = own.clone();
    let first = file_of(&config, &chain(config.scope.group, 1, 1)).len();
    file[first - 1] ^= 1;
    file.extend(&theirs);
    let recovered = recover_bytes(&config, &file, 0).unwrap();
    assert_eq!(summary(&recovered)[..3], [-1, 2, -3]);
}

#[test]
fn ops_that_cannot_share_a_log_refuse_to_open() {
    let config = metadata_config();
    let near = prepare_of(config.scope.group, 1, Checksum::ZERO, 0);
    let far = prepare_of(config.scope.group, 1 << 40, Checksum::ZERO, 0);
    let refused = recover_bytes(&config, &file_of(&config, &[near, far]), 0);
    assert!(matches!(refused, Err(OpenError::OpOutOfReach { op: Op(op), .. }) if op == 1 << 40));
}

#[test]
fn absent_and_empty_files_are_told_apart() {
    let config = metadata_config();
    let absent = biplane_journal::recover(&config, &biplane_journal::MemoryDisk::new(), Op(0));
    let absent = absent.unwrap();
    assert!(absent.is_empty() && !absent.existed);
    let empty = recover_bytes(&config, &[], 0).unwrap();
    assert!(empty.is_empty() && empty.existed);
}

#[test]
fn a_tail_too_long_for_one_write_is_damage() {
    let config = metadata_config();
    let mut file = file_of(&config, &chain(config.scope.group, 1, 2));
    let end = file.len();
    file.resize(end + biplane_journal::TORN_TAIL_BYTES_MAX as usize + 1, 0);
    let recovered = recover_bytes(&config, &file, 0).unwrap();
    assert!(recovered.torn.is_none());
    // As many as can be in flight above op 1, which is known to be committed.
    let newer: Vec<i64> = (3..=128).map(|op: i64| -op).collect();
    assert_eq!(summary(&recovered), [&[1, 2], &newer[..]].concat());
    file.pop();
    let recovered = recover_bytes(&config, &file, 0).unwrap();
    assert_eq!(recovered.torn.unwrap().offset as usize, end);
}

#[test]
fn records_larger_than_one_read_come_back_whole() {
    for config in configs() {
        let big: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 253) as u8).collect();
        let one = prepare_with_body(config.scope.group, 1, Checksum::ZERO, &big);
        let two = prepare_with_body(config.scope.group, 2, checksum(&one), &big[..1_048_000]);
        let three = prepare_of(config.scope.group, 3, checksum(&two), 0);
        let mut file = file_of(&config, &[one.clone(), two.clone(), three]);
        let recovered = recover_bytes(&config, &file, 0).unwrap();
        assert_eq!(summary(&recovered), [1, 2, 3]);
        assert_eq!(recovered.entries[0].message(), Some(&one));
        assert_eq!(recovered.entries[1].message(), Some(&two));
        file[100] ^= 1;
        let recovered = recover_bytes(&config, &file, 0).unwrap();
        assert_eq!(summary(&recovered), [-1, 2, 3, -4]);
    }
}
