//! Finds what is alive on this machine, and asks it. Who answers may be slow, hung or hostile: a look takes a
//! bounded time and room, whatever it meets.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use serde_json::Value;
use spillway_core::plain_text::plain_lines;
use thiserror::Error;

use crate::directory::{Directory, is_socket_of};
use crate::heat::HeatMap;
use crate::past::Past;
use crate::request::{Answer, Request, SNAPSHOT};
use crate::sites::Sites;
use crate::snapshot::{Snapshot, VERSION};
use crate::state_socket::{try_connect, uid_of_peer};

/// How long one that is asked may take.
const PATIENCE: Duration = Duration::from_millis(700);
/// No answer is longer.
const MOST_ANSWER_BYTES: usize = 16 << 20;
/// Threads that ask beside each other.
const ASKED_AT_ONCE: usize = 64;
/// So long until it is tried again to connect to one that many ask.
const RETRY: Duration = Duration::from_millis(5);

/// Why one that seems alive says nothing.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It takes too long: it is stopped, or the machine is busy.
    #[error("it does not answer; it is stopped, or the machine is busy")]
    Silent,
    /// It was killed: nobody listens any more.
    #[error("it was killed")]
    Dead,
    /// It has ended while it was asked, or many ask at a time.
    #[error("it has ended")]
    Ended,
    /// It belongs to somebody else than its directory says.
    #[error("it is not its user's; remove it")]
    Foreign,
    /// What it says makes no sense.
    #[error("its answer was not understood: {}", plain(.0))]
    Nonsense(String),
    /// It says that it cannot answer.
    #[error("it is of another version: {}", plain(.0))]
    Refused(String),
    /// It has understood, and has nothing to tell.
    #[error("{}", plain(.0))]
    Said(String),
    /// The kernel does not let us ask.
    #[error("it cannot be asked: {0}")]
    Kernel(#[from] Errno),
}

/// Letters of what somebody says that are told on.
const MOST_SAID: usize = 1000;

/// What somebody else says, who may be another user.
fn plain(said: &str) -> String {
    plain_lines(said).take(MOST_SAID).collect()
}

/// One that is alive, or seems so.
#[derive(Debug)]
pub struct Seen {
    /// The name of its socket, with its directory.
    pub socket: String,
    /// The user whose it is, by number.
    pub uid: u32,
    /// What it says of itself.
    pub answer: Result<Snapshot, ReadError>,
}

/// Everything alive that this user may ask, in the order of the processes' numbers.
#[must_use]
pub fn look() -> Vec<Seen> {
    look_into(&Directory::visible())
}

fn look_into(directories: &[Directory]) -> Vec<Seen> {
    let sockets: Vec<(&Directory, String)> = directories
        .iter()
        .flat_map(|directory| directory.sockets().into_iter().map(move |name| (directory, name)))
        .collect();
    let mut seen: Vec<Seen> = match &sockets[..] {
        [(directory, name)] => vec![see(directory, name)],
        _ => sockets.chunks(ASKED_AT_ONCE).flat_map(see_each).collect(),
    };
    seen.retain(|seen| !matches!(seen.answer, Err(ReadError::Dead | ReadError::Ended)));
    seen.sort_by_key(|seen| seen.answer.as_ref().map_or(u32::MAX, |snapshot| snapshot.pid));
    seen
}

/// Beside each other: one that is stopped keeps nobody waiting for the others.
fn see_each(sockets: &[(&Directory, String)]) -> Vec<Seen> {
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            sockets.iter().map(|(directory, name)| scope.spawn(|| see(directory, name))).collect();
        asked.into_iter().filter_map(|asked| asked.join().ok()).collect()
    })
}

