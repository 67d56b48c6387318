//! Peers are fed as quickly as they ask while there is nothing else to do, and at a bounded rate
//! while there is: clients that wait for a commit come first.

use super::offer::Ticket;
use super::{ProvideOutput, Provider};

impl Provider {
    /// A tick begins: what had to wait goes on, as far as this tick allows.
    pub(super) fn grant(&mut self, load: Option<u64>, out: &mut Vec<ProvideOutput>) {
        // A peer that is fed more slowly than messages come would never catch up.
        let least = self.config.limits.busy_tick_bytes.max(1);
        self.allowance = load.map(|bytes| least.max(bytes.saturating_add(bytes / 4)));
        let offers = self.offers.iter_mut();
        let delayed = offers.filter_map(|(&(group, replica), offer)| {
            let (place, want) = offer.delayed.take()?;
            let nonce = offer.nonce;
            let ticket = Ticket {
                group,
                replica,
                nonce,
            };
            Some((ticket, place, want))
        });
        for (ticket, place, want) in delayed.collect::<Vec<_>>() {
            self.serve_piece(&ticket, place, want, out);
        }
        self.tick_jobs(out);
    }

    /// Takes bytes off what may be read in this tick.
    pub(super) fn spend(&mut self, bytes: u64) {
        if let Some(left) = &mut self.allowance {
            *left = left.saturating_sub(bytes);
        }
    }
}
