//! The fuzz targets: functions that take any bytes and assert what must hold of every one.
//!
//! `tests/fuzz.rs` runs them on a corpus with blind mutations, in seconds, as a test. The crate
//! in `fuzz/` runs the same functions under libFuzzer, guided by coverage, for as long as one
//! likes.
#![allow(dead_code)] // Each user takes a part of this.

use biplane_wire::codec::{Codec, Counted, Cursor};
use biplane_wire::request::{self as asked, ClientRequest, Login, MetadataBody};
use biplane_wire::response::{self as answered, SendConfirmations};
use biplane_wire::*;

/// A named target.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All of them; those of bodies have their own table, [`BODIES`].
pub(crate) const TARGETS: &[Target] = &[
    ("deframer", deframer),
    ("frame", frame),
    ("batch", batch),
    ("suffix", suffix),
    ("manifest", manifest),
    ("block", block),
    ("dispatch", dispatch),
    ("body", body),
];

/// Splits off `N` control bytes, zero where there are none.
fn control<const N: usize>(bytes: &[u8]) -> ([u8; N], &[u8]) {
    match bytes.split_first_chunk() {
        Some((control, rest)) => (*control, rest),
        None => ([0; N], &[]),
    }
}

/// Feeds a stream in pieces: the frames are those of a plain walk over the bytes, borrowed and
/// owned frames are equal, memory stays within bounds, and a failure stays.
pub(crate) fn deframer(bytes: &[u8]) {
    let ([limit, piece_low, piece_high, owned], stream) = control::<4>(bytes);
    let size_max = [256, 300, 1024, 20_000, 70_000, 3_000_000][usize::from(limit) % 6];
    let piece = 1 + usize::from(piece_low) + usize::from(piece_high & 3) * 256;
    let mut deframer = Deframer::new(size_max);
    let mut expected = PlainWalk {
        rest: stream,
        size_max,
    };
    let mut left = stream;
    let mut fed = 0;
    loop {
        let taken = deframer.push(&left[..piece.min(left.len())]);
        left = &left[taken..];
        fed += taken;
        // A large frame is read in place by either door.
        let got = if owned & 1 == 0 {
            deframer
                .next_ref()
                .map(|frame| frame.map(|frame| frame.bytes().to_vec()))
        } else {
            deframer
                .next()
                .map(|frame| frame.map(|frame| frame.to_vec()))
        };
        assert!(deframer.memory() <= STAGING_SIZE + LARGE_ALLOCATION_FIRST.max(2 * fed));
        match got {
            Ok(Some(frame)) => assert_eq!(expected.next(), Ok(Some(frame.as_slice()))),
            Ok(None) if left.is_empty() => break,
            Ok(None) => {}
            Err(reason) => {
                assert_eq!(expected.next(), Err(reason));
                assert_eq!(deframer.next(), Err(reason));
                assert_eq!(deframer.finish(), Err(reason));
                assert!(deframer.read_slice().is_empty());
                return;
            }
        }
    }
    assert_eq!(expected.next(), Ok(None));
    let have = expected.rest.len();
    assert_eq!(deframer.pending(), have);
    match have {
        0 => assert_eq!(deframer.finish(), Ok(())),
        _ => assert_eq!(deframer.finish(), Err(CloseReason::EndInsideFrame { have })),
    }
}

/// The rules of the incremental decoder on bytes that are all there.
struct PlainWalk<'a> {
    rest: &'a [u8],
    size_max: u32,
}

impl<'a> PlainWalk<'a> {
    fn next(&mut self) -> Result<Option<&'a [u8]>, CloseReason> {
        let (Some(size), true) = (self.rest.get(48..52), self.rest.len() >= HEADER_SIZE) else {
            return Ok(None);
        };
        let size = u32::from_le_bytes(size.try_into().expect("four bytes"));
        let size_max = self.size_max;
        if !(256..=size_max).contains(&size) {
            return Err(CloseReason::BadSize { size, size_max });
        }
        let Some((frame, rest)) = self.rest.split_at_checked(size as usize) else {
            return Ok(None);
        };
        if frame[60] > 29 {
            return Err(CloseReason::BadCommand { byte: frame[60] });
        }
        self.rest = rest;
        Ok(Some(frame))
    }
}

