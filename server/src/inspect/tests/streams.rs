//! The splitter: pieces of every size, and frames again behind every kind of damage.

use biplane_wire::{HEADER_SIZE, Header, PrepareHeader};

use super::super::stream::{Found, Splitter};
use super::{counted, frames, lines_of};

/// What is found, frames as their offset and length.
fn found(splitter: &mut Splitter, pieces: &[&[u8]]) -> Vec<String> {
    let mut all = Vec::new();
    let mut sink = |found: Found<'_>| {
        all.push(match &found {
            Found::Frame(offset, frame) => format!("{offset} frame {}", frame.size()),
            other => format!("{} {}", other.offset(), other.note().expect("a note")),
        });
    };
    for piece in pieces {
        splitter.feed(piece, &mut sink);
    }
    splitter.finish(&mut sink);
    all
}

/// How many of the things found are frames.
fn whole_frames(found: &[String]) -> usize {
    let kinds = found.iter().filter_map(|line| line.split(' ').nth(1));
    kinds.filter(|kind| *kind == "frame").count()
}

fn split(bytes: &[u8]) -> Vec<String> {
    found(&mut Splitter::new(1 << 20), &[bytes])
}

#[test]
fn pieces_of_any_size_give_the_same() {
    let mut stream = frames()[60..70].concat();
    stream.extend_from_slice(&[7; 50]);
    let expected = split(&stream);
    for size in [1, 2, 255, 256, 257, 700] {
        let pieces: Vec<_> = stream.chunks(size).collect();
        assert_eq!(
            found(&mut Splitter::new(1 << 20), &pieces),
            expected,
            "{size}"
        );
    }
}

#[test]
fn garbage_between_frames_is_skipped_and_counted() {
    let all = frames();
    let stream = [&all[3][..], &[0xee; 777], &all[20], &[0; 1000], &all[4]].concat();
    let lines = split(&stream);
    let second = 256 + 777;
    assert_eq!(lines[0], "0 frame 256");
    assert!(
        lines[1].starts_with("256 777 bytes skipped: frame size "),
        "{}",
        lines[1]
    );
    assert_eq!(lines[2], format!("{second} frame {}", all[20].len()));
    assert!(
        lines[3].contains("1000 bytes skipped: frame size 0 "),
        "{}",
        lines[3]
    );
    assert!(lines[4].ends_with(" frame 256"));
    assert_eq!(lines.len(), 5);
}

#[test]
fn an_unknown_command_costs_its_frame_alone() {
    let all = frames();
    let mut unknown = all[20].clone();
    unknown[60] = 31;
    let (lines, tally) = lines_of(&[all[3].clone(), unknown, all[4].clone()].concat());
    assert_eq!(tally, counted(2, 0, 1));
    assert!(lines[1].contains("unknown command 31"), "{}", lines[1]);
}

#[test]
fn a_broken_seal_is_told_in_the_line_of_its_frame() {
    let mut all = frames();
    all[5][152] ^= 1;
    let (lines, tally) = lines_of(&all.concat());
    assert_eq!(tally, counted(120, 1, 0));
    assert!(lines[5].contains("BAD seal"), "{}", lines[5]);
}

/// A large body that went bad is one bad frame; a bad size is not believed.
#[test]
fn a_damaged_header_is_believed_only_when_a_frame_follows() {
    let all = frames();
    let long = all
        .iter()
        .position(|frame| frame[60] == 6 && frame.len() > 600)
        .expect("a captured send");
    let mut stream = all.clone();
    stream[long][200] ^= 1;
    let (lines, tally) = lines_of(&stream.concat());
    assert_eq!(tally, counted(120, 1, 0));
    assert!(lines[long].contains("BAD identity"), "{}", lines[long]);

    let mut stream = all.clone();
    stream[long][50] ^= 1; // 64 KiB more than it has.
    let (lines, tally) = lines_of(&stream.concat());
    assert_eq!(tally, counted(119, 0, 1));
    assert!(
        lines[long].contains("the header of a Prepare does not hold"),
        "{}",
        lines[long]
    );
}

#[test]
fn the_end_inside_a_frame_is_told() {
    let all = frames();
    let (lines, tally) = lines_of(&[&all[3][..], &all[4][..100]].concat());
    assert_eq!(tally, counted(1, 0, 1));
    assert_eq!(
        lines[1],
        "@256         ! cut: 100 bytes of a frame, less than its header"
    );
    let long = all
        .iter()
        .find(|frame| frame.len() > 600)
        .expect("a long frame");
    let (lines, _) = lines_of(&[&all[3][..], &long[..500]].concat());
    assert!(
        lines[1].contains(&format!("cut: 500 of the {} bytes", long.len())),
        "{}",
        lines[1]
    );
}

#[test]
fn joining_a_stream_finds_the_next_frame() {
    let all = frames();
    let stream = all.concat();
    for skip in [1, 100, 255, 300] {
        let lines = found(&mut Splitter::joining(1 << 20), &[&stream[skip..]]);
        assert!(
            lines[0].starts_with("0 ") && lines[0].contains("bytes skipped"),
            "{}",
            lines[0]
        );
        let frames = whole_frames(&lines);
        assert_eq!(frames, 120 - skip.div_ceil(256), "{skip}");
    }
    let lines = found(&mut Splitter::joining(1 << 20), &[&stream]);
    assert_eq!(lines.len(), 120, "on the boundary nothing is skipped");
}

/// One frame damaged at a time, at every eighth byte: all others are found.
#[test]
fn damage_to_one_frame_never_loses_another() {
    let all = frames();
    let stream: Vec<_> = all[40..52].to_vec();
    let victim = 5;
    let before: usize = stream[..victim].iter().map(Vec::len).sum();
    let length = stream[victim].len();
    let header = stream[victim]
        .first_chunk::<HEADER_SIZE>()
        .expect("a header");
    assert!(PrepareHeader::over(header).frame.size() as usize == length);
    for at in (0..length).step_by(8).chain([48, 49, 50, 51, 60]) {
        for bit in 0..8 {
            let mut bytes = stream.concat();
            bytes[before + at] ^= 1 << bit;
            let lines = split(&bytes);
            // A size that became that of two frames is believed: a frame follows there.
            let expected = if (48..52).contains(&at) { 10 } else { 11 };
            assert!(
                whole_frames(&lines) >= expected,
                "byte {at} bit {bit}: {lines:?}"
            );
        }
    }
}

#[test]
fn memory_is_that_of_a_frame() {
    let mut splitter = Splitter::new(1 << 20);
    let noise = vec![0xab; 64 * 1024];
    let mut none = |_: Found<'_>| {};
    for _ in 0..200 {
        splitter.feed(&noise, &mut none);
        assert!(splitter.memory() < 512 * 1024, "{}", splitter.memory());
    }
}
