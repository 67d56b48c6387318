//! Every frame a provider makes: the refusal, the descriptor, the chunk.

use biplane_wire::{Command, Message, StateChunkHeader, StateTransferTargetHeader};

use super::offer::Ticket;
use super::{ProvideOutput, Provider, ProviderView};

impl Provider {
    pub(super) fn send_refusal(
        &self,
        ticket: &Ticket,
        transient: bool,
        view: ProviderView,
        out: &mut Vec<ProvideOutput>,
    ) {
        let mut header = self.target_header(ticket, view);
        header.set_refusal(transient);
        let message = Message::sealed(header, &[]);
        out.push(ProvideOutput::Send {
            to: ticket.replica,
            message,
        });
    }

    pub(super) fn target_header(
        &self,
        ticket: &Ticket,
        view: ProviderView,
    ) -> StateTransferTargetHeader {
        let mut header = StateTransferTargetHeader::new(Command::StateTransferTarget);
        header.frame.set_cluster(self.config.cluster);
        header.frame.set_replica(self.config.replica);
        header.frame.set_view(view.view);
        header.set_nonce(ticket.nonce);
        header.set_group(ticket.group);
        header.set_commit_max(view.commit_max);
        header
    }

    pub(super) fn chunk(
        &self,
        ticket: &Ticket,
        artifact: u32,
        offset: u64,
        bytes: &[u8],
    ) -> Message {
        let mut header = StateChunkHeader::new(Command::StateChunk);
        header.frame.set_cluster(self.config.cluster);
        header.frame.set_replica(self.config.replica);
        header.set_nonce(ticket.nonce);
        header.set_group(ticket.group);
        header.set_artifact(artifact);
        header.set_offset(offset);
        Message::sealed(header, bytes)
    }
}
