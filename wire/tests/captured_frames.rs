//! The frames a running peer put on its replica ports: each decodes, its checksums hold, and
//! building the same frame from its fields yields the same bytes.

mod support;

use biplane_wire::*;
use support::captured_replica_frames;

fn rebuild_prepare(typed: &Typed<PrepareHeader>) -> Message {
    let h = typed.header();
    let mut built = PrepareHeader::new(Command::Prepare);
    built.frame.set_cluster(h.frame.cluster());
    built.frame.set_view(h.frame.view());
    built.frame.set_release(h.frame.release());
    built.frame.set_replica(h.frame.replica());
    built.set_client(h.client());
    built.set_parent(h.parent());
    built.set_request_checksum(h.request_checksum());
    built.set_op(h.op());
    built.set_commit(h.commit());
    built.set_timestamp(h.timestamp());
    built.set_request(h.request());
    built.set_operation(h.operation());
    built.set_group(h.group());
    built.set_user_id(h.user_id());
    let prepare = prepare::build_with_body(built, typed.body());
    match typed.message().command() {
        Command::RepairPrepare => prepare.prepare_to_repair(),
        _ => prepare,
    }
}

fn new_like<H: Header>(typed: &Typed<H>, new: impl Fn(Command) -> H) -> H {
    let mut built = new(typed.message().command());
    let frame = typed.header().frame();
    built.frame_mut().set_cluster(frame.cluster());
    built.frame_mut().set_view(frame.view());
    built.frame_mut().set_replica(frame.replica());
    built
}

fn rebuild_prepare_ok(typed: &Typed<PrepareOkHeader>) -> Message {
    let h = typed.header();
    let mut built = new_like(typed, PrepareOkHeader::new);
    built.set_parent(h.parent());
    built.set_prepare_checksum(h.prepare_checksum());
    built.set_op(h.op());
    built.set_commit(h.commit());
    built.set_timestamp(h.timestamp());
    built.set_request(h.request());
    built.set_operation(h.operation());
    built.set_group(h.group());
    Message::sealed(built, &[])
}

fn rebuild_commit(typed: &Typed<CommitHeader>) -> Message {
    let h = typed.header();
    let mut built = new_like(typed, CommitHeader::new);
    built.set_timestamp_monotonic(h.timestamp_monotonic());
    built.set_commit(h.commit());
    built.set_group(h.group());
    Message::sealed(built, &[])
}

fn rebuild_do_view_change(typed: &Typed<DoViewChangeHeader>) -> Message {
    let h = typed.header();
    let suffix = Suffix::of_do_view_change(typed).expect("captured suffixes hold");
    let mut builder = SuffixBuilder::new(h.op());
    for entry in suffix.iter() {
        builder.push(entry.header, entry.nack, entry.present);
    }
    let mut built = new_like(typed, DoViewChangeHeader::new);
    built.set_commit(h.commit());
    built.set_group(h.group());
    built.set_log_view(h.log_view());
    builder.do_view_change(built)
}

fn rebuild_start_view(typed: &Typed<StartViewHeader>) -> Message {
    let h = typed.header();
    let suffix = Suffix::of_start_view(typed).expect("captured suffixes hold");
    let mut builder = SuffixBuilder::new(h.op());
    for entry in suffix.iter() {
        builder.push(entry.header, false, false);
    }
    let mut built = new_like(typed, StartViewHeader::new);
    built.set_commit(h.commit());
    built.set_group(h.group());
    built.set_incarnation(h.incarnation());
    builder.start_view(built)
}

fn rebuild_repair(frame: &ReplicaFrame) -> Message {
    match frame {
        ReplicaFrame::RequestPrepares(typed) => {
            let h = typed.header();
            let mut built = new_like(typed, RequestPreparesHeader::new);
            built.set_nonce(h.nonce());
            built.set_from_op(h.from_op());
            built.set_to_op(h.to_op());
            built.set_group(h.group());
            Message::sealed(built, &[])
        }
        ReplicaFrame::RepairDone(typed) | ReplicaFrame::RangeEvicted(typed) => {
            let h = typed.header();
            let mut built = new_like(typed, RepairRangeReplyHeader::new);
            built.set_nonce(h.nonce());
            built.set_op(h.op());
            built.set_group(h.group());
            Message::sealed(built, &[])
        }
        other => rebuild_transfer(other),
    }
}

