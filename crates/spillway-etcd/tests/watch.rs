//! The watch on a pool's donors, against a server that answers as etcd's gateway does, and breaks when told.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use spillway_store::StoreSpec;
use spillway_store::membership::Directory;
use spillway_store::spec::{EtcdPool, Members};

const SOON: Duration = Duration::from_secs(20);
const REVISION: i64 = 7;

/// What the server has, and what was asked of it.
#[derive(Default)]
struct Data {
    donors: Vec<String>,
    looks: usize,
}

struct Server {
    data: Arc<Mutex<Data>>,
    /// The watches that are begun: what they asked for, and where they are answered.
    watches: Receiver<(Value, TcpStream)>,
    pool: EtcdPool,
}

fn pair(address: &str) -> Value {
    let value = json!({ "address": address, "domain": "d", "version": "1", "free_bytes": 1 });
    let key = format!("/spillway/pools/lab/donors/{address}");
    json!({ "key": STANDARD.encode(key), "value": STANDARD.encode(value.to_string()) })
}

/// A request's path and body.
fn request(stream: &TcpStream) -> Option<(String, Value)> {
    let mut lines = BufReader::new(stream);
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim().to_lowercase();
        match (line.split_once(' '), path.is_empty()) {
            (Some((_, rest)), true) => rest.split(' ').next()?.clone_into(&mut path),
            (Some(("content-length:", rest)), false) => length = rest.parse().ok()?,
            (None, false) => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body).ok()?;
    Some((path, serde_json::from_slice(&body).ok()?))
}

impl Server {
    fn start(donors: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("pool:etcd://{}/lab", listener.local_addr().unwrap());
        let StoreSpec::Pool(pool) = uri.parse().unwrap() else { panic!("no pool") };
        let Members::Etcd(pool) = pool.members else { panic!("no etcd") };
        let donors = donors.iter().map(|donor| (*donor).to_owned()).collect();
        let data = Arc::new(Mutex::new(Data { donors, looks: 0 }));
        let (begin, watches) = channel();
        let own = Arc::clone(&data);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let Some((path, body)) = request(&stream) else { continue };
                if path == "/v3/watch" {
                    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                    let _ = stream.write_all(head.as_bytes());
                    let _ = begin.send((body, stream));
                    continue;
                }
                assert_eq!(path, "/v3/kv/range");
                let mut data = own.lock().unwrap();
                data.looks += 1;
                let kvs: Vec<Value> = data.donors.iter().map(|donor| pair(donor)).collect();
                let answer = json!({ "header": { "revision": REVISION.to_string() }, "kvs": kvs });
                let answer = answer.to_string();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", answer.len());
                let _ = write!(stream, "{head}Connection: close\r\n\r\n{answer}");
            }
        });
        Self { data, watches, pool }
    }

    /// The next watch, once it is begun.
    fn watch(&self) -> Watched {
        let (asked, stream) = self.watches.recv_timeout(SOON).expect("a watch");
        let mut watched = Watched { asked: asked["create_request"].clone(), stream };
        watched.say(json!({ "created": true }));
        watched
    }

    fn looks(&self) -> usize {
        self.data.lock().unwrap().looks
    }
}

struct Watched {
    asked: Value,
    stream: TcpStream,
}

impl Watched {
    fn say(&mut self, result: Value) {
        let line = format!("{}\n", json!({ "result": result }));
        write!(self.stream, "{:x}\r\n{line}\r\n", line.len()).unwrap();
    }
}

/// Waits until the directory has these donors.
fn await_donors(directory: &mut dyn Directory, wanted: &[&str]) {
    let begin = Instant::now();
    loop {
        let found = directory.look().unwrap();
        let mut found: Vec<&str> = found.iter().map(|member| member.address.as_str()).collect();
        found.sort_unstable();
        if found == wanted {
            return;
        }
        assert!(begin.elapsed() < SOON, "{found:?} for {wanted:?}");
        directory.await_change(Duration::from_millis(200));
    }
}

#[test]
fn changes_are_told_as_they_happen() {
    let server = Server::start(&["10.0.0.1:1"]);
    let mut directory = spillway_etcd::open(&server.pool).unwrap();
    await_donors(&mut *directory, &["10.0.0.1:1"]);
    directory.await_change(Duration::ZERO);
    let mut watch = server.watch();
    assert_eq!(watch.asked["start_revision"], (REVISION + 1).to_string());
    watch.say(json!({ "events": [{ "kv": pair("10.0.0.2:1") }] }));
    await_donors(&mut *directory, &["10.0.0.1:1", "10.0.0.2:1"]);
    // From now on nobody asks: what the server has does not matter, what it tells does.
    let looks = server.looks();
    watch.say(json!({ "events": [{ "type": "DELETE", "kv": { "key": pair("10.0.0.1:1")["key"] } }] }));
    await_donors(&mut *directory, &["10.0.0.2:1"]);
    assert!(!directory.await_change(Duration::ZERO));
    assert_eq!(server.looks(), looks);
}

#[test]
fn a_watch_that_ends_is_begun_anew_with_a_look() {
    let server = Server::start(&["10.0.0.1:1"]);
    let mut directory = spillway_etcd::open(&server.pool).unwrap();
    directory.await_change(Duration::ZERO);
    let mut watch = server.watch();
    await_donors(&mut *directory, &["10.0.0.1:1"]);
    // What it was to tell of is compacted.
    server.data.lock().unwrap().donors = vec!["10.0.0.3:1".into()];
    watch.say(json!({ "canceled": true, "compact_revision": "9" }));
    await_donors(&mut *directory, &["10.0.0.3:1"]);
    let watch = server.watch();
    // The connection breaks, and changes were missed.
    server.data.lock().unwrap().donors = vec!["10.0.0.4:1".into()];
    drop(watch);
    await_donors(&mut *directory, &["10.0.0.4:1"]);
    let mut watch = server.watch();
    watch.say(json!({ "events": [{ "kv": pair("10.0.0.5:1") }] }));
    await_donors(&mut *directory, &["10.0.0.4:1", "10.0.0.5:1"]);
}
