//! What the body of a frame holds, for `--full`. Payloads and secrets are not printed.

use biplane_wire::request::{ClientRequest, MetadataBody};
use biplane_wire::{
    Batch, Command, DoViewChangeHeader, ErrorCode, FrameRef, Manifest, Operation, PrepareHeader,
    ReplyHeader, RequestHeader, ResultSection, StartViewHeader, StateTransferTargetHeader, Suffix,
    Verify,
};

/// Hands a line for each thing in the body to `say`; nothing for a frame without one.
pub(super) fn describe(frame: FrameRef<'_>, say: &mut dyn FnMut(String)) {
    let body = frame.body();
    match frame.command() {
        Command::Request => request(frame, say),
        Command::Prepare | Command::RepairPrepare => prepare(frame, say),
        Command::Reply => reply(frame, say),
        Command::DoViewChange => {
            if let Ok(header) = frame.decode::<DoViewChangeHeader>() {
                let bitsets = (header.nack_bitset(), header.present_bitset());
                suffix(Suffix::parse(header.op(), body, bitsets), say);
            }
        }
        Command::StartView => {
            if let Ok(header) = frame.decode::<StartViewHeader>() {
                suffix(Suffix::parse(header.op(), body, (0, 0)), say);
            }
        }
        Command::StateTransferTarget => target(frame, say),
        _ if body.is_empty() => {}
        _ => say(format!("body: {} bytes", body.len())),
    }
}

fn request(frame: FrameRef<'_>, say: &mut dyn FnMut(String)) {
    let Ok(header) = frame.decode::<RequestHeader>() else {
        return;
    };
    match ClientRequest::of(header, frame.body()) {
        Ok(ClientRequest::SendMessages(send)) => {
            let to = &send.metadata;
            say(format!(
                "body: to {}/{} by {:?}",
                to.stream, to.topic, to.partitioning
            ));
            batch(send.batch.bytes(), say);
        }
        Ok(request) => say(format!("body: {request:?}")),
        Err(error) => say(format!("body: does not decode: {error}")),
    }
}

fn prepare(frame: FrameRef<'_>, say: &mut dyn FnMut(String)) {
    let Ok(header) = frame.decode::<PrepareHeader>() else {
        return;
    };
    match header.operation() {
        Operation::SendMessages => batch(frame.body(), say),
        operation if operation.is_metadata_plane() => {
            match MetadataBody::decode(operation, frame.body()) {
                Ok(body) => say(format!("body: {body:?}")),
                Err(error) => say(format!("body: does not decode: {error}")),
            }
        }
        _ => say(format!("body: {} bytes", frame.body().len())),
    }
}

fn batch(bytes: &[u8], say: &mut dyn FnMut(String)) {
    let batch = match Batch::decode(bytes, Verify::Layout) {
        Ok(batch) => batch,
        Err(error) => return say(format!("batch: {error}")),
    };
    say(format!("batch: {:?}", batch.header()));
    for message in batch.frames() {
        let header = message.header;
        let sound = header.checksum() == message.computed_checksum();
        say(format!(
            "message at {}: id {:#x}, {} + {} bytes, checksum {}",
            batch.offset_of(&message),
            header.id(),
            header.payload_length(),
            header.user_headers_length(),
            if sound { "ok" } else { "BAD" },
        ));
    }
}

fn reply(frame: FrameRef<'_>, say: &mut dyn FnMut(String)) {
    let Ok(header) = frame.decode::<ReplyHeader>() else {
        return;
    };
    let named = |code: u32| {
        let known = ErrorCode::from_u32(code).map(ErrorCode::name);
        format!("{code} {}", known.unwrap_or("of no known name"))
    };
    if header.status() != 0 {
        return say(format!("refused with {}", named(header.status())));
    }
    if !header.operation().is_result_framed(frame.body().len()) {
        return say(format!("payload: {} bytes", frame.body().len()));
    }
    match ResultSection::decode(frame.body()) {
        Ok(ResultSection::Success(payload)) => {
            say(format!("result ok, payload: {} bytes", payload.len()));
        }
        Ok(ResultSection::Rejection(code)) => say(format!("rejected with {}", named(code))),
        Err(error) => say(format!("body: does not decode: {error}")),
    }
}

fn suffix(suffix: Result<Suffix<'_>, impl std::fmt::Display>, say: &mut dyn FnMut(String)) {
    let suffix = match suffix {
        Ok(suffix) => suffix,
        Err(error) => return say(format!("suffix: {error}")),
    };
    for entry in suffix.iter() {
        let flags = match (entry.nack, entry.present) {
            (false, false) => "",
            (true, false) => ", nack",
            (false, true) => ", present",
            (true, true) => ", nack, present",
        };
        match entry.header {
            Some(header) => say(format!(
                "entry op {}: {} of view {}, id {:016x}{flags}",
                entry.op,
                header.operation(),
                header.frame.view(),
                header.frame.checksum().0,
            )),
            None => say(format!("entry op {}: blank{flags}", entry.op)),
        }
    }
}

fn target(frame: FrameRef<'_>, say: &mut dyn FnMut(String)) {
    let Ok(header) = frame.decode::<StateTransferTargetHeader>() else {
        return;
    };
    if !header.available() {
        return;
    }
    match Manifest::decode(frame.body()) {
        Ok(manifest) => {
            for (index, entry) in manifest.iter().enumerate() {
                say(format!(
                    "artifact {index}: kind {}, frontier {}, {} bytes, checksum {:016x}",
                    entry.kind, entry.frontier, entry.length, entry.checksum
                ));
            }
        }
        Err(error) => say(format!("manifest: {error}")),
    }
}
