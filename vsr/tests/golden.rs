//! The frames a replica sends, byte for byte against the vectors of chapter 03 section 17.

mod support;

use biplane_vsr::{Boot, Config, LogEntry, Start};
use biplane_wire::{
    Checksum, ClientId, ClusterId, Command, GroupId, Header, Message, Op, Operation, PrepareHeader,
    RequestNumber, StartViewHeader, View, prepare,
};
use support::solo::Solo;
use support::{Kind, config};

const CLUSTER: ClusterId = ClusterId(0x462d_a7e8_7bc2_0e8d_b8ba_2787_c805_bb21);

/// The chain of five prepares of vector 17.6.
fn chain() -> Vec<Message> {
    let mut parent = Checksum::ZERO;
    let commits = [0, 1, 2, 3, 3];
    (1..=5_u64)
        .map(|op| {
            let mut header = PrepareHeader::new(Command::Prepare);
            header.frame.set_cluster(CLUSTER);
            header.frame.set_view(View(3));
            header.set_client(ClientId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10));
            header.set_parent(parent);
            header.set_op(Op(op));
            header.set_commit(Op(commits[op as usize - 1]));
            header.set_timestamp(1_700_000_000_000_000 + (op - 1) * 10);
            header.set_request(RequestNumber(op));
            header.set_operation(Operation::CreateStream);
            header.set_group(GroupId::METADATA);
            header.set_user_id(1);
            let message = prepare::build_with_body(header, &[1, 2, 3, 4, 5, 6, 7, 8]);
            parent = message.header::<PrepareHeader>().frame.checksum();
            message
        })
        .collect()
}

fn vector_config(replica: u8) -> Config {
    Config {
        cluster: CLUSTER,
        ..config(Kind::Metadata, replica, 3)
    }
}

fn normal(replica: u8) -> Solo {
    let boot = Boot {
        view: View(3),
        log_view: View(3),
        ..Boot::empty(Start::Fresh { view: View(3) })
    };
    Solo::open(vector_config(replica), boot)
}

fn seal(message: &Message) -> u128 {
    message.generic().frame.checksum().0
}

