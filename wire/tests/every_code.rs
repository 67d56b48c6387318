//! Every client code in both directions: a request and a response written out by hand from
//! chapters 01 and 07, decoded and encoded back to the same bytes.

mod support;

use biplane_wire::request::ClientRequest;
use biplane_wire::response::{ClientReply, ClientResponse};
use biplane_wire::*;
use support::hex;

/// Pieces of the table, by their letter: a numeric and a named identifier, a name, a consumer, a
/// partition, a strategy, empty options with length, a 64-bit number.
const PIECES: [(&str, &str); 8] = [
    ("I", "010407000000"),
    ("J", "0203666f6f"),
    ("N", "03626172"),
    ("C", "01010401000000"),
    ("P", "0105000000"),
    ("S", "016400000000000000"),
    ("O", "00000000"),
    ("Q", "0807060504030201"),
];

/// Bytes of hex and pieces.
fn bytes(text: &str) -> Vec<u8> {
    let expand = |word: &str| {
        let piece = PIECES.iter().find(|(name, _)| *name == word);
        piece.map_or_else(|| word.to_owned(), |(_, hex)| (*hex).to_owned())
    };
    hex(&text.split_whitespace().map(expand).collect::<String>())
}

const ATTACH: &str = "feca0000000000000000000000000000 2a00000000000000 0900000000000000";
const NODE: &str = "03000000 6e6f64 02000000 6970 9a1f 901f b80b 9c1f 00 00";
const CLIENT: &str = "07000000 ffffffff 01 02000000 3a39";
const USER: &str = "01000000 Q 01 N O";
const STREAM: &str = "02000000 Q 00000000 Q Q N O";
const TOPIC: &str = "03000000 Q 00000000 Q 01 Q Q Q N O O";
const GROUP: &str = "04000000 01000000 00000000 N";
const POLL: &str = "C I J P S 0a000000 01";
const POSITION: &str = "C I J P";
const LOGIN_REPLY: &str = "00000000 Q 002c0000 05302e392e30";
const POLLED: &str = "00000000 Q 00000000";

/// Code, request, response payload.
const CODES: [(u32, &str, &str); 55] = [
    (1, "", ""),
    (10, "", "STATS"),
    (11, "01 02 01 05", "504b0304"),
    (12, "", "01000000 63 01000000 NODE"),
    (13, "01", "01000000 N 0c 08000000 Q 00000000"),
    (14, "ATTACH", ""),
    (20, "", "CLIENT 01000000 010000000200000003000000"),
    (21, "07000000", "CLIENT 00000000"),
    (22, "", "CLIENT 00000000 CLIENT 00000000"),
    (31, "J", "USER 00000000"),
    (32, "", "USER USER"),
    (33, "N 0161 01 00", "USER 00000000"),
    (34, "I", ""),
    (35, "I 01 N 01 02", ""),
    (36, "I 01 0b000000 0100000000000000000000", ""),
    (37, "I 0161 0162", ""),
    (38, "", ""),
    (39, "", ""),
    (40, "002c0000 N N N 0161 O", "LOGIN_REPLY"),
    (41, "", "N Q N Q"),
    (42, "N Q", "0161"),
    (43, "N", ""),
    (44, "", ""),
    (45, "002c0000 N N 0161 O", "LOGIN_REPLY"),
    (100, "POLL", "POLLED"),
    (101, "SEND", "01000000 01000000 02000000 03000000 Q"),
    (102, "I J 05000000 01", ""),
    (103, "POLL", "ATTACH NODE"),
    (104, "POLL", "POLLED"),
    (120, "POSITION", "05000000 Q Q"),
    (121, "POSITION Q 01", ""),
    (122, "POSITION 00", ""),
    (123, "POSITION", "ATTACH NODE"),
    (200, "I", "STREAM"),
    (201, "", "STREAM STREAM"),
    (202, "N", "STREAM"),
    (203, "J", ""),
    (204, "I N", ""),
    (205, "I", ""),
    (300, "I J", "TOPIC"),
    (301, "I", "01000000 TOPIC"),
    (302, "I 01000000 N", "TOPIC"),
    (303, "I J", ""),
    (304, "I J N", ""),
    (305, "I J", ""),
    (402, "I J 02000000", ""),
    (403, "I J 02000000", ""),
    (503, "I J 05000000 02000000", ""),
    (600, "I J I", "GROUP"),
    (601, "I J", "GROUP GROUP"),
    (602, "I J N", "GROUP"),
    (603, "I J I", ""),
    (604, "I J I", ""),
    (605, "I J I", ""),
    (606, "I J J", "Q 02000000 0000000001000000"),
];

