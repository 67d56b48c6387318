//! The closed sets of chapter 01 sections 3, 8 and 9 against tables typed from them.

use biplane_wire::*;

/// Number, class, may a client send it, result-framed: section 8.
const OPERATIONS: [(u8, &str, bool, bool); 34] = [
    (0, "none", false, false),
    (1, "plane", true, false),
    (2, "none", true, false),
    (3, "plane", true, false),
    (64, "internal", false, true),
    (65, "internal", false, true),
    (66, "internal", false, true),
    (67, "internal", false, true),
    (68, "internal", false, true),
    (128, "metadata", true, true),
    (129, "metadata", true, true),
    (130, "metadata", true, true),
    (131, "metadata", true, true),
    (132, "metadata", true, true),
    (133, "metadata", true, true),
    (134, "metadata", true, true),
    (135, "metadata", true, true),
    (136, "metadata", true, true),
    (137, "metadata", true, true),
    (138, "none", true, false),
    (139, "metadata", true, true),
    (140, "metadata", true, true),
    (141, "metadata", true, true),
    (142, "metadata", true, true),
    (143, "metadata", true, true),
    (144, "metadata", true, true),
    (145, "metadata", true, true),
    (146, "metadata", true, true),
    (147, "metadata", true, true),
    (148, "metadata", true, true),
    (149, "metadata", true, true),
    (160, "partition", true, false),
    (161, "partition", true, true),
    (162, "partition", true, true),
];

/// Code and operation: section 9.
#[rustfmt::skip]
const CODES: [(u32, u8); 55] = [
    (1, 2), (10, 2), (11, 2), (12, 2), (13, 2), (14, 2), (20, 2), (21, 2), (22, 2), (31, 2),
    (32, 2), (33, 141), (34, 143), (35, 142), (36, 145), (37, 144), (38, 2), (39, 3), (40, 1),
    (41, 2), (42, 146), (43, 147), (44, 2), (45, 1), (100, 2), (101, 160), (102, 2), (103, 2),
    (104, 2), (120, 2), (121, 161), (122, 162), (123, 2), (200, 2), (201, 2), (202, 128),
    (203, 130), (204, 129), (205, 131), (300, 2), (301, 2), (302, 132), (303, 134), (304, 133),
    (305, 135), (402, 136), (403, 137), (503, 138), (600, 2), (601, 2), (602, 139), (603, 140),
    (604, 148), (605, 149), (606, 2),
];

#[test]
fn every_operation_byte() {
    for byte in 0..=u8::MAX {
        let row = OPERATIONS.iter().find(|row| row.0 == byte);
        let Some((_, class, client, framed)) = row else {
            assert_eq!(Operation::from_u8(byte), None, "{byte}");
            continue;
        };
        let operation = Operation::from_u8(byte).expect("defined");
        assert_eq!(operation.as_u8(), byte);
        assert_eq!(operation.client_may_send(), *client, "{operation}");
        assert_eq!(operation.is_result_framed(0), *framed, "{operation}");
        assert_eq!(operation.is_internal(), *class == "internal", "{operation}");
        let metadata = matches!(*class, "internal" | "metadata");
        assert_eq!(operation.is_metadata(), metadata, "{operation}");
        assert_eq!(
            operation.is_metadata_plane(),
            metadata || *class == "plane",
            "{operation}"
        );
        assert_eq!(
            operation.is_partition(),
            *class == "partition",
            "{operation}"
        );
        assert_eq!(
            operation.is_plane_routable(),
            *class != "none",
            "{operation}"
        );
    }
    assert!(Operation::Register.is_result_framed(1));
    assert!(!Operation::Logout.is_result_framed(1));
}

#[test]
fn every_client_code() {
    for code in 0..1000 {
        let row = CODES.iter().find(|row| row.0 == code);
        let expected = row.map_or(2, |row| row.1);
        assert_eq!(
            ClientCode::from_u32(code).is_some(),
            row.is_some(),
            "{code}"
        );
        assert_eq!(Operation::from_code(code).as_u8(), expected, "{code}");
    }
    assert_eq!(ClientCode::ALL.len(), 55);
    assert_eq!(Operation::from_code(u32::MAX), Operation::NonReplicated);
    let legacy: Vec<_> = ClientCode::ALL
        .iter()
        .filter(|code| code.is_legacy_login())
        .collect();
    assert_eq!(
        legacy,
        [
            &ClientCode::LoginUser,
            &ClientCode::LoginWithPersonalAccessToken
        ]
    );
}

