//! The deframer: every split point, frames of every size class, bounded memory, and what ends
//! a stream.

mod support;

use biplane_wire::*;
use support::captured_replica_frames;

const SIZE_MAX: u32 = FRAME_SIZE_MAX_DEFAULT;

/// Feeds `bytes` in pieces and takes every frame in between.
fn feed<'a>(
    deframer: &mut Deframer,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Message>, CloseReason> {
    let mut frames = Vec::new();
    for mut piece in pieces {
        while !piece.is_empty() {
            let taken = deframer.push(piece);
            piece = &piece[taken..];
            let mut progress = taken > 0;
            while let Some(frame) = deframer.next()? {
                frames.push(frame);
                progress = true;
            }
            assert!(progress, "a deframer that is drained takes bytes");
        }
    }
    Ok(frames)
}

/// A reply with `body` bytes of body that differ from frame to frame.
fn frame(body: usize, salt: u8) -> Message {
    let header = ReplyHeader::new(Command::Reply);
    let body: Vec<u8> = (0..body)
        .map(|index| (index as u8).wrapping_add(salt))
        .collect();
    Message::from_parts(header, &body)
}

fn stream(frames: &[Message]) -> Vec<u8> {
    frames.iter().flat_map(Message::to_vec).collect()
}

#[test]
fn captured_frames_split_at_every_point() {
    let captured = captured_replica_frames();
    let expected: Vec<_> = captured[60..64]
        .iter()
        .map(|frame| frame.message())
        .collect();
    let bytes = stream(&expected);
    for split in 0..=bytes.len() {
        let mut deframer = Deframer::new(SIZE_MAX);
        let pieces = [&bytes[..split], &bytes[split..]];
        let frames = feed(&mut deframer, pieces.into_iter()).expect("valid");
        assert_eq!(frames, expected, "split at {split}");
        assert_eq!(deframer.finish(), Ok(()));
        assert_eq!(deframer.pending(), 0);
    }
}

#[test]
fn one_byte_at_a_time() {
    let expected: Vec<_> = captured_replica_frames()
        .iter()
        .map(|frame| frame.message())
        .collect();
    let bytes = stream(&expected);
    let mut deframer = Deframer::new(SIZE_MAX);
    let frames = feed(&mut deframer, bytes.chunks(1)).expect("valid");
    assert_eq!(frames, expected);
}

#[test]
fn frames_of_every_size_class_in_pieces_of_many_lengths() {
    let small = SMALL_FRAME_SIZE_MAX - HEADER_SIZE;
    let sizes = [
        0,
        1,
        small - 1,
        small,
        small + 1,
        STAGING_SIZE - HEADER_SIZE,
        STAGING_SIZE,
        LARGE_ALLOCATION_FIRST,
        3,
        LARGE_ALLOCATION_FIRST * 2 + 17,
        0,
    ];
    let expected: Vec<_> = sizes
        .iter()
        .zip(0..)
        .map(|(size, salt)| frame(*size, salt))
        .collect();
    let bytes = stream(&expected);
    for piece in [
        255,
        256,
        257,
        4_096,
        16_383,
        65_535,
        65_536,
        1_000_003,
        bytes.len(),
    ] {
        let mut deframer = Deframer::new(SIZE_MAX);
        let frames = feed(&mut deframer, bytes.chunks(piece)).expect("valid");
        assert_eq!(frames.len(), expected.len(), "{piece}");
        assert!(frames == expected, "pieces of {piece}");
        assert_eq!(deframer.finish(), Ok(()));
    }
}

#[test]
fn many_small_frames_come_out_of_one_read() {
    let expected: Vec<_> = (0..200).map(|salt| frame(3, salt)).collect();
    let bytes = stream(&expected);
    let mut deframer = Deframer::new(SIZE_MAX);
    assert_eq!(deframer.memory(), 0, "an idle connection holds no buffer");
    assert_eq!(deframer.push(&bytes), bytes.len());
    let mut count = 0;
    while let Some(frame) = deframer.next().expect("valid") {
        assert_eq!(frame, expected[count]);
        count += 1;
    }
    assert_eq!(count, 200);
}

#[test]
fn a_full_staging_buffer_offers_no_room_until_frames_are_taken() {
    let one = frame(0, 0).to_vec();
    let mut deframer = Deframer::new(SIZE_MAX);
    let count = STAGING_SIZE / HEADER_SIZE;
    for _ in 0..count {
        assert_eq!(deframer.push(&one), HEADER_SIZE);
    }
    assert_eq!(deframer.push(&one), 0);
    assert!(deframer.read_slice().is_empty());
    assert!(deframer.next().expect("valid").is_some());
    assert_eq!(deframer.push(&one), HEADER_SIZE);
}

