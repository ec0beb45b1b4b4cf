//! redis and memcached under load, each by a socket of its own and without a disk.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Error, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::keys::{Client, Draw, Load};
use crate::BenchError;
use crate::measured::{Ended, wait};
use crate::whole::conditions::Start;
use crate::whole::workload::{LONGEST, Latency, Measure, Site, Workload, installed};

const PATIENCE: Duration = Duration::from_secs(60);

/// Which server is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Redis,
    Memcached,
}

/// A key-value server and what its clients do.
pub(super) struct Server {
    name: &'static str,
    kind: Kind,
    draw: Draw,
    write_percent: u64,
    program: PathBuf,
    latency: Cell<Option<Latency>>,
}

impl Server {
    pub(super) fn new(name: &'static str, kind: Kind, draw: Draw, write_percent: u64) -> Self {
        Self { name, kind, draw, write_percent, program: PathBuf::new(), latency: Cell::new(None) }
    }

    fn load(&self, site: &Site<'_>) -> Load {
        let (keys, requests) = site.pick((26_000, 32_000), (600_000, 3_000_000));
        Load { keys, requests, draw: self.draw, write_percent: self.write_percent }
    }

    fn command(&self, start: &Start<'_>, socket: &Path) -> Command {
        let mut command = start.command(&self.program);
        match self.kind {
            Kind::Redis => {
                command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(socket);
            }
            Kind::Memcached => {
                command.args(["-u", "root", "-m", "8192", "-t", "2", "-s"]).arg(socket);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// A connection, as soon as the server takes one.
    fn connect(&self, site: &Site<'_>, process: &mut Ended, socket: &Path) -> Result<UnixStream, BenchError> {
        let failed = |reason: &str| self.failed(reason);
        let begun = Instant::now();
        loop {
            if let Ok(stream) = UnixStream::connect(socket) {
                return Ok(stream);
            }
            if site.interrupted.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            if !matches!(process.0.try_wait(), Ok(None)) {
                return Err(failed("it ends before it takes a connection"));
            }
            if begun.elapsed() > PATIENCE {
                return Err(failed("it takes no connection"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn failed(&self, reason: impl std::fmt::Display) -> BenchError {
        BenchError::Measured { command: self.name.to_owned(), reason: reason.to_string() }
    }
}

impl Workload for Server {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self, site: &Site<'_>) -> String {
        let Load { keys, requests, write_percent, .. } = self.load(site);
        let draw = match self.draw {
            Draw::Uniform => "drawn uniformly",
            Draw::Zipf => "drawn by Zipf's law (0.99)",
            Draw::Scan => "one after the other",
        };
        format!(
            "{keys} values of 100 to 4096 bytes; then {requests} requests, {write_percent}% of them writes, \
             keys {draw}"
        )
    }

    fn measure(&self) -> Measure {
        Measure::PerSecond
    }

    fn prepare(&mut self, _: &Site<'_>) -> Result<(), BenchError> {
        self.program = match self.kind {
            Kind::Redis => installed("redis-server", "install it: apt-get install redis-server")?,
            Kind::Memcached => installed("memcached", "install it: apt-get install memcached")?,
        };
        Ok(())
    }

    fn run(&self, site: &Site<'_>, start: &Start<'_>) -> Result<f64, BenchError> {
        let socket = site.scratch().join(format!("{}.socket", self.name));
        let _ = std::fs::remove_file(&socket);
        let child = self.command(start, &socket).spawn().map_err(|error| self.failed(error))?;
        let mut process = Ended(child);
        let stream = self.connect(site, &mut process, &socket)?;
        let mut connection = Connection::new(stream, self.kind).map_err(|error| self.failed(error))?;
        let outcome = self.load(site).put_on(self.name, &mut connection)?;
        let _ = kill_process(Pid::from_child(&process.0), Signal::TERM);
        wait(&mut process, self.name, LONGEST, site.interrupted)?;
        self.latency.set(Some(outcome.latency));
        Ok(outcome.requests_per_s)
    }

    fn latency(&self) -> Option<Latency> {
        self.latency.get()
    }
}

struct Connection {
    kind: Kind,
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    message: Vec<u8>,
    line: String,
}

impl Connection {
    fn new(stream: UnixStream, kind: Kind) -> std::io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE * 3))?;
        let (reader, writer) = (BufReader::new(stream.try_clone()?), stream);
        Ok(Self { kind, reader, writer, message: Vec::new(), line: String::new() })
    }

    fn read_line(&mut self) -> std::io::Result<()> {
        self.line.clear();
        if self.reader.read_line(&mut self.line)? == 0 {
            return Err(Error::other("it has hung up"));
        }
        Ok(())
    }

    fn read_value(&mut self, bytes: &str, value: &mut Vec<u8>) -> std::io::Result<()> {
        let bytes: usize = bytes.trim().parse().map_err(Error::other)?;
        value.resize(bytes + 2, 0);
        self.reader.read_exact(value)?;
        value.truncate(bytes);
        Ok(())
    }

    fn unexpected<T>(&self) -> std::io::Result<T> {
        Err(Error::other(format!("it says '{}'", self.line.trim())))
    }
}

impl Client for Connection {
    fn set(&mut self, key: &str, value: &[u8]) {
        let (keys, values) = (key.len(), value.len());
        let head = match self.kind {
            Kind::Redis => format!("*3\r\n$3\r\nSET\r\n${keys}\r\n{key}\r\n${values}\r\n"),
            Kind::Memcached => format!("set {key} 0 0 {values}\r\n"),
        };
        self.message.extend_from_slice(head.as_bytes());
        self.message.extend_from_slice(value);
        self.message.extend_from_slice(b"\r\n");
    }

    fn get(&mut self, key: &str) {
        let text = match self.kind {
            Kind::Redis => format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()),
            Kind::Memcached => format!("get {key}\r\n"),
        };
        self.message.extend_from_slice(text.as_bytes());
    }

    fn send(&mut self) -> std::io::Result<()> {
        self.writer.write_all(&self.message)?;
        self.message.clear();
        Ok(())
    }

    fn stored(&mut self) -> std::io::Result<()> {
        self.read_line()?;
        match self.line.as_str() {
            "+OK\r\n" | "STORED\r\n" => Ok(()),
            _ => self.unexpected(),
        }
    }

    fn found(&mut self, value: &mut Vec<u8>) -> std::io::Result<bool> {
        self.read_line()?;
        if matches!(self.line.as_str(), "$-1\r\n" | "END\r\n") {
            return Ok(false);
        }
        let line = std::mem::take(&mut self.line);
        let bytes = match self.kind {
            Kind::Redis => line.strip_prefix('$'),
            Kind::Memcached => line.strip_prefix("VALUE ").and_then(|rest| rest.split(' ').nth(2)),
        };
        match bytes {
            Some(bytes) => self.read_value(bytes, value)?,
            None => {
                self.line = line;
                return self.unexpected();
            }
        }
        if self.kind == Kind::Memcached {
            self.read_line()?;
        }
        Ok(true)
    }
}
