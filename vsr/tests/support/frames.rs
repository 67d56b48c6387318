//! Frames as peers and clients would build them, from plain values.

use biplane_wire::{
    Checksum, ClientId, ClusterId, Command, CommitHeader, DoViewChangeHeader, FrameBuffer,
    FramePrefix, GroupId, Message, Op, Operation, PrepareHeader, PrepareOkHeader, ReplicaFrame,
    ReplicaId, RequestNumber, RequestStartViewHeader, RoutedRequestHeader, StartViewChangeHeader,
    StartViewHeader, SuffixBuilder, View, decode_replica, prepare,
};

use super::GROUP;

pub const CLUSTER: ClusterId = ClusterId(7);

pub fn request(client: u128, number: u64, body: &[u8]) -> FrameBuffer {
    FrameBuffer::from_parts(&request_header(client, number, body.len()), body)
}

/// The header of a request whose body has `len` bytes.
pub fn request_header(client: u128, number: u64, len: usize) -> RoutedRequestHeader {
    let mut header = RoutedRequestHeader::new(Command::Request);
    header.set_client(ClientId(client));
    header.set_session(1);
    header.set_request(RequestNumber(number));
    header.set_operation(Operation::CreateStream);
    header.set_group(GROUP);
    header
        .frame
        .set_size((biplane_wire::HEADER_SIZE + len) as u32);
    header
}

/// The parts of a prepare that tests vary.
#[derive(Clone, Copy, Debug)]
pub struct PrepareParts {
    pub view: u32,
    pub replica: u8,
    pub op: u64,
    pub commit: u64,
    pub parent: Checksum,
    /// Makes prepares of the same op differ.
    pub variant: u64,
}

pub fn prepare(parts: PrepareParts) -> Message {
    let mut header = PrepareHeader::new(Command::Prepare);
    header.frame.set_cluster(CLUSTER);
    header.frame.set_view(View(parts.view));
    header.frame.set_replica(ReplicaId(parts.replica));
    header.set_op(Op(parts.op));
    header.set_commit(Op(parts.commit));
    header.set_parent(parts.parent);
    header.set_timestamp(parts.op.wrapping_mul(10).wrapping_add(1_000_000));
    header.set_client(ClientId(9));
    header.set_request(RequestNumber(parts.op));
    header.set_operation(Operation::CreateStream);
    header.set_group(GROUP);
    prepare::build_with_body(header, &parts.variant.to_le_bytes())
}

/// A chain of prepares of ops `first..=last` on `parent`.
pub fn chain(view: u32, first: u64, last: u64, parent: Checksum, variant: u64) -> Vec<Message> {
    let mut parent = parent;
    let mut chain = Vec::new();
    for op in first..=last {
        let replica = (view % 3) as u8;
        let parts = PrepareParts {
            view,
            replica,
            op,
            commit: 0,
            parent,
            variant,
        };
        let message = prepare(parts);
        parent = identity(&message);
        chain.push(message);
    }
    chain
}

/// Prepares of view 0 from op 1 to `last`, of which each tells of the commit of one shortly below.
pub fn committing_chain(last: u64) -> Vec<Message> {
    let mut parent = Checksum::ZERO;
    let next = |op: u64| {
        let message = prepare(PrepareParts {
            view: 0,
            replica: 0,
            op,
            commit: op.saturating_sub(5),
            parent,
            variant: 1,
        });
        parent = identity(&message);
        message
    };
    (1..=last).map(next).collect()
}

pub fn identity(message: &Message) -> Checksum {
    message.header::<PrepareHeader>().frame.checksum()
}

fn stamp(frame: &mut FramePrefix, from: u8, view: u32) {
    frame.set_cluster(CLUSTER);
    frame.set_replica(ReplicaId(from));
    frame.set_view(View(view));
}

pub fn frame(message: Message) -> ReplicaFrame {
    decode_replica(message).expect("a decodable frame")
}

pub fn prepare_ok(from: u8, view: u32, prepare: &Message) -> Message {
    let mut header = PrepareOkHeader::acknowledging(prepare.header());
    stamp(&mut header.frame, from, view);
    Message::sealed(header, &[])
}

pub fn commit(from: u8, view: u32, commit: u64, counter: u64) -> Message {
    let mut header = CommitHeader::new(Command::Commit);
    stamp(&mut header.frame, from, view);
    header.set_group(GROUP);
    header.set_commit(Op(commit));
    header.set_timestamp_monotonic(counter);
    Message::sealed(header, &[])
}

pub fn start_view_change(from: u8, view: u32) -> Message {
    let mut header = StartViewChangeHeader::new(Command::StartViewChange);
    stamp(&mut header.frame, from, view);
    header.set_group(GROUP);
    Message::sealed(header, &[])
}

pub fn request_start_view(from: u8, view: u32, incarnation: u128) -> Message {
    let mut header = RequestStartViewHeader::new(Command::RequestStartView);
    stamp(&mut header.frame, from, view);
    header.set_group(GROUP);
    header.set_incarnation(incarnation);
    Message::sealed(header, &[])
}

/// One entry of a suffix: header, nack, present.
pub type Entry<'a> = (Option<&'a Message>, bool, bool);

pub fn suffix(op: u64, entries: &[Entry<'_>]) -> SuffixBuilder {
    let mut suffix = SuffixBuilder::new(Op(op));
    for (message, nack, present) in entries {
        suffix.push(message.map(|message| message.header()), *nack, *present);
    }
    suffix
}

pub fn do_view_change(
    from: u8,
    view: u32,
    log_view: u32,
    (op, commit): (u64, u64),
    entries: &[Entry<'_>],
) -> Message {
    let mut header = DoViewChangeHeader::new(Command::DoViewChange);
    stamp(&mut header.frame, from, view);
    header.set_group(GROUP);
    header.set_log_view(View(log_view));
    header.set_commit(Op(commit));
    suffix(op, entries).do_view_change(header)
}

pub fn start_view(
    view: u32,
    (op, commit): (u64, u64),
    incarnation: u128,
    entries: &[Option<&Message>],
) -> Message {
    let mut header = StartViewHeader::new(Command::StartView);
    stamp(&mut header.frame, (view % 3) as u8, view);
    header.set_group(GROUP);
    header.set_commit(Op(commit));
    header.set_incarnation(incarnation);
    let entries: Vec<Entry<'_>> = entries.iter().map(|entry| (*entry, false, false)).collect();
    suffix(op, &entries).start_view(header)
}

pub fn in_group(message: &Message, group: GroupId) -> Message {
    let mut header = *message.header::<CommitHeader>();
    header.set_group(group);
    Message::sealed(header, &[])
}
