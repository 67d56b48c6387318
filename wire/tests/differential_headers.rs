//! Headers, registries and small values against the reference implementation of the
//! protocol crate.
//!
//! Random and damaged headers must be accepted by both or by neither, and where both accept,
//! every field reads the same.

#[path = "support/generator.rs"]
mod generator;

use biplane_wire as ours;
use biplane_wire::{Command, HEADER_SIZE, Header, Message, Typed};
use bytemuck::CheckedBitPattern;
use bytemuck::checked::try_from_bytes;
use generator::{Generator, rounds};
use iggy_binary_protocol::consensus as theirs;
use theirs::ConsensusHeader;

/// Any number or id as a plain number.
trait Plain {
    fn plain(self) -> u128;
}

macro_rules! plain {
    ($($integer:ty),*; $($id:ident),*) => {
        $(impl Plain for $integer { fn plain(self) -> u128 { self.into() } })*
        $(impl Plain for ours::$id { fn plain(self) -> u128 { self.0.into() } })*
    };
}
plain!(u8, u16, u32, u64, u128, bool;
    Op, View, ReplicaId, ClientId, RequestNumber, Checksum, ClusterId, GroupId);

impl Plain for ours::Operation {
    fn plain(self) -> u128 {
        self.as_u8().into()
    }
}

impl Plain for theirs::Operation {
    fn plain(self) -> u128 {
        (self as u8).into()
    }
}

/// A header with a few bytes set, often sealed, often with small equal numbers.
fn random_header(random: &mut Generator, command: Command, enumerated: &[usize]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_SIZE];
    for _ in 0..random.below(24) {
        let at = 128 + random.below(128);
        bytes[at] = random.below(4) as u8;
    }
    if random.below(4) == 0 {
        let at = 16 + random.below(240);
        bytes[at] = random.next() as u8;
    }
    for at in enumerated {
        let defined = ours::Operation::ALL[random.below(34)].as_u8();
        bytes[*at] = [defined, defined, random.next() as u8][random.below(3)];
    }
    for at in [128, 144, 160, 168, 184] {
        if random.below(2) == 0 {
            bytes[at] = 1 + random.below(2) as u8;
        }
    }
    bytes[52] = random.below(4) as u8;
    bytes[60] = command.as_u8();
    bytes
}

/// Sets the size, seals, and compares.
fn finish(random: &mut Generator, mut bytes: Vec<u8>) -> Vec<u8> {
    let sizes = [256, 256, 256, 257, 300, 512, 1024, 33_024, 33_280];
    let size: u32 = sizes[random.below(sizes.len())];
    bytes[48..52].copy_from_slice(&size.to_le_bytes());
    let seal = ours::frame_seal(bytes.first_chunk().expect("a header"));
    if random.below(8) > 0 {
        bytes[..16].copy_from_slice(&seal.0.to_le_bytes());
    }
    bytes.resize(size as usize, 0);
    bytes
}

/// The reference's pipeline: closed sets, seal, fields.
fn reference<T: ConsensusHeader + CheckedBitPattern>(
    header: &[u8],
    sealed: bool,
) -> Result<T, &'static str> {
    let header: &T = try_from_bytes(header).map_err(|_| "closed sets")?;
    if sealed && header.verify_frame().is_err() {
        return Err("seal");
    }
    header.validate().map_err(|_| "fields")?;
    Ok(*header)
}

fn label(refusal: &ours::Refusal) -> &'static str {
    match refusal.label() {
        "BAD_ENUM" | "UNKNOWN_OP" => "closed sets",
        "SEAL" => "seal",
        _ => "fields",
    }
}

macro_rules! agree {
    (
        $($test:ident: $name:ident $command:ident
            [$($enumerated:literal),*] $($field:ident)*;)*
    ) => {$(
        #[test]
        fn $test() {
            let mut random = Generator::new();
            let mut accepted = 0;
            for _ in 0..rounds() {
                let bytes = random_header(&mut random, Command::$command, &[$($enumerated),*]);
                let bytes = finish(&mut random, bytes);
                let message = Message::from_bytes(&bytes).expect("generic");
                let mine = Typed::<ours::$name>::decode(message.clone());
                let sealed = <ours::$name as Header>::SEALED;
                let expected = reference::<theirs::$name>(message.header_bytes(), sealed);
                let shown = hex::encode(message.header_bytes());
                match (&mine, &expected) {
                    (Ok(mine), Ok(expected)) => {
                        let header = mine.header();
                        assert_eq!(header.frame.view().0, expected.view);
                        assert_eq!(header.frame.size(), expected.size);
                        assert_eq!(header.frame.checksum_body().0, expected.checksum_body);
                        assert_eq!(header.frame.cluster().0, expected.cluster);
                        assert_eq!(header.frame.release(), expected.release);
                        assert_eq!(header.frame.replica().0, expected.replica);
                        $(assert_eq!(header.$field().plain(), expected.$field.plain());)*
                        accepted += 1;
                    }
                    (Err(refusal), Err(expected)) => {
                        assert_eq!(label(refusal), *expected, "{refusal}: {shown}");
                    }
                    _ => panic!("{mine:?} but {:?}: {shown}", expected.err()),
                }
            }
            assert!(accepted > rounds() / 200, "{accepted}");
        }
    )*};
}

