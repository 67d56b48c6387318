//! A blocking client connection for load: the fewest bytes moved and no thread between the
//! caller and the socket.
//!
//! It speaks chapter 07 through the wire crate alone. One request is in flight; replies are read
//! into the deframer's buffer and handed out without a copy.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use biplane_wire::request::{ClientVersion, LoginPassword};
use biplane_wire::{
    Checksum, ClientCode, ClientId, Codec as _, Command, Deframer, EvictionHeader, Header as _,
    Message, Name, Operation, ProtocolVersion, ReplyHeader, RequestHeader, RequestNumber,
    ResultSection, Text8, Text32, xxh3,
};

use super::BenchError;

const CONNECT_LIMIT: Duration = Duration::from_secs(3);
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Largest reply accepted, in bytes.
const REPLY_SIZE_MAX: u32 = 256 << 20;

/// A connection that has logged in.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    deframer: Deframer,
    client: ClientId,
    session: u64,
    request: u64,
    head: Vec<u8>,
}

impl Connection {
    /// Connects and logs in.
    pub(super) fn login(
        address: SocketAddr,
        user: &str,
        password: &str,
    ) -> Result<Self, BenchError> {
        let unreachable = |source| BenchError::Connect { address, source };
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT).map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        stream
            .set_read_timeout(Some(ANSWER_LIMIT))
            .and_then(|()| stream.set_write_timeout(Some(ANSWER_LIMIT)))
            .map_err(unreachable)?;
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| unreachable(io::Error::other(error)))?;
        let mut connection = Self {
            stream,
            deframer: Deframer::new(REPLY_SIZE_MAX),
            client: ClientId(u128::from_le_bytes(id) | 1),
            session: 0,
            request: 0,
            head: Vec::new(),
        };
        connection.register(user, password)?;
        Ok(connection)
    }

    fn register(&mut self, user: &str, password: &str) -> Result<(), BenchError> {
        let invalid = |_| BenchError::Credentials;
        let mut body = Vec::new();
        ClientVersion {
            protocol: ProtocolVersion::CURRENT,
            sdk_name: Name::new("biplane-bench").map_err(invalid)?,
            sdk_version: Name::new(env!("CARGO_PKG_VERSION")).map_err(invalid)?,
        }
        .write(&mut body);
        LoginPassword {
            username: Name::new(user).map_err(invalid)?,
            password: Text8::new(password).map_err(invalid)?,
            context: Text32(""),
        }
        .write(&mut body);
        let mut header = self.header(Operation::Register, 0);
        header.set_request(RequestNumber(0));
        header.set_request_checksum(Checksum::from_hash(xxh3(&body)));
        self.write(&header, &[], &body)?;
        let reply = self.answer(0)?;
        // `user id u32 | session u64 | ...` behind the result section.
        let payload = payload(&reply)?;
        let session = payload.get(4..12).and_then(|bytes| bytes.try_into().ok());
        self.session = session.map(u64::from_le_bytes).ok_or_else(|| {
            BenchError::Protocol("the login reply is shorter than its session".to_owned())
        })?;
        Ok(())
    }

    /// A request that is not replicated; the reply's body.
    pub(super) fn read(&mut self, code: ClientCode, body: &[u8]) -> Result<Message, BenchError> {
        let number = self.next();
        let mut header = self.header(Operation::NonReplicated, code.as_u32());
        header.set_request(RequestNumber(number));
        self.write(&header, &[], body)?;
        self.answer(number)
    }

    /// A replicated request whose body is `prefix` and `body`; its reply.
    pub(super) fn replicate(
        &mut self,
        operation: Operation,
        prefix: &[u8],
        body: &[u8],
    ) -> Result<Message, BenchError> {
        let number = self.next();
        let mut header = self.header(operation, 0);
        header.set_request(RequestNumber(number));
        self.write(&header, prefix, body)?;
        self.answer(number)
    }

    fn next(&mut self) -> u64 {
        self.request += 1;
        self.request
    }

    fn header(&self, operation: Operation, code: u32) -> RequestHeader {
        let mut header = RequestHeader::new(Command::Request);
        header.set_client(self.client);
        header.set_operation(operation);
        header.set_code(code);
        header.set_session(self.session);
        header
    }

    /// Header and prefix are small and go out with the body in one call, whatever its size.
    fn write(
        &mut self,
        header: &RequestHeader,
        prefix: &[u8],
        body: &[u8],
    ) -> Result<(), BenchError> {
        let mut header = *header;
        let size = biplane_wire::HEADER_SIZE + prefix.len() + body.len();
        let Ok(size) = u32::try_from(size) else {
            return Err(BenchError::Protocol(format!("a request of {size} bytes")));
        };
        header.frame.set_size(size);
        self.head.clear();
        self.head.extend_from_slice(header.bytes());
        self.head.extend_from_slice(prefix);
        let mut slices = [IoSlice::new(&self.head), IoSlice::new(body)];
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match self.stream.write_vectored(rest) {
                Ok(0) => return Err(BenchError::Io(io::ErrorKind::WriteZero.into())),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BenchError::Io(error)),
            }
            if rest.first().is_some_and(|slice| slice.is_empty()) {
                rest = &mut rest[1..];
            }
        }
        Ok(())
    }

    /// The reply to request `number`, of status 0.
    fn answer(&mut self, number: u64) -> Result<Message, BenchError> {
        let reply = loop {
            match self.deframer.next() {
                Ok(Some(message)) => break message,
                Ok(None) => {}
                Err(reason) => return Err(BenchError::Protocol(reason.to_string())),
            }
            match self.stream.read(self.deframer.read_slice()) {
                Ok(0) => return Err(BenchError::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(received) => self.deframer.advance(received),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BenchError::Io(error)),
            }
        };
        match reply.command() {
            Command::Reply => {}
            Command::Eviction => {
                let reason = reply.header::<EvictionHeader>().reason();
                return Err(BenchError::Evicted(format!("{reason:?}")));
            }
            other => {
                return Err(BenchError::Protocol(format!(
                    "a {other:?} instead of a reply"
                )));
            }
        }
        let head = reply.header::<ReplyHeader>();
        if head.status() != 0 {
            return Err(BenchError::Status(head.status()));
        }
        if head.request() != RequestNumber(number) {
            return Err(BenchError::Protocol(format!(
                "a reply to request {} instead of {number}",
                head.request().0
            )));
        }
        Ok(reply)
    }
}

/// What follows the result section of a reply to a metadata operation.
pub(super) fn payload(reply: &Message) -> Result<&[u8], BenchError> {
    match ResultSection::decode(reply.body()) {
        Ok(ResultSection::Success(payload)) => Ok(payload),
        Ok(ResultSection::Rejection(code)) => Err(BenchError::Status(code)),
        Err(error) => Err(BenchError::Protocol(error.to_string())),
    }
}
