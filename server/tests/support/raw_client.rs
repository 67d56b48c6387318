//! A blocking client of one chosen node. It never follows a redirection and never retries, so an
//! answer is always that node's own.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use biplane_wire::{
    Checksum, ClientCode, ClientId, Command, EvictionHeader, EvictionReason, HEADER_SIZE, Message,
    Operation, ProtocolVersion, ReplyHeader, RequestHeader, RequestNumber, ResultSection, xxh3,
};

use super::polled::{Fields, RawPolled};
use super::{PASSWORD, USER};

const CONNECT_LIMIT: Duration = Duration::from_secs(1);
const ANSWER_LIMIT: Duration = Duration::from_secs(8);

/// Why a request has no result.
#[derive(Debug)]
pub(crate) enum RawError {
    /// The socket.
    Io(io::Error),
    /// A reply with this status.
    Status(u32),
    /// A reply whose result section holds this code.
    Rejected(u32),
    /// An eviction.
    Evicted(EvictionReason),
    /// Bytes that break the protocol.
    Broken(String),
}

impl std::fmt::Display for RawError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "socket: {error}"),
            Self::Status(code) => write!(f, "status {code}"),
            Self::Rejected(code) => write!(f, "result code {code}"),
            Self::Evicted(reason) => write!(f, "evicted: {reason:?}"),
            Self::Broken(what) => write!(f, "{what}"),
        }
    }
}

impl From<io::Error> for RawError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// One entry of the cluster metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawNode {
    pub(crate) name: String,
    pub(crate) ip: String,
    pub(crate) tcp: u16,
    pub(crate) is_primary: bool,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct RawClient {
    stream: TcpStream,
    client: u128,
    session: u64,
    request: u64,
}

