//! The plane on three nodes: replication, forwarding, view changes, restarts, repair, transfer.

mod support;

use biplane_metadata_plane::io::{LogoutOutcome, Outcome, RegisterOutcome, SessionChange};
use biplane_metadata_plane::state::topology::TopologyChange;
use biplane_wire::{ClientId, Command, ErrorCode, Identifier, Op, Operation};
use support::bodies::{create_group, create_topic, group, id, name};
use support::cluster::{Answer, Client, Cluster};

fn three() -> Cluster {
    let mut cluster = Cluster::new(3);
    assert_eq!(
        cluster.await_primary(),
        0,
        "replica 0 leads a fresh cluster at once"
    );
    cluster
}

fn create_stream(cluster: &mut Cluster, node: usize, client: &mut Client, stream: &str) {
    let request = client.request(Operation::CreateStream, name(stream));
    assert_eq!(cluster.commit(node, &request), 0, "stream {stream}");
}

#[test]
fn requests_reach_all_replicas() {
    let mut cluster = three();
    let mut client = Client::login(&mut cluster, 0, 7);
    create_stream(&mut cluster, 0, &mut client, "s");
    let request = client.request(Operation::CreateTopic, create_topic(0, 2, "t", &[]));
    assert_eq!(cluster.commit(0, &request), 0);
    cluster.await_convergence();
    for node in &cluster.nodes {
        let created = node
            .topology
            .iter()
            .filter(|change| matches!(change, TopologyChange::PartitionCreated(_)));
        assert_eq!(created.count(), 2, "every replica learns of the partitions");
        let registered = SessionChange::Registered {
            client: client.id,
            session: 1,
            user_id: 0,
        };
        assert_eq!(node.sessions, [registered]);
    }
}

#[test]
fn backup_refuses_requests_and_forwards_logins() {
    let mut cluster = three();
    let mut client = Client::login(&mut cluster, 1, 7);
    assert_eq!(client.session, 1);
    assert_eq!(cluster.delivered[&Command::ForwardRegister], 1);
    let request = client.request(Operation::CreateStream, name("s"));
    let answer = cluster.call(1, &request);
    let code = ErrorCode::TransientNotAccepted;
    assert!(
        matches!(answer, Answer::Reply(_, Outcome::Refused(c)) if c == code),
        "{answer:?}"
    );
    // The same request at the primary is new.
    assert_eq!(cluster.commit(0, &request), 0);
    // Another user behind the same client id is refused through the forward as well.
    let outcome = cluster.register(2, client.id, 9);
    assert_eq!(outcome, RegisterOutcome::OwnedByAnotherUser);
    let answer = cluster.logout(2, client.id, client.session, 2);
    assert!(matches!(
        answer,
        Answer::LoggedOut(LogoutOutcome::LoggedOut { commit: Op(3) })
    ));
    cluster.await_convergence();
    assert!((0..3).all(|node| cluster.plane(node).session(client.id).is_none()));
}

#[test]
fn login_watermark_travels_back_through_the_forward() {
    let mut cluster = three();
    let mut client = Client::login(&mut cluster, 0, 7);
    create_stream(&mut cluster, 0, &mut client, "s");
    let outcome = cluster.register(1, client.id, 0);
    assert_eq!(
        outcome,
        RegisterOutcome::Registered {
            session: 3,
            watermark: 1
        }
    );
}

#[test]
fn unanswered_forward_is_given_up_as_unknown() {
    let mut cluster = three();
    cluster.lossy.push(Command::ForwardRegisterResult);
    let outcome = cluster.register(1, ClientId(7), 0);
    assert_eq!(
        outcome,
        RegisterOutcome::Transient(ErrorCode::TransientNotCommitted)
    );
    cluster.lossy.clear();
    // It did commit; the retry moves the epoch on.
    let outcome = cluster.register(1, ClientId(7), 0);
    assert_eq!(
        outcome,
        RegisterOutcome::Registered {
            session: 2,
            watermark: 0
        }
    );
}

#[test]
fn one_lost_replica_does_not_stop_commits() {
    let mut cluster = three();
    let mut client = Client::login(&mut cluster, 0, 7);
    cluster.crash(2);
    create_stream(&mut cluster, 0, &mut client, "s");
    cluster.start(2);
    cluster.await_convergence();
    assert_eq!(cluster.plane(2).commit_min(), Op(2));
}

