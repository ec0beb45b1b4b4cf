//! The client store when the connection or the server fails: resets are survived, nonsense and silence are
//! told apart, and nothing wrong is ever taken for a page.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spillway_nbd::handshake::{self as hs, ClientOption, ExportFlags, OptionReply};
use spillway_nbd::transmission::{ChunkFlags, Command, ReplyHead, Request, chunk};
use spillway_store::StoreError;
use spillway_store::testing::{complete, expect_pages, open_again, open_store, pages, read, write};

use common::Running;

const MIB: u64 = 1 << 20;

/// Forwards connections, and resets each once it has carried so many bytes.
struct Proxy {
    address: SocketAddr,
    bytes_a_connection: Arc<AtomicU64>,
    connections: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
}

impl Proxy {
    fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            bytes_a_connection: Arc::new(AtomicU64::new(u64::MAX)),
            connections: Arc::default(),
            over: Arc::default(),
        };
        let (bytes, connections) = (Arc::clone(&proxy.bytes_a_connection), Arc::clone(&proxy.connections));
        let over = Arc::clone(&proxy.over);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                connections.fetch_add(1, Ordering::Relaxed);
                let server = TcpStream::connect(server).unwrap();
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                }
                let left = Arc::new(AtomicU64::new(bytes.load(Ordering::Relaxed)));
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let left = Arc::clone(&left);
                    std::thread::spawn(move || pump(from, to, &left));
                }
            }
        });
        proxy
    }

    fn uri(&self, query: &str) -> String {
        format!("nbd://{}/e?{query}", self.address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, left: &AtomicU64) {
    let mut buffer = vec![0; 10_000];
    loop {
        let bytes = match from.read(&mut buffer) {
            Ok(bytes) if bytes > 0 => bytes as u64,
            _ => break,
        };
        let before =
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(bytes)));
        let allowed = before.unwrap_or(0).min(bytes);
        let whole = to.write_all(&buffer[..allowed as usize]).is_ok();
        if allowed < bytes || !whole {
            break;
        }
    }
    // A zero linger time makes the close a reset.
    for stream in [&from, &to] {
        let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

#[test]
fn connections_that_are_reset_again_and_again_lose_nothing() {
    let donor = Running::start(16 * MIB);
    let proxy = Proxy::start(donor.tcp);
    let (_parts, store) = open_store(&proxy.uri(""));
    proxy.bytes_a_connection.store(300_000, Ordering::Relaxed);
    let mut lane = store.open_lane().unwrap();
    let slots: Vec<u32> = (0..128).map(|n| n * 37 % 128).collect();
    for (round, bytes) in [400_000, 123_457, 70_001, 50_000, 600_000].into_iter().cycle().take(25).enumerate()
    {
        proxy.bytes_a_connection.store(bytes, Ordering::Relaxed);
        let content = pages(128, round as u64);
        // Batches of 64 KiB fit through a connection now and then, so that there is progress.
        for (slots, content) in slots.chunks(8).zip(content.chunks(8)) {
            let outcomes = write(&mut *lane, slots, content);
            assert!(outcomes.iter().all(Result::is_ok), "{:?}", outcomes[0]);
        }
        for (number, (slots, content)) in slots.chunks(8).zip(content.chunks(8)).enumerate() {
            if number % 2 == 0 {
                expect_pages(&mut *lane, slots, content);
                continue;
            }
            // The connection is lost before, between and after the two.
            lane.post_reads(slots);
            let back = complete(&mut *lane, slots);
            assert!(back.into_iter().zip(content).all(|(back, page)| back.as_ref() == Ok(page)));
        }
        lane.discard(&slots[..16]);
    }
    let connections = proxy.connections.load(Ordering::Relaxed);
    eprintln!("{connections} connections");
    assert!(connections > 20, "only {connections} connections: nothing was reset");
}

#[test]
fn a_donor_that_dies_between_post_and_completion_is_given_up() {
    for (name, uri) in [("tcp", 0), ("unix", 1), ("rings", 2)] {
        let donor = Running::start(MIB);
        let uri = match uri {
            0 => format!("nbd://{}/e?reconnect=0.2", donor.tcp),
            1 => format!("nbd+unix:///e?socket={}&reconnect=0.2", donor.socket.display()),
            _ => format!("shm:{}?reconnect=0.2", donor.shm),
        };
        let (_parts, store) = open_store(&uri);
        let mut lane = store.open_lane().unwrap();
        let content = pages(2, 1);
        assert!(write(&mut *lane, &[0, 9], &content).iter().all(Result::is_ok));
        lane.post_reads(&[0, 9]);
        drop(donor);
        // It may have answered before it died.
        for (outcome, page) in complete(&mut *lane, &[0, 9]).into_iter().zip(&content) {
            match outcome {
                Ok(back) => assert!(back == *page, "{name}: another page"),
                Err(error) => assert!(matches!(error, StoreError::Gone { .. }), "{name}: {error}"),
            }
        }
        lane.post_reads(&[0]);
        assert!(read(&mut *lane, &[9])[0].is_err(), "{name}");
    }
}

#[test]
fn a_connection_that_cannot_be_had_again_is_given_up_in_time() {
    let donor = Running::start(MIB);
    let proxy = Proxy::start(donor.tcp);
    let uri = proxy.uri("reconnect=0.5");
    let (parts, store) = open_store(&uri);
    let mut lane = store.open_lane().unwrap();
    assert!(write(&mut *lane, &[0], &pages(1, 1))[0].is_ok());
    // Enough for a handshake, but for no page.
    proxy.bytes_a_connection.store(1000, Ordering::Relaxed);
    // A further process of the run: the first one has a connection.
    let store = open_again(&uri.parse().unwrap(), &parts);
    let mut lane = store.open_lane().unwrap();
    let begin = Instant::now();
    let outcomes = read(&mut *lane, &[0]);
    let Err(StoreError::Gone { reason, .. }) = &outcomes[0] else { panic!("{:?}", outcomes[0].is_ok()) };
    assert!(reason.contains("closed") || reason.contains("reset"), "{reason}");
    let waited = begin.elapsed();
    assert!(waited >= Duration::from_millis(450) && waited < Duration::from_secs(20), "{waited:?}");
}

/// A server that shakes hands as it should, and then answers requests as it is told to.
fn server(structured: bool, answer: fn(&Request, &mut Vec<u8>)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the process: tests that use it leave no connection behind.
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || converse(stream, structured, answer));
        }
    });
    address
}

