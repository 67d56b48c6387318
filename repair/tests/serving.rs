//! The serving side: the scenarios of chapter 04 section 8.4, byte-exact frames, and who is
//! served when.

mod support;

use biplane_repair::{GroupStatus, ServeIgnored, Served, serve};
use biplane_wire::{GroupId, Message, Op, ReplicaId};
use support::{NONCE, Server, golden, golden_message, partition_group, request, summary};

/// The server of section 8.4: watermark 64, journal 65..=200, commit 198, head 200.
fn server() -> Server {
    Server::new(GroupId::METADATA, 65, 198, 200)
}

fn prepares(from: u64, to: u64) -> String {
    let words: Vec<String> = (from..=to).map(|op| format!("P{op}")).collect();
    words.join(" ")
}

fn answer(server: &Server, from: u64, to: u64) -> String {
    summary(&server.answer(&request(server.facts.group, from, to)))
}

#[test]
fn the_table_of_the_specification() {
    let server = server();
    assert_eq!(
        answer(&server, 65, 198),
        format!("{} D192", prepares(65, 192))
    );
    assert_eq!(
        answer(&server, 193, 198),
        format!("{} D198", prepares(193, 198))
    );
    assert_eq!(
        answer(&server, 10, 198),
        format!("E65 {} D192", prepares(65, 192))
    );
    assert_eq!(answer(&server, 10, 20), "E65 D9");
    assert_eq!(
        answer(&server, 190, 500),
        format!("{} D200", prepares(190, 200))
    );
    assert_eq!(answer(&server, 201, 210), "E201 D200");
}

#[test]
fn an_unreadable_prepare_ends_the_chunk() {
    let mut server = server();
    server.unreadable = Some(100);
    assert_eq!(
        answer(&server, 65, 198),
        format!("{} D99", prepares(65, 99))
    );
    assert_eq!(answer(&server, 100, 198), "D99");
}

#[test]
fn a_full_queue_ends_the_chunk() {
    let server = server();
    let mut room = 10;
    let mut frames: Vec<Message> = Vec::new();
    let served = serve(
        &request(GroupId::METADATA, 65, 198),
        &server.facts,
        &server,
        |frame| {
            if room == 0 {
                return false;
            }
            room -= 1;
            frames.push(frame);
            true
        },
    );
    assert_eq!(
        served,
        Served::Answered {
            evicted: None,
            count: 10,
            last: Op(74)
        }
    );
    assert_eq!(
        summary(&frames),
        prepares(65, 74),
        "the closing frame is lost, too"
    );
}

#[test]
fn a_range_no_frame_can_carry_is_ignored_here_too() {
    let server = server();
    let served = |from, to| {
        serve(
            &request(GroupId::METADATA, from, to),
            &server.facts,
            &server,
            |_| panic!("nothing is sent"),
        )
    };
    assert_eq!(served(0, 5), Served::Ignored(ServeIgnored::BadRange));
    assert_eq!(served(9, 8), Served::Ignored(ServeIgnored::BadRange));
}

#[test]
fn a_huge_range_costs_a_chunk_and_no_more() {
    let server = server();
    let all = answer(&server, 1, u64::MAX);
    assert_eq!(all, format!("E65 {} D192", prepares(65, 192)));
    assert_eq!(
        answer(&server, u64::MAX, u64::MAX),
        format!("E{} D{}", u64::MAX, u64::MAX - 1)
    );
    let mut far = server;
    far.facts.commit_max = Op(u64::MAX);
    far.log.retain(|op, _| *op == 200);
    assert_eq!(answer(&far, 1, u64::MAX), "E200 P200 D200");
}

#[test]
fn a_hole_in_the_own_journal_is_stepped_over_at_the_start_only() {
    let mut server = server();
    server.log.retain(|op, _| *op != 100 && *op != 150);
    assert_eq!(
        answer(&server, 100, 198),
        format!("E101 {} D149", prepares(101, 149))
    );
}

#[test]
fn a_range_that_is_all_hole_is_named_up_to_its_end() {
    let mut server = server();
    server.log.retain(|op, _| !(100..=130).contains(op));
    assert_eq!(answer(&server, 100, 120), "E121 D99");
}

