//! Plays between one replica that lacks and peers that answer, do not answer, or lie. Metadata
//! group unless a test says otherwise; the limits are the tiny ones: retry 10 ticks, debounce 5,
//! two stalled rounds before the peer is changed.

mod support;

use biplane_repair::{
    Budget, GroupStatus, NeedKind, RepairIgnored, RepairOutput, SessionOutcome, TransferState,
};
use biplane_wire::{GroupId, Op, PrepareHeader, ReplicaId, View};
use support::{Backup, SERVER, Server, partition_group};

const RETRY: u32 = 10;

fn backup(commit_min: u64, commit_max: u64) -> Backup {
    let mut backup = Backup::new(GroupId::METADATA, commit_min, commit_max, 1);
    // Entering Normal prompts; the plays begin when that has worn off.
    let (min, max) = (backup.view.commit_min, backup.view.commit_max);
    backup.view.commit_max = min;
    backup.ticks(6);
    backup.view.commit_max = max;
    assert!(backup.sent().is_empty());
    backup
}

fn server() -> Server {
    Server::new(GroupId::METADATA, 1, 200, 200)
}

/// Lets the debounce pass and returns the first request.
fn opened(backup: &mut Backup) -> biplane_wire::RequestPreparesHeader {
    backup.ticks(5);
    let (peer, request) = backup.sent_one();
    assert_eq!(peer, SERVER, "the primary is asked first");
    request
}

fn outcomes(backup: &Backup) -> Vec<SessionOutcome> {
    let closed = |output: &RepairOutput| match output {
        RepairOutput::Closed { outcome, .. } => Some(*outcome),
        _ => None,
    };
    backup.out.iter().filter_map(closed).collect()
}

#[test]
fn gap_is_closed_chunk_by_chunk_under_one_nonce() {
    let (mut backup, server) = (backup(5, 198), server());
    let first = opened(&mut backup);
    assert_eq!(
        (first.from_op(), first.to_op()),
        (Op(6), Op(198)),
        "the whole window"
    );
    backup.receive_all(&server.answer(&first));
    assert_eq!(backup.view.commit_min, Op(133));
    let (_, second) = backup.sent_one();
    assert_eq!((second.from_op(), second.to_op()), (Op(134), Op(198)));
    assert_eq!(second.nonce(), first.nonce());
    backup.receive_all(&server.answer(&second));
    assert_eq!(backup.view.commit_min, Op(198));
    assert_eq!(outcomes(&backup), [SessionOutcome::Complete]);
    assert!(!backup.requester.has_session());
}

#[test]
fn receiver_of_the_specification_goes_on_at_the_hole() {
    let (mut backup, server) = (backup(5, 133), server());
    let first = opened(&mut backup);
    let frames = server.answer(&first);
    let served = [6, 7, 9, 10].map(|op: usize| frames[op - 6].clone());
    backup.receive_all(&served);
    assert_eq!(
        backup.view.head,
        Op(7),
        "the head does not jump over the hole"
    );
    backup.receive(frames.last().expect("a closing frame"));
    assert_eq!(backup.view.commit_min, Op(7));
    let (_, second) = backup.sent_one();
    assert_eq!((second.from_op(), second.to_op()), (Op(8), Op(133)));
    assert_eq!(second.nonce(), first.nonce());
    backup.receive(&frames[2]);
    assert_eq!((backup.view.head, backup.view.commit_min), (Op(10), Op(10)));
}

#[test]
fn gap_that_closes_by_itself_is_not_repaired() {
    let mut backup = backup(5, 9);
    backup.ticks(4);
    (6..=9).for_each(|op| drop(backup.log.insert(op, server().log[&op].clone())));
    backup.ticks(20);
    assert!(backup.sent().is_empty());
    backup.view.commit_max = Op(10);
    backup.ticks(4);
    assert!(backup.sent().is_empty(), "the debounce starts over");
    backup.ticks(1);
    assert_eq!(backup.sent().len(), 1);
}