impl RawClient {
    /// Connects without logging in.
    pub(crate) fn connect(address: SocketAddr) -> Result<Self, RawError> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        // Two ends of one loopback connection never repeat while both are open, and the clock
        // tells apart what came before.
        let port = u128::from(stream.local_addr()?.port()) << 80;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let client = 1 << 127 | port | now.map_or(0, |since| since.as_nanos() & ((1 << 80) - 1));
        Ok(Self {
            stream,
            client,
            session: 0,
            request: 1,
        })
    }

    /// Connects and logs in as root.
    pub(crate) fn login(address: SocketAddr) -> Result<Self, RawError> {
        Self::login_as(address, USER, PASSWORD)
    }

    /// Connects and logs in.
    pub(crate) fn login_as(
        address: SocketAddr,
        user: &str,
        password: &str,
    ) -> Result<Self, RawError> {
        let mut raw = Self::connect(address)?;
        raw.register(user, password)?;
        Ok(raw)
    }

    /// On a socket that somebody else has connected.
    pub(crate) fn over(stream: TcpStream) -> Self {
        Self {
            stream,
            client: 7,
            session: 0,
            request: 1,
        }
    }

    /// The socket, and a poll of partition 0 from its start as bytes to write to it.
    pub(crate) fn into_poll(self, stream: &str, topic: &str, count: u32) -> (TcpStream, Vec<u8>) {
        let body = poll_body(stream, topic, 0, 0, count);
        let mut header = RequestHeader::new(Command::Request);
        header.set_client(ClientId(self.client));
        header.set_operation(Operation::NonReplicated);
        header.set_code(ClientCode::PollMessages.as_u32());
        header.set_session(self.session);
        header.set_request(RequestNumber(self.request));
        (self.stream, Message::from_parts(header, &body).to_vec())
    }

    fn register(&mut self, user: &str, password: &str) -> Result<(), RawError> {
        let mut body = ProtocolVersion::CURRENT.0.to_le_bytes().to_vec();
        for text in ["raw", "1", user, password] {
            name(&mut body, text);
        }
        body.extend_from_slice(&0u32.to_le_bytes());
        let reply = self.ask(Operation::Register, 0, &body)?;
        let payload = match ResultSection::decode(&reply) {
            Ok(ResultSection::Success(payload)) => payload,
            Ok(ResultSection::Rejection(code)) => return Err(RawError::Rejected(code)),
            Err(error) => return Err(RawError::Broken(format!("login reply: {error}"))),
        };
        let mut fields = Fields(payload);
        fields.u32().map_err(RawError::Broken)?;
        self.session = fields.u64().map_err(RawError::Broken)?;
        if self.session == 0 {
            return Err(RawError::Broken("the login reply has session 0".to_owned()));
        }
        Ok(())
    }

    /// Liveness; allowed before login.
    pub(crate) fn ping(&mut self) -> Result<(), RawError> {
        let body = self.read(ClientCode::Ping, &[])?;
        if body.is_empty() {
            Ok(())
        } else {
            Err(RawError::Broken("ping has a body".to_owned()))
        }
    }

    /// Roster and primary as this node sees them.
    pub(crate) fn cluster_metadata(&mut self) -> Result<Vec<RawNode>, RawError> {
        let body = self.read(ClientCode::GetClusterMetadata, &[])?;
        nodes(&body).map_err(|reason| RawError::Broken(format!("cluster metadata: {reason}")))
    }

    /// Messages of a partition from `offset`, as this node holds them.
    pub(crate) fn poll(
        &mut self,
        stream: &str,
        topic: &str,
        partition: u32,
        offset: u64,
        count: u32,
    ) -> Result<RawPolled, RawError> {
        let body = poll_body(stream, topic, partition, offset, count);
        let reply = self.read(ClientCode::PollMessages, &body)?;
        RawPolled::decode(&reply).map_err(|reason| {
            RawError::Broken(format!(
                "poll of partition {partition} from {offset}: {reason}"
            ))
        })
    }

    /// Takes the next request number, for [`Self::write`].
    pub(crate) fn next_request(&mut self) {
        self.request += 1;
    }

    /// A replicated operation under the present request number; the body of its reply. Asked
    /// again, it is the same request.
    pub(crate) fn write(&mut self, operation: Operation, body: &[u8]) -> Result<Vec<u8>, RawError> {
        let reply = self.ask(operation, 0, body)?;
        if operation == Operation::SendMessages {
            return Ok(reply);
        }
        match ResultSection::decode(&reply) {
            Ok(ResultSection::Success(payload)) => Ok(payload.to_vec()),
            Ok(ResultSection::Rejection(code)) => Err(RawError::Rejected(code)),
            Err(error) => Err(RawError::Broken(format!("{operation:?}: {error}"))),
        }
    }

    fn read(&mut self, code: ClientCode, body: &[u8]) -> Result<Vec<u8>, RawError> {
        self.ask(Operation::NonReplicated, code.as_u32(), body)
    }

    /// Sends a request and does not wait; its number is one more than the last one's.
    pub(crate) fn post(
        &mut self,
        operation: Operation,
        code: u32,
        body: &[u8],
    ) -> Result<(), RawError> {
        self.request += 1;
        let mut header = RequestHeader::new(Command::Request);
        header.set_client(ClientId(self.client));
        header.set_operation(operation);
        header.set_code(code);
        header.set_session(self.session);
        header.set_request(RequestNumber(self.request));
        self.post_frame(&Message::from_parts(header, body).to_vec())
    }

    /// Sends bytes as they are.
    pub(crate) fn post_frame(&mut self, bytes: &[u8]) -> Result<(), RawError> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Pings and reads all answers up to the ping's; how many came before it.
    pub(crate) fn drain(&mut self) -> Result<usize, RawError> {
        self.post(Operation::NonReplicated, ClientCode::Ping.as_u32(), &[])?;
        for before in 0.. {
            let reply = self.answer()?;
            match reply.command() {
                Command::Reply => {}
                Command::Eviction => {
                    let reason = reply.header::<EvictionHeader>().reason();
                    return Err(RawError::Evicted(reason));
                }
                other => return Err(RawError::Broken(format!("the answer is a {other:?}"))),
            }
            if reply.header::<ReplyHeader>().request() == RequestNumber(self.request) {
                return Ok(before);
            }
        }
        unreachable!("the loop has no end of its own")
    }

    /// Sends one frame and reads the answer.
    fn ask(&mut self, operation: Operation, code: u32, body: &[u8]) -> Result<Vec<u8>, RawError> {
        let mut header = RequestHeader::new(Command::Request);
        header.set_client(ClientId(self.client));
        header.set_operation(operation);
        header.set_code(code);
        header.set_session(self.session);
        if operation == Operation::Register {
            header.set_request_checksum(Checksum::from_hash(xxh3(body)));
        } else {
            header.set_request(RequestNumber(self.request));
        }
        self.stream
            .write_all(&Message::from_parts(header, body).to_vec())?;
        let reply = self.answer()?;
        match reply.command() {
            Command::Reply => {}
            Command::Eviction => {
                return Err(RawError::Evicted(reply.header::<EvictionHeader>().reason()));
            }
            other => return Err(RawError::Broken(format!("the answer is a {other:?}"))),
        }
        let head = reply.header::<ReplyHeader>();
        if head.status() != 0 {
            return Err(RawError::Status(head.status()));
        }
        let wanted = if operation == Operation::Register {
            0
        } else {
            self.request
        };
        if head.request() != RequestNumber(wanted) {
            let found = head.request().0;
            return Err(RawError::Broken(format!(
                "reply to request {found}, sent {wanted}"
            )));
        }
        Ok(reply.body().to_vec())
    }

    fn answer(&mut self) -> Result<Message, RawError> {
        let mut frame = vec![0; HEADER_SIZE];
        self.stream.read_exact(&mut frame)?;
        let size = u32::from_le_bytes(frame[48..52].try_into().expect("four bytes")) as usize;
        if !(HEADER_SIZE..=64 << 20).contains(&size) {
            return Err(RawError::Broken(format!(
                "the answer's size field is {size}"
            )));
        }
        frame.resize(size, 0);
        self.stream.read_exact(&mut frame[HEADER_SIZE..])?;
        Message::from_bytes(&frame).map_err(|error| RawError::Broken(error.to_string()))
    }
}

