//! A way to a server that can be broken.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::POLL;

/// How soon a connection learns that it is broken.
const LOOKS: Duration = Duration::from_millis(10);

/// True once the connection is to be reset.
type Broken = Arc<AtomicBool>;

struct Shared {
    target: String,
    is_open: AtomicBool,
    connections: Mutex<Vec<Broken>>,
}

/// Passes connections on to a server. Ends when dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy for the server at `target`, `HOST:PORT`.
    pub fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: target.to_owned(),
            is_open: AtomicBool::new(true),
            connections: Mutex::default(),
        });
        let theirs = Arc::clone(&shared);
        let acceptor = spawn(move || {
            while theirs.is_open.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((stream, _)) => theirs.pass_on(stream),
                    Err(_) => sleep(POLL),
                }
            }
        });
        Self { shared, address, acceptor: Some(acceptor) }
    }

    /// Its URI as a store.
    pub fn uri(&self, parameters: &str) -> String {
        format!("nbd://{}/{parameters}", self.address)
    }

    /// Resets all connections, in the middle of whatever they carry. Returns how many.
    pub fn reset(&self) -> usize {
        let connections: Vec<Broken> = self.shared.connections.lock().unwrap().drain(..).collect();
        connections.iter().for_each(|broken| broken.store(true, Ordering::SeqCst));
        connections.len()
    }
}

impl Shared {
    fn pass_on(&self, client: TcpStream) {
        client.set_nonblocking(false).unwrap();
        let Ok(server) = TcpStream::connect(&self.target) else { return };
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(LOOKS)).unwrap();
            stream.set_write_timeout(Some(LOOKS)).unwrap();
            // Closing throws away what is under way, and the other side gets a reset in place of an end.
            set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
        }
        let broken = Broken::default();
        self.connections.lock().unwrap().push(Arc::clone(&broken));
        let back = (server.try_clone().unwrap(), client.try_clone().unwrap(), Arc::clone(&broken));
        spawn(move || copy(client, server, &broken));
        spawn(move || copy(back.0, back.1, &back.2));
    }
}

/// Copies until either side ends or the connection is broken; then breaks it for the other direction too.
fn copy(mut from: TcpStream, mut to: TcpStream, broken: &Broken) {
    let mut buffer = vec![0; 64 << 10];
    let is_broken = || broken.load(Ordering::SeqCst);
    while !is_broken() {
        let mut rest = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => &buffer[..bytes],
            Err(error) if is_patience(error.kind()) => continue,
            Err(_) => break,
        };
        while !rest.is_empty() && !is_broken() {
            match to.write(rest) {
                Ok(bytes) => rest = &rest[bytes..],
                Err(error) if is_patience(error.kind()) => {}
                Err(_) => broken.store(true, Ordering::SeqCst),
            }
        }
    }
    broken.store(true, Ordering::SeqCst);
}

fn is_patience(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_open.store(false, Ordering::SeqCst);
        let _ = self.acceptor.take().map(JoinHandle::join);
        self.reset();
    }
}