/// The bytes of a cell of the table.
fn cell(text: &str) -> Vec<u8> {
    let named = [
        ("ATTACH", ATTACH),
        ("NODE", NODE),
        ("CLIENT", CLIENT),
        ("USER", USER),
        ("STREAM", STREAM),
        ("TOPIC", TOPIC),
        ("GROUP", GROUP),
        ("POLLED", POLLED),
        ("POLL", POLL),
        ("POSITION", POSITION),
        ("LOGIN_REPLY", LOGIN_REPLY),
    ];
    let mut whole = Vec::new();
    for word in text.split_whitespace() {
        match (word, named.iter().find(|(name, _)| *name == word)) {
            ("STATS", _) => whole.resize(156, 0),
            ("SEND", _) => whole.extend(send()),
            (_, Some((_, text))) => whole.extend(bytes(text)),
            (word, None) => whole.extend(bytes(word)),
        }
    }
    whole
}

fn send() -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.push(1, 5, b"one", &[]).expect("fits");
    let batch = builder.finish().expect("fits");
    [
        bytes("15000000 I J 020405000000 01000000")[..].to_vec(),
        batch,
    ]
    .concat()
}

#[test]
fn every_code_reads_and_writes_its_request_and_its_response() {
    let listed: Vec<_> = CODES.iter().map(|(code, ..)| *code).collect();
    let known: Vec<_> = ClientCode::ALL.iter().map(|code| code.as_u32()).collect();
    assert_eq!(listed, known);
    for (number, request, response) in CODES {
        let code = ClientCode::from_u32(number).expect("listed");
        let (request, response) = (cell(request), cell(response));
        let decoded = ClientRequest::decode(code, &request)
            .unwrap_or_else(|error| panic!("request {number}: {error}"));
        assert_eq!(decoded.encode(), request, "request {number}");
        let same = match code {
            ClientCode::LoginRegisterWithPersonalAccessToken => ClientCode::LoginRegister,
            ClientCode::LoginWithPersonalAccessToken => ClientCode::LoginUser,
            code => code,
        };
        assert_eq!(decoded.code(), same);
        let decoded = ClientResponse::decode(code, &response)
            .unwrap_or_else(|error| panic!("response {number}: {error}"));
        assert_eq!(decoded.encode(), response, "response {number}");
        let says_something = !matches!(decoded, ClientResponse::Done);
        assert_eq!(says_something, !response.is_empty(), "response {number}");
    }
}

/// Status first, then the result section of the operation the reply names, then the payload.
#[test]
fn a_reply_is_read_the_way_a_client_does() {
    let code = ClientCode::CreateStream;
    let stream = cell("STREAM");
    let mut header = ReplyHeader::new(Command::Reply);
    header.set_operation(Operation::CreateStream);
    let body = result::success(&stream);
    let reply = ClientReply::decode(code, &header, &body).expect("valid");
    assert!(matches!(
        reply,
        ClientReply::Success(ClientResponse::Stream(Some(_)))
    ));
    let rejected = result::rejection(1012);
    let reply = ClientReply::decode(code, &header, &rejected);
    assert_eq!(reply, Ok(ClientReply::Rejected(1012)));
    assert!(ClientReply::decode(code, &header, &body[..3]).is_err());
    header.set_status(58);
    let reply = ClientReply::decode(code, &header, &[]);
    assert_eq!(reply, Ok(ClientReply::Refused(58)));

    let mut header = ReplyHeader::new(Command::Reply);
    header.set_operation(Operation::NonReplicated);
    let reply = ClientReply::decode(ClientCode::GetStream, &header, &stream).expect("valid");
    assert!(matches!(
        reply,
        ClientReply::Success(ClientResponse::Stream(Some(_)))
    ));
    let absent = ClientReply::decode(ClientCode::GetStream, &header, &[]);
    assert_eq!(
        absent,
        Ok(ClientReply::Success(ClientResponse::Stream(None)))
    );
}
