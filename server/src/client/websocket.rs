//! WebSocket: each frame of the protocol is one Binary message (chapter 07 section 12.2).
//!
//! A message whose length is not what its header says, and a Text message, end the connection.
//! Pings are answered by the library. A reply above the frame limit goes out in fragments, since
//! clients refuse large frames before they refuse large messages.

use std::io;

use async_tungstenite::tungstenite::protocol::frame::Frame;
use async_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use async_tungstenite::tungstenite::{Bytes, Error, Message, protocol::WebSocketConfig};
use async_tungstenite::{WebSocketReceiver, WebSocketSender, accept_async_with_config};
use biplane_wire::{Deframer, HEADER_SIZE};
use futures::{AsyncRead, AsyncWrite, SinkExt as _, StreamExt as _};
use tracing::debug;

use super::reply::ClientFrame;
use crate::config::{ConfigSize, WebSocket};
use crate::vectored::Slices as _;

/// Where the header of a frame says its size.
const SIZE_AT: std::ops::Range<usize> = 48..52;
/// Bytes read at once where the file says nothing. Each connection has a buffer of this size.
const READ_BUFFER_SIZE: u64 = 16 << 10;
/// Bytes gathered before a write where the file says nothing.
const WRITE_BUFFER_SIZE: u64 = 128 << 10;
/// Largest message of a client where the file says nothing.
const MESSAGE_SIZE_MAX: u64 = 64 << 20;
/// Largest WebSocket frame, of a client and of a reply, where the file says nothing: what the Rust
/// client accepts.
const FRAME_SIZE_MAX: u64 = 16 << 20;

/// A connection that did not become a WebSocket.
pub(crate) type Refused = Box<Error>;

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

type Stream = Box<dyn Duplex>;

/// Sizes of a listener, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    config: WebSocketConfig,
    fragment: usize,
}

impl Limits {
    /// What the section says. `message_size_max` is that of every transport.
    pub(crate) fn of(section: &WebSocket, message_size_max: u64) -> Self {
        let or =
            |size: Option<ConfigSize>, other: u64| ConfigSize(size.map_or(other, |size| size.0));
        let message = or(
            section.max_message_size,
            MESSAGE_SIZE_MAX.min(message_size_max),
        );
        let frame = or(section.max_frame_size, FRAME_SIZE_MAX.min(message.0));
        let write = or(section.write_buffer_size, WRITE_BUFFER_SIZE);
        let config = WebSocketConfig::default()
            .read_buffer_size(or(section.read_buffer_size, READ_BUFFER_SIZE).as_usize())
            .write_buffer_size(write.as_usize())
            .max_write_buffer_size(or(section.max_write_buffer_size, u64::MAX).as_usize())
            .max_message_size(Some(message.as_usize()))
            .max_frame_size(Some(frame.as_usize()))
            .accept_unmasked_frames(section.accept_unmasked_frames);
        Self {
            config,
            fragment: frame.as_usize(),
        }
    }

    /// Answers the upgrade request; any path is right.
    pub(crate) async fn accept<S>(&self, stream: S) -> Result<(Incoming, Outgoing), Refused>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let stream: Stream = Box::new(stream);
        let socket = accept_async_with_config(stream, Some(self.config))
            .await
            .map_err(Box::new)?;
        let (sink, stream) = socket.split();
        let outgoing = Outgoing {
            sink,
            fragment: self.fragment,
        };
        Ok((Incoming { stream }, outgoing))
    }
}

/// Messages of a client.
pub(crate) struct Incoming {
    stream: WebSocketReceiver<Stream>,
}

impl Incoming {
    /// Takes the next message into `deframer`, which has nothing left then but that one frame.
    /// False when the connection is to end.
    pub(crate) async fn read(&mut self, deframer: &mut Deframer) -> bool {
        loop {
            let message = match self.stream.next().await {
                Some(Ok(message)) => message,
                Some(Err(error)) => {
                    debug!(%error, "a WebSocket ends");
                    return false;
                }
                None => return false,
            };
            match message {
                Message::Binary(bytes) if is_one_frame(&bytes) => {
                    return fill(deframer, &bytes);
                }
                Message::Binary(bytes) => {
                    debug!(
                        length = bytes.len(),
                        "a WebSocket message that is not one frame"
                    );
                    return false;
                }
                // The library has queued the answer.
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Text(_) | Message::Close(_) | Message::Frame(_) => return false,
            }
        }
    }
}

