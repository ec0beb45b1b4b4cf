//! A donor in this process, for tests of what goes over its connections.
#![allow(dead_code)]

pub mod raw;

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use spillway_core::size::Size;
use spillway_donor::limits::Limits;
use spillway_donor::place::Place;
use spillway_donor::status::Status;
use spillway_donor::{Config, Donor, DonorError, Summary};

/// A donor that ends with the value.
pub struct Running {
    pub tcp: SocketAddr,
    pub socket: std::path::PathBuf,
    pub shm: String,
    rounds: Arc<AtomicU64>,
    status: Box<dyn Fn() -> Status + Send>,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<Result<Summary, DonorError>>>,
    _directory: tempfile::TempDir,
}

/// What most tests want.
pub fn config(memory_bytes: u64) -> Config {
    Config {
        memory: Size::from_bytes(memory_bytes),
        per_run: None,
        per_client: None,
        tls: None,
        plain: false,
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        unix: None,
        shm: None,
        grace: Duration::from_secs(30),
        drain: Duration::ZERO,
        limits: Limits::of(128),
        force: false,
        keep_free: None,
        protect: false,
    }
}

impl Running {
    /// A donor on all three ways.
    pub fn start(memory_bytes: u64) -> Self {
        Self::start_with(config(memory_bytes))
    }

    pub fn start_with(mut config: Config) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("donor.sock");
        let shm = format!("test-{}-{number}", std::process::id());
        config.unix = Some(socket.clone());
        config.shm = Some(shm.clone());
        let donor = Donor::bind(&config).unwrap();
        let tcp = donor.places().find_map(|place| match place {
            Place::Tcp(address) | Place::Tls(address) => Some(*address),
            _ => None,
        });
        let rounds = donor.housekeeping_rounds();
        let status = Box::new(donor.status());
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || donor.serve(stopped.as_fd(), &AtomicBool::new(false)));
        Self {
            tcp: tcp.unwrap(),
            socket,
            shm,
            rounds,
            status,
            stop: Some(stop),
            thread: Some(thread),
            _directory: directory,
        }
    }

    pub fn tcp_uri(&self, export: &str) -> String {
        format!("nbd://{}/{export}", self.tcp)
    }

    pub fn unix_uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    pub fn shm_uri(&self) -> String {
        format!("shm:{}", self.shm)
    }

    /// A store of a run that asks for so much, by each of the three ways.
    pub fn uris(&self, size: &str) -> [String; 3] {
        [
            format!("{}?size={size}", self.tcp_uri("e")),
            format!("{}&size={size}", self.unix_uri("e")),
            format!("{}?size={size}", self.shm_uri()),
        ]
    }

    /// Waits until the donor has looked after grace times three times more: once after a ring's donor has
    /// noticed its end, which takes as long as a round.
    pub fn keeps_house(&self) {
        let enough = self.rounds.load(Ordering::Relaxed) + 3;
        eventually("three rounds of housekeeping", || self.rounds.load(Ordering::Relaxed) >= enough);
    }

    /// How it stands now.
    pub fn status(&self) -> Status {
        (self.status)()
    }

    /// Tells it to end as a signal does.
    pub fn signal(&self) {
        (&mut self.stop.as_ref().unwrap()).write_all(b"X").unwrap();
    }

    /// Waits for its end.
    pub fn end(mut self) -> Summary {
        self.thread.take().unwrap().join().unwrap().unwrap()
    }

    pub fn stop(mut self) -> Summary {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits, for a bounded time, until something holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "not in 20 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