#[test]
fn suffix_and_prompt_do_not_wait() {
    let mut prompted = backup(5, 9);
    prompted.requester.prompt(Some(ReplicaId(1)));
    prompted.tick();
    assert_eq!(
        prompted.sent_one().0,
        ReplicaId(1),
        "the peer of the prompt"
    );
    let mut adopted = backup(5, 9);
    adopted.walk();
    let mut need = adopted.need.clone().expect("something is missing");
    need.kind = NeedKind::Suffix;
    let Backup {
        requester,
        view,
        budget,
        out,
        ..
    } = &mut adopted;
    requester.advance(view, Some(&need), budget, out);
    assert_eq!(adopted.sent().len(), 1);
}

#[test]
fn adopting_a_view_starts_at_once_with_its_primary() {
    let mut backup = backup(5, 9);
    backup.view.status = GroupStatus::ViewChange;
    backup.ticks(20);
    assert!(backup.sent().is_empty());
    (backup.view.status, backup.view.view) = (GroupStatus::Normal, View(4));
    backup.advance();
    assert_eq!(backup.sent_one().0, ReplicaId(1));
}

#[test]
fn finished_transfer_starts_at_once() {
    let mut backup = backup(5, 9);
    backup.view.transfer = TransferState::Active;
    backup.ticks(20);
    assert!(backup.sent().is_empty());
    backup.view.transfer = TransferState::Idle;
    backup.advance();
    assert_eq!(backup.sent().len(), 1);
}

#[test]
fn lost_request_is_repeated_to_the_same_peer_under_the_same_nonce() {
    let mut backup = backup(5, 9);
    let first = opened(&mut backup);
    backup.ticks(RETRY - 1);
    assert!(backup.sent().is_empty());
    backup.tick();
    let (peer, again) = backup.sent_one();
    assert_eq!((peer, again.nonce()), (SERVER, first.nonce()));
}

#[test]
fn lost_closing_frame_costs_one_retry() {
    let (mut backup, server) = (backup(5, 198), server());
    let first = opened(&mut backup);
    let frames = server.answer(&first);
    backup.receive_all(&frames[..frames.len() - 1]);
    assert!(backup.sent().is_empty());
    backup.ticks(RETRY);
    let (_, second) = backup.sent_one();
    assert_eq!((second.from_op(), second.nonce()), (Op(134), first.nonce()));
    backup.receive_all(&server.answer(&second));
    assert_eq!(backup.view.commit_min, Op(198));
}

#[test]
fn every_single_lost_frame_heals() {
    let server = server();
    let count = server
        .answer(&support::request(GroupId::METADATA, 6, 20))
        .len();
    for lost in 0..count {
        let mut backup = backup(5, 20);
        let first = opened(&mut backup);
        let mut frames = server.answer(&first);
        frames.remove(lost);
        backup.receive_all(&frames);
        for _ in 0..2 * RETRY {
            backup.tick();
            for (_, request) in backup.sent() {
                backup.receive_all(&server.answer(&request));
            }
        }
        assert_eq!(backup.view.commit_min, Op(20), "frame {lost} lost");
    }
}

#[test]
fn flowing_frames_keep_the_retry_away() {
    let (mut backup, server) = (backup(5, 30), server());
    let first = opened(&mut backup);
    for frame in &server.answer(&first)[..10] {
        backup.ticks(RETRY - 1);
        backup.receive(frame);
    }
    assert!(backup.sent().is_empty());
    let progress = backup.requester.progress().expect("a session");
    assert_eq!(
        (progress.stored, progress.from, progress.to),
        (10, Op(6), Op(30))
    );
    assert_eq!(
        progress.ops_per_second(),
        10 * 100 / u64::from(10 * (RETRY - 1))
    );
}

#[test]
fn chunk_without_progress_is_not_asked_for_again_at_once() {
    let (mut backup, server) = (backup(5, 9), server());
    let first = opened(&mut backup);
    let done = server.answer(&first).pop().expect("a closing frame");
    backup.receive(&done);
    backup.receive(&done);
    assert!(
        backup.sent().is_empty(),
        "a peer that has nothing would be asked for ever"
    );
    backup.ticks(RETRY);
    assert_eq!(backup.sent().len(), 1);
}

