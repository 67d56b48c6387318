//! TCP on the runtime's reactor.
//!
//! The runtime's own socket tries the socket first and asks the reactor after, at every read. A
//! reader of frames mostly knows better: a read that left room in its buffer has taken all there
//! was, so the next has to wait for the reactor in any case. On a replica link and on a client's
//! connection that is two system calls of three saved a frame.

use std::io::{self, IoSlice, Read as _};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_io::Async;
use futures::{AsyncRead, AsyncWrite};

/// A listening socket.
#[derive(Debug)]
pub struct TcpListener(Async<std::net::TcpListener>);

/// A connection. Clones are the same socket.
#[derive(Debug, Clone)]
pub struct TcpStream(Arc<Async<std::net::TcpStream>>);

impl TcpListener {
    /// Takes a listener of the standard library.
    ///
    /// # Errors
    /// What the operating system says of registering the socket.
    pub fn new(listener: std::net::TcpListener) -> io::Result<Self> {
        Async::new(listener).map(Self)
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().local_addr()
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// What the operating system says, of the listener or of one connection.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = self.0.accept().await?;
        Ok((TcpStream(Arc::new(stream)), address))
    }
}

impl TcpStream {
    /// Connects to `address`.
    ///
    /// # Errors
    /// What the operating system says.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = Async::<std::net::TcpStream>::connect(address).await?;
        Ok(Self(Arc::new(stream)))
    }

    /// Sends small writes at once, or not.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.get_ref().set_nodelay(nodelay)
    }

    /// Ends one direction, or both, for every clone.
    ///
    /// # Errors
    /// What the operating system says, for example that the connection is gone.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.get_ref().shutdown(how)
    }

    /// Reads some bytes; 0 is the end of the stream.
    ///
    /// `drained` belongs to the caller and starts false: it remembers between calls that the last
    /// read took everything.
    ///
    /// # Errors
    /// What the operating system says.
    pub async fn read_some(&self, buffer: &mut [u8], drained: &mut bool) -> io::Result<usize> {
        loop {
            if std::mem::replace(drained, false) {
                self.0.readable().await?;
            }
            match self.0.get_ref().read(buffer) {
                Ok(count) => {
                    *drained = count < buffer.len();
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => *drained = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self.0).poll_write_vectored(context, slices)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self.0).poll_flush(context)
    }

    /// Ends the direction towards the peer; the other one can still be read.
    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self.0).poll_close(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use super::*;
    use crate::runtime;

    fn pair() -> (std::net::TcpStream, TcpStream) {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let listener = TcpListener::new(listener).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let far = std::net::TcpStream::connect(address).expect("connects");
        let (near, _) = runtime::block_on(listener.accept()).expect("accepts");
        (far, near)
    }

    #[test]
    fn bytes_that_come_after_a_read_that_left_room_are_waited_for() {
        let (mut far, near) = pair();
        let mut drained = false;
        let mut buffer = [0; 8];
        far.write_all(b"abc").expect("written");
        let first = runtime::block_on(near.read_some(&mut buffer, &mut drained));
        assert_eq!((first.expect("read"), drained), (3, true));
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            far.write_all(b"defghijk").expect("written");
            far
        });
        let second = runtime::block_on(near.read_some(&mut buffer, &mut drained));
        assert_eq!((second.expect("read"), drained), (8, false));
        drop(writer.join().expect("no panic"));
        let end = runtime::block_on(near.read_some(&mut buffer, &mut drained));
        assert_eq!(end.expect("the end"), 0);
    }

    #[test]
    fn a_full_buffer_is_followed_by_what_is_already_there() {
        let (mut far, near) = pair();
        let mut drained = false;
        far.write_all(b"abcdef").expect("written");
        for expected in [b"abc", b"def"] {
            let mut buffer = [0; 3];
            let read = runtime::block_on(near.read_some(&mut buffer, &mut drained));
            assert_eq!(read.expect("read"), 3);
            assert_eq!((&buffer, drained), (expected, false));
        }
        near.shutdown(Shutdown::Read).expect("shut");
        let mut buffer = [0; 3];
        let end = runtime::block_on(near.read_some(&mut buffer, &mut drained));
        assert_eq!(end.expect("the end"), 0);
    }
}
