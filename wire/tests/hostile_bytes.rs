//! Arbitrary bytes get a reason, never a panic: frames, bodies, batches, suffixes, manifests,
//! and captured bytes with random damage.
//!
//! Each test prints the seed it ran with; set `WIRE_TEST_SEED` to run with it again.

mod support;

use biplane_wire::request::{ClientRequest, Login, MetadataBody};
use biplane_wire::response::*;
use biplane_wire::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A fresh seed for each run, or the one asked for.
fn config() -> ProptestConfig {
    use std::hash::{BuildHasher, RandomState};
    let asked = std::env::var("WIRE_TEST_SEED").ok();
    let seed = match asked {
        Some(text) => text.parse().expect("WIRE_TEST_SEED is a number"),
        None => RandomState::new().hash_one(()),
    };
    println!("reproduce with WIRE_TEST_SEED={seed}");
    ProptestConfig {
        cases: 512,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Everything that reads a body, on the same bytes.
fn read_all_bodies(bytes: &[u8]) {
    for code in ClientCode::ALL {
        let _ = ClientRequest::decode(code, bytes);
    }
    for operation in Operation::ALL {
        let _ = MetadataBody::decode(operation, bytes);
    }
    if let Ok(login) = Login::decode(bytes) {
        let _ = (login.password(), login.token());
    }
    let _ = ResultSection::decode(bytes);
    if let Ok(manifest) = Manifest::decode(bytes) {
        let _ = manifest.iter().count();
    }
    if let Ok(block) = TlvBlock::parse(bytes) {
        let _ = block.pairs().count();
    }
    let _ = Options::parse(bytes).map(|options| options.iter().count());
    let _ = PermissionsBlock::parse(bytes).map(|block| block.to_permissions());
    read_all_responses(bytes);
    read_all_batches(bytes);
}

fn read_all_responses(bytes: &[u8]) {
    let _ = Stats::decode(bytes);
    let _ = ClusterMetadata::decode(bytes);
    let _ = Routing::decode(bytes);
    let _ = ClientDetails::decode(bytes);
    let _ = Vec::<ClientRecord<'_>>::decode(bytes);
    let _ = Counted::<OptionSpec<'_>>::decode(bytes);
    let _ = UserDetails::decode(bytes);
    let _ = Vec::<UserRecord<'_>>::decode(bytes);
    let _ = Vec::<PersonalAccessTokenRecord<'_>>::decode(bytes);
    let _ = StreamDetails::decode(bytes);
    let _ = TopicDetails::decode(bytes);
    let _ = Counted::<TopicRecord<'_>>::decode(bytes);
    let _ = ConsumerGroupDetails::decode(bytes);
    let _ = SyncReply::decode(bytes);
    let _ = SendConfirmations::decode(bytes);
    let _ = LoginReply::decode(bytes);
    if let Ok(polled) = PolledMessages::decode(bytes) {
        let _ = polled.batches(Verify::Checksums).count();
    }
}

fn read_all_batches(bytes: &[u8]) {
    for verify in [Verify::Layout, Verify::Checksums] {
        if let Ok((batch, _)) = Batch::decode_prefix(bytes, verify) {
            let _ = batch.offset_last();
            let _ = batch.select(BatchQuery::Offset(u64::MAX / 2), u64::MAX, u32::MAX);
            let _ = batch.select(BatchQuery::Timestamp(0), u64::MAX, 1);
        }
    }
    let mut copy = bytes.to_vec();
    let _ = stamp_batch(&mut copy, u32::MAX, u64::MAX, u64::MAX);
    let _ = set_partition_id(&mut copy, 1);
}

/// Everything that reads a frame.
fn read_frame(bytes: &[u8]) {
    let Ok(message) = Message::from_bytes(bytes) else {
        return;
    };
    let _ = format!("{message:?}");
    let _ = decode_client(message.clone());
    let _ = decode_handshake(message.clone());
    let _ = Typed::<ReplyHeader>::decode(message.clone());
    let _ = Typed::<EvictionHeader>::decode(message.clone());
    let Ok(frame) = decode_replica(message) else {
        return;
    };
    let _ = (frame.route(), frame.operation(), format!("{frame:?}"));
    match &frame {
        ReplicaFrame::Prepare(typed) | ReplicaFrame::RepairPrepare(typed) => {
            let _ = prepare::verify_ingest(typed.header(), typed.body());
            let _ = MetadataBody::decode(typed.header().operation(), typed.body());
        }
        ReplicaFrame::DoViewChange(typed) => {
            let _ = Suffix::of_do_view_change(typed).map(|suffix| suffix.iter().count());
        }
        ReplicaFrame::StartView(typed) => {
            let _ = Suffix::of_start_view(typed).map(|suffix| suffix.iter().count());
        }
        _ => {}
    }
}

/// Gives arbitrary bytes a header good enough to reach the later checks.
fn framed(command: u8, mut bytes: Vec<u8>, seal: bool) -> Vec<u8> {
    bytes.resize(bytes.len().max(HEADER_SIZE), 0);
    let size = bytes.len() as u32;
    bytes[48..52].copy_from_slice(&size.to_le_bytes());
    bytes[60] = command;
    if seal {
        match command {
            6 | 19 => support::reidentify(&mut bytes),
            _ => support::reseal(&mut bytes),
        }
    }
    bytes
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn arbitrary_bodies(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        read_all_bodies(&bytes);
    }

    /// Small values make lengths and counts that fit more often than random bytes do.
    #[test]
    fn arbitrary_bodies_of_small_values(bytes in prop::collection::vec(0_u8..6, 0..400)) {
        read_all_bodies(&bytes);
    }

    #[test]
    fn arbitrary_frames(
        command in 0_u8..32,
        bytes in prop::collection::vec(any::<u8>(), 0..1200),
        seal in any::<bool>(),
    ) {
        read_frame(&framed(command, bytes, seal));
    }

    /// Zeroed headers with a few bytes set pass field rules more often.
    #[test]
    fn sparse_frames(
        command in 0_u8..30,
        entries in 0_usize..4,
        changes in prop::collection::vec((0_usize..1280, any::<u8>()), 0..12),
    ) {
        let mut bytes = vec![0; HEADER_SIZE * (1 + entries)];
        for (offset, value) in changes {
            let length = bytes.len();
            bytes[offset % length] = value;
        }
        let sealed_body = body_seal(&bytes[HEADER_SIZE..]);
        bytes[16..32].copy_from_slice(&sealed_body.0.to_le_bytes());
        read_frame(&framed(command, bytes, true));
    }

    #[test]
    fn captured_frames_with_random_damage(
        pick in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        seal in any::<bool>(),
    ) {
        let captured = support::captured_replica_frames();
        let mut bytes = captured[pick.index(captured.len())].bytes.clone();
        for (offset, value) in damage {
            let offset = offset.index(bytes.len());
            bytes[offset] = value;
        }
        let command = bytes[60];
        read_frame(&framed(command, bytes.clone(), seal));
        read_all_bodies(&bytes[HEADER_SIZE..]);
    }

    #[test]
    fn captured_bodies_with_random_damage(
        pick in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let exchanges = support::captured_exchanges();
        let exchange = &exchanges[pick.index(exchanges.len())];
        for message in [&exchange.request, &exchange.reply] {
            let mut body = message.body().to_vec();
            body.truncate(cut.index(body.len() + 1).max(1));
            for (offset, value) in &damage {
                let length = body.len();
                if let Some(byte) = body.get_mut(offset.index(length.max(1))) {
                    *byte = *value;
                }
            }
            read_all_bodies(&body);
        }
    }

    #[test]
    fn arbitrary_streams(
        bytes in prop::collection::vec(any::<u8>(), 0..4000),
        piece in 1_usize..700,
        size_max in 256_u32..2048,
    ) {
        let mut deframer = Deframer::new(size_max);
        let mut left = bytes.as_slice();
        while !left.is_empty() {
            let taken = deframer.push(&left[..piece.min(left.len())]);
            left = &left[taken..];
            match deframer.next() {
                Ok(Some(message)) => read_frame(&message.to_vec()),
                Ok(None) => {}
                Err(_) => break,
            }
        }
        let _ = deframer.finish();
    }

    /// What was read can be written, and reads the same again.
    #[test]
    fn accepted_bodies_survive_a_round_trip(bytes in prop::collection::vec(0_u8..6, 0..200)) {
        if let Ok(permissions) = Permissions::decode(&bytes) {
            let encoded = permissions.encode();
            prop_assert_eq!(Permissions::decode_exact(&encoded), Ok(permissions));
        }
        if let Ok(poll) = request::PollMessages::decode(&bytes) {
            let encoded = poll.encode();
            prop_assert_eq!(request::PollMessages::decode_exact(&encoded), Ok(poll));
        }
        if let Ok(user) = request::UpdateUser::decode(&bytes) {
            let encoded = user.encode();
            prop_assert_eq!(request::UpdateUser::decode_exact(&encoded), Ok(user));
        }
        if let Ok(details) = ConsumerGroupDetails::decode(&bytes) {
            let encoded = details.encode();
            prop_assert_eq!(ConsumerGroupDetails::decode_exact(&encoded), Ok(details));
        }
    }
}
