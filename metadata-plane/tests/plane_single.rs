//! The plane on one node: requests, retries, restarts, checkpoints.

mod support;

use biplane_metadata_plane::io::{LogoutOutcome, Outcome, RegisterOutcome};
use biplane_metadata_plane::state::topology::TopologyChange;
use biplane_wire::{ClientId, ErrorCode, EvictionReason, Identifier, Op, Operation, ReplyHeader};
use support::bodies::{create_group, create_topic, group, name, truncate};
use support::cluster::{Answer, Client, Cluster};

fn cluster_with_client() -> (Cluster, Client) {
    let mut cluster = Cluster::new(1);
    let client = Client::login(&mut cluster, 0, 7);
    (cluster, client)
}

#[test]
fn stream_is_created_and_read_back() {
    let (mut cluster, mut client) = cluster_with_client();
    assert_eq!(client.session, 1, "the session is the op of the register");
    let request = client.request(Operation::CreateStream, name("orders"));
    let Answer::Reply(message, outcome) = cluster.call(0, &request) else {
        panic!("no reply");
    };
    let (op, operation) = (Op(2), Operation::CreateStream);
    assert_eq!(
        outcome,
        Outcome::Committed {
            op,
            operation,
            code: 0
        }
    );
    let header = message.header::<ReplyHeader>();
    assert_eq!((header.op(), header.commit()), (op, op));
    assert_eq!(header.client(), client.id);
    assert_eq!(header.request().0, 1);
    assert_eq!(&message.body()[..4], [0; 4]);
    let stream = cluster
        .plane(0)
        .state()
        .streams()
        .stream(&Identifier::Numeric(0));
    assert_eq!(stream.map(|stream| stream.name.as_str()), Some("orders"));
}