fn converse(mut stream: TcpStream, structured: bool, answer: fn(&Request, &mut Vec<u8>)) -> Option<()> {
    stream.write_all(&hs::encode_greeting(hs::HandshakeFlags::all())).ok()?;
    stream.read_exact(&mut [0; 4]).ok()?;
    loop {
        let mut header = [0; hs::OPTION_HEADER_BYTES];
        stream.read_exact(&mut header).ok()?;
        let header = hs::decode_option_header(&header).ok()?;
        let mut data = vec![0; header.data_bytes as usize];
        stream.read_exact(&mut data).ok()?;
        let option = hs::decode_option(header.option, &data).ok()?;
        let flags = ExportFlags::HAS_FLAGS;
        let replies = match option {
            ClientOption::StructuredReply if !structured => {
                vec![OptionReply::Error { kind: hs::reply::ERR_UNSUP, message: "" }]
            }
            ClientOption::Go(_) => vec![OptionReply::Export { size_bytes: MIB, flags }, OptionReply::Ack],
            _ => vec![OptionReply::Ack],
        };
        let mut out = Vec::new();
        for reply in &replies {
            hs::put_reply(&mut out, header.option, reply);
        }
        stream.write_all(&out).ok()?;
        if matches!(option, ClientOption::Go(_)) {
            break;
        }
    }
    loop {
        let mut request = [0; 28];
        stream.read_exact(&mut request).ok()?;
        let request = Request::decode(&request).ok()??;
        if request.command == Command::Write {
            stream.read_exact(&mut vec![0; request.length as usize]).ok()?;
        }
        let mut out = Vec::new();
        answer(&request, &mut out);
        stream.write_all(&out).ok()?;
    }
}

fn chunk_of(request: &Request, kind: u16, done: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let flags = if done { ChunkFlags::DONE } else { ChunkFlags::empty() };
    let head = ReplyHead::Chunk { flags, kind, cookie: request.cookie, payload_bytes: payload.len() as u32 };
    head.put(&mut out);
    out.extend_from_slice(payload);
    out
}

fn data_at(offset: u64, bytes: usize) -> Vec<u8> {
    [&offset.to_be_bytes()[..], &vec![1; bytes]].concat()
}