/// One frame through typed decode on both planes. Flags in the first byte repair size, command
/// and seals, so that the checks behind them are reached.
pub(crate) fn frame(bytes: &[u8]) {
    let ([flags, command], rest) = control::<2>(bytes);
    let mut bytes = rest.to_vec();
    bytes.resize(bytes.len().max(HEADER_SIZE), 0);
    let size = bytes.len() as u32;
    if flags & 1 == 0 {
        bytes[48..52].copy_from_slice(&size.to_le_bytes());
    }
    if flags & 2 != 0 {
        bytes[60] = command;
    }
    if flags & 4 != 0 {
        let seal = body_seal(&bytes[HEADER_SIZE..]);
        bytes[16..32].copy_from_slice(&seal.0.to_le_bytes());
    }
    if flags & 8 != 0 {
        let header: &[u8; HEADER_SIZE] = bytes.first_chunk().expect("a header");
        let seal = match bytes[60] {
            6 | 19 => prepare_identity(header),
            _ => frame_seal(header),
        };
        bytes[..16].copy_from_slice(&seal.0.to_le_bytes());
    }
    judge(&bytes);
}

fn judge(bytes: &[u8]) {
    let message = Message::from_bytes(bytes);
    let borrowed = FrameRef::parse(bytes);
    let (message, borrowed) = match (message, borrowed) {
        (Ok(message), Ok(borrowed)) => (message, borrowed),
        (Err(one), Err(other)) => return assert_eq!(one, other),
        other => panic!("owned and borrowed differ: {other:?}"),
    };
    let summary = Summary::from(borrowed);
    assert_eq!(format!("{summary:?}"), format!("{message:?}"));
    let mut fields = 0;
    summary.visit_fields(&mut |name, value| {
        assert!(!name.is_empty() && !value.to_string().is_empty());
        fields += 1;
    });
    assert!(fields >= 8);
    let verdict = summary.verdict();
    assert!(!verdict.to_string().contains('\n'));

    match decode_client(message.clone()) {
        Ok(request) => {
            let header = request.header();
            assert_eq!(borrowed.decode::<RequestHeader>(), Ok(header));
            let _ = ClientRequest::of(header, request.body());
        }
        Err(refusal) => assert_eq!(refusal.disposition(), Disposition::Drop),
    }
    let _ = Typed::<ReplyHeader>::decode(message.clone());
    let _ = Typed::<EvictionHeader>::decode(message.clone());
    let _ = decode_handshake(message.clone());
    match decode_replica(message.clone()) {
        Ok(frame) => accepted(&frame, &verdict),
        Err(Refusal::WrongCommand { .. } | Refusal::ClientBound { .. }) => {}
        Err(refusal) => {
            assert_eq!(refusal.disposition(), Disposition::Drop);
            assert!(!verdict.is_acceptable(), "{refusal} but {verdict}");
        }
    }
}

fn accepted(frame: &ReplicaFrame, verdict: &Verdict) {
    let message = frame.message();
    let prefix = &message.generic().frame;
    assert_eq!(prefix.size() as usize, message.size());
    if let Some(group) = frame.route() {
        assert!(group.is_legal());
    }
    match frame {
        ReplicaFrame::Prepare(typed) | ReplicaFrame::RepairPrepare(typed) => {
            let header = typed.header();
            let ingest = prepare::verify_ingest(header, typed.body());
            let sound = ingest.is_ok();
            assert!(sound || !verdict.is_acceptable());
            let _ = MetadataBody::decode(header.operation(), typed.body());
            let as_prepare = message.clone().repair_to_prepare();
            assert_eq!(as_prepare.command(), Command::Prepare);
            let moved = as_prepare.prepare_in_view(View(7));
            let moved = moved.header::<PrepareHeader>();
            assert_eq!(moved.identity(), header.identity());
        }
        ReplicaFrame::DoViewChange(typed) => {
            if let Ok(suffix) = Suffix::of_do_view_change(typed) {
                walk_suffix(&suffix);
            }
        }
        ReplicaFrame::StartView(typed) => {
            if let Ok(suffix) = Suffix::of_start_view(typed) {
                walk_suffix(&suffix);
            }
        }
        ReplicaFrame::RoutedRequest(_) => {}
        _ => assert_eq!(prefix.checksum(), frame_seal(message.header_bytes())),
    }
}

fn walk_suffix(suffix: &Suffix<'_>) {
    let mut builder = SuffixBuilder::new(suffix.op_head());
    for entry in suffix.iter() {
        assert_eq!(suffix.at(entry.op), Some(entry));
        builder.push(entry.header, entry.nack, entry.present);
    }
    assert_eq!(builder.len(), suffix.len());
}

