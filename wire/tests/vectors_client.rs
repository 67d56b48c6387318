//! Vectors of chapter 01 section 16.4 and chapter 07 section 15: client frames, replies,
//! evictions, the handshake frames of section 16.3, and the version gate.

mod support;

use biplane_wire::request::{ClientRequest, Login, command_of};
use biplane_wire::response::LoginReply;
use biplane_wire::*;
use support::{frame, hex, message, widened, xxh3_hex};

const V35: &str = "49:01 60:05 128:feca 168:01 176:02 196:01";
const V36: &str = "48:0701 60:05 128:feca 144:d7824d64195d7d32 168:01 176:80 184:2a";
const V36_BODY: &str = "066f7264657273";
const V37: &str = "48:2201 60:05 128:feca 144:95803f2a3c20de8f 176:01";
const V37_BODY: &str = "002c000008727573742d73646b06302e31312e300469676779046967677900000000";
const V37A: &str = "49:01 60:05 128:feca 168:03 176:a0 184:2a 192:01 248:0700200005";
const V37B: &str = "32:CL0001 60:08 128:d7824d64195d7d32 160:feca 200:01 208:80 216:29";
const V37C: &str = "32:CL0c01000003 60:0801 128:d7824d64195d7d32 160:feca 176:09 184:09
    193:401e18240a060001 208:80";
const V37D: &str = "32:CL0001000003 60:0d01 128:feca 255:01";
const V37E: &str = "32:CL0001000003 60:0d01 128:feca 145:2c 149:2c 255:0e";

fn decoded(runs: &str, body: &str) -> Typed<RequestHeader> {
    decode_client(message(runs, body)).expect("a valid vector")
}

fn refused(runs: &str, body: &str) -> FieldError {
    match decode_client(message(runs, body)) {
        Err(Refusal::Field { rule, .. }) => rule,
        other => panic!("{other:?}"),
    }
}

fn cluster() -> ClusterId {
    ClusterId::from_digest(hex(support::CLUSTER).try_into().expect("16 bytes"))
}

#[test]
fn v35_ping_before_login() {
    let mut header = RequestHeader::new(Command::Request);
    header.set_client(ClientId(0xCAFE));
    header.set_request(RequestNumber(1));
    header.set_operation(Operation::NonReplicated);
    header.set_code(ClientCode::Ping.as_u32());
    assert_eq!(Message::from_parts(header, &[]).to_vec(), frame(V35, ""));
    let typed = decoded(V35, "");
    assert_eq!(command_of(typed.header()), Some(ClientCode::Ping));
    assert_eq!(
        ClientRequest::of(typed.header(), typed.body()),
        Ok(ClientRequest::Ping)
    );
}

#[test]
fn v36_create_stream() {
    let typed = decoded(V36, V36_BODY);
    let header = typed.header();
    assert_eq!(header.session(), 42);
    assert_eq!(header.request_checksum(), body_seal(typed.body()));
    match ClientRequest::of(header, typed.body()) {
        Ok(ClientRequest::CreateStream(create)) => {
            assert_eq!(create.name.as_str(), "orders");
            assert!(create.options.is_empty());
            assert_eq!(create.encode(), hex(V36_BODY));
        }
        other => panic!("{other:?}"),
    }
    let mut flipped = hex(V36_BODY);
    flipped[6] ^= 1;
    assert_ne!(header.request_checksum(), body_seal(&flipped), "deny 4");
}

#[test]
fn v37_register() {
    let typed = decoded(V37, V37_BODY);
    assert_eq!(
        typed.header().request_checksum(),
        widened(xxh3_hex(V37_BODY))
    );
    let login = Login::decode(typed.body()).expect("a login");
    assert_eq!(login.version.protocol, ProtocolVersion::CURRENT);
    assert_eq!(login.version.sdk_name.as_str(), "rust-sdk");
    assert_eq!(login.version.sdk_version.as_str(), "0.11.0");
    let password = login.password().expect("the password shape");
    assert_eq!(password.username.as_str(), "iggy");
    assert_eq!(password.password.as_str(), "iggy");
    assert_eq!(password.context.0, "");
    assert!(login.token().is_err(), "the same bytes are no token login");
    let encoded = [login.version.encode(), password.encode()].concat();
    assert_eq!(encoded, hex(V37_BODY));
    assert_eq!(
        format!("{:?}", password.password),
        "Text8(4 bytes)",
        "not the password"
    );
}

#[test]
fn v37a_promotion_zeroes_what_the_client_put_at_the_group() {
    let bytes = frame(&format!("{V37A} 192:2a 200:07 248:ffffffffffffffff"), "");
    let client = decode_client(Message::from_bytes(&bytes).expect("generic")).expect("valid");
    let group = GroupId::partition(5, 2, 7).expect("legal");
    let mut promoted = RoutedRequestHeader::promote(client.header(), group);
    assert_eq!(promoted.bytes()[200], 7, "bytes of operation 2 are carried");
    promoted.set_user_id(1);
    assert_eq!(promoted.group(), group);
    let expected = frame(&format!("{V37A} 200:07"), "");
    assert_eq!(promoted.bytes().as_slice(), expected);
    let routed = decode_replica(message(V37A, "")).expect("accepted by the decoder");
    assert_eq!(routed.route(), Some(group));
}

