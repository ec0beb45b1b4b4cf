//! Answers readers on stream sockets, one request a connection. No reader can hold anybody up: nothing here
//! blocks, and connections, requests, time and the connections of one second are bounded.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, accept_with, recv, send, shutdown, sockopt};
use rustix::process::geteuid;

/// What readers may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at a time; a further one ends the oldest.
    pub connections: usize,
    /// Bytes of a request.
    pub request_bytes: usize,
    /// From the connection's beginning to its end.
    pub patience: Duration,
    /// Connections taken in one second; others wait for the next.
    pub connections_per_s: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 16,
            request_bytes: 4 << 10,
            patience: Duration::from_secs(2),
            connections_per_s: 200,
        }
    }
}

/// A socket that readers connect to, which does not block.
#[derive(Debug)]
pub struct Listener {
    /// The socket, which listens already.
    pub socket: OwnedFd,
    /// A Unix socket that answers this user and root only.
    pub is_private: bool,
}

/// What is said to what has been received so far.
pub enum Reply {
    /// The request is not whole yet.
    More,
    /// The answer, after which the connection ends.
    Answer(Arc<Vec<u8>>),
}

/// Who says what is answered: by the listener's index, what was received, and whether no more is taken.
pub type Answering<'a> = dyn FnMut(usize, &[u8], bool) -> Reply + 'a;

struct Connection {
    socket: OwnedFd,
    listener: usize,
    received: Vec<u8>,
    answer: Option<Arc<Vec<u8>>>,
    sent: usize,
    end: Instant,
}

