//! Servers that keep what they are given: loaded, read back and verified by a client of ours.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::{Scale, Workload};
use crate::support::child::{Finished, PATIENCE, Running, free_port, until};
use crate::support::launch::Launch;
use crate::support::mix;
use crate::support::tools::tool;

/// Redis, with a background save under load.
pub const REDIS: Workload = Workload { name: "redis-server", run: redis };
/// Memcached, filled and read by several clients.
pub const MEMCACHED: Workload = Workload { name: "memcached", run: memcached };

const BATCH: u64 = 200;

/// What key number `key` holds in its `version`: 200 to 1,223 bytes that hardly compress.
fn value(key: u64, version: u64) -> Vec<u8> {
    let seed = mix(key << 8 | version);
    let bytes = 200 + seed as usize % 1024;
    (0..bytes.div_ceil(8) as u64).flat_map(|word| mix(seed ^ word).to_le_bytes()).take(bytes).collect()
}

/// A connection to a server on this machine.
struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    fn connect(port: u16, server: &mut Running) -> Self {
        let stream = until(PATIENCE, "the server to listen", || {
            assert!(!server.has_ended(), "the server has ended: {} {}", server.text(), server.complaint());
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count + 2];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes.truncate(count);
        bytes
    }
}

/// Keys in batches, so that requests travel together.
fn batches(keys: u64) -> impl Iterator<Item = std::ops::Range<u64>> + Clone {
    (0..keys).step_by(BATCH as usize).map(move |first| first..(first + BATCH).min(keys))
}

/// A command in Redis's protocol.
fn resp(words: &[&[u8]]) -> Vec<u8> {
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        command.extend(format!("${}\r\n", word.len()).bytes());
        command.extend(*word);
        command.extend(b"\r\n");
    }
    command
}

impl Client {
    fn redis_set(&mut self, keys: impl Iterator<Item = u64> + Clone, version: u64) {
        let set = |key: u64| resp(&[b"SET", format!("key-{key}").as_bytes(), &value(key, version)]);
        let commands: Vec<u8> = keys.clone().flat_map(set).collect();
        self.send(&commands);
        keys.for_each(|key| assert_eq!(self.line(), "+OK", "SET key-{key}"));
    }

    fn redis_expect(&mut self, keys: std::ops::Range<u64>, version: impl Fn(u64) -> u64) {
        let commands: Vec<u8> =
            keys.clone().flat_map(|key| resp(&[b"GET", format!("key-{key}").as_bytes()])).collect();
        self.send(&commands);
        for key in keys {
            let length = self.line();
            let length = length.strip_prefix('$').and_then(|length| length.parse::<usize>().ok());
            let found = self.bytes(length.unwrap_or_else(|| panic!("key-{key} is not there")));
            assert!(found == value(key, version(key)), "key-{key} holds a wrong value");
        }
    }

    /// A figure of Redis's INFO.
    fn redis_info(&mut self, name: &str) -> String {
        self.send(&resp(&[b"INFO"]));
        let length = self.line().trim_start_matches('$').parse().unwrap();
        let info = String::from_utf8(self.bytes(length)).unwrap();
        let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.unwrap_or_else(|| panic!("no {name} in {info}")).to_owned()
    }
}

/// Arguments of a Redis server that keeps nothing but what it is told to, and that in this directory.
fn redis_settings(port: u16, directory: &Path) -> Vec<String> {
    let port = port.to_string();
    let words = ["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no", "--dir"];
    words.iter().map(|&word| word.to_owned()).chain([directory.display().to_string()]).collect()
}

/// Redis, whose values a client reads and writes anew, for as long as it is told to.
pub struct RedisAtWork {
    /// The server, or what runs it.
    pub server: Running,
    client: Client,
    versions: Vec<u64>,
    next: u64,
}

impl RedisAtWork {
    /// Starts a server by this command, with its files in `directory`, and gives it so many keys.
    pub fn start(mut command: Command, directory: &Path, keys: u64) -> Self {
        let port = free_port();
        let mut server = Running::start(command.args(redis_settings(port, directory)));
        let mut client = Client::connect(port, &mut server);
        batches(keys).for_each(|batch| client.redis_set(batch, 1));
        Self { server, client, versions: vec![1; keys as usize], next: 0 }
    }

    /// Reads a tenth of the keys, and writes every third of them anew.
    pub fn goes_on(&mut self) {
        let keys = self.versions.len() as u64;
        for batch in
            batches(keys).cycle().skip((self.next / BATCH) as usize).take((keys / BATCH / 10) as usize)
        {
            self.next = batch.end % keys;
            self.client.redis_expect(batch.clone(), |key| self.versions[key as usize]);
            for key in batch.filter(|key| mix(key ^ self.next).is_multiple_of(3)) {
                let version = &mut self.versions[key as usize];
                // They go into a byte of what values are made of.
                *version = *version % 255 + 1;
                self.client.redis_set(std::iter::once(key), *version);
            }
        }
    }

