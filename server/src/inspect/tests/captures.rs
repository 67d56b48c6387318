//! Capture files: both formats, segments in any order, holes, and files that are cut.

use std::net::SocketAddr;

use etherparse::PacketBuilder;

use super::super::capture::slice;
use super::super::tcp::{Event, Reassembly, Segment};
use super::{arguments, counted, frames, lines_of, lines_with};

const CLIENT: ([u8; 4], u16) = ([10, 0, 0, 1], 44_000);
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 9_090);

/// An Ethernet packet with a TCP segment; the flag is S, F or none.
fn packet(
    from: ([u8; 4], u16),
    to: ([u8; 4], u16),
    sequence: u32,
    flag: char,
    payload: &[u8],
) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4(from.0, to.0, 64)
        .tcp(from.1, to.1, sequence, 1_000)
        .ack(1);
    let builder = match flag {
        'S' => builder.syn(),
        'F' => builder.fin(),
        _ => builder,
    };
    let mut packet = Vec::new();
    builder
        .write(&mut packet, payload)
        .expect("a vector takes it");
    packet
}

fn sent(sequence: u32, flag: char, payload: &[u8]) -> Vec<u8> {
    packet(CLIENT, SERVER, sequence, flag, payload)
}

/// A pcap file of packets a millisecond apart.
fn pcap(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4_u32.to_le_bytes());
    file.extend([2, 0, 4, 0]);
    file.extend([0; 8]);
    file.extend(262_144_u32.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for (index, packet) in packets.iter().enumerate() {
        file.extend(1_700_000_000_u32.to_le_bytes());
        file.extend((index as u32 * 1_000).to_le_bytes());
        let length = (packet.len() as u32).to_le_bytes();
        file.extend([length, length].concat());
        file.extend(packet);
    }
    file
}

/// A block of a pcapng file.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let length = (padded as u32 + 12).to_le_bytes();
    let mut block = [&kind.to_le_bytes()[..], &length, body].concat();
    block.resize(8 + padded, 0);
    block.extend(length);
    block
}

fn pcapng(packets: &[Vec<u8>]) -> Vec<u8> {
    let magic = 0x1a2b_3c4d_u32.to_le_bytes();
    let mut file = block(
        0x0a0d_0d0a,
        &[&magic[..], &[1, 0, 0, 0], &[0xff; 8]].concat(),
    );
    file.extend(block(1, &[1, 0, 0, 0, 0, 0, 4, 0]));
    for (index, packet) in packets.iter().enumerate() {
        let micros = 1_700_000_000_000_000_u64 + index as u64 * 1_000;
        let length = (packet.len() as u32).to_le_bytes();
        let time = [(micros >> 32) as u32, micros as u32]
            .map(u32::to_le_bytes)
            .concat();
        let head = [&[0; 4][..], &time, &length, &length].concat();
        file.extend(block(6, &[head, packet.clone()].concat()));
    }
    file
}

/// The stream of some captured frames as segments of 1000 bytes behind a SYN.
fn segments(stream: &[u8], first: u32) -> Vec<Vec<u8>> {
    let mut packets = vec![sent(first, 'S', &[])];
    let mut sequence = first.wrapping_add(1);
    for payload in stream.chunks(1_000) {
        packets.push(sent(sequence, '-', payload));
        sequence = sequence.wrapping_add(payload.len() as u32);
    }
    packets.push(sent(sequence, 'F', &[]));
    packets
}

#[test]
fn both_formats_show_every_frame_with_time_and_direction() {
    let packets = segments(&frames().concat(), 77);
    for file in [pcap(&packets), pcapng(&packets)] {
        let (lines, tally) = lines_of(&file);
        assert_eq!(tally, counted(120, 0, 0));
        let place = "   0.001000 10.0.0.1:44000 > 10.0.0.2:9090 ReplicaHello";
        assert!(lines[0].starts_with(place), "{}", lines[0]);
    }
}

#[test]
fn order_repetition_and_overlap_do_not_matter() {
    let stream = frames().concat();
    // Numbers wrap around in the middle of the stream.
    let mut packets = segments(&stream, u32::MAX - 20_000);
    let count = packets.len();
    for index in (1..count - 4).step_by(3) {
        packets.swap(index, index + 2);
    }
    let repeated = packets[5].clone();
    packets.insert(20, repeated);
    let start = (u32::MAX - 20_000).wrapping_add(1 + 500);
    packets.insert(30, sent(start, '-', &stream[500..2_700]));
    let (_, tally) = lines_of(&pcap(&packets));
    assert_eq!(tally, counted(120, 0, 0));
}

#[test]
fn two_directions_do_not_mix() {
    let all = frames();
    let half = all.len() / 2;
    let there = segments(&all[..half].concat(), 5);
    let mut back = vec![packet(SERVER, CLIENT, 900, 'S', &[])];
    let mut sequence = 901;
    for payload in all[half..].concat().chunks(300) {
        back.push(packet(SERVER, CLIENT, sequence, '-', payload));
        sequence += payload.len() as u32;
    }
    let mut mixed = Vec::new();
    let (mut there, mut back) = (there.into_iter(), back.into_iter());
    loop {
        let before = mixed.len();
        mixed.extend(there.by_ref().take(1));
        mixed.extend(back.by_ref().take(2));
        if mixed.len() == before {
            break;
        }
    }
    let (lines, tally) = lines_of(&pcap(&mixed));
    assert_eq!(tally, counted(120, 0, 0));
    let back = lines
        .iter()
        .filter(|line| line.contains("10.0.0.2:9090 > 10.0.0.1:44000"));
    assert_eq!(back.count(), 60);
}

