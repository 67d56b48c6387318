//! Chunks: what a peer asks for, and what it will ask for next.
//!
//! A receiver pulls in lockstep, so what it wants after a chunk is known. While that chunk
//! travels and is taken in at the other end, the next ones are read and made ready here: a block
//! of several at once, because storage gives large pieces more quickly, and one block ahead of
//! the one that is being sent. One that fails to be read ahead is no failure: it is read again
//! when it is asked for.

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
        let per_block = self.config.limits.chunks_per_block();
        let may_serve = self.allowance != Some(0);
        let Some(offer) = self.offer_of(ticket) else {
            return;
        };
        offer.delayed = (!may_serve).then_some((place, want));
        if !may_serve {
            return;
        }
        let chain = offer.chain(place, want, most, 2 * per_block);
        offer.pieces.retain(|piece| chain.contains(&piece.place));
        let at = offer.pieces.iter().position(|piece| piece.place == place);
        let ready = at.and_then(|at| {
            // A request repeated while its bytes are being read is answered by that read.
            offer.pieces[at].wanted = true;
            let chunk = offer.pieces[at].chunk.take()?;
            offer.pieces.swap_remove(at);
            Some(chunk)
        });
        let is_sent = ready.is_some();
        if let Some(chunk) = ready {
            self.send_piece(ticket, place, chunk, out);
        }
        self.spend(u64::from(place.len));
        let missing = self.missing(ticket, &chain[usize::from(is_sent)..]);
        // Behind the last piece there is nothing more to wait for.
        let is_end = chain.len() < 2 * per_block;
        for (index, run) in missing.iter().enumerate() {
            for block in run.chunks(per_block) {
                let is_open = index + 1 == missing.len() && !is_end && run.ends_with(block);
                if block.len() == per_block || !is_open || block[0] == place {
                    self.read_block(ticket, place, block, want, out);
                }
            }
        }
    }

    /// Pieces that are neither there nor being read, grouped where they follow each other within an
    /// artifact.
    fn missing(&mut self, ticket: &Ticket, chain: &[Place]) -> Vec<Vec<Place>> {
        let Some(offer) = self.offer_of(ticket) else {
            return Vec::new();
        };
        let mut runs: Vec<Vec<Place>> = Vec::new();
        let mut last: Option<Place> = None;
        for place in chain {
            if offer.pieces.iter().any(|piece| piece.place == *place) {
                last = None;
                continue;
            }
            match runs.last_mut() {
                Some(run) if last.is_some_and(|last| last.artifact == place.artifact) => {
                    run.push(*place);
                }
                _ => runs.push(vec![*place]),
            }
            last = Some(*place);
        }
        runs
    }

    /// Reads pieces that follow each other; `wanted` is the one that was asked for.
    fn read_block(
        &mut self,
        ticket: &Ticket,
        wanted: Place,
        block: &[Place],
        want: u32,
        out: &mut Vec<ProvideOutput>,
    ) {
        let (Some(offer), Some(&first)) = (self.offer_of(ticket), block.first()) else {
            return;
        };
        let plan = offer.plan(first.artifact, first.offset, first.len, first.len);
        let ChunkPlan::Read { kind, frontier, .. } = plan else {
            return;
        };
        offer.pieces.extend(block.iter().map(|place| Piece {
            place: *place,
            wanted: *place == wanted,
            chunk: None,
        }));
        let len = block.iter().map(|place| place.len).sum();
        let ticket = *ticket;
        let purpose = Purpose::Chunks {
            first,
            want,
            ticket,
        };
        let key = (ticket.group, kind, frontier);
        self.read(key, first.offset, len, purpose, out);
    }

    /// The bytes of pieces that follow each other came from storage, or did not.
    pub(super) fn on_block(
        &mut self,
        ticket: &Ticket,
        (first, want, len): (Place, u32, u32),
        result: Result<&[u8], ReadError>,
        out: &mut Vec<ProvideOutput>,
    ) {
        let limits = self.config.limits;
        let Some(offer) = self.offer_of(ticket) else {
            return;
        };
        let end = first.offset.saturating_add(u64::from(len));
        let is_inside = |place: &Place| place.artifact == first.artifact && place.offset < end;
        let places = offer.chain(first, want, limits.chunk_bytes, limits.chunks_per_block());
        let mut rest = result;
        for place in places.into_iter().take_while(is_inside) {
            let split = rest.and_then(|bytes| {
                let split = bytes.split_at_checked(place.len as usize);
                split.ok_or(ReadError::Changed)
            });
            rest = split.map(|(_, rest)| rest);
            self.on_piece(ticket, place, split.map(|(piece, _)| piece), out);
        }
    }

    fn on_piece(
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
