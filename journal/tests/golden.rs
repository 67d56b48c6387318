//! Files byte for byte: as a peer left them, and as the protocol specification works them out.

mod support;

use biplane_journal::{DiskPath, QueueId};
use biplane_journal::{
    Identity, MemoryDisk, Pairing, ReadBytes, SuperblockRecord, WalConfig, check_pairing,
    decode_superblock, encode_superblock, open_snapshot, recover, snapshot_trailer,
};
use biplane_wire::{Checksum, ClusterId, Op, ReplicaId, View};
use support::Rig;

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// BLAKE3("iggy-cluster")[0..16], chapter 01 section 16.
fn captured_cluster() -> ClusterId {
    let bytes = unhex("21bb05c88727bab88d0ec27be8a72d46");
    ClusterId::from_digest(bytes.try_into().unwrap())
}

#[test]
fn a_captured_superblock_reads_and_writes_back() {
    let captured = include_bytes!("golden/metadata-superblock.a");
    let (sequence, record) = decode_superblock(captured).unwrap();
    assert_eq!(sequence, 3);
    let cluster = captured_cluster();
    assert_eq!(
        record,
        SuperblockRecord {
            identity: Identity {
                cluster,
                replica: ReplicaId(1),
                replica_count: 3
            },
            view: View(1),
            log_view: View(1),
            commit_max: Op(960),
            checkpoint_op: Op(960),
            checkpoint_checksum: Checksum(0xa3c5_fd3b_a3e1_6292),
            offset_frontier: 0,
        }
    );
    assert_eq!(&encode_superblock(&record, sequence), captured);
}

#[test]
fn the_worked_superblock_of_chapter_04_section_8_9() {
    let worked = unhex(
        "4b4c42530100000007000000000000000000000000000000 42000000
         ffeeddccbbaa00998877665544332211 01 03 04000000 04000000 c800000000000000
         c000000000000000 1484c2c6569e80de0000000000000000 0000000000000000 a4450601efed845f",
    );
    let (sequence, record) = decode_superblock(&worked).unwrap();
    assert_eq!(
        (sequence, record.view, record.commit_max),
        (7, View(4), Op(200))
    );
    let snapshot = unhex("9705002ac0c0c0cd2c00");
    assert_eq!(record.checkpoint_checksum, Checksum::of(&snapshot));
    assert_eq!(encode_superblock(&record, sequence).as_slice(), worked);
}

#[test]
fn the_worked_record_of_chapter_03_section_17_10() {
    let mut worked = unhex("21bb05c88727bab88d0ec27be8a72d46 01 03 04000000 03000000");
    worked.extend(unhex("0300000000000000"));
    worked.resize(66, 0);
    let record = SuperblockRecord::decode(&worked).unwrap();
    assert_eq!(
        (record.view, record.log_view, record.commit_max),
        (View(4), View(3), Op(3))
    );
    assert_eq!(record.encode().as_slice(), worked);
    assert_eq!(SuperblockRecord::decode(&worked[..58]).unwrap(), record);
    for len in (0..66).filter(|len| *len != 58) {
        assert!(
            SuperblockRecord::decode(&worked[..len]).is_err(),
            "length {len}"
        );
    }
    worked[22] = 5;
    assert!(
        SuperblockRecord::decode(&worked).is_err(),
        "log view 5 is above view 4"
    );
}

#[test]
fn snapshot_trailers_of_chapter_04_section_8_7() {
    let payload = unhex("9705002ac0c0c0cd2c00");
    let trailer = unhex("504e53491484c2c6569e80de0000000000000000");
    assert_eq!(snapshot_trailer(&payload).as_slice(), trailer);
}

#[test]
fn a_captured_snapshot_verifies_and_pairs_as_the_peer_wrote_it() {
    let captured = include_bytes!("golden/metadata-snapshot.bin");
    let file = open_snapshot(&ReadBytes::copy_of(captured)).unwrap();
    assert!(file.sealed);
    assert_eq!(file.payload.len() + 20, captured.len());
    assert_eq!(file.checksum, Checksum(0xb969_87a2_01b1_b521));
    assert_eq!(
        snapshot_trailer(file.payload.as_bytes()).as_slice(),
        &captured[captured.len() - 20..]
    );
    let record = SuperblockRecord {
        checkpoint_op: Op(960),
        checkpoint_checksum: file.checksum,
        ..SuperblockRecord::fresh(Identity {
            cluster: captured_cluster(),
            replica: ReplicaId(1),
            replica_count: 3,
        })
    };
    let paired = check_pairing(Some(&record), Some((Op(960), file.checksum)));
    assert_eq!(paired, Ok(Pairing::Paired));
}

/// Two chained metadata prepares: V1 and V5 of chapter 01 section 16.1.
fn worked_prepares() -> [Vec<u8>; 2] {
    let first = unhex(
        "e975ff6665651d040000000000000000d7824d64195d7d320000000000000000
         21bb05c88727bab88d0ec27be8a72d4607010000030000000000000006000000
         0000000000000000000000000000000000000000000000000000000000000000
         0000000000000000000000000000000000000000000000000000000000000000
         feca000000000000000000000000000088776655443322110000000000000000
         d7824d64195d7d32000000000000000009000000000000000800000000000000
         00401e18240a0600010000000000000080000000000000000000000000000080
         0100000000000000000000000000000000000000000000000000000000000000
         066f7264657273",
    );
    let mut second = vec![0; 256];
    for (offset, bytes) in [
        (0, "3e8b99a4846166e0"),
        (16, "914e389d191b6f4e"),
        (32, "21bb05c88727bab88d0ec27be8a72d46"),
        (48, "0601000003"),
        (60, "06"),
        (128, "feca"),
        (144, "e975ff6665651d04"),
        (160, "914e389d191b6f4e"),
        (176, "0a"),
        (184, "09"),
        (192, "01401e18240a060002"),
        (208, "82"),
        (223, "8001"),
    ] {
        let bytes = unhex(bytes);
        second[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }
    second.extend(unhex("010400000000"));
    [first, second]
}

#[test]
fn a_metadata_log_is_prepares_back_to_back() {
    let [first, second] = worked_prepares();
    let config = WalConfig::metadata(QueueId(1), captured_cluster(), 64, 1 << 20);
    assert_eq!(config.path, DiskPath::new("metadata/journal.wal").unwrap());
    let mut disk = MemoryDisk::new();
    disk.put(&config.path, &[&first[..], &second[..]].concat());
    let recovered = recover(&config, &disk, Op(0)).unwrap();
    assert_eq!(support::summary(&recovered), [9, 10]);
    assert_eq!(
        (recovered.commit_max, recovered.last_view()),
        (Op(9), View(3))
    );
    assert!(recovered.chain_breaks.is_empty());
    // Written by us they are the same bytes.
    let mut rig = Rig::new(&config);
    for entry in &recovered.entries {
        rig.append(entry.message().unwrap());
    }
    rig.settle();
    assert_eq!(
        rig.disk.get(&config.path).unwrap(),
        [&first[..], &second[..]].concat()
    );
}