#[test]
fn view_change_keeps_what_was_committed_and_answers_retries() {
    let mut cluster = three();
    let mut client = Client::login(&mut cluster, 0, 7);
    let requests = [
        client.request(Operation::CreateStream, name("s")),
        client.request(Operation::CreateTopic, create_topic(0, 2, "t", &[])),
        client.request(Operation::CreateConsumerGroup, create_group(0, 0, "g")),
        client.request(Operation::JoinConsumerGroup, group(0, 0, 0)),
    ];
    let replies: Vec<Vec<u8>> = requests
        .iter()
        .map(|request| match cluster.call(0, request) {
            Answer::Reply(message, Outcome::Committed { code: 0, .. }) => message.to_vec(),
            other => panic!("{other:?}"),
        })
        .collect();
    cluster.crash(0);
    let primary = cluster.await_primary();
    assert_ne!(primary, 0);
    for (request, reply) in requests.iter().zip(&replies) {
        let Answer::Reply(message, _) = cluster.call(primary, request) else {
            panic!("no reply")
        };
        assert_eq!(
            &message.to_vec(),
            reply,
            "the new primary cached the same bytes"
        );
    }
    assert_eq!(
        cluster
            .plane(primary)
            .state()
            .memberships_of(client.id)
            .count(),
        1
    );
    create_stream(&mut cluster, primary, &mut client, "s2");
    cluster.start(0);
    cluster.await_convergence();
    assert_eq!(cluster.primary(), Some(primary));
}

