//! A link that a test can break: a TCP proxy between a dialing node and an accepting one.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(2);

/// What happens to bytes, per direction.
#[derive(Debug, Default)]
struct State {
    /// From the dialer to the acceptor nothing passes.
    up_held: AtomicBool,
    /// From the acceptor to the dialer nothing passes.
    down_held: AtomicBool,
    /// The next bytes from the dialer are cut in the middle, and both connections are reset.
    cut_next: AtomicBool,
    /// The proxy is gone.
    closed: AtomicBool,
    connections: Mutex<Vec<(TcpStream, TcpStream)>>,
}

/// A running proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    state: Arc<State>,
}

impl Proxy {
    /// Listens on `front` and passes on to `back`.
    pub(crate) fn start(front: u16, back: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, front)).expect("a free port");
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if shared.closed.load(Ordering::Relaxed) {
                    return;
                }
                // Nobody there: the dialer sees its connection end.
                let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, back)) else {
                    continue;
                };
                pass(near, far, &shared);
            }
        });
        Self { port: front, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Stops one direction, or both. Nothing is closed and nothing is lost: a network that is cut.
    pub(crate) fn hold(&self, up: bool, down: bool) {
        self.state.up_held.store(up, Ordering::Relaxed);
        self.state.down_held.store(down, Ordering::Relaxed);
    }

    /// Resets both ends in the middle of the next frame.
    pub(crate) fn cut_in_a_frame(&self) {
        self.state.cut_next.store(true, Ordering::Relaxed);
    }

    /// True once [`Proxy::cut_in_a_frame`] has happened.
    pub(crate) fn has_cut(&self) -> bool {
        !self.state.cut_next.load(Ordering::Relaxed)
    }

    /// Resets the dialer's ends and leaves the acceptor with connections that nobody is behind.
    pub(crate) fn half_open(&self) {
        for (near, _) in self.connections().iter() {
            reset(near);
        }
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, Vec<(TcpStream, TcpStream)>> {
        self.state.connections.lock().expect("not poisoned")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::Relaxed);
        for (near, far) in self.connections().drain(..) {
            reset(&near);
            reset(&far);
        }
        // Wakes the accept loop.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn reset(socket: &TcpStream) {
    let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
    let _ = socket.shutdown(Shutdown::Both);
}

fn pass(near: TcpStream, far: TcpStream, state: &Arc<State>) {
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let twice = |socket: &TcpStream| socket.try_clone().expect("a second handle");
    let kept = (twice(&near), twice(&far));
    state.connections.lock().expect("not poisoned").push(kept);
    for up in [true, false] {
        let (from, to) = if up {
            (twice(&near), twice(&far))
        } else {
            (twice(&far), twice(&near))
        };
        let state = Arc::clone(state);
        thread::spawn(move || copy(from, to, up, &state));
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, up: bool, state: &State) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let held = if up { &state.up_held } else { &state.down_held };
        while held.load(Ordering::Relaxed) && !state.closed.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
        }
        let count = match from.read(&mut buffer) {
            // The end of the dialer's stream is passed on; a reset that the test made is not, so
            // that the acceptor keeps a connection with nobody behind it.
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Err(_) => return,
            Ok(count) => count,
        };
        while held.load(Ordering::Relaxed) && !state.closed.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
        }
        if up && count > 100 && state.cut_next.swap(false, Ordering::Relaxed) {
            let _ = to.write_all(&buffer[..100]);
            reset(&to);
            reset(&from);
            return;
        }
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}