fn rebuild_transfer(frame: &ReplicaFrame) -> Message {
    match frame {
        ReplicaFrame::RequestStateTransfer(typed) => {
            let h = typed.header();
            let mut built = new_like(typed, RequestStateTransferHeader::new);
            built.set_nonce(h.nonce());
            built.set_group(h.group());
            Message::sealed(built, &[])
        }
        ReplicaFrame::StateTransferTarget(typed) => {
            let h = typed.header();
            let mut built = new_like(typed, StateTransferTargetHeader::new);
            built.set_nonce(h.nonce());
            built.set_commit_op(h.commit_op());
            built.set_group(h.group());
            built.set_commit_max(h.commit_max());
            match h.available() {
                true => built.set_offer(),
                false => built.set_refusal(h.unavailable_transient()),
            }
            Message::sealed(built, typed.body())
        }
        ReplicaFrame::RequestStateChunk(typed) => {
            let h = typed.header();
            let mut built = new_like(typed, RequestStateChunkHeader::new);
            built.set_nonce(h.nonce());
            built.set_offset(h.offset());
            built.set_group(h.group());
            built.set_length(h.length());
            built.set_artifact(h.artifact());
            Message::sealed(built, &[])
        }
        ReplicaFrame::StateChunk(typed) => {
            let h = typed.header();
            let mut built = new_like(typed, StateChunkHeader::new);
            built.set_nonce(h.nonce());
            built.set_offset(h.offset());
            built.set_group(h.group());
            built.set_artifact(h.artifact());
            Message::sealed(built, typed.body())
        }
        other => panic!("not captured: {other:?}"),
    }
}

fn rebuild(frame: &ReplicaFrame) -> Message {
    match frame {
        ReplicaFrame::Prepare(typed) | ReplicaFrame::RepairPrepare(typed) => rebuild_prepare(typed),
        ReplicaFrame::PrepareOk(typed) => rebuild_prepare_ok(typed),
        ReplicaFrame::Commit(typed) => rebuild_commit(typed),
        ReplicaFrame::DoViewChange(typed) => rebuild_do_view_change(typed),
        ReplicaFrame::StartView(typed) => rebuild_start_view(typed),
        ReplicaFrame::StartViewChange(typed) => {
            let mut built = new_like(typed, StartViewChangeHeader::new);
            built.set_group(typed.header().group());
            Message::sealed(built, &[])
        }
        ReplicaFrame::RequestStartView(typed) => {
            let mut built = new_like(typed, RequestStartViewHeader::new);
            built.set_group(typed.header().group());
            built.set_incarnation(typed.header().incarnation());
            Message::sealed(built, &[])
        }
        other => rebuild_repair(other),
    }
}

#[test]
fn every_captured_frame_is_rebuilt_from_its_fields() {
    for captured in captured_replica_frames() {
        let message = captured.message();
        if message.command() == Command::ReplicaHello {
            let hello = decode_handshake(message).expect("a hello has no rules");
            assert!(!hello.header().has_nonce());
            let built = new_like(&hello, HandshakeHeader::new);
            assert_eq!(&Message::from_parts(built, &[]), hello.message());
            continue;
        }
        let frame = decode_replica(message).unwrap_or_else(|refusal| {
            panic!("{}: {refusal}", captured.kind);
        });
        assert_eq!(
            rebuild(&frame).to_vec(),
            captured.bytes,
            "{}",
            captured.kind
        );
    }
}

#[test]
fn every_captured_prepare_passes_ingest() {
    let mut prepares = 0;
    for captured in captured_replica_frames() {
        let message = captured.message();
        if matches!(message.command(), Command::Prepare | Command::RepairPrepare) {
            let header = message.header::<PrepareHeader>();
            assert!(!header.frame.checksum().is_zero(), "{}", captured.kind);
            assert_eq!(prepare::verify_ingest(header, message.body()), Ok(()));
            let metadata = header.group().is_metadata();
            assert_eq!(metadata, header.operation().is_metadata_plane());
            assert_eq!(metadata, !header.frame.checksum_body().is_zero());
            prepares += 1;
        }
    }
    assert!(prepares >= 20, "{prepares}");
}

#[test]
fn every_captured_group_is_legal_and_matches_its_label() {
    for captured in captured_replica_frames() {
        let frame = match decode_replica(captured.message()) {
            Ok(frame) => frame,
            Err(refusal) => {
                assert_eq!(refusal.label(), "WRONG_COMMAND");
                assert_eq!(refusal.disposition(), Disposition::Drop);
                assert_eq!(captured.kind, "ReplicaHello");
                continue;
            }
        };
        let route = frame.route().expect("captured frames route");
        assert_eq!(route, frame.group(), "{}", captured.kind);
        let summary = format!("{frame:?}");
        assert_eq!(
            summary.contains("metadata"),
            captured.kind.contains(".meta"),
            "{summary}"
        );
        assert!(!summary.contains("illegal"), "{summary}");
        assert!(!summary.contains('\n'), "one line: {summary}");
    }
}
