//! What is measured on: donors on addresses of their own, and a program under `spillway run` that can be told
//! to read.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::reads::{Order, Times};
use crate::BenchError;
use crate::measured::Ended;

/// How long anything here may take.
const LONGEST: Duration = Duration::from_secs(60);

/// A donor of the pool.
pub(super) struct PoolDonor {
    /// Where it listens, as `ADDRESS:PORT`.
    pub address: String,
    child: Ended,
}

impl Drop for PoolDonor {
    /// It dies, at once and without a word.
    fn drop(&mut self) {
        let _ = self.child.0.kill();
    }
}

impl PoolDonor {
    /// The donor of this number: each has an address of its own, and so a failure domain.
    pub fn start(
        spillway: &Path,
        number: usize,
        bytes: u64,
        options: &[&str],
        interrupted: &AtomicBool,
    ) -> Result<Self, BenchError> {
        let remedy = "run 'spillway donor' by itself to see why";
        let failed = |reason: String| {
            BenchError::setup("start a donor", reason, remedy).unless_interrupted(interrupted)
        };
        let listen = format!("{}:0", host(number));
        let mut child = Command::new(spillway)
            .args(["donor", "--json", "--grace", "0", "--listen", &listen, "--memory", &bytes.to_string()])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let out = child.stdout.take();
        let child = Ended(child);
        let mut line = String::new();
        if let Some(out) = out {
            BufReader::new(out).read_line(&mut line).map_err(|error| failed(error.to_string()))?;
        }
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let uri = ready["listening_on"][0].as_str().and_then(|uri| uri.split_once("://"));
        let (_, address) = uri.ok_or_else(|| failed("it does not get ready".to_owned()))?;
        Ok(Self { address: address.to_owned(), child })
    }
}

/// The address of a donor by its number.
fn host(number: usize) -> String {
    format!("127.0.0.{}", number + 2)
}

/// Makes certificates for so many donors in a directory that is not there yet.
pub(super) fn certificates(spillway: &Path, directory: &Path, donors: usize) -> Result<(), BenchError> {
    let remedy = "run 'spillway donor certificates' by itself to see why";
    let failed = |reason: String| BenchError::setup("make certificates", reason, remedy);
    let mut command = Command::new(spillway);
    command.args(["donor", "certificates"]).arg(directory);
    command.args((0..donors).flat_map(|number| ["--host".to_owned(), host(number)]));
    let made = command.stdin(Stdio::null()).output().map_err(|error| failed(error.to_string()))?;
    let complaint = || String::from_utf8_lossy(&made.stderr).trim().to_owned();
    if made.status.success() { Ok(()) } else { Err(failed(complaint())) }
}

/// What a run has in a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    /// Its pages, each counted once.
    pub stored_bytes: u64,
    /// Pages that it has written so far, each counted once.
    pub written_pages: u64,
    /// Pages that donors were sent for that, copies, parity and those that were moved included.
    pub donors_pages: u64,
}

/// A number of all stores whose names begin so.
fn sum(stores: &[serde_json::Value], scheme: &str, of: &str) -> u64 {
    let own = stores.iter().filter(|store| store["uri"].as_str().is_some_and(|uri| uri.starts_with(scheme)));
    own.filter_map(|store| store[of].as_u64()).sum()
}

/// A program under `spillway run` that reads when it is told to.
pub(super) struct Reader<'a> {
    spillway: PathBuf,
    child: Ended,
    said: BufReader<ChildStdout>,
    complaints: PathBuf,
    interrupted: &'a AtomicBool,
}

