//! A donor on this machine, for the time of a measurement.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::cells::StoreKind;
use crate::measured::Ended;

const REMEDY: &str = "run 'spillway donor' by itself to see why";

/// A donor that listens on TCP, on a Unix socket and for rings in shared memory.
pub struct Donor {
    tcp: String,
    ring: String,
    socket: PathBuf,
    child: Ended,
}

impl Donor {
    /// Starts one that lends `bytes`, with its files in `scratch`.
    pub fn start(
        spillway: &Path,
        bytes: u64,
        scratch: &Path,
        interrupted: &AtomicBool,
    ) -> Result<Self, BenchError> {
        let failed = |reason: String| {
            BenchError::setup("start a donor", reason, REMEDY).unless_interrupted(interrupted)
        };
        let (socket, output) = (scratch.join("donor.socket"), scratch.join("donor.json"));
        let ring = format!("spillway-bench-{}", std::process::id());
        let file = fs::File::create(&output).map_err(|error| failed(error.to_string()))?;
        let child = Command::new(spillway)
            .args(["donor", "--json", "--memory", &bytes.to_string()])
            // One run follows another, and each is to have all of it.
            .args(["--grace", "0"])
            .args(["--listen", "127.0.0.1:0", "--shm", &ring, "--unix"])
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(file)
            // It tells of every run.
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let mut donor = Self { tcp: String::new(), ring, socket, child: Ended(child) };
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(20) && donor.child.runs() {
            let text = fs::read_to_string(&output).unwrap_or_default();
            if let Some(line) = text.lines().next()
                && let Ok(ready) = serde_json::from_str::<serde_json::Value>(line)
            {
                donor.tcp = ready["listening_on"][0].as_str().unwrap_or_default().to_owned();
                return Ok(donor);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(failed("it does not get ready".to_owned()))
    }

    /// Where it listens by TCP.
    #[must_use]
    pub fn address(&self) -> &str {
        self.tcp.trim_start_matches("nbd://")
    }

    /// How a run names this donor.
    fn uri(&self, store: StoreKind) -> String {
        match store {
            StoreKind::Shm => format!("shm:{}", self.ring),
            StoreKind::NbdUnix => format!("nbd+unix:///bench?socket={}", self.socket.display()),
            _ => format!("{}/bench", self.tcp),
        }
    }
}

impl Drop for Donor {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
    }
}

/// How a run names a store; `None` where it takes a donor and there is none.
#[must_use]
pub fn uri(store: StoreKind, donor: Option<&Donor>) -> Option<String> {
    match store {
        StoreKind::Ram => Some("ram:".to_owned()),
        StoreKind::Compressed => Some("compressed:".to_owned()),
        _ => donor.map(|donor| donor.uri(store)),
    }
}

/// Whether a store takes a donor.
#[must_use]
pub fn is_needed(store: StoreKind) -> bool {
    !matches!(store, StoreKind::Ram | StoreKind::Compressed)
}
