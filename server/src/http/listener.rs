//! Sockets: connections are accepted, speak HTTP/1.1 or HTTP/2, and every request on them is led
//! through the steps of the interface.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use futures_rustls::rustls::{ClientConfig, ServerConfig};
use futures_rustls::{TlsAcceptor, rustls};
use parking_lot::Mutex;
use tracing::{debug, warn};
use trillium_http::h2::H2Connection;
use trillium_http::{Conn, HttpConfig, HttpContext, KnownHeaderName, Status};

use super::answer::Answer;
use super::call::{Call, Caller, Head};
use super::route::{self, Access, Found, Method, Route};
use super::{Web, WebSetup};
use crate::config::HttpTls;
use crate::runtime::{self, TcpListener, TcpStream};
use crate::tls::{self, TlsError, http_credentials, provider};

/// Connections at once.
const CONNECTIONS_MAX: usize = 1024;
/// How long a TLS handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may stay silent.
const IDLE_LIMIT: Duration = Duration::from_secs(75);
/// How much of a refused body is read, so that the answer is not lost with the connection: a
/// socket that is closed with bytes unread takes back what it has sent.
const REFUSED_BODY_READ: u64 = 64 << 20;
/// How long that may take.
const REFUSED_BODY_LIMIT: Duration = Duration::from_secs(2);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Largest head of a request.
const HEAD_MAX: usize = 32 * 1024;

/// TLS of the listener, and of the way to the other nodes.
pub(crate) struct HttpTlsFiles {
    acceptor: TlsAcceptor,
    /// Believes only who shows the listener's own certificate.
    pub(crate) client: Arc<ClientConfig>,
}

impl HttpTlsFiles {
    /// Loads the files.
    ///
    /// # Errors
    /// [`TlsError`] that names the key of the configuration.
    pub(crate) fn load(section: &HttpTls) -> Result<Self, TlsError> {
        let (cert, key) = (Path::new(&section.cert_file), Path::new(&section.key_file));
        let (chain, private) = http_credentials(cert, key)?;
        let refused = |source| TlsError::Refused {
            key: "http.tls.cert_file",
            source,
        };
        let leaf = chain
            .first()
            .cloned()
            .ok_or_else(|| refused(rustls::Error::NoCertificatesPresented))?;
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(refused)?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(refused)?;
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let client = tls::pinned("http.tls.cert_file", leaf)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            client: Arc::new(client),
        })
    }
}

/// The running listener.
pub(crate) struct HttpListener {
    context: Arc<HttpContext>,
}

impl HttpListener {
    /// Starts to accept.
    pub(crate) fn start(listener: TcpListener, mut setup: WebSetup) -> Self {
        let acceptor = setup.tls.as_ref().map(|files| files.acceptor.clone());
        let limit = setup.config.max_request_size.0;
        let config = HttpConfig::default()
            .with_received_body_max_len(limit)
            .with_head_max_len(HEAD_MAX)
            .without_panic_on_invalid_response_headers();
        let mut context = HttpContext::new();
        context.set_config(config);
        let context = Arc::new(context);
        let tls = setup.tls.take();
        let web = Arc::new(Web::new(setup, tls.as_ref()));
        let running = Self {
            context: Arc::clone(&context),
        };
        runtime::spawn(accept(listener, acceptor, context, web));
        running
    }

    /// Lets go of idle connections and takes no more.
    pub(crate) fn shut_down(&self) {
        drop(self.context.shut_down());
    }
}

/// Counts a connection as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    context: Arc<HttpContext>,
    web: Arc<Web>,
) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = context.swansong().interrupt(listener.accept()).await;
        let (socket, peer) = match accepted {
            None => return,
            Some(Ok(accepted)) => accepted,
            Some(Err(error)) => {
                warn!(%error, "accepting an HTTP connection failed");
                runtime::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if open.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::AcqRel);
            debug!(%peer, "too many HTTP connections");
            continue;
        }
        let counted = Counted(Arc::clone(&open));
        let (acceptor, context, web) = (acceptor.clone(), Arc::clone(&context), Arc::clone(&web));
        runtime::spawn(async move {
            let _counted = counted;
            connection(socket, peer, acceptor, context, web).await;
        });
    }
}