#[test]
fn a_missing_packet_is_told_and_the_frames_behind_it_are_found() {
    let mut packets = segments(&frames().concat(), 5);
    packets.remove(10);
    let (lines, tally) = lines_of(&pcap(&packets));
    assert!(tally.frames >= 112, "{tally}");
    assert_eq!(tally.refused, 0);
    let gaps: Vec<_> = lines.iter().filter(|line| line.contains("gap: ")).collect();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert!(gaps[0].ends_with("gap: 1000 bytes missing"), "{}", gaps[0]);
}

#[test]
fn a_capture_that_starts_in_the_middle_of_a_connection_finds_the_next_frame() {
    let packets = segments(&frames().concat(), 5);
    let (lines, tally) = lines_of(&pcap(&packets[8..]));
    assert!(tally.frames > 80, "{tally}");
    assert!(
        lines[0].contains("bytes skipped: no frame starts here"),
        "{}",
        lines[0]
    );
}

#[test]
fn a_port_can_be_chosen() {
    let mut packets = segments(&frames()[..10].concat(), 5);
    let other = ([10, 0, 0, 3], 443);
    packets.push(packet(CLIENT, other, 1, 'S', &[]));
    packets.push(packet(CLIENT, other, 2, '-', &[0x16; 900]));
    let (_, tally) = lines_of(&pcap(&packets));
    assert_eq!(tally, counted(10, 0, 1));
    let mut args = arguments(false);
    args.port = vec![9_090];
    assert_eq!(lines_with(&args, &pcap(&packets)).1, counted(10, 0, 0));
}

#[test]
fn a_file_that_is_cut_anywhere_shows_what_is_there() {
    let packets = segments(&frames()[..12].concat(), 5);
    for file in [pcap(&packets), pcapng(&packets)] {
        for length in (4..file.len()).step_by(37) {
            let (_, tally) = lines_of(&file[..length]);
            assert!(
                tally.frames <= 12 && tally.refused == 0,
                "{length}: {tally}"
            );
        }
        let (lines, tally) = lines_of(&file[..file.len() - 7]);
        assert_eq!(tally.frames, 12);
        assert!(
            lines[12].contains("the capture file is broken"),
            "{}",
            lines[12]
        );
    }
}

#[test]
fn damage_anywhere_in_a_file_does_not_stop_the_program() {
    let packets = segments(&frames()[..12].concat(), 5);
    for file in [pcap(&packets), pcapng(&packets)] {
        for at in 0..file.len().min(4_000) {
            let mut broken = file.clone();
            broken[at] ^= 0x91;
            let (_, tally) = lines_of(&broken);
            assert!(tally.frames <= 13, "{at}: {tally}");
        }
    }
}

#[test]
fn packets_that_are_not_tcp_are_counted() {
    let mut packets = segments(&frames()[..3].concat(), 5);
    let mut datagram = Vec::new();
    let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9);
    builder
        .udp(1, 2)
        .write(&mut datagram, &[1, 2, 3])
        .expect("a vector takes it");
    packets.push(datagram);
    let (lines, tally) = lines_of(&pcap(&packets));
    assert_eq!(tally, counted(3, 0, 1));
    assert_eq!(lines[3], "end          ! 1 packets are not TCP");
}

#[test]
fn every_link_type_is_unwrapped() {
    use pcap_parser::Linktype;
    let ethernet = sent(9, '-', b"abc");
    let ip = &ethernet[14..];
    let cooked = |length: usize, at: usize| {
        let mut packet = vec![0; length];
        packet[at..at + 2].copy_from_slice(&[8, 0]);
        [packet, ip.to_vec()].concat()
    };
    let cases = [
        (Linktype::ETHERNET, ethernet.clone()),
        (Linktype::RAW, ip.to_vec()),
        (Linktype::NULL, [&[2, 0, 0, 0], ip].concat()),
        (Linktype::LINUX_SLL, cooked(16, 14)),
        (Linktype::LINUX_SLL2, cooked(20, 0)),
    ];
    for (link, packet) in cases {
        let sliced = slice(link, &packet).expect("known");
        let Some(etherparse::TransportSlice::Tcp(tcp)) = sliced.transport else {
            panic!("{link:?} is not unwrapped");
        };
        assert_eq!(tcp.payload(), b"abc");
    }
    assert!(slice(Linktype(147), &ethernet).is_none());
}

/// Segments that never join up: what waits is bounded, and what comes is found.
#[test]
fn early_segments_do_not_pile_up() {
    let frame = &frames()[3];
    let address = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
    let direction = (address(1), address(2));
    let mut reassembly = Reassembly::new(1 << 20);
    let mut found = 0;
    let mut gaps = 0;
    let mut sink = |_: super::super::tcp::Direction, event: Event<'_>| match event {
        Event::Found(_) => found += 1,
        Event::Gap(_) => gaps += 1,
        Event::GivenUp => panic!("far below the limit"),
    };
    let syn = Segment {
        sequence: 0,
        syn: true,
        last: false,
        payload: &[],
    };
    reassembly.segment(direction, syn, &mut sink);
    for index in 1..40_000_u32 {
        let segment = Segment {
            sequence: index * 300,
            syn: false,
            last: false,
            payload: frame,
        };
        reassembly.segment(direction, segment, &mut sink);
        assert!(reassembly.memory() < 6 * 1024 * 1024);
    }
    reassembly.finish(&mut sink);
    assert_eq!(found, 39_999);
    assert_eq!(gaps, 39_999);
}
