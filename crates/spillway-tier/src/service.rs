//! The daemon's socket: one request a connection, a line of JSON each way. The socket is also what says that
//! a daemon runs: there is one a machine, as two would move each other's pages.

use std::fs;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_snapshot::server::{Bounds, Listener, Reply, Server};
use thiserror::Error;

use crate::status::{Answer, Request};

/// Where the daemon keeps its socket and its journal.
pub const STATE_DIRECTORY: &str = "/run/spillway";

/// The journal of settings that were changed, in the same place.
pub const JOURNAL: &str = "tier-settings.json";

const SOCKET: &str = "tier.sock";

/// Why a daemon cannot be asked, or cannot begin to answer.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// No daemon listens at this socket.
    #[error("no daemon runs here ({0}: {1}); start one: spillway tier --pid PID")]
    NoDaemon(PathBuf, io::Error),
    /// Another daemon listens at this socket already.
    #[error("a daemon runs already ({0}); end it first, or add a group to its configuration")]
    Running(PathBuf),
    /// The socket cannot be made.
    #[error("{0}: {1}; run as root, or give another directory with --state")]
    Socket(PathBuf, io::Error),
    /// The answer was not understood.
    #[error("the daemon's answer was not understood: {0}; end it and start one of this version")]
    Answer(String),
    /// There is nothing to tell.
    #[error("{0}")]
    Refused(String),
}

/// The daemon's end of the socket, which answers requests.
pub struct Service {
    server: Server,
    path: PathBuf,
}

impl Service {
    /// Begins to listen in a directory.
    ///
    /// # Errors
    /// Another daemon does so, or the socket cannot be made.
    pub fn open(state: &Path) -> Result<Self, ServiceError> {
        let path = state.join(SOCKET);
        let failed = |error| ServiceError::Socket(path.clone(), error);
        fs::create_dir_all(state).map_err(failed)?;
        if UnixStream::connect(&path).is_ok() {
            return Err(ServiceError::Running(path));
        }
        // What a daemon that was killed left behind.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = Listener { socket: listener.into(), is_private: true };
        Ok(Self { server: Server::new(vec![listener], Bounds::default()), path })
    }

    /// Answers requests for the time of `wait`, or until `also` can be read. No reader holds the daemon up,
    /// however slow.
    pub fn serve(
        &mut self,
        wait: Duration,
        also: Option<BorrowedFd<'_>>,
        answer: &mut dyn FnMut(Request) -> Answer,
    ) {
        let end = Instant::now() + wait;
        let mut answering = |_: usize, received: &[u8], _: bool| match received.iter().position(is_end) {
            Some(at) => Reply::Answer(Arc::new(answer_line(&received[..at], answer))),
            None => Reply::More,
        };
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.server.turn(also, Some(left), &mut answering) {
                Ok(false) if !left.is_zero() => {}
                // A signal ends the wait early, and its sender wants that.
                _ => return,
            }
        }
    }
}

fn is_end(byte: &u8) -> bool {
    *byte == b'\n'
}

fn answer_line(request: &[u8], answer: &mut dyn FnMut(Request) -> Answer) -> Vec<u8> {
    let answer = match serde_json::from_slice(request) {
        Ok(request) => answer(request),
        Err(error) => Answer::Error(format!("request: {error}")),
    };
    let mut line = serde_json::to_vec(&answer).unwrap_or_default();
    line.push(b'\n');
    line
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Asks the daemon whose socket is in a directory.
///
/// # Errors
/// None runs, or it has nothing to tell.
pub fn ask(state: &Path, request: &Request) -> Result<serde_json::Value, ServiceError> {
    let path = state.join(SOCKET);
    let failed = |error| ServiceError::NoDaemon(path.clone(), error);
    let mut stream = UnixStream::connect(&path).map_err(failed)?;
    let request = serde_json::to_string(request).map_err(|error| ServiceError::Answer(error.to_string()))?;
    writeln!(stream, "{request}").map_err(failed)?;
    let answer = serde_json::from_reader(&stream).map_err(|error| ServiceError::Answer(error.to_string()))?;
    match answer {
        Answer::Ok(value) => Ok(value),
        Answer::Error(reason) => Err(ServiceError::Refused(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn serve_until(service: &mut Service, asked: &std::thread::ScopedJoinHandle<'_, impl Send>) {
        while !asked.is_finished() {
            service.serve(Duration::from_millis(10), None, &mut |request| match request {
                Request::Status | Request::Snapshot => Answer::Ok(serde_json::json!({ "pid": 5 })),
                Request::Explain { process, .. } => Answer::Error(format!("process {process}: unknown")),
            });
        }
    }

    #[test]
    fn requests_are_answered_and_refused() {
        let state = tempfile::tempdir().unwrap();
        let mut service = Service::open(&state.path().join("below")).unwrap();
        let state = state.path().join("below");
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let status = ask(&state, &Request::Status).unwrap();
                assert_eq!(status["pid"], 5);
                let error = ask(&state, &Request::Explain { process: 7, address: None }).unwrap_err();
                assert_eq!(error.to_string(), "process 7: unknown");
                let mut stream = UnixStream::connect(state.join(SOCKET)).unwrap();
                writeln!(stream, "{{nonsense").unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert!(answer.contains("request:"), "{answer}");
            });
            serve_until(&mut service, &asked);
        });
    }

    #[test]
    fn one_daemon_a_machine_and_a_dead_ones_socket_is_taken_over() {
        let state = tempfile::tempdir().unwrap();
        assert!(matches!(ask(state.path(), &Request::Status), Err(ServiceError::NoDaemon(..))));
        let service = Service::open(state.path()).unwrap();
        assert!(matches!(Service::open(state.path()), Err(ServiceError::Running(_))));
        drop(service);
        assert!(!state.path().join(SOCKET).exists());
        drop(UnixListener::bind(state.path().join(SOCKET)).unwrap());
        Service::open(state.path()).unwrap();
    }
}
