//! The connections of the run's processes to servers, of which the supervisor has copies.
//!
//! A process may end while what it has sent to a server is still on its way, or lies in the server's socket:
//! the server does it when it comes to it. If the slots were given to others at once, it would overwrite what
//! they have stored there by then. So the supervisor ends these connections itself, and gives the slots back
//! once the server has hung up on each: by then it has done, or thrown away, all that it received.
//!
//! Most processes end with every change answered ([`crate::process::unanswered`]). Nothing is waited for
//! then.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::nanosleep;
use rustix::time::Timespec;
use spillway_store::ending::{self, Ending};

use crate::run::rendezvous::{self, FromProcess, RendezvousError};

/// How long a process that cannot hand a connection over waits before it tries again, and how often.
const AGAIN: Duration = Duration::from_millis(5);
const TRIES: u32 = 20;

/// In a process: has the supervisor keep a copy of a connection. True where it does, or has ended, since
/// nobody gives slots back then.
pub(crate) fn tell_connected(supervisor: BorrowedFd<'_>, number: u64, connection: BorrowedFd<'_>) -> bool {
    let told = |fds: &[BorrowedFd<'_>]| rendezvous::send(supervisor, &FromProcess::Connected(number), fds);
    for _ in 0..TRIES {
        match told(&[connection]) {
            Ok(()) => return true,
            Err(RendezvousError::Connection(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN)) => return true,
            Err(RendezvousError::Connection(Errno::INTR)) => {}
            // More descriptors are on their way than the user may have there: see unix(7).
            Err(RendezvousError::Connection(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM)) => {
                let pause = Timespec { tv_sec: 0, tv_nsec: AGAIN.subsec_nanos().into() };
                let _ = nanosleep(&pause);
            }
            // Somebody forbids it.
            Err(_) => break,
        }
    }
    // Where this process ends amid a change, what it held is nobody's until the end of the run.
    told(&[]).is_ok()
}

/// In a process: tells the supervisor to close its copy.
pub(crate) fn tell_disconnected(supervisor: BorrowedFd<'_>, number: u64) {
    // Where the supervisor does not hear of it, it has ended.
    let _ = rendezvous::send(supervisor, &FromProcess::Disconnected(number), &[]);
}

/// In the supervisor: what one process that lives is connected to.
#[derive(Default)]
pub(crate) struct ServerConnections {
    by_number: Vec<(u64, OwnedFd)>,
    /// Of some the copy has not come.
    lacks_some: bool,
}

impl ServerConnections {
    /// The process has this connection. Without its copy where the supervisor has no room for one.
    pub(crate) fn add(&mut self, number: u64, copy: Option<OwnedFd>) {
        self.lacks_some |= copy.is_none();
        self.by_number.extend(copy.map(|copy| (number, copy)));
    }

    /// The process has closed it, and so does the supervisor.
    pub(crate) fn remove(&mut self, number: u64) {
        self.by_number.retain(|(known, _)| *known != number);
    }
}

/// What a process was connected to that has ended.
struct Ended {
    entry: usize,
    awaited: Vec<OwnedFd>,
    /// It is not known when everything is done that this process has sent: what it held is nobody's until the
    /// end of the run.
    is_unknown: bool,
}

/// In the supervisor: processes that have ended and whose slots wait for servers.
#[derive(Default)]
pub(crate) struct Endings(Vec<Ended>);

impl Endings {
    /// A process has ended amid a change.
    pub(crate) fn begin(&mut self, entry: usize, connections: ServerConnections) {
        let ServerConnections { by_number, lacks_some } = connections;
        let awaited: Vec<OwnedFd> = by_number.into_iter().map(|(_, socket)| socket).collect();
        awaited.iter().for_each(ending::hang_up);
        self.0.push(Ended { entry, awaited, is_unknown: lacks_some });
    }

    /// Takes what servers have answered; returns the entries of processes of which nothing is on its way any
    /// more.
    pub(crate) fn take_over(&mut self) -> Vec<usize> {
        for Ended { awaited, is_unknown, .. } in &mut self.0 {
            awaited.retain(|socket| {
                let ending = ending::look(socket);
                *is_unknown |= ending == Ending::Unknown;
                ending == Ending::Awaited
            });
        }
        let over = self.0.extract_if(.., |ended| ended.awaited.is_empty() && !ended.is_unknown);
        over.map(|ended| ended.entry).collect()
    }

    /// The connections that are waited for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = &OwnedFd> {
        self.0.iter().flat_map(|ended| &ended.awaited)
    }

    /// This process has ended, and its slots wait.
    pub(crate) fn has(&self, entry: usize) -> bool {
        self.0.iter().any(|ended| ended.entry == entry)
    }

    /// At the end of the run: waits for servers, for a bounded time, so that the next run that has the same
    /// slots finds nothing on its way. What is not done by then is thrown away where the network allows it.
    pub(crate) fn await_all(&mut self) {
        ending::await_all(&self.awaited().collect::<Vec<_>>());
        self.awaited().for_each(ending::reset_when_closed);
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// A process's connection to a server, and the server's end.
    fn connection() -> (UnixStream, OwnedFd) {
        let (client, server) = UnixStream::pair().unwrap();
        (server, client.into())
    }

    #[test]
    fn slots_wait_until_the_server_has_hung_up_on_each_connection() {
        let mut connections = ServerConnections::default();
        let (mut first, copy) = connection();
        connections.add(1, Some(copy));
        let (second, copy) = connection();
        connections.add(2, Some(copy));
        let mut endings = Endings::default();
        endings.begin(7, connections);
        assert!(endings.has(7) && !endings.has(8));
        assert!(endings.take_over().is_empty());
        // The server sees the end, but has something to say.
        assert_eq!(first.read(&mut [0; 8]).unwrap(), 0);
        first.write_all(&[1; 10_000]).unwrap();
        assert!(endings.take_over().is_empty());
        drop(first);
        assert!(endings.take_over().is_empty(), "the second has not hung up");
        assert_eq!(endings.awaited().count(), 1);
        drop(second);
        assert_eq!((endings.take_over(), endings.has(7)), (vec![7], false));
    }

    #[test]
    fn a_connection_that_is_let_go_is_closed() {
        let mut connections = ServerConnections::default();
        let (mut server, copy) = connection();
        connections.add(3, Some(copy));
        connections.remove(4);
        server.set_nonblocking(true).unwrap();
        assert!(server.read(&mut [0; 8]).is_err(), "it is open");
        connections.remove(3);
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn what_no_copy_has_come_of_is_never_over() {
        let mut connections = ServerConnections::default();
        connections.add(1, None);
        let mut endings = Endings::default();
        endings.begin(7, connections);
        assert!(endings.take_over().is_empty() && endings.has(7));
        endings.await_all();
        assert!(!endings.has(7));
    }

    #[test]
    fn the_supervisor_hears_of_connections_while_it_lives() {
        let (process, supervisor) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let (mut server, own) = connection();
        assert!(tell_connected(process.as_fd(), 5, own.as_fd()));
        tell_disconnected(process.as_fd(), 5);
        drop(own);
        let Ok(Some((FromProcess::Connected(5), fds))) = rendezvous::receive(&supervisor) else {
            panic!("not told")
        };
        server.set_nonblocking(true).unwrap();
        assert!(server.read(&mut [0; 8]).is_err(), "the copy keeps it open");
        drop(fds);
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 0);
        let told = rendezvous::receive(&supervisor);
        assert!(matches!(told, Ok(Some((FromProcess::Disconnected(5), _)))));
        drop(supervisor);
        let (_server, own) = connection();
        assert!(tell_connected(process.as_fd(), 6, own.as_fd()), "nobody gives slots back");
    }
}