/// Batches: both levels of checks, selection, slicing, stamping. A flag repairs the checksums.
pub(crate) fn batch(bytes: &[u8]) {
    let ([flags, wanted, count], rest) = control::<3>(bytes);
    let mut bytes = rest.to_vec();
    if flags & 1 != 0 && bytes.len() >= batch::BATCH_HEADER_SIZE {
        repair_batch(&mut bytes);
    }
    let layout = Batch::decode_prefix(&bytes, Verify::Layout);
    let verified = Batch::decode_prefix(&bytes, Verify::Checksums);
    let _ = SendMessages::decode(&bytes).map_err(|error| error.code());
    match (&layout, &verified) {
        (Ok((batch, _)), Ok((same, _))) => {
            assert_eq!(batch, same);
            assert_eq!(batch.computed_checksum(), batch.header().batch_checksum());
        }
        (Err(one), Err(_)) => assert_eq!(one.code(), ErrorCode::InvalidCommand),
        (Ok(_), Err(error)) => assert_ne!(error.code(), ErrorCode::InvalidCommand),
        (Err(_), Ok(_)) => panic!("the stricter check passed alone"),
    }
    let Ok((batch, rest)) = layout else { return };
    assert_eq!(batch.bytes().len() + rest.len(), bytes.len());
    assert_eq!(batch.frames().count(), batch.message_count() as usize);
    let base = batch.header().base_offset();
    let queries = [
        BatchQuery::Offset(base.wrapping_add(u64::from(wanted))),
        BatchQuery::Timestamp(u64::from(wanted)),
    ];
    for query in queries {
        let visible = batch.offset_last().unwrap_or(0);
        select(&batch, query, visible, u32::from(count));
        select(&batch, query, u64::MAX, u32::MAX);
    }
    let sound = verified.is_ok();
    let mut copy = batch.bytes().to_vec();
    stamp_batch(&mut copy, 7, 1_000, 2_000).expect("the layout holds");
    let stamped = Batch::decode(&copy, Verify::Checksums);
    assert!(
        stamped.is_ok() || !sound,
        "a stamp keeps a sound batch sound"
    );
    let mut polled = Vec::new();
    Codec::write(&0_u32, &mut polled);
    polled.extend_from_slice(&bytes);
    let walked = Batches::new(&bytes, Verify::Layout)
        .filter(Result::is_ok)
        .count();
    assert!(walked >= 1);
}

fn select(batch: &Batch<'_>, query: BatchQuery, visible: u64, count: u32) {
    let selection = batch.select(query, visible, count);
    match selection {
        BatchSelection::Nothing => assert_eq!(selection.count(), 0),
        BatchSelection::Whole { count, .. } => assert_eq!(count, batch.message_count()),
        BatchSelection::Part {
            header,
            start,
            end,
            count,
            ..
        } => {
            assert!(count > 0 && start < end);
            let mut slice = zerocopy::IntoBytes::as_bytes(&header).to_vec();
            slice.extend_from_slice(&batch.bytes()[start..end]);
            let slice = Batch::decode(&slice, Verify::Layout).expect("a slice is a batch");
            assert_eq!(slice.message_count(), count);
            assert_eq!(slice.computed_checksum(), header.batch_checksum());
        }
    }
}

/// Sets the length, the count and every checksum to what they should be.
fn repair_batch(bytes: &mut [u8]) {
    use batch::{BATCH_HEADER_SIZE, FRAME_HEADER_SIZE};
    bytes[52..BATCH_HEADER_SIZE].fill(0);
    let mut at = BATCH_HEADER_SIZE;
    let mut sums = Vec::new();
    while at + FRAME_HEADER_SIZE <= bytes.len() {
        let number = |bytes: &[u8], at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
        };
        let length = FRAME_HEADER_SIZE + number(bytes, at + 32) + number(bytes, at + 36);
        let end = at.saturating_add(length);
        if end > bytes.len() {
            break;
        }
        bytes[at + 40..at + 48].fill(0);
        let sum = xxh3(&bytes[at + 8..end]);
        bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
        sums.push(sum);
        at = end;
    }
    bytes[32..40].copy_from_slice(&(at as u64).to_le_bytes());
    bytes[48..52].copy_from_slice(&(sums.len() as u32).to_le_bytes());
    let (header, _) = zerocopy::FromBytes::ref_from_prefix(bytes).expect("a header");
    let header: &BatchHeader = header;
    let sum = header.checksum_over(sums.into_iter());
    bytes[40..48].copy_from_slice(&sum.to_le_bytes());
}

