//! A way to a donor on which answers can be made late.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// Passes connections on to a donor. Takes none any more once it is dropped.
pub struct SlowWay {
    /// Where it listens for clients.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    donor: String,
    /// How late what the donor says is passed on.
    late_ms: AtomicU64,
    is_open: AtomicBool,
}

impl SlowWay {
    /// To the donor at `HOST:PORT`, by an address of its own.
    pub fn to(donor: &str, address: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (late_ms, is_open) = (AtomicU64::new(0), AtomicBool::new(true));
        let shared = Arc::new(Shared { donor: donor.to_owned(), late_ms, is_open });
        let theirs = Arc::clone(&shared);
        let acceptor = spawn(move || {
            for client in listener.incoming().flatten() {
                if !theirs.is_open.load(Ordering::SeqCst) {
                    return;
                }
                pass_on(client, &theirs);
            }
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// From now on all that the donor says comes so much later.
    pub fn be_late(&self, late: Duration) {
        self.shared.late_ms.store(late.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Drop for SlowWay {
    fn drop(&mut self) {
        self.shared.is_open.store(false, Ordering::SeqCst);
        // Wakes the acceptor.
        drop(TcpStream::connect(self.address));
        let _ = self.acceptor.take().map(JoinHandle::join);
    }
}

fn pass_on(client: TcpStream, shared: &Arc<Shared>) {
    let Ok(donor) = TcpStream::connect(&shared.donor) else { return };
    client.set_nodelay(true).unwrap();
    donor.set_nodelay(true).unwrap();
    let (mut from_client, mut to_donor) = (client.try_clone().unwrap(), donor.try_clone().unwrap());
    spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_donor);
        let _ = to_donor.shutdown(Shutdown::Both);
    });
    let (send, receive) = channel();
    let shared = Arc::clone(shared);
    spawn(move || hear(donor, &shared, &send));
    spawn(move || tell(client, &receive));
}

/// Notes what the donor says, and when it is to be passed on.
fn hear(mut donor: TcpStream, shared: &Shared, send: &Sender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(bytes) = donor.read(&mut buffer) {
        let due = Instant::now() + Duration::from_millis(shared.late_ms.load(Ordering::SeqCst));
        if bytes == 0 || send.send((due, buffer[..bytes].to_vec())).is_err() {
            return;
        }
    }
}

fn tell(mut client: TcpStream, receive: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((due, bytes)) = receive.recv() {
        sleep(due.saturating_duration_since(Instant::now()));
        if client.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}
