//! One prepare on disk: how it is written and what may be believed of it when read.
//!
//! A bare record is the frame itself, header and body, as the peers of this server store it in
//! their metadata log. Its body is vouched for by the body seal in the header, which only the
//! metadata group stamps. A sealed record has eight more bytes, XXH3 of the whole frame, for
//! the groups whose headers say nothing about their bodies.
//!
//! A *damage marker* stands for a prepare that was found damaged when the log was rewritten: a
//! header with a valid identity that names the op, over a body seal that cannot match. Any scan
//! reads it as "this op, content unknown", which is what must not be forgotten.

use std::sync::Arc;

use biplane_wire::{
    Checksum, ClusterId, Command, FRAME_SIZE_MAX_LIMIT, FrameBuffer, GroupId, HEADER_SIZE, Header,
    Message, Op, PrepareHeader, xxh3,
};
use xxhash_rust::xxh3::Xxh3;

use crate::disk::Chunk;

/// Length of the seal behind a sealed record.
pub(crate) const SEAL_BYTES: usize = 8;

/// How prepares stand in a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordForm {
    /// The frame alone (chapter 04 section 5.5.1).
    Bare,
    /// The frame and XXH3 of it.
    Sealed,
}

/// The group a log belongs to: what every record in it must carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogScope {
    /// The cluster.
    pub cluster: ClusterId,
    /// The group.
    pub group: GroupId,
}

impl RecordForm {
    /// Bytes a record has beyond its frame.
    #[must_use]
    pub(crate) fn overhead(self) -> usize {
        match self {
            Self::Bare => 0,
            Self::Sealed => SEAL_BYTES,
        }
    }

    /// Length of the record of a frame of `size` bytes.
    #[must_use]
    pub(crate) fn record_len(self, size: usize) -> u64 {
        (size + self.overhead()) as u64
    }

    /// Appends what is written for `prepare`. Nothing of the frame is copied.
    pub(crate) fn encode(self, prepare: &Message, data: &mut Vec<Chunk>) {
        data.push(Chunk::Frame(prepare.clone()));
        if self == Self::Sealed {
            data.push(seal_chunk(frame_hash(prepare)));
        }
    }

    /// Appends a damage marker for `op`.
    pub(crate) fn encode_marker(self, scope: LogScope, op: Op, data: &mut Vec<Chunk>) {
        let marker = marker(scope, op);
        let hash = frame_hash(&marker);
        data.push(Chunk::Frame(marker));
        if self == Self::Sealed {
            data.push(seal_chunk(!hash));
        }
    }

    /// Whether body and seal, read back behind a trustworthy header, are what was written.
    pub(crate) fn body_is_intact(self, frame: &FrameBuffer, seal: [u8; SEAL_BYTES]) -> bool {
        let sealed = self == Self::Bare || u64::from_le_bytes(seal) == xxh3(frame.bytes());
        sealed
            && frame
                .header::<PrepareHeader>()
                .body_seal_is_valid(frame.body())
    }
}

fn seal_chunk(hash: u64) -> Chunk {
    Chunk::Bytes(Arc::from(hash.to_le_bytes().as_slice()))
}

fn frame_hash(message: &Message) -> u64 {
    let mut hasher = Xxh3::new();
    for slice in message.slices() {
        hasher.update(slice);
    }
    hasher.digest()
}

/// Body seal of every damage marker. Not the seal of an empty body, and not zero, which would
/// mean that nothing is to be checked.
const MARKER_BODY_SEAL: Checksum = Checksum(0x6461_6d61_6765_6421);

const _: () = assert!(MARKER_BODY_SEAL.0 != biplane_wire::checksum::XXH3_EMPTY as u128);

fn marker(scope: LogScope, op: Op) -> Message {
    let mut header = PrepareHeader::new(Command::Prepare);
    header.frame.set_cluster(scope.cluster);
    header.frame.set_checksum_body(MARKER_BODY_SEAL);
    header.set_group(scope.group);
    header.set_op(op);
    header.stamp_identity();
    Message::from_parts(header, &[])
}

/// What 256 bytes at a place where a record may start turn out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFinding {
    /// A prepare of this log.
    Prepare,
    /// An authentic prepare of another cluster or group: the file is not what its name says.
    Foreign,
    /// Anything else.
    Invalid,
}

