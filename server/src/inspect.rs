//! `biplane inspect`: a capture in words, one line a frame.
//!
//! ```text
//!   file or standard input ─► kind? ─┬─ frames ──────────────────────────► stream ─┐
//!                                    ├─ hex or JSON ─► text ─► bytes ────► stream ─┼─► printer
//!                                    └─ pcap, pcapng ─► capture ─► tcp ──► stream ─┘
//! ```
//!
//! Whatever is broken gets a line that says so, and the walk goes on behind it. Memory is bounded
//! by the size of a frame and by constants, not by the input.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use thiserror::Error;

mod body;
mod capture;
mod printer;
mod stream;
mod tcp;
mod text;

pub use printer::Tally;
use printer::{Options, Printer};

/// Arguments of `biplane inspect`.
#[derive(Debug, Clone, Args)]
pub struct InspectArgs {
    /// A file of raw frames, of hex or JSON lines, or a pcap or pcapng capture; - is standard input
    pub file: PathBuf,
    /// Print every header field and what the body holds
    #[arg(long)]
    pub full: bool,
    /// What the input is
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    pub format: Format,
    /// Look only at TCP connections of these ports; may be repeated
    #[arg(long, value_name = "PORT")]
    pub port: Vec<u16>,
    /// Largest frame in bytes
    #[arg(long, default_value_t = biplane_wire::FRAME_SIZE_MAX_DEFAULT)]
    #[arg(value_parser = clap::value_parser!(u32).range(257..=256 * 1024 * 1024))]
    pub size_max: u32,
}

/// What the input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Find out from the first bytes
    Auto,
    /// Frames back to back, as on a TCP connection
    Frames,
    /// A frame in hex on each line, or JSON with frames in hex
    Text,
    /// A pcap or pcapng file
    Pcap,
}

/// Why there is nothing to walk over.
#[derive(Debug, Error)]
pub enum InspectError {
    /// The input cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Input {
        /// Where it was to be read from.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The output cannot be written.
    #[error("cannot write: {0}")]
    Output(#[source] io::Error),
}

/// Runs the command on the standard streams: lines to standard output, the count of frames to
/// standard error.
#[must_use]
pub fn run(args: &InspectArgs) -> ExitCode {
    let output = BufWriter::new(io::stdout().lock());
    match inspect_path(args, output) {
        Ok(tally) => {
            eprintln!("{tally}");
            ExitCode::SUCCESS
        }
        // Whoever read the lines has seen enough.
        Err(InspectError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("biplane: {error}");
            ExitCode::FAILURE
        }
    }
}

fn inspect_path(args: &InspectArgs, output: impl Write) -> Result<Tally, InspectError> {
    if args.file == Path::new("-") {
        return inspect(args, io::stdin(), output);
    }
    let input = |source| InspectError::Input {
        path: args.file.clone(),
        source,
    };
    let file = File::open(&args.file).map_err(input)?;
    inspect(args, file, output)
}

/// Walks over `input` and writes lines to `output`.
///
/// # Errors
///
/// When the input cannot be read or the output not be written; nothing that the input holds is
/// an error.
pub fn inspect(
    args: &InspectArgs,
    input: impl Read + Send,
    output: impl Write,
) -> Result<Tally, InspectError> {
    let options = Options {
        full: args.full,
        size_max: args.size_max,
    };
    let mut printer = Printer::new(options, output);
    let mut input = BufReader::with_capacity(64 * 1024, input);
    let outcome = head(&mut input).and_then(|head| {
        let format = match args.format {
            Format::Auto => recognise(&head),
            chosen => chosen,
        };
        let whole = head.chain(input);
        match format {
            Format::Text => text::walk(BufReader::new(whole), &mut printer),
            Format::Pcap => capture::walk(whole, &args.port, &mut printer),
            Format::Auto | Format::Frames => stream::walk(whole, &mut printer),
        }
    });
    // An error of the output stopped the walk and would come back as one of the input.
    let tally = printer.finish().map_err(InspectError::Output)?;
    outcome
        .map(|()| tally)
        .map_err(|source| InspectError::Input {
            path: args.file.clone(),
            source,
        })
}

/// Bytes looked at to find out what the input is.
const HEAD_SIZE: u64 = 512;

/// The first bytes of the input, to be read again.
fn head(input: &mut impl Read) -> io::Result<io::Cursor<Vec<u8>>> {
    let mut head = Vec::new();
    input.take(HEAD_SIZE).read_to_end(&mut head)?;
    Ok(io::Cursor::new(head))
}

/// A capture has its magic. Text has no zero byte, and a frame has at least 66 of them.
fn recognise(head: &io::Cursor<Vec<u8>>) -> Format {
    let head = head.get_ref().as_slice();
    const MAGICS: [[u8; 4]; 5] = [
        [0xa1, 0xb2, 0xc3, 0xd4],
        [0xd4, 0xc3, 0xb2, 0xa1],
        [0xa1, 0xb2, 0x3c, 0x4d],
        [0x4d, 0x3c, 0xb2, 0xa1],
        [0x0a, 0x0d, 0x0d, 0x0a],
    ];
    match head.first_chunk::<4>() {
        Some(magic) if MAGICS.contains(magic) => Format::Pcap,
        _ if head.contains(&0) => Format::Frames,
        _ => Format::Text,
    }
}

#[cfg(test)]
mod tests;
