//! Captures as text: lines of hex, JSON lines with frames in hex, or one JSON document.
//!
//! In JSON every string that is hex and at least a header long holds frames, whatever its key.

use std::fmt;
use std::io::{self, BufRead, Read, Write};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::printer::Printer;
use super::stream::Splitter;

/// Hex digits of the shortest frame.
const DIGITS_MIN: usize = 2 * biplane_wire::HEADER_SIZE;

/// Reads and prints lines of text.
pub(super) fn walk(mut input: impl BufRead, printer: &mut Printer<impl Write>) -> io::Result<()> {
    // A line holds a few frames at most; as JSON also their names.
    let length_max = 4 * u64::from(printer.options().size_max) + 64 * 1024;
    let mut unread = Unread::default();
    let mut line = Vec::new();
    let mut number = 0_u64;
    loop {
        number += 1;
        line.clear();
        if input
            .by_ref()
            .take(length_max)
            .read_until(b'\n', &mut line)?
            == 0
        {
            break;
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == length_max {
            printer.note(&place(number, ""), &"the line is too long");
            skip_line(&mut input)?;
            continue;
        }
        let text = line.trim_ascii();
        match text {
            [] | [b'#', ..] => {}
            [b'{' | b'[', ..] => match serde_json::from_slice::<Strings>(text) {
                Ok(strings) => {
                    unread.tell(printer);
                    print_strings(number, &strings, printer);
                }
                Err(error) if error.is_eof() => {
                    // A document over many lines; it ends the lines.
                    unread.tell(printer);
                    input.take(length_max).read_to_end(&mut line)?;
                    print_document(number, &line, printer);
                    break;
                }
                Err(error) => {
                    unread.tell(printer);
                    printer.note(&place(number, ""), &format_args!("broken JSON: {error}"));
                }
            },
            text => match decode_hex(text) {
                Some(bytes) => {
                    unread.tell(printer);
                    print_bytes(&place(number, ""), &bytes, printer);
                }
                None => unread.add(number),
            },
        }
        printer.check()?;
    }
    unread.tell(printer);
    printer.check()
}

/// Lines in a row that are neither hex nor JSON, told once.
#[derive(Default)]
struct Unread {
    lines: Option<(u64, u64)>,
}

impl Unread {
    fn add(&mut self, number: u64) {
        let first = self.lines.map_or(number, |(first, _)| first);
        self.lines = Some((first, number));
    }

    fn tell(&mut self, printer: &mut Printer<impl Write>) {
        let Some((first, last)) = self.lines.take() else {
            return;
        };
        let text = "neither hex nor JSON";
        if first == last {
            printer.note(&place(first, ""), &text);
        } else {
            printer.note(&place(first, ""), &format_args!("to line {last}: {text}"));
        }
    }
}

/// A line, and the key of the string in it.
fn place(number: u64, key: &str) -> String {
    match key {
        "" | "hex" => format!("line {number}"),
        key => format!("line {number} {key}"),
    }
}

fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = input.fill_buf()?;
        let (count, ended) = match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (bytes.len(), bytes.is_empty()),
        };
        input.consume(count);
        if ended {
            return Ok(());
        }
    }
}

fn print_strings(number: u64, strings: &Strings, printer: &mut Printer<impl Write>) {
    if strings.0.is_empty() {
        printer.note(&place(number, ""), &"JSON without a frame in hex");
    }
    for (key, bytes) in &strings.0 {
        print_bytes(&place(number, key), bytes, printer);
    }
}

fn print_document(number: u64, text: &[u8], printer: &mut Printer<impl Write>) {
    for value in serde_json::Deserializer::from_slice(text).into_iter::<Strings>() {
        match value {
            Ok(strings) => print_strings(number, &strings, printer),
            Err(error) => {
                printer.note(&place(number, ""), &format_args!("broken JSON: {error}"));
                break;
            }
        }
    }
}

fn print_bytes(place: &str, bytes: &[u8], printer: &mut Printer<impl Write>) {
    let mut splitter = Splitter::new(printer.options().size_max);
    let mut print = |found: super::stream::Found<'_>| match found.offset() {
        0 => printer.found(&place, &found),
        offset => printer.found(&format_args!("{place} @{offset}"), &found),
    };
    splitter.feed(bytes, &mut print);
    splitter.finish(&mut print);
}

/// Hex digits with blanks and colons between them.
fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut high = None;
    for byte in text {
        if byte.is_ascii_whitespace() || *byte == b':' {
            continue;
        }
        let digit = char::from(*byte).to_digit(16)? as u8;
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push(high << 4 | digit),
        }
    }
    (high.is_none() && !bytes.is_empty()).then_some(bytes)
}

/// The strings of a JSON value that may be frames, in the order they stand, with their keys.
struct Strings(Vec<(String, Vec<u8>)>);

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Collect)
    }
}

struct Collect;

impl<'de> Visitor<'de> for Collect {
    type Value = Strings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<Strings, E> {
        let long = text.len() >= DIGITS_MIN;
        let bytes = long.then(|| decode_hex(text.as_bytes())).flatten();
        Ok(Strings(
            bytes
                .map(|bytes| (String::new(), bytes))
                .into_iter()
                .collect(),
        ))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strings, A::Error> {
        let mut found = Vec::new();
        while let Some((key, Strings(strings))) = map.next_entry::<String, Strings>()? {
            for (inner, bytes) in strings {
                let name = if inner.is_empty() { key.clone() } else { inner };
                found.push((name, bytes));
            }
        }
        Ok(Strings(found))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Strings, A::Error> {
        let mut found = Vec::new();
        while let Some(Strings(strings)) = list.next_element()? {
            found.extend(strings);
        }
        Ok(Strings(found))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Strings, E> {
        Ok(Strings(Vec::new()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Strings, E> {
        Ok(Strings(Vec::new()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Strings, E> {
        Ok(Strings(Vec::new()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Strings, E> {
        Ok(Strings(Vec::new()))
    }

    fn visit_unit<E>(self) -> Result<Strings, E> {
        Ok(Strings(Vec::new()))
    }
}
