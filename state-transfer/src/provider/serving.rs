//! Chunks: what a peer asks for, and what it will ask for next.
//!
//! A receiver pulls in lockstep, so what it wants after a chunk is known. While that chunk
//! travels and is taken in at the other end, the next one is read and made ready here. One chunk
//! per offer is ahead at most, and one that fails to be read ahead is no failure: it is read
//! again when it is asked for.

use biplane_wire::{Message, ReplicaId, RequestStateChunkHeader};

use super::offer::{ChunkPlan, Piece, Place, Ticket};
use super::{ProvideOutput, Provider, ProviderView, Purpose, ReadError};

impl Provider {
    /// RequestStateChunk.
    pub fn on_chunk_request(
        &mut self,
        from: ReplicaId,
        request: &RequestStateChunkHeader,
        view: ProviderView,
        out: &mut Vec<ProvideOutput>,
    ) {
        if from == self.config.replica || from.0 >= self.config.replica_count {
            return;
        }
        let ticket = Ticket {
            group: request.group(),
            replica: from,
            nonce: request.nonce(),
        };
        let (artifact, offset) = (request.artifact(), request.offset());
        let most = self.config.limits.chunk_bytes;
        let has_room = self.admits(ticket.group);
        let Some(offer) = self.offer_of(&ticket) else {
            return self.send_refusal(&ticket, true, view, out);
        };
        if !offer.pulled && !has_room {
            // Others began to pull since it was made.
            self.offers.remove(&(ticket.group, from));
            return self.send_refusal(&ticket, true, view, out);
        }
        offer.pulled = true;
        match offer.plan(artifact, offset, request.length(), most) {
            ChunkPlan::Outside => {}
            ChunkPlan::Bytes(bytes) => {
                let (len, bytes) = (bytes.len() as u64, bytes.to_vec());
                offer.mark_served(artifact, offset, len);
                let chunk = self.chunk(&ticket, artifact, offset, &bytes);
                out.push(ProvideOutput::Send {
                    to: from,
                    message: chunk,
                });
            }
            ChunkPlan::Read { len, .. } => {
                offer.idle = 0;
                let place = Place {
                    artifact,
                    offset,
                    len,
                };
                self.serve_piece(&ticket, place, request.length(), out);
            }
        }
    }

    /// Sends a stored chunk, now or when it is read, and reads the next one.
    pub(super) fn serve_piece(
        &mut self,
        ticket: &Ticket,
        place: Place,
        want: u32,
        out: &mut Vec<ProvideOutput>,
    ) {
        let most = self.config.limits.chunk_bytes;
        let may_serve = self.allowance != Some(0);
        let Some(offer) = self.offer_of(ticket) else {
            return;
        };
        offer.delayed = (!may_serve).then_some((place, want));
        if !may_serve {
            return;
        }
        let next = offer.after(place, want, most);
        offer
            .pieces
            .retain(|piece| piece.place == place || Some(piece.place) == next);
        let at = offer.pieces.iter().position(|piece| piece.place == place);
        let ready = at.and_then(|at| {
            // A request repeated while its bytes are being read is answered by that read.
            offer.pieces[at].wanted = true;
            let chunk = offer.pieces[at].chunk.take()?;
            offer.pieces.swap_remove(at);
            Some(chunk)
        });
        if let Some(chunk) = ready {
            self.send_piece(ticket, place, chunk, out);
        } else if at.is_none() {
            self.read_piece(ticket, place, true, out);
        }
        self.spend(u64::from(place.len));
        if let Some(next) = next {
            self.read_piece(ticket, next, false, out);
        }
    }

    fn read_piece(
        &mut self,
        ticket: &Ticket,
        place: Place,
        wanted: bool,
        out: &mut Vec<ProvideOutput>,
    ) {
        let Some(offer) = self.offer_of(ticket) else {
            return;
        };
        if offer.pieces.iter().any(|piece| piece.place == place) {
            return;
        }
        let Place {
            artifact,
            offset,
            len,
        } = place;
        let ChunkPlan::Read { kind, frontier, .. } = offer.plan(artifact, offset, len, len) else {
            return;
        };
        offer.pieces.push(Piece {
            place,
            wanted,
            chunk: None,
        });
        let ticket = *ticket;
        let purpose = Purpose::Chunk { place, ticket };
        self.read((ticket.group, kind, frontier), offset, len, purpose, out);
    }

    /// The bytes of a chunk came from storage, or did not.
    pub(super) fn on_piece(
        &mut self,
        ticket: &Ticket,
        place: Place,
        result: Result<&[u8], ReadError>,
        out: &mut Vec<ProvideOutput>,
    ) {
        let Some(offer) = self.offer_of(ticket) else {
            return;
        };
        let waiting = |piece: &Piece| piece.place == place && piece.chunk.is_none();
        let Some(at) = offer.pieces.iter().position(waiting) else {
            return;
        };
        let wanted = offer.pieces[at].wanted;
        match result {
            Ok(bytes) => {
                let chunk = self.chunk(ticket, place.artifact, place.offset, bytes);
                let Some(offer) = self.offer_of(ticket) else {
                    return;
                };
                if wanted {
                    offer.pieces.swap_remove(at);
                    self.send_piece(ticket, place, chunk, out);
                } else {
                    offer.pieces[at].chunk = Some(chunk);
                }
            }
            Err(_) if !wanted => {
                offer.pieces.swap_remove(at);
            }
            Err(error) => {
                let view = ProviderView {
                    view: offer.view,
                    commit_max: offer.commit_max,
                };
                self.offers.remove(&(ticket.group, ticket.replica));
                self.hashes.forget_group(ticket.group);
                self.send_refusal(ticket, error == ReadError::Changed, view, out);
            }
        }
    }

    fn send_piece(
        &mut self,
        ticket: &Ticket,
        place: Place,
        chunk: Message,
        out: &mut Vec<ProvideOutput>,
    ) {
        if let Some(offer) = self.offer_of(ticket) {
            offer.mark_served(place.artifact, place.offset, u64::from(place.len));
        }
        out.push(ProvideOutput::Send {
            to: ticket.replica,
            message: chunk,
        });
    }
}