#[test]
fn topic_of_a_later_view_carries_that_view() {
    let mut cluster = three();
    let mut client = Client::login(&mut cluster, 0, 7);
    create_stream(&mut cluster, 0, &mut client, "s");
    let request = client.request(Operation::CreateTopic, create_topic(0, 2, "t", &[]));
    assert_eq!(cluster.commit(0, &request), 0);
    cluster.crash(0);
    let primary = cluster.await_primary();
    let request = client.request(Operation::CreateTopic, create_topic(0, 1, "u", &[]));
    assert_eq!(cluster.commit(primary, &request), 0);
    let view = cluster.plane(primary).view();
    let state = cluster.plane(primary).state();
    let specs: Vec<_> = state.topology().collect();
    assert_eq!(specs[0].created_view.0, 0);
    assert_eq!(specs[2].created_view, view);
    assert!(view.0 > 0);
    // Numbers of the first primary are not handed out again.
    let numbers: Vec<u64> = state.streams().by_id()[&0]
        .topics()
        .values()
        .flat_map(|topic| topic.partitions.iter().map(|p| p.consensus_group_id))
        .collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn request_in_flight_at_a_view_change_is_applied_once() {
    let mut cluster = three();
    let mut client = Client::login(&mut cluster, 0, 7);
    create_stream(&mut cluster, 0, &mut client, "s");
    // The acknowledgements are lost: prepared everywhere, committed nowhere.
    cluster.lossy.push(Command::PrepareOk);
    let request = client.request(Operation::CreateStream, name("twice?"));
    let token = cluster.submit(0, &request);
    cluster.run(2);
    assert!(!cluster.answers.contains_key(&token));
    cluster.nodes[0].is_cut_off = true;
    cluster.lossy.clear();
    cluster.run_until("another primary", |cluster| {
        cluster.primary().is_some_and(|p| p != 0)
    });
    let primary = cluster.primary().expect("there");
    cluster.run_until("the op commits", |c| c.plane(primary).commit_min() >= Op(3));
    assert_eq!(
        cluster.commit(primary, &request),
        0,
        "the retry gets the first outcome"
    );
    assert_eq!(cluster.plane(primary).commit_min(), Op(3));
    cluster.nodes[0].is_cut_off = false;
    // The old primary tells its client that the outcome is open, and catches up.
    let Answer::Reply(_, outcome) = cluster.await_answer(token) else {
        panic!("no reply")
    };
    assert_eq!(outcome, Outcome::Refused(ErrorCode::TransientNotCommitted));
    cluster.await_convergence();
}

#[test]
fn all_nodes_restart_and_nothing_is_lost() {
    let mut cluster = three();
    let mut client = Client::login(&mut cluster, 0, 7);
    for number in 0..20 {
        create_stream(&mut cluster, 0, &mut client, &format!("s{number}"));
    }
    for node in 0..3 {
        cluster.crash(node);
    }
    for node in 0..3 {
        cluster.start(node);
    }
    let primary = cluster.await_primary();
    cluster.await_convergence();
    assert_eq!(cluster.plane(primary).state().streams().by_id().len(), 20);
    create_stream(&mut cluster, primary, &mut client, "after");
    cluster.await_convergence();
}

#[test]
fn wiped_replica_is_repaired_from_the_log() {
    let mut cluster = three();
    let mut client = Client::login(&mut cluster, 0, 7);
    for number in 0..40 {
        create_stream(&mut cluster, 0, &mut client, &format!("s{number}"));
    }
    cluster.wipe(2);
    cluster.start(2);
    cluster.await_convergence();
    assert_eq!(cluster.plane(2).commit_min(), Op(41));
    assert!(cluster.delivered.contains_key(&Command::RepairPrepare));
    assert!(!cluster.delivered.contains_key(&Command::StateChunk));
}

#[test]
fn wiped_replica_behind_a_checkpoint_gets_the_state_transferred() {
    let mut cluster = three();
    let mut client = Client::login(&mut cluster, 0, 7);
    let mut other = Client::login(&mut cluster, 1, 8);
    for number in 0..300 {
        create_stream(&mut cluster, 0, &mut client, &format!("s{number}"));
    }
    assert!(cluster.plane(0).status().checkpoint_op > Op(0));
    cluster.wipe(2);
    cluster.start(2);
    cluster.await_convergence();
    assert!(cluster.delivered.contains_key(&Command::StateChunk));
    assert!(
        cluster.nodes[2]
            .topology
            .contains(&TopologyChange::Replaced)
    );
    assert_eq!(cluster.plane(2).state().streams().by_id().len(), 300);
    let session = cluster
        .plane(2)
        .session(client.id)
        .expect("the table came along");
    assert_eq!(session.watermark.0, 300);
    // What was transferred is on its disk: it comes back from a restart, and can lead.
    cluster.restart(2);
    cluster.await_convergence();
    create_stream(&mut cluster, 0, &mut other, "last");
    cluster.await_convergence();
    cluster.crash(0);
    let primary = cluster.await_primary();
    create_stream(&mut cluster, primary, &mut client, "later");
    cluster.await_convergence();
}

#[test]
fn restart_after_a_checkpoint_rejoins() {
    let mut cluster = three();
    let mut client = Client::login(&mut cluster, 0, 7);
    for number in 0..250 {
        create_stream(&mut cluster, 0, &mut client, &format!("s{number}"));
    }
    for node in [2, 1, 0] {
        cluster.restart(node);
        let primary = cluster.await_primary();
        create_stream(&mut cluster, primary, &mut client, &format!("after {node}"));
        cluster.await_convergence();
    }
    let name = Identifier::named("after 0").expect("a name");
    assert!(cluster.plane(1).state().streams().stream(&name).is_some());
}

#[test]
fn disconnect_at_a_backup_ends_the_session_everywhere() {
    let mut cluster = three();
    let mut client = Client::login(&mut cluster, 1, 7);
    let requests = [
        client.request(Operation::CreateStream, name("s")),
        client.request(Operation::CreateTopic, create_topic(0, 1, "t", &[])),
        client.request(Operation::CreateConsumerGroup, create_group(0, 0, "g")),
        client.request(Operation::JoinConsumerGroup, group(0, 0, 0)),
    ];
    for request in &requests {
        assert_eq!(cluster.commit(0, request), 0);
    }
    cluster.await_convergence();
    // The first attempt is lost; the node makes up for it.
    cluster.lossy.push(Command::ForwardLogout);
    cluster.disconnect(1, client.id, client.session);
    cluster.run(10);
    assert!(cluster.plane(0).session(client.id).is_some());
    cluster.lossy.clear();
    let gone = client.id;
    cluster.run_until("the session ends", |c| c.plane(1).session(gone).is_none());
    cluster.await_convergence();
    assert_eq!(cluster.plane(0).state().memberships_of(gone).count(), 0);
    // The fence keeps what the session had done: the same client goes on where it was.
    let outcome = cluster.register(1, client.id, 0);
    assert!(
        matches!(outcome, RegisterOutcome::Registered { watermark: 4, .. }),
        "{outcome:?}"
    );
    let deleted = client.request(Operation::DeleteStream, id(0));
    client.session = cluster.plane(0).session(client.id).expect("there").epoch;
    let request = support::cluster::Request {
        session: client.session,
        ..deleted
    };
    assert_eq!(cluster.commit(0, &request), 0);
}