/// Hands one frame to the deframer. A frame that it refuses stays its business: whoever asks it for
/// the next frame is told.
fn fill(deframer: &mut Deframer, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    loop {
        let taken = deframer.push(rest);
        rest = &rest[taken..];
        if rest.is_empty() {
            return true;
        }
        // It makes room for a large frame once it has seen the size.
        match deframer.next() {
            Ok(None) if taken > 0 => {}
            Ok(_) => return false,
            Err(_) => return true,
        }
    }
}

fn is_one_frame(bytes: &[u8]) -> bool {
    let size = bytes.get(SIZE_AT).and_then(|size| size.try_into().ok());
    let size = size.map(u32::from_le_bytes);
    bytes.len() >= HEADER_SIZE
        && size.and_then(|size| usize::try_from(size).ok()) == Some(bytes.len())
}

/// Messages to a client.
pub(crate) struct Outgoing {
    sink: WebSocketSender<Stream>,
    fragment: usize,
}

impl Outgoing {
    /// Writes each frame as a message and flushes once.
    pub(crate) async fn write_batch(&mut self, batch: &[ClientFrame]) -> io::Result<()> {
        for frame in batch {
            let mut slices = Vec::new();
            frame.append(&mut slices);
            let mut bytes = Vec::with_capacity(slices.iter().map(|slice| slice.len()).sum());
            for slice in slices {
                bytes.extend_from_slice(&slice);
            }
            for message in fragments(bytes.into(), self.fragment) {
                self.sink.feed(message).await.map_err(io::Error::other)?;
            }
        }
        self.sink.flush().await.map_err(io::Error::other)
    }

    /// Says goodbye.
    pub(crate) async fn close(&mut self) {
        let _ = self.sink.close(None).await;
    }
}

/// One Binary message in frames of at most `limit` bytes.
fn fragments(bytes: Bytes, limit: usize) -> Vec<Message> {
    if bytes.len() <= limit {
        return vec![Message::Binary(bytes)];
    }
    let mut fragments = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let end = bytes.len().min(start.saturating_add(limit));
        let kind = if start == 0 {
            Data::Binary
        } else {
            Data::Continue
        };
        let part = bytes.slice(start..end);
        let frame = Frame::message(part, OpCode::Data(kind), end == bytes.len());
        fragments.push(Message::Frame(frame));
        start = end;
    }
    fragments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_whole_frame() {
        let mut bytes = vec![0; 300];
        bytes[SIZE_AT].copy_from_slice(&300u32.to_le_bytes());
        assert!(is_one_frame(&bytes));
        assert!(!is_one_frame(&bytes[..299]));
        bytes.push(0);
        assert!(!is_one_frame(&bytes));
        let mut short = vec![0; 255];
        short[SIZE_AT].copy_from_slice(&255u32.to_le_bytes());
        assert!(!is_one_frame(&short));
        assert!(!is_one_frame(&[]));
    }

    #[test]
    fn frames_of_every_size_pass_the_deframer() {
        let mut deframer = Deframer::new(64 << 20);
        for size in [256u32, 257, 4_096, 70_000, 5 << 20, 300] {
            let mut bytes = vec![7; size as usize];
            bytes[SIZE_AT].copy_from_slice(&size.to_le_bytes());
            bytes[60] = 5;
            assert!(fill(&mut deframer, &bytes), "{size}");
            let message = deframer.next().unwrap().expect("a whole frame");
            assert_eq!(message.size(), bytes.len());
            assert!(deframer.next().unwrap().is_none());
        }
        let mut wrong = vec![0; 256];
        wrong[SIZE_AT].copy_from_slice(&256u32.to_le_bytes());
        wrong[60] = 200;
        assert!(fill(&mut deframer, &wrong));
        assert!(
            deframer.next().is_err(),
            "an unknown command ends the stream"
        );
    }

    #[test]
    fn large_replies_are_cut_at_the_limit() {
        let lengths = |length: usize, limit| -> Vec<(usize, bool)> {
            let messages = fragments(Bytes::from(vec![7; length]), limit);
            let part = |message: &Message| match message {
                Message::Binary(bytes) => (bytes.len(), true),
                Message::Frame(frame) => (frame.payload().len(), frame.header().is_final),
                other => panic!("{other:?}"),
            };
            messages.iter().map(part).collect()
        };
        assert_eq!(lengths(10, 10), [(10, true)]);
        assert_eq!(lengths(11, 10), [(10, false), (1, true)]);
        assert_eq!(lengths(30, 10), [(10, false), (10, false), (10, true)]);
    }
}