/// Looks at a possible header. Only an identity that matches makes the other fields believable,
/// so a header that carries none is not believed.
pub(crate) fn inspect_header(bytes: &[u8; HEADER_SIZE], scope: LogScope) -> HeaderFinding {
    let header = PrepareHeader::over(bytes);
    let plausible_size = (HEADER_SIZE as u32..=FRAME_SIZE_MAX_LIMIT).contains(&header.frame.size());
    if header.frame.command_byte() != Command::Prepare.as_u8()
        || !plausible_size
        || header.op() == Op::ZERO
        || header.frame.checksum().is_zero()
        || header.frame.checksum() != header.identity()
    {
        return HeaderFinding::Invalid;
    }
    if header.frame.cluster() != scope.cluster || header.group() != scope.group {
        return HeaderFinding::Foreign;
    }
    HeaderFinding::Prepare
}

/// A cheap test that every header of this log passes, to find one again after damage.
pub(crate) fn may_be_header(bytes: &[u8; HEADER_SIZE], scope: LogScope) -> bool {
    let header = PrepareHeader::over(bytes);
    header.frame.cluster() == scope.cluster
        && header.frame.command_byte() == Command::Prepare.as_u8()
        && header.group() == scope.group
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: LogScope = LogScope {
        cluster: ClusterId(7),
        group: GroupId::METADATA,
    };

    fn prepare(body: &[u8]) -> Message {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.frame.set_cluster(SCOPE.cluster);
        header.set_group(SCOPE.group);
        header.set_op(Op(9));
        biplane_wire::prepare::build_with_body(header, body)
    }

    fn bytes_of(form: RecordForm, message: &Message) -> Vec<u8> {
        let mut data = Vec::new();
        form.encode(message, &mut data);
        data.iter()
            .flat_map(Chunk::slices)
            .flatten()
            .copied()
            .collect()
    }

    #[test]
    fn a_bare_record_is_the_frame() {
        let message = prepare(b"body");
        assert_eq!(bytes_of(RecordForm::Bare, &message), message.to_vec());
        assert_eq!(bytes_of(RecordForm::Sealed, &message).len(), 256 + 4 + 8);
    }

    #[test]
    fn a_replaced_header_is_written_and_sealed_as_it_is_sent() {
        let message = prepare(b"body").prepare_in_view(biplane_wire::View(4));
        let bytes = bytes_of(RecordForm::Sealed, &message);
        let (frame, seal) = bytes.split_at(bytes.len() - SEAL_BYTES);
        assert_eq!(frame, message.to_vec());
        let frame = FrameBuffer::from_bytes(frame).unwrap();
        assert!(RecordForm::Sealed.body_is_intact(&frame, seal.try_into().unwrap()));
    }

    #[test]
    fn a_marker_names_its_op_and_is_never_intact() {
        for form in [RecordForm::Bare, RecordForm::Sealed] {
            let mut data = Vec::new();
            form.encode_marker(SCOPE, Op(12), &mut data);
            let bytes: Vec<u8> = data
                .iter()
                .flat_map(Chunk::slices)
                .flatten()
                .copied()
                .collect();
            assert_eq!(bytes.len() as u64, form.record_len(HEADER_SIZE));
            let header: &[u8; HEADER_SIZE] = bytes.first_chunk().unwrap();
            assert_eq!(inspect_header(header, SCOPE), HeaderFinding::Prepare);
            assert_eq!(PrepareHeader::over(header).op(), Op(12));
            let frame = FrameBuffer::from_bytes(&bytes[..HEADER_SIZE]).unwrap();
            let seal = bytes.last_chunk::<SEAL_BYTES>().unwrap();
            assert!(!form.body_is_intact(&frame, *seal));
        }
    }

    #[test]
    fn headers_are_believed_only_with_a_matching_identity() {
        let good = *prepare(b"x").header_bytes();
        assert_eq!(inspect_header(&good, SCOPE), HeaderFinding::Prepare);
        for byte in 0..HEADER_SIZE {
            let mut flipped = good;
            flipped[byte] ^= 1;
            // The view is outside the identity: a retransmission may change it.
            let wanted = if (52..56).contains(&byte) {
                HeaderFinding::Prepare
            } else {
                HeaderFinding::Invalid
            };
            assert_eq!(inspect_header(&flipped, SCOPE), wanted, "byte {byte}");
        }
        let elsewhere = LogScope {
            cluster: ClusterId(8),
            ..SCOPE
        };
        assert_eq!(inspect_header(&good, elsewhere), HeaderFinding::Foreign);
        assert!(!may_be_header(&good, elsewhere));
        let mut unsealed = good;
        unsealed[..16].fill(0);
        assert_eq!(inspect_header(&unsealed, SCOPE), HeaderFinding::Invalid);
        assert_eq!(
            inspect_header(&[0; HEADER_SIZE], SCOPE),
            HeaderFinding::Invalid
        );
    }
}
