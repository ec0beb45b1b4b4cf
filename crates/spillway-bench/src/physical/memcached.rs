//! memcached for the time of a measurement: filled, then asked for, a fifth of the keys most of the time.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use spillway_sys::process::die_with_parent;
use tempfile::TempDir;

use super::stage::Stage;
use crate::BenchError;
use crate::access::mix;
use crate::measured::Ended;

/// Keys and values together, as in the paper.
pub const ENTRY_BYTES: u64 = 4096;
const PROGRAM: &str = "memcached";
const REMEDY: &str = "install it: apt-get install memcached";
const PATIENCE: Duration = Duration::from_secs(10);
/// Share of the keys that are hot, in percent, and of the requests that go to them.
const HOT_PERCENT: u64 = 20;
const TO_HOT_PERCENT: u64 = 80;
/// One request in so many writes.
const WRITES_ONE_IN: u64 = 20;

/// A server of its own, and a connection. Both end when dropped.
pub struct Memcached {
    connection: BufReader<UnixStream>,
    line: Vec<u8>,
    value: Vec<u8>,
    // After the connection: it ends first.
    _server: Ended,
    _directory: TempDir,
}

fn failed(reason: impl std::fmt::Display) -> BenchError {
    BenchError::setup(format!("run {PROGRAM}"), reason, REMEDY)
}

impl Memcached {
    /// Starts one with room for `entries`, which asks for huge pages where `huge`.
    pub fn start(entries: u64, huge: bool) -> Result<Self, BenchError> {
        let directory = TempDir::new().map_err(failed)?;
        let socket = directory.path().join("socket");
        // A slab's chunks are larger than what lies in them.
        let room_mib = ((entries * ENTRY_BYTES * 3 / 2) >> 20) + 64;
        let mut command = Command::new(PROGRAM);
        command.arg("-s").arg(&socket).args(["-U", "0", "-t", "1", "-m", &room_mib.to_string()]);
        if huge {
            command.arg("-L");
        }
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        die_with_parent(&mut command);
        let mut server = Ended(command.spawn().map_err(failed)?);
        let started = Instant::now();
        let connection = loop {
            match UnixStream::connect(&socket) {
                Ok(connection) => break connection,
                Err(error) if started.elapsed() > PATIENCE => return Err(failed(error)),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
            if let Ok(Some(status)) = server.0.try_wait() {
                return Err(failed(status));
            }
        };
        connection.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let connection = BufReader::with_capacity(2 * ENTRY_BYTES as usize, connection);
        let value = vec![b'v'; ENTRY_BYTES as usize - 64];
        Ok(Self { connection, line: Vec::new(), value, _server: server, _directory: directory })
    }

    /// Stores all entries, one after the other.
    pub fn fill(&mut self, stage: &Stage<'_>, entries: u64) -> Result<Vec<u64>, BenchError> {
        (0..entries)
            .map(|key| {
                if key.is_multiple_of(1024) {
                    stage.check()?;
                }
                let started = Instant::now();
                self.set(key).map_err(failed)?;
                Ok(started.elapsed().as_nanos() as u64)
            })
            .collect()
    }

    /// Asks for entries, hot ones mostly, and stores some.
    pub fn ask(&mut self, stage: &Stage<'_>, entries: u64, requests: u64) -> Result<Vec<u64>, BenchError> {
        (0..requests)
            .map(|request| {
                if request.is_multiple_of(1024) {
                    stage.check()?;
                }
                let random = mix(request + 1);
                let hot = (entries * HOT_PERCENT / 100).max(1);
                let is_hot = random % 100 < TO_HOT_PERCENT;
                let key = (random >> 8) % if is_hot { hot } else { entries };
                let started = Instant::now();
                if request.is_multiple_of(WRITES_ONE_IN) { self.set(key) } else { self.get(key) }
                    .map_err(failed)?;
                Ok(started.elapsed().as_nanos() as u64)
            })
            .collect()
    }

    fn set(&mut self, key: u64) -> std::io::Result<()> {
        let mut request = Vec::with_capacity(ENTRY_BYTES as usize);
        write!(request, "set key{key:020} 0 0 {}\r\n", self.value.len())?;
        request.extend(&self.value);
        request.extend(b"\r\n");
        self.connection.get_mut().write_all(&request)?;
        self.answer()?;
        if self.line == b"STORED\r\n" { Ok(()) } else { Err(self.unexpected()) }
    }

    fn get(&mut self, key: u64) -> std::io::Result<()> {
        write!(self.connection.get_mut(), "get key{key:020}\r\n")?;
        let expected = self.value.len();
        self.answer()?;
        if !self.line.starts_with(b"VALUE ") {
            return Err(self.unexpected());
        }
        self.answer()?;
        if self.line.len() != expected + 2 || self.line[..expected] != self.value[..] {
            return Err(self.unexpected());
        }
        self.answer()?;
        if self.line == b"END\r\n" { Ok(()) } else { Err(self.unexpected()) }
    }

    fn answer(&mut self) -> std::io::Result<()> {
        self.line.clear();
        self.connection.read_until(b'\n', &mut self.line).map(|_| ())
    }

    fn unexpected(&self) -> std::io::Error {
        let start = &self.line[..self.line.len().min(60)];
        std::io::Error::other(format!("it answers '{}'", String::from_utf8_lossy(start).trim_end()))
    }
}