/// Suffix bodies; a flag numbers and re-identifies the entries.
pub(crate) fn suffix(bytes: &[u8]) {
    let ([flags, head], rest) = control::<2>(bytes);
    let head = u64::from(head);
    let mut bytes = rest.to_vec();
    if flags & 1 != 0 {
        for (index, entry) in bytes.chunks_exact_mut(HEADER_SIZE).enumerate() {
            let op = head.wrapping_sub(index as u64);
            entry[60] = 6;
            entry[176..184].copy_from_slice(&op.to_le_bytes());
            if flags & 2 != 0 {
                entry[62..128].fill(0);
                entry[228..256].fill(0);
            }
            let header = entry.first_chunk().expect("a header");
            if !PrepareHeader::over(header).is_blank() {
                let identity = prepare_identity(header);
                entry[..16].copy_from_slice(&identity.0.to_le_bytes());
            }
        }
    }
    let bits = u128::from(flags) << 3;
    if let Ok(suffix) = Suffix::parse(Op(head), &bytes, (bits, !bits)) {
        walk_suffix(&suffix);
    }
}

/// Manifests; a flag repairs the trailing hash.
pub(crate) fn manifest(bytes: &[u8]) {
    let ([flags], rest) = control::<1>(bytes);
    let mut bytes = rest.to_vec();
    if flags & 1 != 0 {
        let sum = xxh3(&bytes);
        bytes.extend(sum.to_le_bytes());
    }
    if let Ok(manifest) = Manifest::decode(&bytes) {
        let entries: Vec<_> = manifest.iter().collect();
        assert_eq!(entries.len(), manifest.len());
        let encoded = Manifest::encode(&entries);
        let again = Manifest::decode(&encoded).expect("just encoded");
        assert!(again.iter().eq(entries));
    }
}

