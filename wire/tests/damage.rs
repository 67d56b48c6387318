//! Every truncation of a vector is refused, and so is every flip of a bit that a checksum
//! covers. What no checksum covers is listed here, not skipped silently.

mod support;

use biplane_wire::*;
use support::{captured_exchanges, captured_replica_frames};

/// Runs the checks a receiver makes before it believes a frame; `Ok` when it would.
fn accept(bytes: &[u8]) -> Result<(), String> {
    let message = Message::from_bytes(bytes).map_err(|error| error.to_string())?;
    let frame = decode_replica(message).map_err(|refusal| refusal.to_string())?;
    match &frame {
        ReplicaFrame::Prepare(typed) | ReplicaFrame::RepairPrepare(typed) => {
            let header = typed.header();
            prepare::verify_ingest(header, typed.body()).map_err(|error| error.to_string())?;
            if header.operation() == Operation::SendMessages {
                let batch = Batch::decode(typed.body(), Verify::Checksums);
                batch.map_err(|error| error.to_string())?;
            }
            Ok(())
        }
        ReplicaFrame::DoViewChange(typed) => Suffix::of_do_view_change(typed)
            .map(|_| ())
            .map_err(|error| error.to_string()),
        ReplicaFrame::StartView(typed) => Suffix::of_start_view(typed)
            .map(|_| ())
            .map_err(|error| error.to_string()),
        ReplicaFrame::StateTransferTarget(typed) if typed.header().available() => {
            Manifest::decode(typed.body())
                .map(|_| ())
                .map_err(|error| error.to_string())
        }
        _ => Ok(()),
    }
}

/// Whether no checksum of the frame covers this byte.
fn is_uncovered(message: &Message, offset: usize) -> bool {
    let is_prepare = matches!(message.command(), Command::Prepare | Command::RepairPrepare);
    match message.command() {
        // A retransmission changes the view, so the identity leaves it out.
        _ if is_prepare && (52..56).contains(&offset) => true,
        // Consumer-offset bodies have only their decoder.
        _ if is_prepare && offset >= HEADER_SIZE => {
            let operation = message.header::<PrepareHeader>().operation();
            operation.is_partition() && operation != Operation::SendMessages
        }
        // A chunk is verified as part of its whole artifact.
        Command::StateChunk => offset >= HEADER_SIZE,
        _ => false,
    }
}

#[test]
fn every_flipped_bit_under_a_checksum_is_refused() {
    let mut uncovered = 0;
    let mut flips = 0;
    for captured in captured_replica_frames() {
        let message = captured.message();
        if message.command() == Command::ReplicaHello {
            continue;
        }
        assert_eq!(accept(&captured.bytes), Ok(()), "{}", captured.kind);
        let mut bytes = captured.bytes.clone();
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if is_uncovered(&message, bit / 8) {
                uncovered += 1;
            } else {
                assert!(accept(&bytes).is_err(), "{}: bit {bit}", captured.kind);
                flips += 1;
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
    assert!(flips > 250_000, "{flips}");
    assert!(uncovered > 1_000, "{uncovered}");
}

#[test]
fn every_truncation_is_refused() {
    for captured in captured_replica_frames() {
        for length in 0..captured.bytes.len() {
            let cut = &captured.bytes[..length];
            assert!(
                Message::from_bytes(cut).is_err(),
                "{}: {length}",
                captured.kind
            );
        }
        let longer = [captured.bytes.as_slice(), &[0]].concat();
        assert!(Message::from_bytes(&longer).is_err(), "{}", captured.kind);
    }
}

#[test]
fn a_truncation_that_fixes_the_size_field_is_refused_by_the_seals() {
    for captured in captured_replica_frames() {
        if captured.message().command() == Command::ReplicaHello {
            continue;
        }
        for length in HEADER_SIZE..captured.bytes.len() {
            let mut cut = captured.bytes[..length].to_vec();
            cut[48..52].copy_from_slice(&(length as u32).to_le_bytes());
            assert!(accept(&cut).is_err(), "{}: {length}", captured.kind);
        }
    }
}

#[test]
fn every_flipped_bit_of_a_batch_is_refused() {
    let mut batches = 0;
    for captured in captured_replica_frames() {
        let message = captured.message();
        let is_prepare = message.command() == Command::Prepare;
        if !is_prepare || message.header::<PrepareHeader>().operation() != Operation::SendMessages {
            continue;
        }
        let mut batch = message.body().to_vec();
        assert!(Batch::decode(&batch, Verify::Checksums).is_ok());
        for bit in 0..batch.len() * 8 {
            batch[bit / 8] ^= 1 << (bit % 8);
            assert!(
                Batch::decode(&batch, Verify::Checksums).is_err(),
                "bit {bit}"
            );
            batch[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..batch.len() {
            assert!(
                Batch::decode(&batch[..length], Verify::Layout).is_err(),
                "{length}"
            );
        }
        batches += 1;
    }
    assert!(batches >= 3, "{batches}");
}

#[test]
fn every_flipped_bit_of_a_stamped_request_body_is_noticed() {
    let mut stamped = 0;
    for exchange in captured_exchanges() {
        let request = decode_client(exchange.request).expect("valid");
        let stamp = request.header().request_checksum();
        if stamp.is_zero() {
            continue;
        }
        let mut body = request.body().to_vec();
        for bit in 0..body.len() * 8 {
            body[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(stamp, body_seal(&body));
            body[bit / 8] ^= 1 << (bit % 8);
        }
        stamped += 1;
    }
    assert!(stamped > 10, "{stamped}");
}
