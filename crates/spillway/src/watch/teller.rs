//! The thread that answers whoever looks at a run or a donor: readers of its state socket, and of its
//! metrics.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use spillway_snapshot::directory::Of;
use spillway_snapshot::heat::HeatMap;
use spillway_snapshot::past::Past;
use spillway_snapshot::request::{Answer, Request};
use spillway_snapshot::server::{Bounds, Listener, Reply, Server};
use spillway_snapshot::sites::Sites;
use spillway_snapshot::snapshot::Snapshot;
use spillway_snapshot::state_socket::{StateSocket, StateSocketError};

use crate::watch::endpoint::Endpoint;
use crate::watch::http::{self, Content, OPEN_METRICS};
use crate::watch::marks::Marks;
use crate::watch::metrics;

/// A look is shared by all who ask within this time.
const FRESH: Duration = Duration::from_millis(50);

/// Who is told of.
pub trait Subject: Send {
    /// How it stands now.
    fn snapshot(&self) -> Snapshot;

    /// Why a process's pages are where they are, and the page at an address, where one is meant.
    ///
    /// # Errors
    /// It has no such process, or none that answers; a sentence that says so.
    fn explain(&self, process: u32, _address: Option<u64>) -> Result<Value, String> {
        Err(no_pages(process))
    }

    /// Where a process's memory is and how much it is used.
    ///
    /// # Errors
    /// As for [`Self::explain`].
    fn heat(&self, process: u32) -> Result<HeatMap, String> {
        Err(no_pages(process))
    }

    /// Where its programs waited for pages.
    ///
    /// # Errors
    /// It has none.
    fn sites(&self) -> Result<Sites, String> {
        Err("it has no programs".to_owned())
    }

    /// Does what it does from time to time; returns in what time it is due again.
    fn go_on(&self) -> Option<Duration> {
        None
    }

    /// What it has counted up to now; none where nothing of that kind is counted.
    fn counts(&self) -> Option<Past> {
        None
    }
}

fn no_pages(process: u32) -> String {
    format!("process {process} has no pages that go far")
}

/// What is told, and on which sockets.
pub struct Telling {
    /// What the socket is of.
    pub of: Of,
    /// Who is told of.
    pub subject: Box<dyn Subject>,
    /// Where Prometheus asks, if anywhere.
    pub metrics: Option<Endpoint>,
}

/// The thread at work. It ends, and the socket goes, when the value is dropped.
pub struct Teller {
    stop: UnixStream,
    thread: Option<JoinHandle<Telling>>,
}

impl Teller {
    /// Begins to answer. Where there can be no socket, the reason is returned beside it: the metrics are told
    /// all the same.
    ///
    /// # Errors
    /// The kernel makes no thread, or no descriptor for it.
    pub fn start(telling: Telling) -> io::Result<(Self, Option<StateSocketError>)> {
        let (state, failure) = match StateSocket::open(telling.of, std::process::id()) {
            Ok(opened) => (Some(opened), None),
            Err(error) => (None, Some(error)),
        };
        let (stop, stopped) = UnixStream::pair()?;
        let thread = std::thread::Builder::new().name("spillway-state".to_owned());
        let thread = thread.spawn(move || tell(telling, state, &stopped))?;
        Ok((Self { stop, thread: Some(thread) }, failure))
    }

    /// Ends the thread, as must be before a fork; gives back what it takes to begin anew.
    pub fn stop(mut self) -> Option<Telling> {
        self.end()
    }

    fn end(&mut self) -> Option<Telling> {
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.end();
    }
}

/// What was seen last.
struct Looks<'a> {
    telling: &'a Telling,
    at: Option<Instant>,
    snapshot: Option<Arc<Snapshot>>,
    line: Option<Arc<Vec<u8>>>,
    marks: Marks,
}

impl Looks<'_> {
    fn snapshot(&mut self) -> Arc<Snapshot> {
        if self.at.is_none_or(|at| at.elapsed() > FRESH) {
            (self.snapshot, self.line, self.at) = (None, None, Some(Instant::now()));
        }
        let subject = &self.telling.subject;
        self.snapshot.get_or_insert_with(|| Arc::new(subject.snapshot())).clone()
    }

    fn past(&self, ago_s: u32) -> Result<&Past, String> {
        let now = self.telling.subject.counts();
        let past = now.and_then(|now| self.marks.before(now.uptime_s, ago_s));
        past.ok_or_else(|| format!("it knows nothing of {ago_s} seconds ago"))
    }

    /// The answer to a line.
    fn line(&mut self, request: &[u8]) -> Arc<Vec<u8>> {
        match serde_json::from_slice::<Request>(request) {
            Ok(Request::Snapshot) => {
                let snapshot = self.snapshot();
                self.line.get_or_insert_with(|| Arc::new(Answer::Ok(&*snapshot).line())).clone()
            }
            Ok(Request::Explain { process, address }) => {
                answer(self.telling.subject.explain(process, address))
            }
            Ok(Request::Heat { process }) => answer(self.telling.subject.heat(process)),
            Ok(Request::Past { ago_s }) => answer(self.past(ago_s)),
            Ok(Request::Sites) => answer(self.telling.subject.sites()),
            Err(error) => Arc::new(Answer::<()>::Error(format!("request: {error}")).line()),
        }
    }
}

fn answer(told: Result<impl Serialize, String>) -> Arc<Vec<u8>> {
    Arc::new(told.map_or_else(|reason| Answer::<()>::Error(reason).line(), |told| Answer::Ok(told).line()))
}

fn tell(telling: Telling, state: Option<(StateSocket, Listener)>, stopped: &UnixStream) -> Telling {
    let (socket, listener) = state.unzip();
    let metrics = telling.metrics.as_ref().and_then(|endpoint| endpoint.listener().ok());
    let is_state = |index: usize| index == 0 && socket.is_some();
    let mut server = Server::new(listener.into_iter().chain(metrics).collect(), Bounds::default());
    let marks = Marks::new(telling.subject.counts().is_some());
    let mut looks = Looks { telling: &telling, at: None, snapshot: None, line: None, marks };
    loop {
        looks.marks.go_on(|| telling.subject.counts());
        let wait = looks.marks.wait().into_iter().chain(telling.subject.go_on()).min();
        let mut answering = |index: usize, received: &[u8], is_full: bool| {
            if is_state(index) {
                return match received.iter().position(|&byte| byte == b'\n') {
                    Some(end) => Reply::Answer(looks.line(&received[..end])),
                    None => Reply::More,
                };
            }
            let hosts = telling.metrics.as_ref().map_or(&[][..], Endpoint::host_names);
            http::answer(received, is_full, hosts, &["/metrics"], |_| Content {
                kind: OPEN_METRICS,
                body: metrics::text(&looks.snapshot()),
            })
        };
        match server.turn(Some(stopped.as_fd()), wait, &mut answering) {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The kernel has no memory to wait with: readers can wait, and the run goes on.
            Err(_) => std::thread::sleep(Duration::from_secs(1)),
        }
    }
    drop(server);
    telling
}