#[test]
fn invalid_requests_name_their_rule() {
    let register = "60:05 128:feca 176:01 49:01";
    assert_eq!(
        refused(&format!("{V36} 128:0000"), V36_BODY),
        FieldError::ClientZero
    );
    assert_eq!(
        refused(&format!("{V36} 176:00"), V36_BODY),
        FieldError::OperationZero
    );
    assert_eq!(
        refused(&format!("{V36} 184:00"), V36_BODY),
        FieldError::SessionZero
    );
    assert_eq!(
        refused(&format!("{V36} 168:00"), V36_BODY),
        FieldError::RequestZero
    );
    assert_eq!(
        refused(&format!("{V37} 184:05"), V37_BODY),
        FieldError::SessionNotZero
    );
    assert_eq!(
        refused(&format!("{register} 168:01"), ""),
        FieldError::RequestNotZero
    );
    // The client comes before everything else, the session before the request number.
    let all = format!("{V36} 128:0000 176:00 184:00 168:00");
    assert_eq!(refused(&all, V36_BODY), FieldError::ClientZero);
    let both = format!("{V36} 184:00 168:00");
    assert_eq!(refused(&both, V36_BODY), FieldError::SessionZero);
}

#[test]
fn an_unknown_operation_of_a_client_needs_no_proof() {
    let refusal = decode_client(message(&format!("{V36} 176:c8"), V36_BODY));
    let command = Command::Request;
    assert_eq!(
        refusal,
        Err(Refusal::UnknownOperation {
            command,
            operation: 200
        })
    );
    let prepare = decode_client(message("49:01 60:06", ""));
    assert_eq!(prepare.expect_err("refused").label(), "WRONG_COMMAND");
    let reply = decode_client(message("49:01 60:08", ""));
    assert_eq!(reply.expect_err("refused").label(), "CLIENT_BOUND");
}

#[test]
fn v37b_and_v37c_replies() {
    let mut deny = ReplyHeader::new(Command::Reply);
    deny.frame.set_cluster(cluster());
    deny.set_request_checksum(widened(xxh3_hex(V36_BODY)));
    deny.set_client(ClientId(0xCAFE));
    deny.set_request(RequestNumber(1));
    deny.set_operation(Operation::CreateStream);
    deny.set_status(ErrorCode::Unauthorized.as_u32());
    assert_eq!(Message::from_parts(deny, &[]).to_vec(), frame(V37B, ""));

    deny.set_status(0);
    deny.frame.set_view(View(3));
    deny.frame.set_replica(ReplicaId(1));
    deny.set_op(Op(9));
    deny.set_commit(Op(9));
    deny.set_timestamp(1_700_000_000_000_000);
    let body = result::rejection(ErrorCode::StreamNameAlreadyExists.as_u32());
    let built = Message::from_parts(deny, &body);
    assert_eq!(built.to_vec(), frame(V37C, "0100000000000000f4030000"));
    let typed = Typed::<ReplyHeader>::decode(built).expect("valid");
    assert!(
        typed
            .header()
            .operation()
            .is_result_framed(typed.body().len())
    );
    assert_eq!(
        ResultSection::decode(typed.body()),
        Ok(ResultSection::Rejection(1012))
    );
}