#[test]
fn topic_commits_under_the_rewritten_operation_and_emits_topology() {
    let (mut cluster, mut client) = cluster_with_client();
    let request = client.request(Operation::CreateStream, name("s"));
    cluster.commit(0, &request);
    let request = client.request(Operation::CreateTopic, create_topic(0, 3, "t", &[]));
    let Answer::Reply(message, outcome) = cluster.call(0, &request) else {
        panic!("no reply");
    };
    let operation = Operation::CreateTopicWithAssignments;
    assert_eq!(
        outcome,
        Outcome::Committed {
            op: Op(3),
            operation,
            code: 0
        }
    );
    assert_eq!(message.header::<ReplyHeader>().operation(), operation);
    let created: Vec<u32> = cluster.nodes[0]
        .topology
        .iter()
        .map(|change| match change {
            TopologyChange::PartitionCreated(spec) => spec.partition,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(created, [0, 1, 2]);
    assert_eq!(cluster.plane(0).state().topology().count(), 3);
}

#[test]
fn retry_gets_the_same_bytes_and_is_not_applied_again() {
    let (mut cluster, mut client) = cluster_with_client();
    let request = client.request(Operation::CreateStream, name("s"));
    let Answer::Reply(first, _) = cluster.call(0, &request) else {
        panic!("no reply")
    };
    let Answer::Reply(again, outcome) = cluster.call(0, &request) else {
        panic!("no reply")
    };
    assert_eq!(first.to_vec(), again.to_vec());
    assert!(matches!(
        outcome,
        Outcome::Committed {
            op: Op(2),
            code: 0,
            ..
        }
    ));
    assert_eq!(cluster.plane(0).commit_min(), Op(2));
    // Reused for other content: no answer at all.
    let mut reused = request;
    reused.body = name("other");
    assert!(matches!(cluster.call(0, &reused), Answer::Dropped));
}

#[test]
fn rejected_operation_commits_and_keeps_its_code_for_the_retry() {
    let (mut cluster, mut client) = cluster_with_client();
    let request = client.request(Operation::DeleteStream, support::bodies::id(9));
    assert_eq!(cluster.commit(0, &request), 1009);
    assert_eq!(cluster.commit(0, &request), 1009);
    assert_eq!(cluster.plane(0).commit_min(), Op(2));
}

#[test]
fn strangers_and_old_sessions_are_evicted() {
    let (mut cluster, mut client) = cluster_with_client();
    let mut request = client.request(Operation::CreateStream, name("s"));
    request.client = ClientId(99);
    let answer = cluster.call(0, &request);
    assert!(matches!(answer, Answer::Evicted(EvictionReason::NoSession)));
    let session = cluster.login(0, client.id);
    assert!(session > client.session);
    request.client = client.id;
    let answer = cluster.call(0, &request);
    assert!(matches!(
        answer,
        Answer::Evicted(EvictionReason::SessionTooLow)
    ));
    request.session = session + 1;
    assert!(matches!(cluster.call(0, &request), Answer::Dropped));
}

#[test]
fn operations_that_no_client_may_send_are_evicted() {
    let (mut cluster, mut client) = cluster_with_client();
    for operation in [
        Operation::CreateTopicWithAssignments,
        Operation::CreatePartitionsWithAssignments,
        Operation::RemoveConsumerGroupMember,
        Operation::CompleteConsumerGroupRevocation,
    ] {
        let request = client.request(operation, vec![0; 16]);
        let answer = cluster.call(0, &request);
        let expected = EvictionReason::InvalidRequestOperation;
        assert!(
            matches!(answer, Answer::Evicted(reason) if reason == expected),
            "{operation}"
        );
    }
    let request = client.request(Operation::TruncatePartition, vec![9]);
    let answer = cluster.call(0, &request);
    assert!(matches!(
        answer,
        Answer::Evicted(EvictionReason::InvalidRequestBody)
    ));
    let request = client.request(Operation::TruncatePartition, truncate(0, 0, 0, 5));
    assert_eq!(cluster.commit(0, &request), 1009);
}

#[test]
fn client_id_of_another_user_is_refused_for_good() {
    let (mut cluster, client) = cluster_with_client();
    let outcome = cluster.register(0, client.id, 5);
    assert_eq!(outcome, RegisterOutcome::OwnedByAnotherUser);
    let again = cluster.register(0, client.id, 0);
    assert!(matches!(
        again,
        RegisterOutcome::Registered {
            session: 2,
            watermark: 0
        }
    ));
}

#[test]
fn logout_ends_session_and_memberships() {
    let (mut cluster, mut client) = cluster_with_client();
    let requests = [
        client.request(Operation::CreateStream, name("s")),
        client.request(Operation::CreateTopic, create_topic(0, 2, "t", &[])),
        client.request(Operation::CreateConsumerGroup, create_group(0, 0, "g")),
        client.request(Operation::JoinConsumerGroup, group(0, 0, 0)),
    ];
    for request in &requests {
        assert_eq!(cluster.commit(0, request), 0);
    }
    assert_eq!(
        cluster.plane(0).state().memberships_of(client.id).count(),
        1
    );
    let answer = cluster.logout(0, client.id, client.session, 5);
    assert!(matches!(
        answer,
        Answer::LoggedOut(LogoutOutcome::LoggedOut { commit: Op(6) })
    ));
    assert_eq!(
        cluster.plane(0).state().memberships_of(client.id).count(),
        0
    );
    assert!(cluster.plane(0).session(client.id).is_none());
    let answer = cluster.logout(0, client.id, client.session, 6);
    assert!(matches!(
        answer,
        Answer::LoggedOut(LogoutOutcome::LoggedOut { commit: Op(6) })
    ));
    assert_eq!(cluster.plane(0).commit_min(), Op(6), "nothing was proposed");
}

#[test]
fn disconnect_with_a_request_in_hand_is_made_up_for() {
    let (mut cluster, mut client) = cluster_with_client();
    let request = client.request(Operation::CreateStream, name("s"));
    cluster.submit(0, &request);
    // The request is not durable yet, so the logout finds it in flight.
    let token = cluster.token();
    cluster.input(
        0,
        biplane_metadata_plane::io::Input::Logout {
            token,
            client: client.id,
            session: client.session,
            request: biplane_metadata_plane::io::DISCONNECT_REQUEST,
        },
    );
    let answer = cluster.await_answer(token);
    let code = ErrorCode::TransientNotCommitted;
    assert!(matches!(answer, Answer::LoggedOut(LogoutOutcome::Transient(c)) if c == code));
    let id = client.id;
    cluster.run_until("the session ends", |c| c.plane(0).session(id).is_none());
}

#[test]
fn restart_brings_everything_back() {
    let (mut cluster, mut client) = cluster_with_client();
    let requests = [
        client.request(Operation::CreateStream, name("s")),
        client.request(Operation::CreateTopic, create_topic(0, 2, "t", &[])),
    ];
    for request in &requests {
        assert_eq!(cluster.commit(0, request), 0);
    }
    let before = cluster.plane(0).state().clone();
    cluster.restart(0);
    assert_eq!(cluster.plane(0).state(), &before);
    assert_eq!(cluster.plane(0).commit_min(), Op(3));
    assert_eq!(cluster.plane(0).state().topology().count(), 2);
    // The session lives on, and so does the reply of its last request.
    let again = cluster.commit(0, &requests[1]);
    assert_eq!(again, 0);
    let request = client.request(Operation::CreateStream, name("s2"));
    assert_eq!(cluster.commit(0, &request), 0);
    assert_eq!(cluster.plane(0).commit_min(), Op(4));
}

#[test]
fn long_log_is_checkpointed_and_the_node_opens_on_the_snapshot() {
    let (mut cluster, mut client) = cluster_with_client();
    for number in 0..700 {
        let (operation, body) = match number % 3 {
            0 => (Operation::CreateStream, name(&format!("s{number}"))),
            1 => (
                Operation::CreateTopic,
                create_topic(number / 3, 2, "t", &[]),
            ),
            _ => (
                Operation::DeleteTopic,
                [support::bodies::id(number / 3), support::bodies::id(0)].concat(),
            ),
        };
        let request = client.request(operation, body);
        assert_eq!(cluster.commit(0, &request), 0, "request {number}");
    }
    let status = cluster.plane(0).status();
    assert!(status.checkpoint_op > Op(400), "{status:?}");
    let before = cluster.plane(0).state().clone();
    let number = client.next;
    cluster.restart(0);
    assert_eq!(cluster.plane(0).state(), &before);
    assert_eq!(
        cluster.plane(0).status().checkpoint_op,
        status.checkpoint_op
    );
    // Newer numbers of partitions than any before the restart.
    let highest = before.streams().consensus_group_id_max();
    let request = client.request(Operation::CreateTopic, create_topic(0, 1, "late", &[]));
    assert_eq!(cluster.commit(0, &request), 0);
    assert!(cluster.plane(0).state().streams().consensus_group_id_max() > highest);
    // The newest reply of the session is in the snapshot or in the log behind it.
    assert_eq!(client.next, number + 1);
    assert_eq!(cluster.commit(0, &request), 0);
}