impl Connection {
    fn is_answered(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| self.sent == answer.len())
    }

    /// What it waits for.
    fn events(&self) -> PollFlags {
        if self.answer.is_some() && !self.is_answered() { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Goes on; false once it is over.
    fn go_on(&mut self, bounds: &Bounds, answering: &mut Answering<'_>) -> bool {
        if self.answer.is_none() && !self.hear(bounds, answering) {
            return false;
        }
        if self.is_answered() {
            return self.is_heard_out();
        }
        self.say()
    }

    fn hear(&mut self, bounds: &Bounds, answering: &mut Answering<'_>) -> bool {
        let mut bytes = [0; 1024];
        loop {
            let room = (bounds.request_bytes - self.received.len()).min(bytes.len());
            match recv(&self.socket, &mut bytes[..room], RecvFlags::empty()) {
                Ok((0, _)) => return false,
                Ok((count, _)) => self.received.extend_from_slice(&bytes[..count.min(room)]),
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
            let is_full = self.received.len() >= bounds.request_bytes;
            match answering(self.listener, &self.received, is_full) {
                Reply::Answer(answer) => {
                    self.answer = Some(answer);
                    return true;
                }
                Reply::More if is_full => return false,
                Reply::More => {}
            }
        }
    }

    fn say(&mut self) -> bool {
        let Some(answer) = &self.answer else { return true };
        while self.sent < answer.len() {
            match send(&self.socket, &answer[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        // An end with something unread would take back what was said last.
        shutdown(&self.socket, Shutdown::Write).is_ok()
    }

    /// Whether the reader may still be reading: it closes when it has all.
    fn is_heard_out(&self) -> bool {
        let mut bytes = [0; 1024];
        loop {
            match recv(&self.socket, &mut bytes, RecvFlags::empty()) {
                Ok((0, _)) => return false,
                Ok(_) => {}
                Err(error) => return error == Errno::AGAIN,
            }
        }
    }
}

/// Readers and what they are told.
pub struct Server {
    listeners: Vec<Listener>,
    connections: Vec<Connection>,
    bounds: Bounds,
    /// The second that is counted, and connections taken in it.
    second: (Instant, u32),
}

impl Server {
    /// A server on these sockets.
    #[must_use]
    pub fn new(listeners: Vec<Listener>, bounds: Bounds) -> Self {
        Self { listeners, connections: Vec::new(), bounds, second: (Instant::now(), 0) }
    }

    /// Waits until `also` can be read, a reader wants something, or `wait` is over, and does what can be done
    /// at once. Returns whether `also` can be read.
    ///
    /// # Errors
    /// The kernel's, of poll(2); EINTR where a signal came.
    pub fn turn(
        &mut self,
        also: Option<BorrowedFd<'_>>,
        wait: Option<Duration>,
        answering: &mut Answering<'_>,
    ) -> io::Result<bool> {
        let now = Instant::now();
        if now.duration_since(self.second.0) >= Duration::from_secs(1) {
            self.second = (now, 0);
        }
        let accepts = self.second.1 < self.bounds.connections_per_s;
        let ready = self.poll(also, wait, now, accepts)?;
        let (also_ready, rest) = ready.split_at(usize::from(also.is_some()));
        let (listeners, connections) = rest.split_at(if accepts { self.listeners.len() } else { 0 });
        let now = Instant::now();
        let mut index = 0;
        let (bounds, is_ready) = (self.bounds, connections);
        self.connections.retain_mut(|connection| {
            let goes_on = match is_ready.get(index) {
                Some(true) => connection.go_on(&bounds, answering),
                _ => true,
            };
            index += 1;
            goes_on && now < connection.end
        });
        for (listener, _) in listeners.iter().enumerate().filter(|(_, ready)| **ready) {
            self.accept(listener, answering);
        }
        Ok(also_ready.contains(&true))
    }

    fn poll(
        &self,
        also: Option<BorrowedFd<'_>>,
        wait: Option<Duration>,
        now: Instant,
        accepts: bool,
    ) -> io::Result<Vec<bool>> {
        let mut polled: Vec<PollFd<'_>> =
            also.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        if accepts {
            polled.extend(self.listeners.iter().map(|listener| PollFd::new(&listener.socket, PollFlags::IN)));
        }
        let connections = self.connections.iter();
        polled.extend(connections.map(|connection| PollFd::new(&connection.socket, connection.events())));
        let ends = self.connections.iter().map(|connection| connection.end);
        let next_second = (!accepts).then(|| self.second.0 + Duration::from_secs(1));
        let first = ends.chain(next_second).min().map(|end| end.saturating_duration_since(now));
        let wait = first.into_iter().chain(wait).min();
        let wait = wait.map(|wait| Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        });
        poll(&mut polled, wait.as_ref())?;
        Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
    }

    fn accept(&mut self, listener: usize, answering: &mut Answering<'_>) {
        let Listener { socket, is_private } = &self.listeners[listener];
        let Ok(socket) = accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else { return };
        self.second.1 += 1;
        if *is_private && !is_own_or_roots(&socket) {
            return;
        }
        if self.connections.len() >= self.bounds.connections {
            self.connections.remove(0);
        }
        let end = Instant::now() + self.bounds.patience;
        let (received, answer) = (Vec::new(), None);
        let mut connection = Connection { socket, listener, received, answer, sent: 0, end };
        // Mostly the request is there already.
        if connection.go_on(&self.bounds, answering) {
            self.connections.push(connection);
        }
    }
}

fn is_own_or_roots(socket: &OwnedFd) -> bool {
    let uid = sockopt::socket_peercred(socket.as_fd()).map(|peer| peer.uid.as_raw());
    uid.is_ok_and(|uid| uid == 0 || uid == geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    /// Answers each line with ten times as much, until `reader` is through.
    fn serve<T: Send>(bounds: Bounds, reader: impl FnOnce(&std::path::Path) -> T + Send) -> T {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut server = Server::new(vec![Listener { socket: listener.into(), is_private: true }], bounds);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| reader(&path));
            while !reader.is_finished() {
                let turned =
                    server.turn(None, Some(Duration::from_millis(5)), &mut |_, received, _| match received
                        .ends_with(b"\n")
                    {
                        true => Reply::Answer(Arc::new(received.repeat(10))),
                        false => Reply::More,
                    });
                assert!(!turned.unwrap());
                assert!(server.connections.len() <= bounds.connections);
            }
            reader.join().unwrap()
        })
    }

    fn ask(stream: &mut UnixStream, request: &[u8]) -> String {
        // A server that has had enough closes its end.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn a_reader_is_answered_beside_those_that_are_slow_many_or_hostile() {
        let bounds = Bounds { connections: 4, request_bytes: 64, ..Bounds::default() };
        serve(bounds, |path| {
            let connect = || UnixStream::connect(path).unwrap();
            let silent: Vec<UnixStream> = (0..20).map(|_| connect()).collect();
            let mut halting = connect();
            halting.write_all(b"ha").unwrap();
            assert_eq!(ask(&mut connect(), b"hello\n"), "hello\n".repeat(10));
            halting.write_all(b"lt\n").unwrap();
            assert_eq!(ask(&mut halting, b""), "halt\n".repeat(10));
            assert_eq!(ask(&mut connect(), &[b'x'; 1000]), "", "a request that is too long");
            drop(connect());
            assert_eq!(ask(&mut connect(), b"again\n"), "again\n".repeat(10));
            drop(silent);
        });
    }

    #[test]
    fn a_reader_that_does_not_read_is_given_up() {
        let patience = Duration::from_millis(50);
        let bounds = Bounds { request_bytes: 2 << 20, patience, ..Bounds::default() };
        serve(bounds, |path| {
            let mut stream = UnixStream::connect(path).unwrap();
            let mut request = vec![b'x'; 1 << 20];
            request.push(b'\n');
            stream.write_all(&request).unwrap();
            let mut lone = UnixStream::connect(path).unwrap();
            // Ends without an answer, whenever the server's patience does.
            assert_eq!(ask(&mut lone, b"no end"), "");
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.len() < 10 * request.len());
        });
    }

    #[test]
    fn connections_of_one_second_are_bounded() {
        let bounds = Bounds { connections_per_s: 3, ..Bounds::default() };
        let answered = serve(bounds, |path| {
            let began = Instant::now();
            for _ in 0..7 {
                assert_eq!(ask(&mut UnixStream::connect(path).unwrap(), b"a\n"), "a\n".repeat(10));
            }
            began.elapsed()
        });
        assert!(answered >= Duration::from_secs(1), "{answered:?}");
    }
}
