//! Reads the body of a poll reply by the byte layout alone (chapter 07 sections 8.11 and 8.12) and
//! refuses what a client must refuse: wrong checksums, counts and gaps in the reserved bytes.

use biplane_wire::xxh3;

const BATCH_HEADER: usize = 256;
const FRAME_HEADER: usize = 48;

/// One message as one node holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawMessage {
    pub(crate) offset: u64,
    pub(crate) id: u128,
    pub(crate) payload: Vec<u8>,
    pub(crate) headers: Vec<u8>,
}

/// A poll reply.
#[derive(Debug)]
pub(crate) struct RawPolled {
    pub(crate) partition: u32,
    pub(crate) current_offset: u64,
    pub(crate) messages: Vec<RawMessage>,
}

/// Takes fields from the front of a body.
#[derive(Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or_else(|| format!("{count} bytes wanted, {} left", self.0.len()))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)
            .map(|bytes| bytes.try_into().expect("N bytes were taken"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, String> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, String> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, String> {
        self.array().map(u128::from_le_bytes)
    }

    /// A text with a length of four bytes.
    pub(crate) fn text(&mut self) -> Result<String, String> {
        let length = self.u32()? as usize;
        String::from_utf8(self.take(length)?.to_vec()).map_err(|error| error.to_string())
    }
}

impl RawPolled {
    /// Reads a whole body.
    ///
    /// # Errors
    /// A sentence that names the batch and what is wrong with it.
    pub(crate) fn decode(body: &[u8]) -> Result<Self, String> {
        let mut fields = Fields(body);
        let partition = fields.u32()?;
        let current_offset = fields.u64()?;
        let count = fields.u32()? as usize;
        let mut messages = Vec::with_capacity(count);
        while !fields.0.is_empty() {
            let at = body.len() - fields.0.len();
            batch(&mut fields, &mut messages)
                .map_err(|reason| format!("batch at byte {at} of the reply: {reason}"))?;
        }
        if messages.len() != count {
            return Err(format!(
                "the head says {count} messages, there are {}",
                messages.len()
            ));
        }
        Ok(Self {
            partition,
            current_offset,
            messages,
        })
    }
}

fn batch(fields: &mut Fields<'_>, messages: &mut Vec<RawMessage>) -> Result<(), String> {
    let header = fields.take(BATCH_HEADER)?;
    let mut head = Fields(header);
    head.u64()?;
    let base_offset = head.u64()?;
    head.take(16)?;
    let length = usize::try_from(head.u64()?).map_err(|error| error.to_string())?;
    let checksum = head.u64()?;
    let count = head.u32()?;
    if head.0.iter().any(|byte| *byte != 0) {
        return Err("bytes 52..256 of the header are not zero".to_owned());
    }
    let frames = length
        .checked_sub(BATCH_HEADER)
        .ok_or("length below the header's")?;
    let mut frames = Fields(fields.take(frames)?);
    // Partition, offsets, times and length, then the count, then each frame's checksum.
    let mut covered = [&header[..40], &header[48..52]].concat();
    for _ in 0..count {
        covered.extend_from_slice(frames.0.get(..8).ok_or("a frame without checksum")?);
        messages.push(frame(&mut frames, base_offset)?);
    }
    if !frames.0.is_empty() {
        return Err(format!(
            "{} bytes after the last of {count} frames",
            frames.0.len()
        ));
    }
    let computed = xxh3(&covered);
    if computed != checksum {
        return Err(format!(
            "batch checksum {checksum:016x}, computed {computed:016x}"
        ));
    }
    Ok(())
}

fn frame(frames: &mut Fields<'_>, base_offset: u64) -> Result<RawMessage, String> {
    let all = frames.0;
    let checksum = frames.u64()?;
    let id = frames.u128()?;
    let offset = base_offset + u64::from(frames.u32()?);
    frames.u32()?;
    let headers_length = frames.u32()? as usize;
    let payload_length = frames.u32()? as usize;
    if frames.u64()? != 0 {
        return Err(format!("offset {offset}: reserved bytes are not zero"));
    }
    let payload = frames.take(payload_length)?.to_vec();
    let headers = frames.take(headers_length)?.to_vec();
    let computed = xxh3(&all[8..FRAME_HEADER + payload_length + headers_length]);
    if computed != checksum {
        return Err(format!(
            "offset {offset}: checksum {checksum:016x}, computed {computed:016x}"
        ));
    }
    Ok(RawMessage {
        offset,
        id,
        payload,
        headers,
    })
}