async fn connection(
    socket: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    context: Arc<HttpContext>,
    web: Arc<Web>,
) {
    let _ = socket.set_nodelay(true);
    let Some(acceptor) = acceptor else {
        return http1(Patient::new(socket), peer, context, web).await;
    };
    match runtime::timeout(HANDSHAKE_LIMIT, acceptor.accept(socket)).await {
        Some(Ok(session)) => {
            let h2 = session.get_ref().1.alpn_protocol() == Some(b"h2");
            let stream = Patient::new(session);
            if h2 {
                http2(stream, peer, context, web).await;
            } else {
                http1(stream, peer, context, web).await;
            }
        }
        Some(Err(error)) => debug!(%peer, %error, "no TLS session for HTTP"),
        None => debug!(%peer, "the TLS handshake for HTTP takes too long"),
    }
}

async fn http1<T>(stream: T, peer: SocketAddr, context: Arc<HttpContext>, web: Arc<Web>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let served = context.run(stream, |conn| handle(Arc::clone(&web), peer, conn));
    if let Err(error) = served.await {
        debug!(%peer, %error, "an HTTP connection ended");
    }
}

async fn http2<T>(stream: T, peer: SocketAddr, context: Arc<HttpContext>, web: Arc<Web>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let connection = H2Connection::new(context);
    let mut driver = Arc::clone(&connection).run(stream);
    while let Some(next) = driver.next().await {
        match next {
            Ok(conn) => {
                let web = Arc::clone(&web);
                runtime::spawn(async move {
                    let served =
                        H2Connection::process_inbound(conn, |conn| handle(web, peer, conn));
                    if let Err(error) = served.await {
                        debug!(%peer, %error, "an HTTP/2 stream ended");
                    }
                });
            }
            Err(error) => {
                debug!(%peer, %error, "an HTTP/2 connection ended");
                break;
            }
        }
    }
}

/// One request to its answer.
async fn handle<T>(web: Arc<Web>, peer: SocketAddr, mut conn: Conn<T>) -> Conn<T>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    web.requests.fetch_add(1, Ordering::Relaxed);
    let head = head_of(&conn, peer);
    let answer = match web.admit(&head).await {
        Err(answer) => answer,
        Ok(admitted) => match body_of(&web, &head, &mut conn).await {
            Err(answer) => answer,
            Ok(body) => web.finish(admitted, head.clone(), body).await,
        },
    };
    let answer = web.with_view(answer);
    write(web.cors.mark(&head, answer), conn)
}

fn head_of<T>(conn: &Conn<T>, peer: SocketAddr) -> Head
where
    T: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let headers = conn.request_headers();
    let text = |name: &'static str| headers.get_str(name).map(str::to_owned);
    let method = match conn.method().as_str() {
        "GET" => Some(Method::Get),
        "POST" => Some(Method::Post),
        "PUT" => Some(Method::Put),
        "DELETE" => Some(Method::Delete),
        "OPTIONS" => Some(Method::Options),
        _ => None,
    };
    Head {
        method,
        path: conn.path().to_owned(),
        query: conn.querystring().to_owned(),
        authorization: text("authorization"),
        content_type: text("content-type"),
        content_length: headers.content_length(),
        origin: text("origin"),
        forwarded: headers.has_header("iggy-forwarded"),
        preflight: method == Some(Method::Options),
        private_network: headers.has_header("access-control-request-private-network"),
        peer,
    }
}