#[test]
fn silent_peer_is_given_up_for_the_next_and_then_for_the_primary_again() {
    let mut backup = backup(5, 9);
    let first = opened(&mut backup);
    let mut peers = Vec::new();
    let mut nonces = vec![first.nonce()];
    for _ in 0..9 * RETRY {
        backup.tick();
        for (peer, request) in backup.sent() {
            peers.push(peer.0);
            if nonces.last() != Some(&request.nonce()) {
                nonces.push(request.nonce());
            }
        }
    }
    assert_eq!(peers, [0, 0, 1, 1, 1, 0, 0, 0, 1], "two repetitions each");
    assert_eq!(nonces.len(), 4, "a fresh nonce per session: {nonces:?}");
}

#[test]
fn lost_connection_moves_on_at_the_next_tick() {
    let mut backup = backup(5, 9);
    opened(&mut backup);
    backup.requester.on_peer_lost(ReplicaId(1));
    backup.tick();
    assert!(backup.sent().is_empty(), "another connection");
    backup.requester.on_peer_lost(SERVER);
    backup.tick();
    assert!(outcomes(&backup).contains(&SessionOutcome::PeerLost));
    assert_eq!(backup.sent_one().0, ReplicaId(1));
}

#[test]
fn frames_of_an_old_session_do_no_harm() {
    let (mut backup, server) = (backup(5, 20), server());
    let old = opened(&mut backup);
    let frames = server.answer(&old);
    backup.ticks(3 * RETRY);
    let new = backup.sent().pop().expect("another peer").1;
    assert_ne!(new.nonce(), old.nonce());
    backup.receive(frames.last().expect("a closing frame"));
    assert!(
        backup.sent().is_empty(),
        "the closing frame names another session"
    );
    backup.receive_all(&frames[..3]);
    assert_eq!(
        backup.view.commit_min,
        Op(8),
        "prepares are judged by content"
    );
}

#[test]
fn notices_of_an_old_session_arm_nothing() {
    let mut backup = backup(5, 198);
    let old = opened(&mut backup);
    let evicting = Server::new(GroupId::METADATA, 65, 198, 200);
    let frames = evicting.answer(&old);
    backup.ticks(3 * RETRY);
    let (peer, new) = backup.sent().pop().expect("another peer");
    assert_eq!(peer, ReplicaId(1));
    backup.receive(&frames[0]);
    assert!(
        backup.transfers.is_empty(),
        "the peer that is asked now may still have it all"
    );
    backup.receive_all(&server().answer(&new));
    assert_eq!(backup.view.commit_min, Op(133));
}

#[test]
fn prepares_without_a_session_or_outside_of_it_are_dropped() {
    let (mut backup, server) = (backup(5, 9), server());
    let frames = server.answer(&support::request(GroupId::METADATA, 4, 30));
    let ignored = |reason: RepairIgnored| reason.to_string();
    backup.receive(&frames[2]);
    assert_eq!(
        backup.rejected.pop(),
        Some(ignored(RepairIgnored::NoSession))
    );
    opened(&mut backup);
    for outside in [0, 1, 6, 20] {
        backup.receive(&frames[outside]);
        assert_eq!(
            backup.rejected.pop(),
            Some(ignored(RepairIgnored::OutsideWindow))
        );
    }
    backup.receive(&frames[2]);
    assert_eq!(backup.view.commit_min, Op(6));
    assert!(backup.rejected.is_empty());
}

#[test]
fn lies_are_dropped_and_do_not_keep_the_session_alive() {
    let (mut backup, server) = (backup(5, 9), server());
    let first = opened(&mut backup);
    let mut bytes = server.answer(&first)[0].to_vec();
    *bytes.last_mut().expect("a body") ^= 1;
    let lie = biplane_wire::Message::from_bytes(&bytes).expect("a frame");
    for _ in 0..RETRY {
        backup.receive(&lie);
        backup.tick();
    }
    assert_eq!(backup.rejected.len(), RETRY as usize);
    assert_eq!(backup.view.commit_min, Op(5));
    assert_eq!(backup.sent().len(), 1, "the retry came on time");
}