    /// Reads all keys, and has it end.
    pub fn ends_whole(mut self) -> Finished {
        for batch in batches(self.versions.len() as u64) {
            self.client.redis_expect(batch, |key| self.versions[key as usize]);
        }
        self.client.send(&resp(&[b"SHUTDOWN", b"NOSAVE"]));
        let finished = self.server.finish(PATIENCE);
        finished.success();
        finished
    }
}

fn redis(launch: &Launch, scale: Scale) -> String {
    let keys: u64 = scale.pick(50_000, 200_000);
    let port = free_port();
    let program = tool("redis-server", "redis-server");
    let settings = |port: u16| redis_settings(port, launch.work());
    let mut server = launch.start(launch.command(&program).args(settings(port)));
    let mut client = Client::connect(port, &mut server.running);
    batches(keys).for_each(|batch| client.redis_set(batch, 1));
    batches(keys).for_each(|batch| client.redis_expect(batch, |_| 1));

    client.send(&resp(&[b"BGSAVE"]));
    assert_eq!(client.line(), "+Background saving started");
    let newer = |key: u64| if key.is_multiple_of(3) { 2 } else { 1 };
    for batch in batches(keys) {
        client.redis_set(batch.clone().filter(|key| newer(*key) == 2), 2);
        client.redis_expect(batch, newer);
    }
    until(launch.patience(), "the background save", || {
        std::thread::sleep(Duration::from_millis(50));
        (client.redis_info("rdb_bgsave_in_progress") == "0").then_some(())
    });
    assert_eq!(client.redis_info("rdb_last_bgsave_status"), "ok", "{}", server.running.text());
    batches(keys).for_each(|batch| client.redis_expect(batch, newer));
    client.send(&resp(&[b"SHUTDOWN", b"NOSAVE"]));
    server.finish().success();

    // The file holds what was there when the save began.
    let port = free_port();
    let mut second = Running::start(Command::new(&program).args(settings(port)));
    let mut client = Client::connect(port, &mut second);
    until(PATIENCE, "the second server to load", || (client.redis_info("loading") == "0").then_some(()));
    batches(keys).for_each(|batch| client.redis_expect(batch, |_| 1));
    client.send(&resp(&[b"SHUTDOWN", b"NOSAVE"]));
    second.finish(PATIENCE).success();
    fs::remove_file(launch.work().join("dump.rdb")).unwrap();
    format!("{keys} keys")
}

impl Client {
    fn memcached_set(&mut self, keys: impl Iterator<Item = u64> + Clone, version: u64) {
        let mut commands = Vec::new();
        for key in keys.clone() {
            let value = value(key, version);
            commands.extend(format!("set key-{key} 0 0 {}\r\n", value.len()).bytes());
            commands.extend(value);
            commands.extend(b"\r\n");
        }
        self.send(&commands);
        keys.for_each(|key| assert_eq!(self.line(), "STORED", "set key-{key}"));
    }

    fn memcached_expect(&mut self, keys: std::ops::Range<u64>, version: impl Fn(u64) -> u64) {
        let commands: String = keys.clone().map(|key| format!("get key-{key}\r\n")).collect();
        self.send(commands.as_bytes());
        for key in keys {
            let head = self.line();
            let length = head.strip_prefix(&format!("VALUE key-{key} 0 ")).unwrap_or_else(|| {
                panic!("key-{key} is not there: {head}");
            });
            let found = self.bytes(length.parse().unwrap());
            assert!(found == value(key, version(key)), "key-{key} holds a wrong value");
            assert_eq!(self.line(), "END");
        }
    }
}

fn memcached(launch: &Launch, scale: Scale) -> String {
    let keys: u64 = scale.pick(50_000, 200_000);
    let port = free_port();
    let mut command = launch.command(tool("memcached", "memcached"));
    command.args(["-u", "root", "-l", "127.0.0.1", "-U", "0", "-m", "2048", "-p", &port.to_string()]);
    let mut server = launch.start(&mut command);
    let mut client = Client::connect(port, &mut server.running);
    batches(keys).for_each(|batch| client.memcached_set(batch, 1));
    batches(keys).for_each(|batch| client.memcached_expect(batch, |_| 1));
    let newer = |key: u64| if key.is_multiple_of(3) { 2 } else { 1 };
    for batch in batches(keys) {
        client.memcached_set(batch.clone().filter(|key| newer(*key) == 2), 2);
        client.memcached_expect(batch, newer);
    }
    batches(keys).for_each(|batch| client.memcached_expect(batch, newer));
    server.stop(Signal::TERM).success();
    format!("{keys} keys")
}