/// Reads the body of a request that was let in.
async fn body_of<T>(web: &Web, head: &Head, conn: &mut Conn<T>) -> Result<Vec<u8>, Answer>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let limit = web.config.max_request_size.0;
    let too_large = || {
        let reason = "The body is larger than this node accepts";
        Answer::transport(413, "payload_too_large", reason).closing()
    };
    if head.content_length.is_some_and(|length| length > limit) {
        let rest = conn.request_body().with_max_len(REFUSED_BODY_READ).drain();
        runtime::timeout(REFUSED_BODY_LIMIT, rest).await;
        return Err(too_large());
    }
    if !matches!(head.method, Some(Method::Post | Method::Put)) {
        return Ok(Vec::new());
    }
    match conn.request_body().with_max_len(limit).read_bytes().await {
        Ok(body) => Ok(body),
        Err(trillium_http::Error::Io(error))
            if matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::InvalidData
            ) =>
        {
            Err(Answer::text(400, "The body cannot be read").closing())
        }
        Err(_) => Err(too_large()),
    }
}

/// A request that is let in.
struct Admitted {
    route: Route,
    parameters: Vec<String>,
    caller: Option<Caller>,
}

impl Web {
    /// Finds the route and who asks, before the body is read.
    async fn admit(&self, head: &Head) -> Result<Admitted, Answer> {
        if let Some(answer) = self.cors.preflight(head) {
            return Err(answer);
        }
        let metrics = &self.config.metrics;
        let endpoint = metrics.enabled.then_some(metrics.endpoint.as_str());
        let (route, parameters) = match route::find(head.method, &head.path, endpoint) {
            Found::Route(route, parameters) => (route, parameters),
            Found::OtherMethods(allowed) => {
                return Err(Answer::empty(405).with("allow", allowed));
            }
            Found::BadParameter => {
                return Err(Answer::text(
                    400,
                    "Invalid URL: a path segment is not UTF-8",
                ));
            }
            Found::Nothing => return Err(Answer::empty(404)),
        };
        let caller = match route.access {
            Access::Public => None,
            Access::Bearer => Some(self.authenticate(head).await?),
        };
        Ok(Admitted {
            route,
            parameters,
            caller,
        })
    }

    /// Serves a request that was let in.
    async fn finish(self: &Arc<Self>, admitted: Admitted, head: Head, body: Vec<u8>) -> Answer {
        let Admitted {
            route,
            parameters,
            caller,
        } = admitted;
        let call = Call {
            head,
            parameters,
            body,
        };
        match caller {
            Some(caller) => self.place(route, &call, &caller).await,
            None => match self.serve_public(route.endpoint, &call).await {
                Ok(answer) | Err(answer) => answer,
            },
        }
    }

    /// Says which view an answer belongs to, where that is said.
    fn with_view(&self, answer: Answer) -> Answer {
        if answer.viewless || !answer.is_success() {
            return answer;
        }
        let view = self.glance.view().to_string();
        answer.with("iggy-view", view)
    }
}

fn write<T>(answer: Answer, mut conn: Conn<T>) -> Conn<T>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let status = Status::try_from(answer.status).unwrap_or(Status::Ok);
    conn.set_status(status);
    let http1 = matches!(
        conn.http_version(),
        trillium_http::Version::Http1_0 | trillium_http::Version::Http1_1
    );
    let headers = conn.response_headers_mut();
    if let Some(content_type) = answer.content_type {
        headers.insert(KnownHeaderName::ContentType, content_type);
    }
    for (name, value) in answer.headers {
        headers.insert(name, value);
    }
    if answer.closes && http1 {
        headers.insert(KnownHeaderName::Connection, "close");
    }
    if !answer.body.is_empty() || answer.status != 204 {
        conn.set_response_body(answer.body);
    }
    conn
}

/// A stream that fails when nothing moves on it for too long.
struct Patient<T> {
    stream: T,
    /// In a lock that is never taken: it makes the timer one that threads may share.
    timer: Option<Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl<T> Patient<T> {
    fn new(stream: T) -> Self {
        Self {
            stream,
            timer: None,
        }
    }

    /// Passes a result on; a pending one only for so long.
    fn within<R>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if polled.is_ready() {
            self.timer = None;
            return polled;
        }
        let timer = self
            .timer
            .get_or_insert_with(|| Mutex::new(Box::pin(runtime::sleep(IDLE_LIMIT))))
            .get_mut();
        if timer.as_mut().poll(context).is_ready() {
            self.timer = None;
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.within(context, polled)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.within(context, polled)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_close(context);
        self.within(context, polled)
    }
}