#[test]
fn rewritten_operations() {
    for operation in Operation::ALL {
        let replicated = operation.replicated_as();
        let expected = match operation.as_u8() {
            132 => 64,
            136 => 65,
            138 => 68,
            other => other,
        };
        assert_eq!(replicated.as_u8(), expected);
    }
}

#[test]
fn every_command_byte() {
    for byte in 0..=u8::MAX {
        match Command::from_u8(byte) {
            Some(command) => assert_eq!(command.as_u8(), byte),
            None => assert!(byte >= 30),
        }
    }
    assert_eq!(Command::from_u8(29), Some(Command::ForwardLogoutResult));
}

#[test]
fn seals_are_where_section_7_1_says() {
    let sealed = [
        PrepareOkHeader::SEALED,
        CommitHeader::SEALED,
        StartViewChangeHeader::SEALED,
        DoViewChangeHeader::SEALED,
        StartViewHeader::SEALED,
        RequestStartViewHeader::SEALED,
        RequestPreparesHeader::SEALED,
        RepairRangeReplyHeader::SEALED,
        RequestStateTransferHeader::SEALED,
        StateTransferTargetHeader::SEALED,
        RequestStateChunkHeader::SEALED,
        StateChunkHeader::SEALED,
        ForwardRegisterHeader::SEALED,
        ForwardRegisterResultHeader::SEALED,
        ForwardLogoutHeader::SEALED,
        ForwardLogoutResultHeader::SEALED,
    ];
    assert!(sealed.iter().all(|sealed| *sealed));
    let unsealed = [
        RequestHeader::SEALED,
        RoutedRequestHeader::SEALED,
        PrepareHeader::SEALED,
        ReplyHeader::SEALED,
        EvictionHeader::SEALED,
        HandshakeHeader::SEALED,
        GenericHeader::SEALED,
    ];
    assert!(unsealed.iter().all(|sealed| !*sealed));
}

#[test]
fn eviction_reasons_and_error_codes() {
    for byte in 0..=u8::MAX {
        match EvictionReason::from_u8(byte) {
            Some(reason) => assert_eq!(reason.as_u8(), byte),
            None => assert!(byte > 15),
        }
    }
    let mut before = 0;
    for code in ErrorCode::all() {
        assert!(code.as_u32() > before, "in numeric order");
        before = code.as_u32();
        assert_eq!(ErrorCode::from_u32(before), Some(code));
        assert!(!code.name().is_empty());
    }
    assert_eq!(ErrorCode::from_u32(0), None);
    assert_eq!(ErrorCode::from_u32(60), None);
    assert_eq!(ErrorCode::StreamIdNotFound.name(), "stream_id_not_found");
    assert_eq!(
        ErrorCode::TransientNotAccepted.to_string(),
        "transient_not_accepted (58)"
    );
}

#[test]
fn routing_of_section_10_4() {
    let route = |operation, group| {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_operation(operation);
        header.set_group(group);
        let message = prepare::build_with_body(header, &[]);
        decode_replica(message).expect("valid").route()
    };
    let partition = GroupId(7);
    let metadata = Some(GroupId::METADATA);
    assert_eq!(route(Operation::CreateStream, GroupId::METADATA), metadata);
    assert_eq!(
        route(Operation::CreateStream, partition),
        metadata,
        "whatever group says"
    );
    assert_eq!(route(Operation::Register, GroupId(0)), metadata);
    assert_eq!(route(Operation::SendMessages, partition), Some(partition));
    assert_eq!(
        route(Operation::SendMessages, GroupId(0)),
        Some(GroupId(0)),
        "a real partition"
    );
    assert_eq!(route(Operation::SendMessages, GroupId::METADATA), None);
    assert_eq!(route(Operation::SendMessages, GroupId(1_000_000)), None);
    for operation in [
        Operation::Reserved,
        Operation::NonReplicated,
        Operation::DeleteSegments,
    ] {
        assert_eq!(route(operation, GroupId::METADATA), None);
    }
    let heartbeat = |group| {
        let mut header = CommitHeader::new(Command::Commit);
        header.set_group(group);
        decode_replica(Message::sealed(header, &[]))
            .expect("valid")
            .route()
    };
    assert_eq!(heartbeat(GroupId::METADATA), metadata);
    assert_eq!(heartbeat(partition), Some(partition));
    assert_eq!(heartbeat(GroupId(1 << 60)), None);
}
