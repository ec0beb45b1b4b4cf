//! How a running donor is asked how it stands: an abstract Unix socket by its process number, which tells a
//! line of JSON to root and to the donor's own user, and hangs up.
//!
//! Abstract sockets belong to a network namespace: one asks from the namespace that the donor is in.

use std::fs;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use thiserror::Error;

use crate::status::Status;

const PREFIX: &str = "spillway-donor/";
/// Names that are tried, in case somebody else has taken the first.
const MOST_NAMES: u32 = 8;
/// Who reads more slowly than this is not told the rest.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most who are answered at the same time.
const MOST_ASKERS: usize = 4;
/// No answer is longer: some hundred bytes an export, and names of 4 KiB at most.
const MOST_BYTES: u64 = 16 << 20;

/// Why a donor cannot be asked.
#[derive(Debug, Error)]
pub enum ControlError {
    /// None of the donors listens there.
    #[error(
        "no donor of yours runs here: start one (spillway donor --memory SIZE --listen ADDR:PORT), or ask as \
         its user, in its network namespace"
    )]
    NoDonor,
    /// The list of sockets cannot be read.
    #[error("/proc/net/unix: {0}; mount /proc, or ask on the machine itself")]
    Sockets(io::Error),
    /// One that listens does not answer as it should.
    #[error("donor '{name}' cannot be asked: {reason}; end it, and start one of this version")]
    Answer {
        /// The name of the socket.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// The end that the donor holds.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    askers: Arc<AtomicUsize>,
}

impl Control {
    /// Begins to listen for questions.
    pub fn open() -> io::Result<Self> {
        let pid = std::process::id();
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for number in 0..MOST_NAMES {
            let name = if number == 0 { format!("{PREFIX}{pid}") } else { format!("{PREFIX}{pid}.{number}") };
            match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) {
                Ok(listener) => {
                    listener.set_nonblocking(true)?;
                    return Ok(Self { listener, askers: Arc::default() });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The socket, which becomes readable when somebody asks.
    #[must_use]
    pub fn socket(&self) -> &UnixListener {
        &self.listener
    }

    /// Answers who asks now.
    pub fn answer(&self, status: impl FnOnce() -> Status + Send + 'static) {
        let Ok((stream, _)) = self.listener.accept() else { return };
        // Only this thread adds to them.
        if !may_ask(&stream) || self.askers.load(Ordering::Relaxed) >= MOST_ASKERS {
            return;
        }
        self.askers.fetch_add(1, Ordering::Relaxed);
        let askers = Arc::clone(&self.askers);
        let answered = thread::Builder::new().name("status".into()).spawn(move || {
            // Who asks and goes away has lost the answer.
            let _ = tell(stream, &status());
            askers.fetch_sub(1, Ordering::Relaxed);
        });
        if answered.is_err() {
            self.askers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn may_ask(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid())
}

fn tell(mut stream: UnixStream, status: &Status) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    serde_json::to_writer(&stream, status)?;
    stream.write_all(b"\n")
}

/// Asks all donors on this machine that this user may ask; what each answers, or why one does not.
///
/// # Errors
/// There is none.
pub fn ask_all() -> Result<Vec<Result<Status, ControlError>>, ControlError> {
    let table = fs::read_to_string("/proc/net/unix").map_err(ControlError::Sockets)?;
    let mut answers = Vec::new();
    for name in names(&table) {
        // What is somebody else's, or has ended meanwhile, is none to ask.
        let answer = connect(&name).and_then(|stream| read(stream).transpose());
        answers.extend(answer.map(|answer| answer.map_err(|reason| ControlError::Answer { name, reason })));
    }
    if answers.is_empty() { Err(ControlError::NoDonor) } else { Ok(answers) }
}

/// Names of donors' sockets that listen, from `/proc/net/unix`.
fn names(table: &str) -> Vec<String> {
    /// Flag of a socket that accepts connections.
    const LISTENS: &str = "00010000";
    let mut names: Vec<_> = table
        .lines()
        .filter(|line| line.split_whitespace().nth(3) == Some(LISTENS))
        .filter_map(|line| Some(line[line.find(&format!("@{PREFIX}"))? + 1..].to_owned()))
        .collect();
    names.sort();
    names.dedup();
    names
}

fn connect(name: &str) -> Option<UnixStream> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).ok()?).ok()?;
    let owner = socket_peercred(&stream).ok()?.uid;
    (owner.is_root() || owner == geteuid() || geteuid().is_root()).then_some(stream)
}

/// Its answer; `None` where it has ended before it gave one.
fn read(stream: UnixStream) -> Result<Option<Status>, String> {
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    let mut text = String::new();
    match stream.take(MOST_BYTES).read_to_string(&mut text) {
        Ok(0) => Ok(None),
        Ok(_) => serde_json::from_str(&text).map(Some).map_err(|error| error.to_string()),
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionReset => Ok(None),
            io::ErrorKind::WouldBlock => Err(format!("no answer for {} s", PATIENCE.as_secs())),
            _ => Err(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn donors_are_found_by_their_sockets() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 12346 @spillway-donor/77\n\
             0000000000000000: 00000003 00000000 00000000 0001 03 12347 @spillway-donor/77\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 12348 @spillway-shm/idle\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 12349 @spillway-donor/8.1\n";
        assert_eq!(names(table), ["spillway-donor/77", "spillway-donor/8.1"]);
    }
}