#[test]
fn prepare_that_breaks_the_chain_is_dropped() {
    let (mut backup, server) = (backup(5, 9), server());
    opened(&mut backup);
    let stranger = support::build(GroupId::METADATA, 7, biplane_wire::Checksum(1), b"forged");
    backup.log.insert(6, server.log[&6].clone());
    backup.receive(&stranger.prepare_to_repair());
    assert_eq!(backup.rejected.len(), 1);
    assert!(!backup.log.contains_key(&7));
    let honest = server.log[&7].prepare_to_repair();
    backup.receive(&honest);
    assert_eq!(backup.view.commit_min, Op(7));
    assert_eq!(honest.header::<PrepareHeader>().op(), Op(7));
}

#[test]
fn eviction_arms_a_transfer_against_the_primary_and_pauses() {
    let mut backup = backup(5, 198);
    backup.requester.prompt(Some(ReplicaId(1)));
    backup.tick();
    let (_, first) = backup.sent_one();
    let server = Server::new(GroupId::METADATA, 65, 198, 200);
    backup.receive_all(&server.answer(&first));
    assert_eq!(
        backup.transfers,
        [SERVER],
        "armed once, and not against replica 1"
    );
    assert_eq!(outcomes(&backup), [SessionOutcome::Evicted]);
    assert_eq!(backup.view.commit_min, Op(5), "what came after is dropped");
    backup.requester.prompt(Some(SERVER));
    backup.ticks(RETRY - 1);
    assert!(
        backup.sent().is_empty(),
        "a refused transfer does not chase an evicted repair"
    );
    backup.ticks(5);
    assert_eq!(backup.sent().len(), 1);
}

#[test]
fn transfer_that_worked_ends_the_pause() {
    let mut backup = backup(5, 198);
    let first = opened(&mut backup);
    let server = Server::new(GroupId::METADATA, 65, 198, 200);
    backup.receive_all(&server.answer(&first));
    backup.view.transfer = TransferState::Active;
    backup.tick();
    (backup.view.transfer, backup.view.commit_min) = (TransferState::Idle, Op(192));
    backup.requester.prompt(Some(SERVER));
    backup.advance();
    let tail = backup.sent().pop().expect("the tail is repaired at once").1;
    assert_eq!((tail.from_op(), tail.to_op()), (Op(193), Op(198)));
}

#[test]
fn server_that_lags_is_no_reason_for_a_transfer() {
    let mut backup = backup(150, 198);
    let first = opened(&mut backup);
    let lagging = Server::new(GroupId::METADATA, 65, 100, 100);
    backup.receive_all(&lagging.answer(&first));
    assert!(backup.transfers.is_empty());
    let (peer, second) = backup.sent_one();
    assert_eq!(peer, ReplicaId(1), "another one is asked at once");
    backup.receive_all(&lagging.answer(&second));
    assert!(backup.sent().is_empty(), "all were asked: pause");
    backup.ticks(RETRY - 1);
    assert!(backup.sent().is_empty());
    backup.ticks(2);
    assert_eq!(backup.sent().len(), 1);
}

#[test]
fn sessions_end_with_view_status_and_transfer() {
    let mut moved = backup(5, 9);
    opened(&mut moved);
    moved.view.view = View(6);
    moved.advance();
    assert_eq!(outcomes(&moved), [SessionOutcome::ViewChanged]);
    let mut changing = backup(5, 9);
    opened(&mut changing);
    changing.view.status = GroupStatus::ViewChange;
    changing.advance();
    assert_eq!(outcomes(&changing), [SessionOutcome::StatusChanged]);
    let mut transferring = backup(5, 9);
    opened(&mut transferring);
    transferring.view.transfer = TransferState::Active;
    transferring.advance();
    assert_eq!(outcomes(&transferring), [SessionOutcome::TransferStarted]);
    let mut healed = backup(5, 9);
    opened(&mut healed);
    healed.view.commit_min = Op(9);
    healed.advance();
    assert_eq!(outcomes(&healed), [SessionOutcome::Complete]);
}

/// A primary-elect of view 5 that lacks bodies of its merged log; votes came from 0 and 1.
fn elect() -> Backup {
    let mut backup = Backup::new(GroupId::METADATA, 5, 9, 3);
    (backup.view.view, backup.view.status) = (View(5), GroupStatus::ViewChange);
    backup.elect = true;
    backup.sources = vec![ReplicaId(1), ReplicaId(0)];
    backup
}

