//! Writing frames without copying them: whatever a frame is made of goes to the socket as slices,
//! many frames to one system call.

use std::io::{self, IoSlice};

use biplane_wire::Message;
use futures::{AsyncWrite, AsyncWriteExt as _};

/// Slices of one call; the operating system takes at most 1024.
const SLICES_MAX: usize = 1024;

/// A frame as consecutive slices.
pub(crate) trait Slices {
    /// Appends the frame's bytes, in order, to `out`.
    fn append<'a>(&'a self, out: &mut Vec<IoSlice<'a>>);
}

impl Slices for Message {
    fn append<'a>(&'a self, out: &mut Vec<IoSlice<'a>>) {
        match self.contiguous() {
            Some(bytes) => out.push(IoSlice::new(bytes)),
            None => out.extend(
                self.slices()
                    .into_iter()
                    .filter(|slice| !slice.is_empty())
                    .map(IoSlice::new),
            ),
        }
    }
}

/// Writes all frames of `batch`.
///
/// Inside TLS the same call fills whole records from many frames; one write a frame would cost a
/// record and a system call each.
pub(crate) async fn write_all<W, S>(stream: &mut W, batch: &[S]) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
    S: Slices,
{
    let mut slices = Vec::with_capacity(batch.len());
    for frame in batch {
        frame.append(&mut slices);
    }
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        let most = rest.len().min(SLICES_MAX);
        let written = stream.write_vectored(&rest[..most]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}