#[test]
fn answers_that_break_the_protocol_are_never_taken_for_pages() {
    type Answer = fn(&Request, &mut Vec<u8>);
    let cases: [(&str, bool, Answer); 9] = [
        ("garbage", false, |_, out| out.extend_from_slice(&[0x55; 64])),
        ("another request's cookie", false, |request, out| {
            ReplyHead::Simple { error: 0, cookie: request.cookie ^ 1 << 40 }.put(out);
            out.extend_from_slice(&[1; 4096]);
        }),
        ("an index that was never sent", false, |request, out| {
            ReplyHead::Simple { error: 0, cookie: request.cookie + 1 }.put(out);
        }),
        ("no data", true, |request, out| out.extend(chunk_of(request, chunk::NONE, true, &[]))),
        ("half the data", true, |request, out| {
            out.extend(chunk_of(request, chunk::OFFSET_DATA, true, &data_at(request.offset, 2048)));
        }),
        ("data before the slot", true, |request, out| {
            out.extend(chunk_of(request, chunk::OFFSET_DATA, true, &data_at(request.offset - 1, 4096)));
        }),
        ("data beyond the slot", true, |request, out| {
            out.extend(chunk_of(request, chunk::OFFSET_DATA, true, &data_at(request.offset + 1, 4096)));
        }),
        ("a hole beyond the slot", true, |request, out| {
            let hole = [&request.offset.to_be_bytes()[..], &8192u32.to_be_bytes()].concat();
            out.extend(chunk_of(request, chunk::OFFSET_HOLE, true, &hole));
        }),
        ("data twice", true, |request, out| {
            out.extend(chunk_of(request, chunk::OFFSET_DATA, false, &data_at(request.offset, 4096)));
            out.extend(chunk_of(request, chunk::OFFSET_DATA, true, &data_at(request.offset, 4096)));
        }),
    ];
    for (name, structured, answer) in cases {
        let address = server(structured, answer);
        let (_parts, store) = open_store(&format!("nbd://{address}/?reconnect=0.1&timeout=5"));
        let mut lane = store.open_lane().unwrap();
        match &read(&mut *lane, &[3])[0] {
            Err(StoreError::Gone { reason, .. }) => {
                assert!(reason.contains("broke the protocol"), "{name}: {reason}")
            }
            other => panic!("{name}: {:?}", other.as_ref().map(|_| "a page")),
        }
    }
}

#[test]
fn a_silent_server_is_given_up_after_the_timeout() {
    let address = server(false, |_, _| {});
    let (_parts, store) = open_store(&format!("nbd://{address}/?timeout=0.4"));
    let mut lane = store.open_lane().unwrap();
    let begin = Instant::now();
    match &write(&mut *lane, &[3], &pages(1, 1))[0] {
        Err(StoreError::Gone { reason, .. }) => {
            assert!(reason.contains("has not answered for 0.4 s"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(begin.elapsed() >= Duration::from_millis(350));
}

/// Whatever a server answers, in whatever pieces: an error or a page, never a panic, never an endless wait.
#[test]
fn replies_in_any_order_and_any_pieces_are_put_together() {
    // Structured, two requests a batch: data in small chunks, out of order, with a hole.
    let address = server(true, |request, out| {
        let offset = request.offset;
        let hole = [&offset.to_be_bytes()[..], &96u32.to_be_bytes()].concat();
        for step in (1..4).rev() {
            out.extend(chunk_of(request, chunk::OFFSET_DATA, false, &data_at(offset + step * 1000, 1000)));
        }
        out.extend(chunk_of(request, chunk::OFFSET_HOLE, false, &hole));
        out.extend(chunk_of(request, chunk::OFFSET_DATA, false, &data_at(offset + 96, 904)));
        out.extend(chunk_of(request, chunk::OFFSET_DATA, false, &data_at(offset + 4000, 96)));
        out.extend(chunk_of(request, chunk::NONE, true, &[]));
    });
    let (_parts, store) = open_store(&format!("nbd://{address}/?reconnect=0&timeout=20"));
    let mut lane = store.open_lane().unwrap();
    for back in read(&mut *lane, &[9, 3]) {
        let mut expected = [1; 4096];
        expected[..96].fill(0);
        assert!(back.unwrap() == expected);
    }
}