#[test]
fn sizes_outside_the_limits_close_before_the_body_is_allocated() {
    for (size, size_max) in [(0, 1024), (255, 1024), (1025, 1024), (u32::MAX, SIZE_MAX)] {
        let mut bytes = frame(0, 0).to_vec();
        bytes[48..52].copy_from_slice(&size.to_le_bytes());
        let mut deframer = Deframer::new(size_max);
        assert_eq!(deframer.push(&bytes), HEADER_SIZE);
        let reason = CloseReason::BadSize { size, size_max };
        assert_eq!(deframer.next(), Err(reason));
        assert_eq!(deframer.next(), Err(reason), "the reason stays");
        assert_eq!(deframer.finish(), Err(reason));
        assert!(deframer.read_slice().is_empty(), "nothing more is read");
        assert_eq!(deframer.memory(), STAGING_SIZE);
        assert_eq!(reason.label(), "BAD_SIZE");
    }
    let mut deframer = Deframer::new(1024);
    let largest = frame(1024 - HEADER_SIZE, 0).to_vec();
    assert_eq!(deframer.push(&largest), 1024);
    assert!(deframer.next().expect("the limit is inclusive").is_some());
}

#[test]
fn an_undefined_command_closes_once_the_body_is_in() {
    for body in [0, 10, SMALL_FRAME_SIZE_MAX, LARGE_ALLOCATION_FIRST + 1] {
        let mut bytes = frame(body, 0).to_vec();
        bytes[60] = 30;
        let mut deframer = Deframer::new(SIZE_MAX);
        let (last, most) = bytes.split_last().expect("bytes");
        let frames = feed(&mut deframer, std::iter::once(most)).expect("not yet");
        assert!(frames.is_empty());
        let closed = feed(&mut deframer, std::iter::once([*last].as_slice()));
        assert_eq!(closed, Err(CloseReason::BadCommand { byte: 30 }));
    }
}

#[test]
fn a_claimed_size_costs_no_memory_until_its_bytes_come() {
    let mut header = frame(0, 0).to_vec();
    header[48..52].copy_from_slice(&SIZE_MAX.to_le_bytes());
    let mut deframer = Deframer::new(SIZE_MAX);
    deframer.push(&header);
    assert_eq!(deframer.next(), Ok(None));
    let bound = STAGING_SIZE + LARGE_ALLOCATION_FIRST;
    assert!(deframer.memory() <= bound, "{}", deframer.memory());
    let mut received = HEADER_SIZE;
    let piece = vec![7; 100_000];
    while received < SIZE_MAX as usize {
        let count = piece.len().min(SIZE_MAX as usize - received);
        let taken = deframer.push(&piece[..count]);
        assert_eq!(taken, count);
        received += taken;
        let bound = STAGING_SIZE + LARGE_ALLOCATION_FIRST.max(received * 2);
        assert!(
            deframer.memory() <= bound,
            "{} for {received}",
            deframer.memory()
        );
    }
    let message = deframer.next().expect("valid").expect("whole");
    assert_eq!(message.size(), SIZE_MAX as usize);
    assert!(message.body().iter().all(|byte| *byte == 7));
}

#[test]
fn the_end_of_the_stream_is_orderly_only_between_frames() {
    let bytes = stream(&[frame(10, 0), frame(SMALL_FRAME_SIZE_MAX, 1)]);
    for end in 0..bytes.len() {
        if end > 700 && end % 97 != 0 {
            continue;
        }
        let mut deframer = Deframer::new(SIZE_MAX);
        let frames = feed(&mut deframer, std::iter::once(&bytes[..end])).expect("valid");
        let whole: usize = frames.iter().map(Message::size).sum();
        let expected = match end - whole {
            0 => Ok(()),
            have => Err(CloseReason::EndInsideFrame { have }),
        };
        assert_eq!(deframer.finish(), expected, "{end}");
    }
}

#[test]
fn messages_do_not_alias_the_staging_buffer() {
    let mut deframer = Deframer::new(SIZE_MAX);
    let (first, second) = (frame(10, 0), frame(10, 99));
    deframer.push(&first.to_vec());
    let kept = deframer.next().expect("valid").expect("whole");
    deframer.push(&second.to_vec());
    assert_eq!(kept, first);
    assert!(kept.contiguous().is_some());
}

#[test]
fn a_raised_limit_counts_from_the_next_frame_on() {
    let (small, large) = (frame(100, 1), frame(5000, 2));
    let mut deframer = Deframer::new(4096);
    deframer.push(&stream(&[small.clone(), large.clone()]));
    assert_eq!(deframer.next(), Ok(Some(small)));
    deframer.set_size_max(SIZE_MAX);
    assert_eq!(deframer.next(), Ok(Some(large.clone())));

    let mut deframer = Deframer::new(4096);
    deframer.push(&large.to_vec());
    let refused = CloseReason::BadSize {
        size: 5256,
        size_max: 4096,
    };
    assert_eq!(deframer.next(), Err(refused));
    deframer.set_size_max(SIZE_MAX);
    assert_eq!(
        deframer.next(),
        Err(refused),
        "a stream that failed stays failed"
    );
}