impl<'a> Reader<'a> {
    /// Starts it on a store, and waits until its memory is full.
    pub fn start(
        spillway: &Path,
        scratch: &Path,
        (memory_bytes, local_bytes): (u64, u64),
        store: &str,
        interrupted: &'a AtomicBool,
    ) -> Result<Self, BenchError> {
        let complaints = scratch.join("complaints");
        let failed = |error: std::io::Error| BenchError::Measured {
            command: format!("spillway run --store {store}"),
            reason: error.to_string(),
        };
        let stderr = fs::File::create(&complaints).map_err(failed)?;
        let mut child = Command::new(spillway)
            .args(["run", "--local", &local_bytes.to_string(), "--store", store, "--"])
            .arg(spillway)
            .args(["bench", "pool-reads", "--memory", &memory_bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .map_err(failed)?;
        let said = child.stdout.take().map(BufReader::new);
        let child = Ended(child);
        let said = said.ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?;
        let mut reader = Self { spillway: spillway.to_owned(), child, said, complaints, interrupted };
        if reader.line()? != "ready" {
            return Err(reader.failed("it does not get ready"));
        }
        Ok(reader)
    }

    fn failed(&self, reason: &str) -> BenchError {
        let complaints = self.complaints().lines().last().unwrap_or_default().to_owned();
        BenchError::Measured {
            command: "the program on the pool".into(),
            reason: format!("{reason}: {complaints}"),
        }
    }

    fn line(&mut self) -> Result<String, BenchError> {
        let mut line = String::new();
        match self.said.read_line(&mut line) {
            Ok(bytes) if bytes > 0 => Ok(line.trim().to_owned()),
            _ if self.interrupted.load(Ordering::Relaxed) => Err(BenchError::Interrupted),
            _ => Err(self.failed("it has ended")),
        }
    }

    /// Has it begin to read for so long.
    pub fn begin(&mut self, time: Duration) -> Result<(), BenchError> {
        self.order(Order::Read, time)
    }

    /// Has it begin to write for so long.
    pub fn begin_writes(&mut self, time: Duration) -> Result<(), BenchError> {
        self.order(Order::Write, time)
    }

    fn order(&mut self, order: Order, time: Duration) -> Result<(), BenchError> {
        let line = order.line(time);
        let told = match &mut self.child.0.stdin {
            Some(orders) => writeln!(orders, "{line}").and_then(|()| orders.flush()),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        told.map_err(|error| self.failed(&error.to_string()))
    }

    /// How long its accesses took since [`Self::begin`].
    pub fn end(&mut self) -> Result<Times, BenchError> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|error| self.failed(&error.to_string()))
    }

    /// Has it read for so long.
    pub fn read(&mut self, time: Duration) -> Result<Times, BenchError> {
        self.begin(time)?;
        self.end()
    }

    /// What its status tells of its stores.
    fn stores(&self) -> Result<Vec<serde_json::Value>, BenchError> {
        let mut command = Command::new(&self.spillway);
        command.args(["status", &self.child.0.id().to_string(), "--json"]).stdin(Stdio::null());
        let output = command.output().map_err(|error| self.failed(&error.to_string()))?;
        let seen: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let stores = seen.pointer("/alive/0/run/stores").and_then(serde_json::Value::as_array);
        Ok(stores.cloned().unwrap_or_default())
    }

    /// Bytes that the pool has in its last resort.
    pub fn spilled_bytes(&self) -> Result<u64, BenchError> {
        match sum(&self.stores()?, "spill:", "used_bytes") {
            0 => Err(self.failed("its status tells of nothing in the last resort")),
            bytes => Ok(bytes),
        }
    }

    /// What it has in the pool, as its status tells.
    pub fn space(&self) -> Result<Space, BenchError> {
        let stores = self.stores()?;
        let space = Space {
            stored_bytes: sum(&stores, "pool:", "used_bytes"),
            written_pages: sum(&stores, "pool:", "written_pages"),
            donors_pages: sum(&stores, "donor:", "written_pages"),
        };
        if space.stored_bytes > 0 { Ok(space) } else { Err(self.failed("its status tells of no pool")) }
    }

    fn complaints(&self) -> String {
        fs::read_to_string(&self.complaints).unwrap_or_default()
    }

    /// Whether the run has said this.
    pub fn has_said(&self, text: &str) -> bool {
        self.complaints().contains(text)
    }

    /// Bytes of pages that the run has moved, as the line says that begins so: `... again (96.0 MiB were
    /// moved)`.
    pub fn moved_bytes(&self, line: &str) -> Result<u64, BenchError> {
        let complaints = self.complaints();
        let said =
            complaints.rsplit_once(line).and_then(|(_, rest)| rest.trim_start_matches(" (").split_once(' '));
        let mib = said.and_then(|(mib, _)| mib.parse::<f64>().ok());
        let mib = mib.filter(|mib| *mib > 0.0).ok_or_else(|| self.failed("it says of no repair"))?;
        Ok((mib * f64::from(1 << 20)) as u64)
    }

    /// Lets it end, which it must do well.
    pub fn finish(mut self) -> Result<(), BenchError> {
        // It ends when nobody can tell it anything any more.
        drop(self.child.0.stdin.take());
        let status =
            crate::measured::wait(&mut self.child, "the program on the pool", LONGEST, self.interrupted)?;
        if status.success() { Ok(()) } else { Err(self.failed(&status.to_string())) }
    }

    /// Waits until the run has said this.
    pub fn await_line(&self, text: &str) -> Result<(), BenchError> {
        let begun = Instant::now();
        while begun.elapsed() < LONGEST {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            if self.has_said(text) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(self.failed(&format!("it does not say '{text}'")))
    }
}
