//! A listener that says one thing to whoever comes, and hears nothing.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};

use super::POLL;

/// What comes after its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It hangs up without an answer.
    Close,
    /// It says nothing more.
    Hang,
}

/// The listener. Ends when dropped.
pub struct Scripted {
    address: SocketAddr,
    is_open: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Scripted {
    /// One that says `words`.
    pub fn start(words: Vec<u8>, then: Then) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let is_open = Arc::new(AtomicBool::new(true));
        let theirs = Arc::clone(&is_open);
        let acceptor = spawn(move || {
            let mut held: Vec<TcpStream> = Vec::new();
            while theirs.load(Ordering::SeqCst) {
                let Ok((mut stream, _)) = listener.accept() else {
                    sleep(POLL);
                    continue;
                };
                // A client that does not listen to the end is none of our business.
                let _ = stream.write_all(&words);
                if then == Then::Hang {
                    held.push(stream);
                }
            }
        });
        Self { address, is_open, acceptor: Some(acceptor) }
    }

    /// Its URI as a store.
    pub fn uri(&self, parameters: &str) -> String {
        format!("nbd://{}/{parameters}", self.address)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.is_open.store(false, Ordering::SeqCst);
        let _ = self.acceptor.take().map(JoinHandle::join);
    }
}