#[test]
fn elect_starts_at_once_with_its_best_source_and_goes_round() {
    let mut backup = elect();
    backup.advance();
    let (peer, first) = backup.sent_one();
    assert_eq!(
        (peer, first.from_op(), first.to_op()),
        (ReplicaId(1), Op(6), Op(9))
    );
    backup.ticks(3 * RETRY);
    let peers: Vec<u8> = backup.sent().iter().map(|(peer, _)| peer.0).collect();
    assert_eq!(peers, [1, 1, 0]);
}

#[test]
fn elect_measures_progress_by_what_it_stored() {
    let mut server = server();
    server.facts.chunk_max = 2;
    let mut backup = elect();
    backup.advance();
    let (_, first) = backup.sent_one();
    backup.receive_all(&server.answer(&first));
    assert_eq!(
        backup.view.commit_min,
        Op(5),
        "nothing is applied before the view starts"
    );
    let (_, second) = backup.sent_one();
    assert_eq!((second.from_op(), second.nonce()), (Op(8), first.nonce()));
    backup.receive_all(&server.answer(&second));
    assert_eq!(outcomes(&backup).last(), Some(&SessionOutcome::Complete));
}

#[test]
fn elect_never_arms_a_transfer() {
    let evicting = Server::new(GroupId::METADATA, 65, 198, 200);
    let mut backup = elect();
    backup.advance();
    let (_, first) = backup.sent_one();
    backup.receive_all(&evicting.answer(&first));
    let (peer, second) = backup.sent_one();
    assert_eq!(peer, ReplicaId(0), "the next source");
    backup.receive_all(&evicting.answer(&second));
    assert!(backup.transfers.is_empty());
    assert!(backup.sent().is_empty(), "both sources refused: pause");
    backup.ticks(RETRY + 1);
    assert_eq!(backup.sent_one().0, ReplicaId(1));
}

#[test]
fn elect_without_a_source_waits() {
    let mut backup = elect();
    backup.sources.clear();
    backup.ticks(5 * RETRY);
    assert!(backup.sent().is_empty());
}

#[test]
fn budget_lets_groups_in_one_by_one() {
    let mut budget = Budget::new(2, 1);
    let mut groups: Vec<Backup> = (0..4)
        .map(|seed| Backup::new(partition_group(), 5, 9, seed))
        .collect();
    let mut first_sent = Vec::new();
    for _ in 0..4 {
        budget.begin_tick();
        for (index, backup) in groups.iter_mut().enumerate() {
            backup.walk();
            let Backup {
                requester,
                view,
                need,
                out,
                ..
            } = backup;
            requester.tick(view, need.as_ref(), &mut budget, out);
            if !backup.sent().is_empty() {
                first_sent.push(index);
            }
        }
    }
    assert_eq!(first_sent, [0, 1], "one a tick, two at once");
    groups[0].view.commit_min = Op(9);
    for _ in 0..2 {
        budget.begin_tick();
        for backup in &mut groups {
            backup.walk();
            let Backup {
                requester,
                view,
                need,
                out,
                ..
            } = backup;
            requester.tick(view, need.as_ref(), &mut budget, out);
        }
    }
    assert!(groups[2].requester.has_session(), "a place became free");
}

#[test]
fn group_without_luck_steps_back_for_those_who_wait() {
    let mut budget = Budget::new(1, 1);
    let mut groups: Vec<Backup> = (0..2)
        .map(|seed| Backup::new(partition_group(), 5, 9, seed))
        .collect();
    let mut asked = [0, 0];
    for _ in 0..8 * RETRY {
        budget.begin_tick();
        for (index, backup) in groups.iter_mut().enumerate() {
            backup.walk();
            let Backup {
                requester,
                view,
                need,
                out,
                ..
            } = backup;
            requester.tick(view, need.as_ref(), &mut budget, out);
            asked[index] += backup.sent().len();
        }
    }
    assert!(
        asked[0] > 0 && asked[1] > 0,
        "neither peer answers, both groups get a turn: {asked:?}"
    );
}