#[test]
fn v37d_and_v37e_evictions() {
    let mut eviction = EvictionHeader::new(Command::Eviction);
    eviction.frame.set_cluster(cluster());
    eviction.frame.set_view(View(3));
    eviction.frame.set_replica(ReplicaId(1));
    eviction.set_client(ClientId(0xCAFE));
    eviction.set_reason(EvictionReason::NoSession);
    assert_eq!(Message::from_parts(eviction, &[]).to_vec(), frame(V37D, ""));
    eviction.set_reason(EvictionReason::IncompatibleProtocol);
    eviction.set_version_max(ProtocolVersion::CURRENT.0);
    eviction.set_version_min(ProtocolVersion::MIN.0);
    assert_eq!(Message::from_parts(eviction, &[]).to_vec(), frame(V37E, ""));

    let rule = |changes: &str| {
        let message = message(&format!("{V37D} {changes}"), "");
        match Typed::<EvictionHeader>::decode(message) {
            Err(Refusal::Field { rule, .. }) => rule,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(rule("128:0000"), FieldError::ClientZero);
    assert_eq!(rule("157:01"), FieldError::ReservedNotZero { offset: 152 });
    assert_eq!(rule("62:01"), FieldError::ReservedNotZero { offset: 62 });
    assert_eq!(rule("144:01"), FieldError::VersionWindowUnexpected);
    assert_eq!(rule("255:00"), FieldError::ReasonZero);
    assert_eq!(rule("255:0e"), FieldError::VersionWindowDegenerate);
    assert_eq!(
        rule("144:01 148:02 255:0e"),
        FieldError::VersionWindowDegenerate
    );
    let undefined = Typed::<EvictionHeader>::decode(message(&format!("{V37D} 255:10"), ""));
    assert_eq!(undefined.expect_err("refused").label(), "BAD_ENUM");
}

#[test]
fn result_sections() {
    use biplane_wire::result::success;
    let decode = |text: &str| ResultSection::decode_measured(&hex(text)).map(|(_, size)| size);
    assert_eq!(
        ResultSection::decode(&hex("0000000009")),
        Ok(ResultSection::Success(&[9]))
    );
    assert_eq!(decode("0000000009"), Ok(4));
    let rejection = hex("0100000000000000f4030000");
    assert_eq!(
        ResultSection::decode(&rejection),
        Ok(ResultSection::Rejection(1012))
    );
    assert_eq!(decode("0100000000000000f4030000"), Ok(12));
    for malformed in ["01000000", "0100000000000000", "", "000000"] {
        assert!(decode(malformed).is_err(), "{malformed}");
    }
    assert!(
        decode("0200000000000000f4030000").is_err(),
        "two entries do not fit"
    );
    assert!(decode("ffffffff00000000f4030000").is_err());
    assert_eq!(success(&[9]), hex("0000000009"));
}

#[test]
fn v30_to_v34_handshake_frames() {
    let v30 = "32:CL0001 60:0e";
    let nonce = "11".repeat(32);
    let hello = decode_handshake(message(v30, "")).expect("a hello");
    assert!(!hello.header().has_nonce());
    assert_eq!(hello.header().frame.cluster(), cluster());
    let hello = decode_handshake(message(&format!("{v30} 128:{nonce}"), "")).expect("a hello");
    assert!(hello.header().has_nonce());
    assert_eq!(hello.header().nonce(), [0x11; 32]);

    let mut reject = HandshakeHeader::new(Command::ReplicaChallenge);
    reject.frame.set_cluster(cluster());
    reject.frame.set_replica(ReplicaId(1));
    reject.set_status(HandshakeStatus::ClusterMismatch as u8);
    let v34 = frame("32:CL0001 60:0f01 192:02", "");
    assert_eq!(Message::from_parts(reject, &[]).to_vec(), v34);
    let mut finish = HandshakeHeader::new(Command::ReplicaFinish);
    finish.frame.set_cluster(cluster());
    finish.set_mac([0xAB; 32]);
    let expected = frame(&format!("32:CL0001 60:10 160:{}", "ab".repeat(32)), "");
    assert_eq!(Message::from_parts(finish, &[]).to_vec(), expected);
    assert_eq!(HandshakeStatus::from_u8(6), None);
    assert!(decode_handshake(message("49:01 60:05", "")).is_err());
}

#[test]
fn version_gate() {
    let accepted = |major, minor, patch| {
        ProtocolVersion::pack(major, minor, patch)
            .expect("packs")
            .is_accepted()
    };
    assert_eq!(
        ProtocolVersion::pack(0, 11, 0),
        Some(ProtocolVersion(0x2C00))
    );
    assert_eq!(
        ProtocolVersion::pack(0, 10, 1),
        Some(ProtocolVersion(0x2801))
    );
    assert!(accepted(0, 11, 0) && accepted(0, 11, 1023));
    assert!(!accepted(0, 10, 1023) && !accepted(0, 12, 0) && !accepted(1, 11, 0));
    assert_eq!(ProtocolVersion::pack(0, 1024, 0), None);
    assert_eq!(ProtocolVersion::CURRENT.to_string(), "0.11.0");
}

#[test]
fn login_replies_of_chapter_07() {
    let reply = support::runs07(
        "{00*48}1a01{00*10}08{00*67}95803f2a3c20de8f{00*25}0102030405060708090a0b0c0d0e0f07000000
         0000000007{00*23}01{00*55}07{00*8}2c000005302e392e30",
    );
    let message = Message::from_bytes(&reply).expect("generic");
    let typed = Typed::<ReplyHeader>::decode(message).expect("valid");
    let Ok(ResultSection::Success(payload)) = ResultSection::decode(typed.body()) else {
        panic!("a success")
    };
    let login = LoginReply::decode_exact(payload).expect("a login reply");
    assert_eq!((login.user_id, login.session), (0, 7));
    assert_eq!(login.protocol_version, ProtocolVersion::CURRENT.0);
    assert_eq!(login.server_version.as_str(), "0.9.0");
    assert_eq!(result::success(&login.encode()), typed.body());
    assert_eq!(typed.header().op(), Op(7));
    assert_eq!(typed.header().commit(), Op(7));
}