fn see(directory: &Directory, name: &str) -> Seen {
    // Where many ask at a time a connection may be the one that makes way.
    let again = |answer| if matches!(answer, Err(ReadError::Ended)) { ask(directory, name) } else { answer };
    let answer = again(again(ask(directory, name)));
    if matches!(answer, Err(ReadError::Dead)) && directory.uid() == geteuid().as_raw() {
        directory.remove(name);
    }
    let socket = directory.path().join(name).display().to_string();
    Seen { socket, uid: directory.uid(), answer }
}

/// Asks one that was seen something further.
///
/// # Errors
/// It does not answer, or answers with an error.
pub fn ask_further(seen: &Seen, request: &Request) -> Result<Value, ReadError> {
    let (directory, name) = seen.socket.rsplit_once('/').ok_or(ReadError::Foreign)?;
    let directory = Directory::open(Path::new(directory), seen.uid).map_err(|_| ReadError::Foreign)?;
    let request = serde_json::to_string(request).map_err(|error| ReadError::Nonsense(error.to_string()))?;
    match read(&request_of(&directory, name, &format!("{request}\n"))?)? {
        Answer::Ok(answer) => Ok(answer),
        Answer::Error(reason) => Err(ReadError::Said(reason)),
    }
}

/// Where the memory of one of a run's processes is and how much it is used; none where it does not tell, as
/// runs of before this request was do not.
#[must_use]
pub fn heat(seen: &Seen, process: u32) -> Option<HeatMap> {
    let told = ask_further(seen, &Request::Heat { process }).ok()?;
    serde_json::from_value(told).ok()
}

/// Where a run's programs waited for pages; none where it does not tell.
#[must_use]
pub fn sites(seen: &Seen) -> Option<Sites> {
    serde_json::from_value(ask_further(seen, &Request::Sites).ok()?).ok()
}

/// What a run had counted so long ago; none where it does not know any more, or not yet.
#[must_use]
pub fn past(seen: &Seen, ago_s: u32) -> Option<Past> {
    let told = ask_further(seen, &Request::Past { ago_s }).ok()?;
    serde_json::from_value(told).ok()
}

fn ask(directory: &Directory, name: &str) -> Result<Snapshot, ReadError> {
    understood(&request_of(directory, name, SNAPSHOT)?, directory.uid())
}

/// What the answer of one whose directory is this user's says of itself.
///
/// # Errors
/// It makes no sense, is another version's, or says that there is none.
pub fn understood(answer: &[u8], uid: u32) -> Result<Snapshot, ReadError> {
    match read::<Snapshot>(answer)? {
        Answer::Ok(snapshot) if snapshot.version == VERSION => Ok(Snapshot { uid, ..snapshot }),
        Answer::Ok(snapshot) => {
            Err(ReadError::Refused(format!("it tells of itself in version {}", snapshot.version)))
        }
        Answer::Error(reason) => Err(ReadError::Refused(reason)),
    }
}

fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<Answer<T>, ReadError> {
    serde_json::from_slice(answer).map_err(|error| ReadError::Nonsense(error.to_string()))
}

fn request_of(directory: &Directory, name: &str, request: &str) -> Result<Vec<u8>, ReadError> {
    let end = Instant::now() + PATIENCE;
    if !is_socket_of(directory, name, directory.uid()).unwrap_or(false) {
        return Err(ReadError::Foreign);
    }
    let socket = connect(directory, name, end)?;
    if uid_of_peer(&socket).ok() != Some(directory.uid()) {
        return Err(ReadError::Foreign);
    }
    // A request fits into any socket's buffer.
    send(&socket, request.as_bytes(), SendFlags::NOSIGNAL).map_err(ended)?;
    receive(&socket, end)
}

fn ended(error: Errno) -> ReadError {
    match error {
        Errno::CONNREFUSED => ReadError::Dead,
        Errno::NOENT | Errno::PIPE | Errno::CONNRESET => ReadError::Ended,
        error => ReadError::Kernel(error),
    }
}