/// TLV blocks, options and permissions on bare bytes.
pub(crate) fn block(bytes: &[u8]) {
    let structure = TlvBlock::parse(bytes);
    match Options::parse(bytes) {
        Ok(options) => {
            assert_eq!(structure.map(|block| block.bytes()), Ok(options.bytes()));
            for (key, _) in options.iter() {
                assert!(options.get(key).is_some());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(block) = PermissionsBlock::parse(bytes) {
        let permissions = block.to_permissions();
        assert_eq!(
            Permissions::decode_exact(&permissions.encode()),
            Ok(permissions)
        );
    }
    if let Ok((section, length)) = ResultSection::decode_measured(bytes) {
        assert!(length <= bytes.len());
        if let ResultSection::Success(payload) = section {
            assert_eq!(payload.len() + 4, bytes.len());
        }
    }
}

/// Requests by code and prepares by operation, chosen by the first two bytes.
pub(crate) fn dispatch(bytes: &[u8]) {
    let ([code, operation], rest) = control::<2>(bytes);
    let code = ClientCode::ALL[usize::from(code) % ClientCode::ALL.len()];
    if let Ok(request) = ClientRequest::decode(code, rest) {
        let encoded = request.encode();
        let again = ClientRequest::decode(code, &encoded).expect("just encoded");
        assert_eq!(again.encode(), encoded, "{code:?}");
    }
    if let Ok(response) = answered::ClientResponse::decode(code, rest) {
        let encoded = response.encode();
        let again = answered::ClientResponse::decode(code, &encoded).expect("just encoded");
        assert_eq!(again.encode(), encoded, "{code:?}");
    }
    let operation = Operation::ALL[usize::from(operation) % Operation::ALL.len()];
    let _ = MetadataBody::decode(operation, rest);
}

/// One body type, chosen by the first byte.
pub(crate) fn body(bytes: &[u8]) {
    let ([kind], rest) = control::<1>(bytes);
    let (_, check) = BODIES[usize::from(kind) % BODIES.len()];
    check(rest);
}

/// What is read can be written; what was written reads the same and takes as many bytes.
fn round_trip<'a, T: Codec<'a>>(bytes: &'a [u8], encoded: &'a mut Vec<u8>) {
    let mut cursor = Cursor::new(bytes);
    let Ok(value) = T::read(&mut cursor, "body") else {
        return;
    };
    assert!(cursor.remaining() <= bytes.len());
    value.write(encoded);
    let again = T::decode_exact(encoded).expect("just encoded");
    assert_eq!(again.encode(), *encoded);
}

macro_rules! bodies {
    ($($name:literal $ty:ty),* $(,)?) => {
        /// Every body type by itself.
        pub(crate) const BODIES: &[Target] = &[
            $(($name, |bytes: &[u8]| round_trip::<$ty>(bytes, &mut Vec::new())),)*
            ("login", |bytes: &[u8]| {
                if let Ok(login) = Login::decode(bytes) {
                    let _ = (login.password(), login.token());
                }
            }),
        ];
    };
}

bodies! {
    "name" Name<'_>,
    "identifier" Identifier<'_>,
    "consumer" Consumer<'_>,
    "optional partition" OptionalPartition,
    "partitioning" Partitioning<'_>,
    "polling strategy" PollingStrategy,
    "ack level" AckLevel,
    "options with length" Options32<'_>,
    "optional permissions" OptionalPermissions<'_>,
    "send metadata" SendMetadata<'_>,
    "get snapshot" asked::GetSnapshot<'_>,
    "describe options" asked::DescribeOptions,
    "attach consumer session" asked::AttachConsumerSession,
    "get client" asked::GetClient,
    "user" asked::UserRequest<'_>,
    "create user" asked::CreateUser<'_>,
    "update user" asked::UpdateUser<'_>,
    "update permissions" asked::UpdatePermissions<'_>,
    "change password" asked::ChangePassword<'_>,
    "client version" asked::ClientVersion<'_>,
    "login by password" asked::LoginPassword<'_>,
    "login by token" asked::LoginToken<'_>,
    "create token" asked::CreatePersonalAccessToken<'_>,
    "create token, prepared" asked::CreatePersonalAccessTokenPrepared<'_>,
    "delete token" asked::DeletePersonalAccessToken<'_>,
    "delete token, prepared" asked::DeletePersonalAccessTokenPrepared<'_>,
    "poll messages" asked::PollMessages<'_>,
    "flush unsaved buffer" asked::FlushUnsavedBuffer<'_>,
    "get consumer offset" asked::GetConsumerOffset<'_>,
    "store consumer offset" asked::StoreConsumerOffset<'_>,
    "delete consumer offset" asked::DeleteConsumerOffset<'_>,
    "stream" asked::StreamRequest<'_>,
    "create stream" asked::CreateStream<'_>,
    "update stream" asked::UpdateStream<'_>,
    "topic" asked::TopicRequest<'_>,
    "create topic" asked::CreateTopic<'_>,
    "create topic, prepared" asked::CreateTopicWithAssignments<'_>,
    "update topic" asked::UpdateTopic<'_>,
    "partitions" asked::PartitionsRequest<'_>,
    "create partitions, prepared" asked::CreatePartitionsWithAssignments<'_>,
    "delete segments" asked::DeleteSegments<'_>,
    "truncate partition" asked::TruncatePartition<'_>,
    "consumer group" asked::ConsumerGroupRequest<'_>,
    "create consumer group" asked::CreateConsumerGroup<'_>,
    "join consumer group, prepared" asked::JoinConsumerGroupPrepared<'_>,
    "leave consumer group, prepared" asked::LeaveConsumerGroupPrepared<'_>,
    "remove member" asked::RemoveConsumerGroupMember,
    "complete revocation" asked::CompleteConsumerGroupRevocation<'_>,
    "stats" answered::Stats<'_>,
    "cluster metadata" answered::ClusterMetadata<'_>,
    "routing" answered::Routing<'_>,
    "option catalog" Counted<answered::OptionSpec<'_>>,
    "client details" answered::ClientDetails<'_>,
    "clients" Vec<answered::ClientRecord<'_>>,
    "login reply" answered::LoginReply<'_>,
    "user details" answered::UserDetails<'_>,
    "users" Vec<answered::UserRecord<'_>>,
    "tokens" Vec<answered::PersonalAccessTokenRecord<'_>>,
    "raw token" answered::RawPersonalAccessToken<'_>,
    "stream details" answered::StreamDetails<'_>,
    "streams" Vec<answered::StreamRecord<'_>>,
    "topic details" answered::TopicDetails<'_>,
    "topics" Counted<answered::TopicRecord<'_>>,
    "group details" answered::ConsumerGroupDetails<'_>,
    "groups" Vec<answered::ConsumerGroupRecord<'_>>,
    "sync reply" answered::SyncReply,
    "polled messages" answered::PolledMessages<'_>,
    "send confirmations" SendConfirmations,
    "consumer offset" answered::ConsumerOffset,
}