fn row(message: &Message, offset: usize) -> String {
    hex(&message.to_vec()[offset..offset + 32])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn identities_of_the_chain() {
    let identities: Vec<u128> = chain().iter().map(seal).collect();
    let expected = [
        0x278d_5acc_fc5b_4d26,
        0x04a4_0a75_8c81_0d23,
        0x1d91_0c3c_1f42_9e63,
        0x1848_f088_89ec_7f27,
        0x4cc5_fdba_c252_ca88,
    ];
    assert_eq!(identities, expected);
}

/// Vector 17.2.
#[test]
fn acknowledgement() {
    let mut backup = normal(1);
    backup.feed(chain().remove(0));
    let sent = backup.sent(Command::PrepareOk);
    let [(0, message)] = &sent[..] else {
        unreachable!("one acknowledgement: {sent:?}")
    };
    assert_eq!(seal(message), 0x5ebb_23da_e819_611e);
    assert_eq!(message.size(), 256);
}

/// Vector 17.3.
#[test]
fn heartbeat() {
    let mut primary = normal(0);
    assert!(matches!(
        primary.admit(9),
        biplane_vsr::Admission::Prepared { .. }
    ));
    let prepare = primary
        .replica
        .log()
        .get(Op(1))
        .cloned()
        .expect("it is held");
    let mut ok = biplane_wire::PrepareOkHeader::acknowledging(prepare.header());
    ok.frame.set_cluster(CLUSTER);
    ok.frame.set_view(View(3));
    ok.frame.set_replica(biplane_wire::ReplicaId(1));
    primary.feed(Message::sealed(ok, &[]));
    assert_eq!(primary.replica.commit_min(), Op(1));
    primary.tick(5);
    let sent = primary.sent(Command::Commit);
    assert_eq!(sent.len(), 2, "to both others");
    assert_eq!(seal(&sent[0].1), 0xcdd4_446e_167e_af36);
}

/// Vectors 17.4, 17.5.
#[test]
fn start_view_change_and_probe() {
    let mut backup = normal(1);
    backup.tick(40);
    let sent = backup.sent(Command::StartViewChange);
    assert_eq!(seal(&sent[0].1), 0x9f69_700d_c3c2_9f21);
    let start = Start::Used {
        await_transfer: false,
        view_floor: View(0),
    };
    let boot = Boot {
        view: View(4),
        log_view: View(4),
        ..Boot::empty(start)
    };
    let incarnation = 0xfeed_face_cafe_beef_0123_4567_89ab_cdef;
    let mut recovering = Solo::open(
        Config {
            incarnation,
            ..vector_config(2)
        },
        boot,
    );
    recovering.tick(10);
    let sent = recovering.sent(Command::RequestStartView);
    assert_eq!(seal(&sent[0].1), 0xb6ef_f1fe_ee3f_1d83);
    let expected = "00000000000000000000000000000000efcdab8967452301efbefecacefaedfe";
    assert_eq!(row(&sent[0].1, 224), expected);
}

/// Vector 17.7: a backup whose head was moved to 5 by an announcement without names, that
/// holds 3 and 4.
#[test]
fn vote() {
    let chain = chain();
    let start = Start::Used {
        await_transfer: false,
        view_floor: View(0),
    };
    let boot = Boot {
        view: View(3),
        log_view: View(3),
        log: chain[..4].iter().cloned().map(LogEntry::Intact).collect(),
        ..Boot::empty(start)
    };
    let mut backup = Solo::open(vector_config(2), boot);
    let mut header = StartViewHeader::new(Command::StartView);
    header.frame.set_cluster(CLUSTER);
    header.frame.set_view(View(3));
    header.set_group(GroupId::METADATA);
    header.set_op(Op(5));
    header.set_commit(Op(3));
    backup.feed(Message::sealed(header, &[]));
    backup.feed(chain[3].clone());
    let mut header = biplane_wire::StartViewChangeHeader::new(Command::StartViewChange);
    header.frame.set_cluster(CLUSTER);
    header.frame.set_view(View(4));
    header.set_group(GroupId::METADATA);
    backup.feed(Message::sealed(header, &[]));
    let sent = backup.sent(Command::DoViewChange);
    assert_eq!(sent.len(), 2, "to everybody, not only to the elect");
    let vote = &sent[0].1;
    assert_eq!(vote.size(), 1024);
    assert_eq!(
        vote.generic().frame.checksum_body().0,
        0x0f53_d178_647b_f124
    );
    assert_eq!(seal(vote), 0xeee4_82ea_0967_5e3e);
}

/// Vector 17.8: the log of view 4 as its primary announces it.
#[test]
fn announcement() {
    let chain = chain();
    let start = Start::Used {
        await_transfer: false,
        view_floor: View(0),
    };
    let boot = Boot {
        view: View(3),
        log_view: View(3),
        log: chain.iter().cloned().map(LogEntry::Intact).collect(),
        ..Boot::empty(start)
    };
    let mut elect = Solo::open(vector_config(1), boot);
    // Nobody answers its probes.
    elect.tick(30);
    assert_eq!(elect.replica.view(), View(4));
    let mut vote = biplane_wire::DoViewChangeHeader::new(Command::DoViewChange);
    vote.frame.set_cluster(CLUSTER);
    vote.frame.set_view(View(4));
    vote.frame.set_replica(biplane_wire::ReplicaId(2));
    vote.set_group(GroupId::METADATA);
    vote.set_log_view(View(3));
    vote.set_commit(Op(3));
    let headers: Vec<&PrepareHeader> = chain.iter().map(|entry| entry.header()).collect();
    let mut suffix = biplane_wire::SuffixBuilder::new(Op(5));
    for header in [headers[4], headers[3], headers[2]] {
        suffix.push(Some(header), false, true);
    }
    elect.feed(suffix.do_view_change(vote));
    let sent = elect.sent(Command::StartView);
    let announcement = &sent[0].1;
    assert_eq!(
        announcement.generic().frame.checksum_body().0,
        0x6021_1551_8144_0977
    );
    assert_eq!(seal(announcement), 0xcd6d_8c30_b95d_1f0d);
    let expected = "0d1f5db9308c6dcd000000000000000077094481511521600000000000000000";
    assert_eq!(row(announcement, 0), expected);
    assert_eq!(
        StartViewHeader::over(announcement.header_bytes()).incarnation(),
        0
    );
}