fn connect(directory: &Directory, name: &str, end: Instant) -> Result<OwnedFd, ReadError> {
    loop {
        match try_connect(directory, name) {
            Err(Errno::AGAIN) if Instant::now() < end => std::thread::sleep(RETRY),
            Err(Errno::AGAIN) => return Err(ReadError::Silent),
            connected => return connected.map_err(ended),
        }
    }
}

fn receive(socket: &OwnedFd, end: Instant) -> Result<Vec<u8>, ReadError> {
    let mut answer = Vec::new();
    let mut bytes = vec![0; 64 << 10];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ReadError::Silent);
        }
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut polled = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut polled, Some(&left)) {
            Ok(0) => return Err(ReadError::Silent),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        match recv(socket, &mut bytes[..], RecvFlags::empty()) {
            Ok((0, _)) if answer.is_empty() => return Err(ReadError::Ended),
            Ok((0, _)) => return Ok(answer),
            Ok((count, _)) => answer.extend_from_slice(&bytes[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(ended(error)),
        }
        if answer.len() > MOST_ANSWER_BYTES {
            return Err(ReadError::Nonsense("it is longer than 16 MiB".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Body;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    fn snapshot(pid: u32) -> Snapshot {
        Snapshot {
            version: VERSION,
            spillway_version: "0".to_owned(),
            pid,
            uid: 12345,
            name: "one".to_owned(),
            uptime_s: 1.5,
            body: Body::Tier { tier: serde_json::json!({ "groups": [] }) },
        }
    }

    #[test]
    fn what_answers_is_told_from_what_is_hung_dead_or_talks_nonsense() {
        let place = tempfile::tempdir().unwrap();
        let own = geteuid().as_raw();
        let bind = |name: &str| UnixListener::bind(place.path().join(name)).unwrap();
        let good = bind("run-1.sock");
        let [old, mad, endless] = ["run-2.sock", "run-3.sock", "run-4.sock"].map(bind);
        let _hung = bind("run-5.sock");
        drop(bind("run-6.sock"));
        std::fs::write(place.path().join("run-7.sock"), "").unwrap();
        let said = |snapshot: Snapshot| Answer::Ok(snapshot).line();
        let lines = [
            (good, said(snapshot(9))),
            (old, said(Snapshot { version: VERSION + 1, ..snapshot(8) })),
            (mad, vec![b'{'; 10_000]),
        ];
        let seen = std::thread::scope(|scope| {
            for (listener, line) in lines {
                scope.spawn(move || {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut request = [0; SNAPSHOT.len()];
                    stream.read_exact(&mut request).unwrap();
                    assert_eq!(request, SNAPSHOT.as_bytes());
                    stream.write_all(&line).unwrap();
                });
            }
            scope.spawn(move || {
                let (mut stream, _) = endless.accept().unwrap();
                while stream.write_all(&[b' '; 1 << 16]).is_ok() {}
            });
            look_into(&[Directory::open(place.path(), own).unwrap()])
        });
        let by = |n: u32| {
            let name = format!("run-{n}.sock");
            seen.iter().find(|seen| seen.socket.ends_with(&name)).map(|seen| &seen.answer)
        };
        let Some(Ok(good)) = by(1) else { panic!("{seen:?}") };
        assert_eq!((good.pid, good.uid), (9, own), "whose it is the directory says");
        assert!(matches!(by(2), Some(Err(ReadError::Refused(_)))), "{seen:?}");
        assert!(matches!(by(3), Some(Err(ReadError::Nonsense(_)))), "{seen:?}");
        assert!(matches!(by(4), Some(Err(ReadError::Nonsense(_) | ReadError::Silent))), "{seen:?}");
        assert!(matches!(by(5), Some(Err(ReadError::Silent))), "{seen:?}");
        assert!(by(6).is_none() && !place.path().join("run-6.sock").exists());
        assert!(matches!(by(7), Some(Err(ReadError::Foreign))), "{seen:?}");
        assert_eq!(seen[0].socket, place.path().join("run-1.sock").display().to_string());
    }
}
