//! pcap and pcapng files: packets to TCP segments, per connection and direction.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::{fmt, io};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

use super::printer::Printer;
use super::tcp::{Direction, Event, Reassembly, Segment};

/// Largest record of a capture file.
const RECORD_SIZE_MAX: usize = 4 * 1024 * 1024;

/// An interface of a capture: how its packets begin and how it tells time.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Units of a timestamp in a second.
    resolution: u64,
    offset: u64,
}

/// Packets that are no TCP, counted and told at the end.
#[derive(Default)]
struct Unread {
    other: u64,
    fragments: u64,
    cut: u64,
    unknown_links: u64,
}

struct Walk<'p, W> {
    printer: &'p mut Printer<W>,
    ports: &'p [u16],
    reassembly: Reassembly,
    interfaces: Vec<Interface>,
    /// Microseconds of the first packet.
    first: Option<u64>,
    unread: Unread,
}

/// Why the file cannot be read further.
enum Stop {
    End,
    Refill,
    Broken(&'static str),
}

/// Reads and prints a capture file.
pub(super) fn walk<W: Write>(
    input: impl Read + Send,
    ports: &[u16],
    printer: &mut Printer<W>,
) -> io::Result<()> {
    let reassembly = Reassembly::new(printer.options().size_max);
    let mut walk = Walk {
        printer,
        ports,
        reassembly,
        interfaces: Vec::new(),
        first: None,
        unread: Unread::default(),
    };
    walk.file(input)?;
    walk.finish()
}

impl<W: Write> Walk<'_, W> {
    fn file(&mut self, input: impl Read + Send) -> io::Result<()> {
        let broken = |walk: &mut Self, packet: u64, why: &str| {
            let text = format!("the capture file is broken, it ends here: {why}");
            walk.printer.note(&format_args!("packet {packet}"), &text);
        };
        let mut packet = 0;
        let mut reader = match create_reader(RECORD_SIZE_MAX, input) {
            Ok(reader) => reader,
            Err(error) => {
                broken(self, packet, stop_of(&error).unwrap_or("no file header"));
                return Ok(());
            }
        };
        let mut refills = 0;
        loop {
            let stop = match reader.next() {
                Ok((length, block)) => {
                    refills = 0;
                    packet += u64::from(self.block(block));
                    reader.consume(length);
                    self.printer.check()?;
                    continue;
                }
                Err(PcapError::Eof) => Stop::End,
                Err(PcapError::Incomplete(_)) => Stop::Refill,
                Err(error) => Stop::Broken(stop_of(&error).unwrap_or("not a record")),
            };
            match stop {
                Stop::End => return Ok(()),
                // A record that is not whole after the buffer was filled to its end never is.
                Stop::Refill if refills == 2 => {
                    broken(self, packet + 1, "the last record is cut");
                    return Ok(());
                }
                Stop::Refill => {
                    refills += 1;
                    if let Err(error) = reader.refill() {
                        let why = stop_of(&error).unwrap_or("the last record is cut");
                        broken(self, packet + 1, why);
                        return Ok(());
                    }
                }
                Stop::Broken(why) => {
                    broken(self, packet + 1, why);
                    return Ok(());
                }
            }
        }
    }