fn poll_body(stream: &str, topic: &str, partition: u32, offset: u64, count: u32) -> Vec<u8> {
    // Consumer 1, then the two names.
    let mut body = vec![1, 1, 4, 1, 0, 0, 0];
    for text in [stream, topic] {
        body.push(2);
        name(&mut body, text);
    }
    body.push(1);
    body.extend_from_slice(&partition.to_le_bytes());
    body.push(1);
    body.extend_from_slice(&offset.to_le_bytes());
    body.extend_from_slice(&count.to_le_bytes());
    body.push(0);
    body
}

fn name(body: &mut Vec<u8>, text: &str) {
    body.push(u8::try_from(text.len()).expect("a short name"));
    body.extend_from_slice(text.as_bytes());
}

fn nodes(body: &[u8]) -> Result<Vec<RawNode>, String> {
    let mut fields = Fields(body);
    fields.text()?;
    let count = fields.u32()?;
    let mut nodes = Vec::new();
    for _ in 0..count {
        let (name, ip) = (fields.text()?, fields.text()?);
        let tcp = fields.u16()?;
        fields.take(6)?;
        let (role, status) = (fields.u8()?, fields.u8()?);
        if role > 1 || status != 0 {
            return Err(format!("node {name} has role {role} and status {status}"));
        }
        nodes.push(RawNode {
            name,
            ip,
            tcp,
            is_primary: role == 0,
        });
    }
    if !fields.0.is_empty() {
        return Err(format!("{} bytes after the last node", fields.0.len()));
    }
    Ok(nodes)
}