agree! {
    requests: RequestHeader Request [176]
        client request_checksum timestamp request operation session user_id;
    routed_requests: RoutedRequestHeader Request [176]
        client request_checksum timestamp request operation session user_id group;
    replies: ReplyHeader Reply [208]
        request_checksum context client op commit timestamp request operation status;
    prepare_oks: PrepareOkHeader PrepareOk [192]
        parent prepare_checksum op commit timestamp request operation group;
    commits: CommitHeader Commit []
        commit_checksum timestamp_monotonic commit checkpoint_op group;
    start_view_changes: StartViewChangeHeader StartViewChange [] group;
    do_view_changes: DoViewChangeHeader DoViewChange []
        op commit group log_view nack_bitset present_bitset;
    start_views: StartViewHeader StartView [] op commit group incarnation;
    request_start_views: RequestStartViewHeader RequestStartView [] group incarnation;
    request_prepares: RequestPreparesHeader RequestPrepares [] nonce from_op to_op group;
    repair_done: RepairRangeReplyHeader RepairDone [] nonce op group;
    range_evicted: RepairRangeReplyHeader RangeEvicted [] nonce op group;
    request_state_transfers: RequestStateTransferHeader RequestStateTransfer [] nonce group;
    state_transfer_targets: StateTransferTargetHeader StateTransferTarget []
        nonce commit_op group available unavailable_transient commit_max;
    request_state_chunks: RequestStateChunkHeader RequestStateChunk []
        nonce offset group artifact;
    state_chunks: StateChunkHeader StateChunk [] nonce offset group artifact;
}

/// Kinds whose zero regions a random header rarely leaves alone.
macro_rules! agree_sparse {
    ($(
        $test:ident: $name:ident = $theirs:ident $command:ident $operation:expr,
        [$($at:literal),*];
    )*) => {$(
        #[test]
        fn $test() {
            let mut random = Generator::new();
            let mut accepted = 0;
            for _ in 0..rounds() {
                let mut bytes = vec![0; HEADER_SIZE];
                for at in [$($at),*] {
                    bytes[at] = random.below(4) as u8;
                }
                for _ in 0..random.below(2) {
                    let at = 128 + random.below(128);
                    bytes[at] = random.below(20) as u8;
                }
                if bytes[255] == 3 {
                    bytes[255] = 14; // The one reason with a window.
                }
                if let Some(at) = $operation {
                    let at: usize = at;
                    bytes[at] = ours::Operation::ALL[random.below(34)].as_u8();
                }
                bytes[60] = Command::$command.as_u8();
                let bytes = finish(&mut random, bytes);
                let message = Message::from_bytes(&bytes).expect("generic");
                let mine = Typed::<ours::$name>::decode(message.clone());
                let sealed = <ours::$name as Header>::SEALED;
                let expected = reference::<theirs::$theirs>(message.header_bytes(), sealed);
                let mine = mine.as_ref().map(|_| ()).map_err(label);
                let shown = hex::encode(message.header_bytes());
                assert_eq!(mine, expected.map(|_| ()), "{shown}");
                accepted += usize::from(mine.is_ok());
            }
            assert!(accepted > rounds() / 200, "{accepted}");
        }
    )*};
}

agree_sparse! {
    prepares: PrepareHeader = PrepareHeader Prepare Some(208), [128, 144, 176, 184, 62, 228];
    repair_prepares: PrepareHeader = RepairPrepareHeader RepairPrepare Some(208),
        [128, 144, 176, 184, 62, 228];
    evictions: EvictionHeader = EvictionHeader Eviction None, [128, 255];
    eviction_windows: EvictionHeader = EvictionHeader Eviction None, [128, 144, 148, 255];
    forward_registers: ForwardRegisterHeader = ForwardRegisterHeader ForwardRegister None,
        [128, 144, 160, 62];
    forward_register_results: ForwardRegisterResultHeader = ForwardRegisterResultHeader
        ForwardRegisterResult None, [128, 144, 160, 168, 255];
    forward_logouts: ForwardLogoutHeader = ForwardLogoutHeader ForwardLogout None,
        [128, 144, 160, 168];
    forward_logout_results: ForwardLogoutResultHeader = ForwardLogoutResultHeader
        ForwardLogoutResult None, [128, 144, 160, 255];
}

