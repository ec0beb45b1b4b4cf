//! What is measured on: donors on addresses of their own, and a program under `spillway run` that can be told
//! to read.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::reads::Times;
use crate::BenchError;
use crate::measured::Ended;

/// How long anything here may take.
const LONGEST: Duration = Duration::from_secs(60);

/// A donor of the pool.
pub(super) struct PoolDonor {
    /// Where it listens, as `ADDRESS:PORT`.
    pub address: String,
    _child: Ended,
}

impl PoolDonor {
    /// The donor of this number: each has an address of its own, and so a failure domain.
    pub fn start(spillway: &Path, number: usize, bytes: u64) -> Result<Self, BenchError> {
        let remedy = "run 'spillway donor' by itself to see why";
        let failed = |reason: String| BenchError::setup("start a donor", reason, remedy);
        let listen = format!("127.0.0.{}:0", number + 2);
        let mut child = Command::new(spillway)
            .args(["donor", "--json", "--grace", "0", "--listen", &listen, "--memory", &bytes.to_string()])
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
        let uri = ready["listening_on"][0].as_str().and_then(|uri| uri.strip_prefix("nbd://"));
        let address = uri.ok_or_else(|| failed("it does not get ready".to_owned()))?.to_owned();
        Ok(Self { address, _child: child })
    }
}

/// A program under `spillway run` that reads when it is told to.
pub(super) struct Reader<'a> {
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
        let mut reader = Self { child, said, complaints, interrupted };
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
        let told = match &mut self.child.0.stdin {
            Some(orders) => writeln!(orders, "{}", time.as_millis()).and_then(|()| orders.flush()),
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

    fn complaints(&self) -> String {
        fs::read_to_string(&self.complaints).unwrap_or_default()
    }

    /// Whether the run has said this.
    pub fn has_said(&self, text: &str) -> bool {
        self.complaints().contains(text)
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
