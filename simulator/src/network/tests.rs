//! What half-open connections and links that stand still do to frames.

use biplane_wire::{Command, CommitHeader};

use super::*;

fn frame() -> Message {
    Message::sealed(CommitHeader::new(Command::Commit), &[])
}

/// Two nodes that are connected.
fn connected() -> (Network, Nanos) {
    let mut network = Network::new(2, NetworkOptions::calm(), &Streams::new(1));
    let mut events = Events::new();
    network.start(0, 0, &mut events);
    network.start(0, 1, &mut events);
    let now = drive(&mut network, events, SECOND);
    assert!(
        network
            .directions
            .iter()
            .filter(|it| it.sender_sees)
            .count()
            == 2
    );
    (network, now)
}

/// Lets everything happen that is due by `until`, connections that come of it included.
fn drive(network: &mut Network, mut events: Events, until: Nanos) -> Nanos {
    loop {
        events.sort_by_key(|(due, _)| *due);
        if events.first().is_none_or(|(due, _)| *due > until) {
            return until;
        }
        let (due, event) = events.remove(0);
        match event {
            NetEvent::Deliver(packet) => {
                let _ = network.arrive(*packet);
            }
            NetEvent::Notice {
                node,
                peer,
                connected,
                epoch,
            } => {
                let _ = network.notice(node, peer, connected, epoch);
            }
            NetEvent::Redial { a, b } => network.redial(due, a, b, &mut events),
        }
    }
}

#[test]
fn a_side_that_does_not_know_sends_into_nothing_until_it_finds_out() {
    let (mut network, now) = connected();
    let (mut events, until) = (Events::new(), now + 5 * SECOND);
    assert!(network.half_open(now, (0, 1), until, false, &mut events));
    let mut later = events.split_off(1);
    drive(&mut network, events, now);
    assert!(network.send(now, 0, 1, frame()).is_empty());
    assert_eq!(network.counts().into_half_open, 1);
    assert!(network.send(now, 1, 0, frame()).is_empty());
    assert_eq!(network.counts().unconnected, 1, "the other side knows");
    assert!(
        !network.half_open(now, (0, 1), until, false, &mut later),
        "already"
    );
    let now = drive(&mut network, later, until + 10 * SECOND);
    assert_eq!(network.send(now, 0, 1, frame()).len(), 1);
    assert_eq!(network.send(now, 1, 0, frame()).len(), 1);
}

#[test]
fn a_new_connection_takes_the_place_of_one_that_is_gone_on_the_other_side() {
    let (mut network, now) = connected();
    let (mut events, until) = (Events::new(), now + 60 * SECOND);
    assert!(network.half_open(now, (0, 1), until, true, &mut events));
    let now = drive(&mut network, events, now + 10 * SECOND);
    assert_eq!(network.send(now, 0, 1, frame()).len(), 1);
    assert_eq!(network.send(now, 1, 0, frame()).len(), 1);
}

#[test]
fn healing_tells_whoever_does_not_know() {
    let (mut network, now) = connected();
    let mut events = Events::new();
    assert!(network.half_open(now, (1, 0), now + 60 * SECOND, false, &mut events));
    network.end_half_open(now, &mut events);
    let now = drive(&mut network, events, now + 10 * SECOND);
    assert_eq!(network.send(now, 1, 0, frame()).len(), 1);
}

#[test]
fn links_that_stand_still_keep_frames_until_their_time() {
    let (mut network, now) = connected();
    network.swizzle(0, 1, now + SECOND);
    let due = network.send(now, 0, 1, frame())[0].0;
    assert!(due >= now + SECOND);
    assert_eq!(
        (network.counts().swizzled, network.counts().clogged),
        (1, 0)
    );
    network.unclog();
    network.clog(1, 0, now + SECOND);
    assert!(network.send(now, 1, 0, frame())[0].0 >= now + SECOND);
    assert_eq!(
        (network.counts().swizzled, network.counts().clogged),
        (1, 1)
    );
}
