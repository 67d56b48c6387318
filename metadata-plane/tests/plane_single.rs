//! The plane on one node: requests, retries, restarts, checkpoints.

mod support;

use biplane_metadata_plane::io::{Input, LogoutOutcome, Outcome, RegisterOutcome};
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
        Input::Logout {
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

#[test]
fn creation_of_a_token_is_not_replayed() {
    let (mut cluster, mut client) = cluster_with_client();
    let body = [name("ci"), vec![0; 8]].concat();
    let request = client.request(Operation::CreatePersonalAccessToken, body);
    let Answer::Reply(message, Outcome::Committed { code: 0, .. }) = cluster.call(0, &request)
    else {
        panic!("no reply");
    };
    let spliced = biplane_metadata_plane::reply::splice_token(&message, &"x".repeat(68));
    assert_eq!(spliced.body().len(), 73);
    assert_eq!(spliced.body()[..5], [0, 0, 0, 0, 68]);
    assert_eq!(spliced.header::<ReplyHeader>().op(), Op(2));
    let answer = cluster.call(0, &request);
    let exists = ErrorCode::PersonalAccessTokenAlreadyExists;
    assert!(matches!(answer, Answer::Reply(_, Outcome::Refused(code)) if code == exists));
}

#[test]
fn expired_tokens_are_cleaned_up() {
    let (mut cluster, mut client) = cluster_with_client();
    for (token, lifetime) in [("short", 50_000_u64), ("longer", 300_000), ("ever", 0)] {
        let body = [name(token), lifetime.to_le_bytes().to_vec()].concat();
        let request = client.request(Operation::CreatePersonalAccessToken, body);
        assert_eq!(cluster.commit(0, &request), 0);
    }
    let count = |cluster: &Cluster| cluster.plane(0).state().users().token_count(0);
    assert_eq!(count(&cluster), 3);
    cluster.run_until("two tokens go", |cluster| count(cluster) == 1);
    cluster.run(200);
    assert_eq!(count(&cluster), 1);
}

#[test]
fn pending_revocation_is_completed_on_request() {
    let (mut cluster, mut client) = cluster_with_client();
    let mut other = Client::login(&mut cluster, 0, 8);
    let requests = [
        client.request(Operation::CreateStream, name("s")),
        client.request(Operation::CreateTopic, create_topic(0, 2, "t", &[])),
        client.request(Operation::CreateConsumerGroup, create_group(0, 0, "g")),
        client.request(Operation::JoinConsumerGroup, group(0, 0, 0)),
    ];
    for request in &requests {
        assert_eq!(cluster.commit(0, request), 0);
    }
    let mut join = other.request(Operation::JoinConsumerGroup, group(0, 0, 0));
    join.in_flight = vec![0, 1];
    assert_eq!(cluster.commit(0, &join), 0);
    let pending = cluster
        .plane(0)
        .state()
        .pending_revocations()
        .next()
        .expect("pending");
    assert_eq!((pending.key.client, pending.key.partition), (client.id, 1));
    for _ in 0..3 {
        cluster.input(0, Input::CompleteRevocation(pending.key));
    }
    cluster.settle();
    assert_eq!(cluster.plane(0).state().pending_revocations().count(), 0);
    let topic = cluster
        .plane(0)
        .state()
        .streams()
        .topic_by_id(0, 0)
        .expect("there");
    let (_, member) = topic.groups()[&0].member_of(other.id).expect("joined");
    assert_eq!(member.partitions, [1]);
    let before = cluster.plane(0).commit_min();
    cluster.input(0, Input::CompleteRevocation(pending.key));
    cluster.settle();
    assert_eq!(
        cluster.plane(0).commit_min(),
        before,
        "nothing is pending, nothing is proposed"
    );
}

#[test]
fn second_request_of_a_client_waits_for_the_first() {
    let (mut cluster, mut client) = cluster_with_client();
    let first = client.request(Operation::CreateStream, name("a"));
    let second = client.request(Operation::CreateStream, name("b"));
    let one = cluster.submit(0, &first);
    let two = cluster.submit(0, &second);
    let answer = cluster
        .answers
        .get(&two)
        .cloned()
        .expect("answered at once");
    let code = ErrorCode::TransientNotCommitted;
    assert!(matches!(answer, Answer::Reply(_, Outcome::Refused(c)) if c == code));
    assert!(matches!(
        cluster.await_answer(one),
        Answer::Reply(_, Outcome::Committed { .. })
    ));
    assert_eq!(cluster.commit(0, &second), 0);
}

#[test]
fn more_clients_than_the_pipeline_takes_are_queued_and_then_refused() {
    let mut cluster = Cluster::new(1);
    let mut clients: Vec<Client> = (1..=8)
        .map(|id| Client::login(&mut cluster, 0, id))
        .collect();
    // Four fit the pipeline; the rest waits its turn.
    let tokens: Vec<u64> = clients
        .iter_mut()
        .map(|client| {
            let body = name(&format!("c{}", client.id));
            let request = client.request(Operation::CreateStream, body);
            cluster.submit(0, &request)
        })
        .collect();
    for token in tokens {
        let answer = cluster.await_answer(token);
        assert!(matches!(
            answer,
            Answer::Reply(_, Outcome::Committed { code: 0, .. })
        ));
    }
    assert_eq!(cluster.plane(0).status().waiting, 0);
}

#[test]
fn full_client_table_evicts_the_session_that_committed_longest_ago() {
    let mut cluster = Cluster::new(1);
    let mut clients: Vec<Client> = (1..=8)
        .map(|id| Client::login(&mut cluster, 0, id))
        .collect();
    let request = clients[0].request(Operation::CreateStream, name("a"));
    assert_eq!(cluster.commit(0, &request), 0);
    Client::login(&mut cluster, 0, 9);
    assert!(cluster.plane(0).session(clients[0].id).is_some());
    let request = clients[1].request(Operation::CreateStream, name("b"));
    let answer = cluster.call(0, &request);
    assert!(matches!(answer, Answer::Evicted(EvictionReason::NoSession)));
}
