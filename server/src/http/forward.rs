//! Who answers: this node, the metadata primary, or whoever leads the partition (chapter 08
//! section 6).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use biplane_wire::{ErrorCode, ReplicaId};

use super::Web;
use super::answer::Answer;
use super::call::{Call, Caller, Head};
use super::peer::{Handed, Handover};
use super::route::{Method, Place, Route};
use crate::config::Member;
use crate::runtime;

/// Requests being handed on at once.
const FORWARDS_MAX: usize = 128;
/// How long a request looks for somebody who takes it.
const BUDGET: Duration = Duration::from_secs(30);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// A place among the requests being handed on.
struct Slot<'a>(&'a AtomicUsize);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The raw pair, as a follower looks for it.
fn asks_for_linearizable(head: &Head) -> bool {
    head.query
        .split('&')
        .any(|pair| pair == "consistency=linearizable")
}

/// True for answers after which another node may be tried.
fn is_retryable(answer: &Answer) -> bool {
    answer.status == 307 || answer.is_not_accepted()
}

impl Web {
    fn is_follower(&self) -> bool {
        self.identity.clustered && !self.glance.is_primary()
    }

    /// Serves a request that was let in, wherever it belongs.
    pub(crate) async fn place(
        self: &Arc<Self>,
        route: Route,
        call: &Call,
        caller: &Caller,
    ) -> Answer {
        let linearizable = match (route.method, call.head.is_linearizable()) {
            (Method::Get, Err(answer)) => return answer,
            (Method::Get, Ok(linearizable)) => linearizable,
            _ => false,
        };
        let get = route.method == Method::Get;
        match route.place {
            Place::Primary if self.is_follower() && (!get || linearizable) => {
                let forwards = self.forwards() && (!get || asks_for_linearizable(&call.head));
                match (forwards, get) {
                    (true, _) => self.to_primary(route, call, caller).await,
                    (false, true) => self.redirect(&call.head),
                    (false, false) => Answer::error(ErrorCode::TransientNotAccepted),
                }
            }
            Place::Local if linearizable && self.is_follower() => self.redirect(&call.head),
            Place::Primary | Place::Local => self.here(route, call, caller).await,
            Place::Partition => {
                let answer = self.here(route, call, caller).await;
                let asked = call.head.query_value("ack");
                let elsewhere = answer.is_not_accepted()
                    && self.forwards()
                    && !call.head.forwarded
                    && asked.as_deref() != Some("none");
                if elsewhere {
                    self.to_partition(call, answer).await
                } else {
                    answer
                }
            }
        }
    }

    async fn here(self: &Arc<Self>, route: Route, call: &Call, caller: &Caller) -> Answer {
        match self.serve(route.endpoint, call, caller).await {
            Ok(answer) | Err(answer) => answer,
        }
    }

    fn member(&self, replica: u8) -> Option<&Member> {
        self.identity.member(ReplicaId(replica))
    }

    /// Sends the caller to the primary, by the address meant for the caller.
    fn redirect(&self, head: &Head) -> Answer {
        let primary = self.glance.primary().and_then(|id| self.member(id));
        let Some(primary) = primary.filter(|member| member.ports.http != 0) else {
            let reason = "The primary is not known yet";
            return Answer::transport(503, "not_primary", reason);
        };
        let scheme = if self.config.tls.enabled {
            "https"
        } else {
            "http"
        };
        let host = primary.address_for(head.peer.ip());
        let host = match host.parse::<std::net::Ipv6Addr>() {
            Ok(address) => format!("[{address}]"),
            Err(_) => host.to_owned(),
        };
        let location = format!(
            "{scheme}://{host}:{}{}",
            primary.ports.http,
            target_of(head)
        );
        Answer::empty(307).with("location", location)
    }

    fn slot(&self) -> Option<Slot<'_>> {
        let taken =
            self.forwards_in_flight
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                    (count < FORWARDS_MAX).then_some(count + 1)
                });
        taken.is_ok().then_some(Slot(&self.forwards_in_flight))
    }

    /// Where a member's listener is for other nodes.
    fn listener_of(member: &Member) -> Option<SocketAddr> {
        let ip = member.replica_address?.ip();
        (member.ports.http != 0).then_some(SocketAddr::new(ip, member.ports.http))
    }

    /// Hands a request to the metadata primary, whoever that is by the time it is reached.
    async fn to_primary(self: &Arc<Self>, route: Route, call: &Call, caller: &Caller) -> Answer {
        if call.head.forwarded {
            // One hop only: whoever sent it here looks again.
            return Answer::error(ErrorCode::TransientNotAccepted);
        }
        let Some(_slot) = self.slot() else {
            let reason = "Too many requests are being handed on";
            return Answer::transport(503, "forward_busy", reason);
        };
        let target = target_of(&call.head);
        let request = handed(call, &target);
        let started = Instant::now();
        while started.elapsed() < BUDGET {
            match self.glance.primary() {
                Some(_) if self.glance.is_primary() => {
                    return self.here(route, call, caller).await;
                }
                // It became the primary of the view and is not at work yet.
                Some(id) if id == self.identity.replica.0 => {}
                Some(id) => {
                    let listener = self.member(id).and_then(Self::listener_of);
                    let handover = match listener {
                        Some(address) => self.peers.hand(address, &request).await,
                        None => Handover::NotConnected,
                    };
                    if let Some(answer) = settled(handover) {
                        return answer;
                    }
                }
                None => {}
            }
            runtime::sleep(PAUSE).await;
        }
        let reason = "No primary could be reached";
        Answer::transport(503, "no_reachable_primary", reason)
    }

    /// Asks the other nodes in roster order, each once; `own` is what this node said.
    async fn to_partition(&self, call: &Call, own: Answer) -> Answer {
        let Some(_slot) = self.slot() else {
            return own;
        };
        let target = target_of(&call.head);
        let request = handed(call, &target);
        let started = Instant::now();
        for member in &self.identity.roster {
            if member.replica == self.identity.replica || started.elapsed() >= BUDGET {
                continue;
            }
            let Some(address) = Self::listener_of(member) else {
                continue;
            };
            if let Some(answer) = settled(self.peers.hand(address, &request).await) {
                return answer;
            }
        }
        own
    }
}

/// The answer to give, unless somebody else may be asked.
fn settled(handover: Handover) -> Option<Answer> {
    match handover {
        Handover::Answered(answer) if is_retryable(&answer) => None,
        Handover::Answered(answer) => Some(answer),
        Handover::NotConnected => None,
        Handover::Broken => Some(Answer::transport(
            502,
            "forward_failed",
            "The connection to the other node broke; the outcome is not known",
        )),
        Handover::Late => Some(Answer::transport(
            504,
            "forward_timeout",
            "The other node did not answer in time; the outcome is not known",
        )),
    }
}

fn target_of(head: &Head) -> String {
    if head.query.is_empty() {
        head.path.clone()
    } else {
        format!("{}?{}", head.path, head.query)
    }
}

fn handed<'a>(call: &'a Call, target: &'a str) -> Handed<'a> {
    Handed {
        method: call.head.method.map_or("GET", Method::name),
        target,
        authorization: call.head.authorization.as_deref(),
        content_type: call.head.content_type.as_deref(),
        body: &call.body,
        forwarded: true,
    }
}