/// The reference has no type for handshake frames; both sides have the generic view.
#[test]
fn handshakes_and_generic_views() {
    let mut random = Generator::new();
    let mut handshakes = 0;
    for _ in 0..rounds() {
        let mut bytes = vec![0; HEADER_SIZE];
        bytes.fill_with(|| random.next() as u8);
        bytes[48..52].copy_from_slice(&256_u32.to_le_bytes());
        bytes[60] = [14, 15, 16, random.below(30) as u8, random.next() as u8][random.below(5)];
        let mut aligned = ours::FrameBuffer::zeroed(HEADER_SIZE);
        aligned.bytes_mut().copy_from_slice(&bytes);
        let expected = try_from_bytes::<theirs::GenericHeader>(aligned.bytes());
        let Ok(message) = Message::from_bytes(&bytes) else {
            assert!(expected.is_err(), "command {}", bytes[60]);
            continue;
        };
        let expected = expected.expect("both define the command");
        assert!(expected.validate().is_ok());
        assert_eq!(message.command().as_u8(), expected.command as u8);
        let mine = ours::decode_handshake(message);
        assert_eq!(mine.is_ok(), matches!(bytes[60], 14..=16));
        let Ok(mine) = mine else { continue };
        let header = mine.header();
        assert_eq!(header.frame.cluster().0, expected.cluster);
        assert_eq!(header.frame.replica().0, expected.replica);
        assert_eq!(header.nonce(), expected.reserved_command[..32]);
        assert_eq!(header.mac(), expected.reserved_command[32..64]);
        assert_eq!(header.status(), expected.reserved_command[64]);
        handshakes += 1;
    }
    assert!(handshakes > rounds() / 4, "{handshakes}");
}

#[test]
fn identities_and_seals() {
    let mut random = Generator::new();
    for _ in 0..rounds() {
        let mut bytes = [0; HEADER_SIZE];
        bytes.fill_with(|| random.next() as u8);
        bytes[60] = [6, 19][random.below(2)];
        let identity = ours::prepare_identity(&bytes).0;
        bytes[60] = 6;
        assert_eq!(identity, theirs::prepare_identity_checksum_bytes(&bytes));
        assert_eq!(
            ours::frame_seal(&bytes).0,
            theirs::frame_checksum_bytes(&bytes)
        );
    }
}

#[test]
fn operations_and_codes() {
    for byte in 0..=u8::MAX {
        let mine = ours::Operation::from_u8(byte);
        assert_eq!(
            mine.is_some(),
            theirs::Operation::is_known_code(byte),
            "{byte}"
        );
    }
    for code in 0..2_000 {
        let mine = ours::ClientCode::from_u32(code);
        let reference = iggy_binary_protocol::lookup_command(code);
        assert_eq!(mine.is_some(), reference.is_some(), "{code}");
        let Some(operation) = reference.and_then(|command| command.operation) else {
            continue;
        };
        let mine = mine.expect("both know it").operation();
        assert_eq!(mine.plain(), operation.plain(), "{code}");
        assert_eq!(mine.is_internal(), operation.is_internal(), "{code}");
        assert_eq!(mine.is_metadata(), operation.is_metadata(), "{code}");
        assert_eq!(
            mine.is_metadata_plane(),
            operation.is_metadata_plane(),
            "{code}"
        );
        assert_eq!(mine.is_partition(), operation.is_partition(), "{code}");
        assert_eq!(
            mine.is_plane_routable(),
            operation.is_plane_routable(),
            "{code}"
        );
        assert_eq!(
            mine.client_may_send(),
            operation.is_client_allowed(),
            "{code}"
        );
        if mine != ours::Operation::Register {
            assert_eq!(
                mine.is_result_framed(9),
                operation.is_result_framed(),
                "{code}"
            );
        }
    }
}

#[test]
fn versions() {
    for version in 0..40_000 {
        let mine = ours::ProtocolVersion(version).is_accepted();
        let reference = iggy_binary_protocol::version::is_protocol_compatible(version);
        assert_eq!(mine, reference, "{version}");
    }
    let current = iggy_binary_protocol::version::IGGY_PROTOCOL_VERSION;
    assert_eq!(ours::ProtocolVersion::CURRENT.0, current);
}