#[test]
fn frames_are_those_of_the_specification() {
    let asked = golden_message(include_str!("golden/request_prepares_6_133.txt"));
    let asked = *asked.header::<biplane_wire::RequestPreparesHeader>();
    let empty = Server::new(GroupId::METADATA, 134, 133, 133);
    let done = serve_with(&empty, asked, 134, 133);
    assert_eq!(
        done[1].to_vec(),
        golden(include_str!("golden/repair_done_133.txt"))
    );
    let evicted = server().answer(&request(GroupId::METADATA, 10, 20));
    assert_eq!(
        evicted[0].to_vec(),
        golden(include_str!("golden/range_evicted_65.txt"))
    );
}

fn serve_with(
    server: &Server,
    mut asked: biplane_wire::RequestPreparesHeader,
    from: u64,
    to: u64,
) -> Vec<Message> {
    assert_eq!(asked.nonce(), NONCE);
    asked.set_from_op(Op(from));
    asked.set_to_op(Op(to.max(from)));
    server.answer(&asked)
}

#[test]
fn a_stored_prepare_goes_out_with_one_byte_changed() {
    let frame = golden_message(include_str!("golden/repair_prepare_6.txt"));
    let stored = frame.clone().repair_to_prepare();
    let mut server = Server::new(GroupId::METADATA, 6, 133, 133);
    server.log.insert(6, stored.clone());
    let frames = server.answer(&request(GroupId::METADATA, 6, 6));
    assert_eq!(
        frames[0].to_vec(),
        golden(include_str!("golden/repair_prepare_6.txt"))
    );
    let (sent, kept) = (frames[0].to_vec(), stored.to_vec());
    let changed: Vec<usize> = (0..sent.len())
        .filter(|at| sent[*at] != kept[*at])
        .collect();
    assert_eq!(changed, [60]);
}

#[test]
fn metadata_is_served_in_normal_and_view_change_partitions_to_the_primary_elect_only() {
    let outcome = |group, status, primary| {
        let mut server = Server::new(group, 1, 9, 10);
        server.facts.status = status;
        server.facts.primary = ReplicaId(primary);
        serve(&request(group, 1, 9), &server.facts, &server, |_| true)
    };
    let answered = |served| matches!(served, Served::Answered { .. });
    let partition = partition_group();
    assert!(answered(outcome(GroupId::METADATA, GroupStatus::Normal, 0)));
    assert!(answered(outcome(
        GroupId::METADATA,
        GroupStatus::ViewChange,
        0
    )));
    assert!(answered(outcome(partition, GroupStatus::Normal, 0)));
    assert!(
        answered(outcome(partition, GroupStatus::ViewChange, 2)),
        "the requester leads"
    );
    let ignored = Served::Ignored(ServeIgnored::Status);
    assert_eq!(outcome(partition, GroupStatus::ViewChange, 0), ignored);
    assert_eq!(
        outcome(GroupId::METADATA, GroupStatus::Recovering, 0),
        ignored
    );
    assert_eq!(outcome(partition, GroupStatus::Recovering, 2), ignored);
}

#[test]
fn nothing_is_served_while_transferring_or_before_a_purge_is_applied() {
    let group = partition_group();
    let mut server = Server::new(group, 1, 9, 10);
    server.facts.purge_deferred = true;
    let served = serve(&request(group, 1, 9), &server.facts, &server, |_| true);
    assert_eq!(served, Served::Ignored(ServeIgnored::PurgeDeferred));
    server.facts.transferring = true;
    let served = serve(&request(group, 1, 9), &server.facts, &server, |_| true);
    assert_eq!(served, Served::Ignored(ServeIgnored::Transferring));
    let served = serve(
        &request(GroupId::METADATA, 1, 9),
        &server.facts,
        &server,
        |_| true,
    );
    assert_eq!(served, Served::Ignored(ServeIgnored::WrongGroup));
}

#[test]
fn uncommitted_prepares_are_served() {
    let server = Server::new(partition_group(), 1, 5, 8);
    assert_eq!(answer(&server, 4, 100), "P4 P5 P6 P7 P8 D8");
}

#[test]
fn a_partition_names_its_floor_and_serves_above_it() {
    let server = Server::new(partition_group(), 50, 60, 60);
    assert_eq!(answer(&server, 10, 52), "E50 P50 P51 P52 D52");
    assert_eq!(answer(&server, 10, 20), "E50 D49", "the floor alone");
    assert_eq!(
        answer(&server, 61, 70),
        "D60",
        "not evicted, only not there yet"
    );
}

#[test]
fn a_partition_does_not_step_over_a_hole() {
    let mut server = Server::new(partition_group(), 50, 60, 60);
    server.log.remove(&55);
    assert_eq!(answer(&server, 55, 60), "D54");
    assert_eq!(answer(&server, 53, 60), "P53 P54 D54");
}