    /// Takes a block; whether it is a packet.
    fn block(&mut self, block: PcapBlockOwned<'_>) -> bool {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let nanoseconds = header.is_nanosecond_precision();
                self.interfaces = vec![Interface {
                    link: header.network,
                    resolution: if nanoseconds {
                        1_000_000_000
                    } else {
                        1_000_000
                    },
                    offset: 0,
                }];
                false
            }
            PcapBlockOwned::Legacy(packet) => {
                if let Some(interface) = self.interfaces.first().copied() {
                    let time = micros(packet.ts_sec, packet.ts_usec, interface.resolution);
                    let whole = packet.caplen >= packet.origlen;
                    self.packet(
                        interface.link,
                        time,
                        captured(packet.data, packet.caplen),
                        whole,
                    );
                }
                true
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                self.interfaces.clear();
                false
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(described)) => {
                self.interfaces.push(Interface {
                    link: described.linktype,
                    resolution: described.ts_resolution().unwrap_or(1_000_000).max(1),
                    offset: u64::try_from(described.ts_offset()).unwrap_or(0),
                });
                false
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                if let Some(interface) = self.interfaces.get(packet.if_id as usize).copied() {
                    let (seconds, part) = packet.decode_ts(interface.offset, interface.resolution);
                    let time = micros(seconds, part, interface.resolution);
                    let whole = packet.caplen >= packet.origlen;
                    self.packet(
                        interface.link,
                        time,
                        captured(packet.data, packet.caplen),
                        whole,
                    );
                }
                true
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                if let Some(interface) = self.interfaces.first().copied() {
                    let time = self.first.unwrap_or(0);
                    let data = captured(packet.data, packet.origlen);
                    self.packet(interface.link, time, data, true);
                }
                true
            }
            PcapBlockOwned::NG(_) => false,
        }
    }

    fn packet(&mut self, link: Linktype, time: u64, bytes: &[u8], whole: bool) {
        let first = *self.first.get_or_insert(time);
        let elapsed = time.saturating_sub(first);
        let Some(sliced) = slice(link, bytes) else {
            self.unread.unknown_links += 1;
            return;
        };
        let is_fragment = sliced.net.as_ref().is_some_and(|net| {
            net.ip_payload_ref()
                .is_some_and(|payload| payload.fragmented)
        });
        let addresses = match &sliced.net {
            Some(LaxNetSlice::Ipv4(ip)) => {
                let header = ip.header();
                let (from, to) = (header.source_addr(), header.destination_addr());
                Some((IpAddr::from(from), IpAddr::from(to)))
            }
            Some(LaxNetSlice::Ipv6(ip)) => {
                let header = ip.header();
                let (from, to) = (header.source_addr(), header.destination_addr());
                Some((IpAddr::from(from), IpAddr::from(to)))
            }
            _ => None,
        };
        let (Some((from, to)), Some(TransportSlice::Tcp(tcp))) = (addresses, sliced.transport)
        else {
            match is_fragment {
                true => self.unread.fragments += 1,
                false => self.unread.other += 1,
            }
            return;
        };
        let ports = [tcp.source_port(), tcp.destination_port()];
        if !self.ports.is_empty() && !ports.iter().any(|port| self.ports.contains(port)) {
            return;
        }
        self.unread.cut += u64::from(!whole);
        let direction = (
            SocketAddr::new(from, ports[0]),
            SocketAddr::new(to, ports[1]),
        );
        let segment = Segment {
            sequence: tcp.sequence_number(),
            syn: tcp.syn(),
            last: tcp.fin() || tcp.rst(),
            payload: tcp.payload(),
        };
        let printer = &mut *self.printer;
        let mut print = |direction, event: Event<'_>| say(printer, elapsed, direction, &event);
        self.reassembly.segment(direction, segment, &mut print);
    }

    fn finish(self) -> io::Result<()> {
        let printer = self.printer;
        let mut print = |direction, event: Event<'_>| {
            let place = format!("end {}", Pair(direction));
            say_at(printer, &place, &event);
        };
        self.reassembly.finish(&mut print);
        let Unread {
            other,
            fragments,
            cut,
            unknown_links,
        } = self.unread;
        let counts = [
            (other, "packets are not TCP"),
            (
                fragments,
                "packets are IP fragments, which are not put together",
            ),
            (cut, "packets were captured in part"),
            (
                unknown_links,
                "packets are of a link type this reader does not know",
            ),
        ];
        for (count, what) in counts {
            if count > 0 {
                printer.note(&"end", &format_args!("{count} {what}"));
            }
        }
        printer.check()
    }
}

/// A direction as text.
struct Pair(Direction);

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = self.0;
        write!(f, "{from} > {to}")
    }
}

fn say(printer: &mut Printer<impl Write>, micros: u64, direction: Direction, event: &Event<'_>) {
    let (seconds, part) = (micros / 1_000_000, micros % 1_000_000);
    let place = format!("{seconds:>4}.{part:06} {}", Pair(direction));
    say_at(printer, &place, event);
}

fn say_at(printer: &mut Printer<impl Write>, place: &str, event: &Event<'_>) {
    match event {
        Event::Found(found) => printer.found(&place, found),
        Event::Gap(bytes) => printer.note(&place, &format_args!("gap: {bytes} bytes missing")),
        Event::GivenUp => printer.note(&place, &"unfinished frame given up: out of memory"),
    }
}

/// The headers of a packet by the link type of its interface.
pub(super) fn slice(link: Linktype, bytes: &[u8]) -> Option<LaxSlicedPacket<'_>> {
    let ethertype = |at: usize| {
        let type_bytes = bytes.get(at..at + 2)?.try_into().ok()?;
        Some(EtherType(u16::from_be_bytes(type_bytes)))
    };
    match link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(bytes).ok(),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => LaxSlicedPacket::from_ip(bytes).ok(),
        // Four bytes of address family in front.
        Linktype::NULL | Linktype::LOOP => LaxSlicedPacket::from_ip(bytes.get(4..)?).ok(),
        Linktype::LINUX_SLL => Some(LaxSlicedPacket::from_ether_type(
            ethertype(14)?,
            bytes.get(16..)?,
        )),
        Linktype::LINUX_SLL2 => Some(LaxSlicedPacket::from_ether_type(
            ethertype(0)?,
            bytes.get(20..)?,
        )),
        _ => None,
    }
}

/// The captured part of a record, padding left out.
fn captured(data: &[u8], length: u32) -> &[u8] {
    data.get(..length as usize).unwrap_or(data)
}

fn micros(seconds: u32, part: u32, resolution: u64) -> u64 {
    let part = u128::from(part) * 1_000_000 / u128::from(resolution);
    u64::from(seconds) * 1_000_000 + u64::try_from(part).unwrap_or(0)
}

/// In words what ends the reading of a file.
fn stop_of<I>(error: &PcapError<I>) -> Option<&'static str> {
    Some(match error {
        PcapError::Eof | PcapError::UnexpectedEof | PcapError::Incomplete(_) => {
            "the last record is cut"
        }
        PcapError::BufferTooSmall => "a record is larger than 4 MiB",
        PcapError::ReadError => "it cannot be read",
        PcapError::HeaderNotRecognized => "neither pcap nor pcapng",
        PcapError::NomError(..) | PcapError::OwnedNomError(..) => return None,
    })
}
