//! A connection in two halves, with TLS or without: the rest of the server reads and writes bytes
//! and does not ask which.
//!
//! Both halves of a plain connection are the socket itself. The halves of a TLS connection share
//! the session behind a lock that is held for one poll only, so a writer that waits for a slow peer
//! does not keep the reader from reading.

use std::io;

use futures::io::{ReadHalf, WriteHalf};
use futures::{AsyncReadExt as _, AsyncWriteExt as _};
use futures_rustls::TlsStream;

use crate::runtime::TcpStream;
use crate::vectored::{self, Slices};

/// Bytes of a connection that tell a TLS record from a frame.
const OPENING_LENGTH: usize = 3;

/// The reading half.
pub(crate) enum Reader {
    /// Bare TCP.
    Plain {
        /// The socket.
        socket: TcpStream,
        /// The first bytes that arrived.
        opening: Opening,
        /// The last read took all there was.
        drained: bool,
    },
    /// Inside TLS.
    Tls(ReadHalf<TlsStream<TcpStream>>),
}

/// The writing half.
pub(crate) enum Writer {
    /// Bare TCP.
    Plain(TcpStream),
    /// Inside TLS.
    Tls(WriteHalf<TlsStream<TcpStream>>),
}

/// Splits a plain connection.
pub(crate) fn plain(socket: TcpStream) -> (Reader, Writer) {
    let reader = Reader::Plain {
        socket: socket.clone(),
        opening: Opening::default(),
        drained: false,
    };
    (reader, Writer::Plain(socket))
}

/// Splits a TLS connection.
pub(crate) fn tls(stream: TlsStream<TcpStream>) -> (Reader, Writer) {
    let (reader, writer) = stream.split();
    (Reader::Tls(reader), Writer::Tls(writer))
}

/// The first bytes of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Opening {
    bytes: [u8; OPENING_LENGTH],
    seen: usize,
}

impl Opening {
    fn saw(&mut self, bytes: &[u8]) {
        let room = &mut self.bytes[self.seen..];
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        self.seen += count;
    }

    /// A handshake record or an alert of TLS, any version. A handshake frame of ours begins with
    /// zeros.
    fn is_tls(self) -> bool {
        matches!(self.bytes, [0x15 | 0x16, 3, 0..=4]) && self.seen == OPENING_LENGTH
    }
}

impl Reader {
    /// Reads some bytes; 0 is the end of the stream.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain {
                socket,
                opening,
                drained,
            } => {
                let count = socket.read_some(buffer, drained).await?;
                opening.saw(&buffer[..count]);
                Ok(count)
            }
            Self::Tls(half) => half.read(buffer).await,
        }
    }

    /// True when a plain connection began like TLS does: the two ends are configured differently.
    pub(crate) fn opened_like_tls(&self) -> bool {
        match self {
            Self::Plain { opening, .. } => opening.is_tls(),
            Self::Tls(_) => false,
        }
    }
}

impl Writer {
    /// Writes one handshake frame and flushes it, so that it does not wait in a record for the
    /// next.
    pub(crate) async fn write_flushed(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes).await,
            Self::Tls(half) => {
                half.write_all(bytes).await?;
                half.flush().await
            }
        }
    }

    /// Writes all frames of `batch` in as few system calls as there can be, and flushes once.
    pub(crate) async fn write_batch<S: Slices>(&mut self, batch: &[S]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => vectored::write_all(socket, batch).await,
            Self::Tls(half) => {
                vectored::write_all(half, batch).await?;
                half.flush().await
            }
        }
    }

    /// Says goodbye where the transport has a word for it.
    pub(crate) async fn close(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(half) => half.close().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(parts: &[&[u8]]) -> Opening {
        let mut opening = Opening::default();
        for part in parts {
            opening.saw(part);
        }
        opening
    }

    #[test]
    fn a_tls_record_is_told_from_a_frame_however_it_is_cut() {
        let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
        for cut in 0..hello.len() {
            assert!(opening(&[&hello[..cut], &hello[cut..]]).is_tls(), "{cut}");
        }
        assert!(opening(&[&[0x15, 3, 3, 0, 2, 2, 10]]).is_tls());
        for other in [
            &[0, 0, 0][..],
            &[0x16, 3],
            &[0x17, 3, 3],
            &[0x16, 0x16, 3],
            b"GET ",
            &[],
        ] {
            assert!(!opening(&[other]).is_tls(), "{other:?}");
        }
    }
}
