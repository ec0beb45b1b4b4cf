//! What a donor must stand from a client of its shared-memory rings: whatever the client says and writes,
//! each request that was submitted is answered as the ring has it, what cannot be ends the lane, and nobody
//! else's pages change. Shared by the property test (`hostile_rings.rs`) and the fuzz target
//! (`fuzz/fuzz_targets/ring.rs`).

use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_donor::frames::FramePool;
use spillway_donor::journal::Journal;
use spillway_donor::lane::{Caller, serve};
use spillway_donor::limits::Limits;
use spillway_donor::peer::Peer;
use spillway_donor::registry::{Attachment, Registry};
use spillway_donor::stream::StreamError;
use spillway_donor::transmission::Activity;
use spillway_donor::visitor::{Terms, Visitor};
use spillway_store::shm::doorbell::{self, COUNT_MASK};
use spillway_store::shm::hello::{HELLO_BYTES, Hello, Purpose, WELCOME_BYTES, decode_welcome, encode_hello};
use spillway_store::shm::ring::{ENTRIES, Operation, Ring, Status};
use spillway_sys::shared_memory::SharedMemory;

const PEER: Peer = Peer::User(1);
/// Pages of the run whose client does what it likes.
const SLOTS: u32 = 8;
const PATIENCE: Duration = Duration::from_secs(60);

/// A donor, and a run on it that does nothing wrong.
struct Donor {
    registry: Arc<Registry>,
    good: Attachment,
}

static DONOR: LazyLock<Donor> = LazyLock::new(|| {
    let frames = 4096u32;
    let terms = Terms {
        grace: Duration::ZERO,
        per_run: None,
        per_client: None,
        limits: Limits::of(4096),
        keep_free: Size::default(),
    };
    let pool = Arc::new(FramePool::new(frames).expect("memory to lend"));
    let size_bytes = u64::from(frames) * PAGE_SIZE as u64;
    let registry = Registry::new(pool, size_bytes, terms, Arc::<Journal>::default());
    let good = registry.open("", &run("good", PAGE_SIZE as u64), PEER).expect("a run");
    good.export.write(0, &[0x5a; PAGE_SIZE]).expect("a page");
    Donor { registry, good }
});

fn run(token: &str, asked_bytes: u64) -> Visitor {
    Visitor::Run { token: token.to_owned(), asked_bytes }
}

/// Takes `data` for what a client says first, and for what it does with a ring.
pub fn exercise(data: &[u8]) {
    static TURN: Mutex<u32> = Mutex::new(0);
    // One after the other: what a client asks for may be all that the donor has to promise.
    let mut turn = TURN.lock().expect("no panic before");
    *turn += 1;
    said(data);
    said(&[b"SPLRING2", data].concat());
    let mut hello = encode_hello(&Hello { purpose: Purpose::Run, size_bytes: 1, token: "odd" }).to_vec();
    hello.extend(data);
    said(&hello);
    DONOR.registry.drop_expired(Instant::now());
    let token = format!("bad-{turn}");
    let bytes = u64::from(SLOTS) * PAGE_SIZE as u64;
    let bad = DONOR.registry.open("", &run(&token, bytes), PEER).expect("room for a run");
    let seen = ringed(&token, data);
    bad.end_run();
    assert!(matches!(seen, Err(StreamError::Wire(_))), "a count that cannot be ends the lane: {seen:?}");
    let mut page = [0; PAGE_SIZE];
    DONOR.good.export.read(0, &mut page).expect("a page");
    assert_eq!(page, [0x5a; PAGE_SIZE], "another run's page");
}

/// Serves one client on a connection.
fn served(socket: OwnedFd) -> Result<(), StreamError> {
    let (socket, activity) = (Arc::new(socket), Activity::default());
    let caller = Caller { socket: &socket, peer: PEER, activity: &activity };
    serve(&caller, &DONOR.registry, &Limits::of(16), &AtomicBool::new(false), || {})
}

/// A client that says this, and leaves.
fn said(data: &[u8]) {
    let (mut client, donor) = UnixStream::pair().expect("two sockets");
    client.write_all(data).expect("what a socket holds");
    client.shutdown(Shutdown::Write).expect("an open socket");
    let begun = Instant::now();
    let outcome = served(donor.into());
    assert!(begun.elapsed() < PATIENCE / 2, "a donor waits for who has left");
    assert!(data.len() >= HELLO_BYTES || data.is_empty() || outcome.is_err(), "half a hello");
}

/// A client whose ring holds what `data` says.
fn ringed(token: &str, data: &[u8]) -> Result<(), StreamError> {
    let (mut client, donor) = UnixStream::pair().expect("two sockets");
    let hello = Hello { purpose: Purpose::Lane, size_bytes: 0, token };
    client.write_all(&encode_hello(&hello)).expect("what a socket holds");
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| served(donor.into()));
        let file = welcomed(&client);
        let (ring, raw) = (Ring::map(&file).expect("a ring"), SharedMemory::map(&file).expect("a ring"));
        let mut done = 0u32;
        for batch in data.chunks(12) {
            done = submit(&ring, &raw, done, batch);
        }
        // More than the ring has entries.
        doorbell::ring(ring.submitted(), done.wrapping_add(ENTRIES + 1) & COUNT_MASK);
        serving.join().expect("a donor that has not panicked")
    })
}

fn welcomed(client: &UnixStream) -> OwnedFd {
    let mut bytes = [0; WELCOME_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(client, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
    assert_eq!(received.map(|received| received.bytes), Ok(WELCOME_BYTES));
    assert!(decode_welcome(&bytes).is_some());
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    file.expect("the ring's file")
}

/// Submits requests, of two bytes each for the operation and one for the slot; the count of all so far.
fn submit(ring: &Ring, raw: &SharedMemory, done: u32, batch: &[u8]) -> u32 {
    let mut count = done;
    let mut expected = Vec::new();
    for &[operation, high, slot] in batch.as_chunks::<3>().0 {
        let entry = PAGE_SIZE + (count % ENTRIES) as usize * 16;
        let words = raw.atomics_u32(entry, 4);
        let operation = u32::from(operation) | u32::from(high & 0x80) << 24;
        let slot = u32::from(slot) | u32::from(high & 0x40) << 25;
        words[0].store(operation, Ordering::Relaxed);
        words[1].store(slot, Ordering::Relaxed);
        words[2].store(u32::MAX, Ordering::Relaxed);
        ring.write_page(count, &[slot as u8; PAGE_SIZE]);
        let is_sound = operation <= Operation::Discard as u32 && slot < SLOTS;
        expected.push(if is_sound { Status::Ok } else { Status::Invalid });
        count = count.wrapping_add(1) & COUNT_MASK;
    }
    doorbell::ring(ring.submitted(), count);
    let begun = Instant::now();
    while doorbell::count(ring.completed()) != count {
        assert!(begun.elapsed() < PATIENCE, "a request without an answer");
        doorbell::wait(ring.completed(), doorbell::count(ring.completed()), Duration::from_millis(10));
    }
    let statuses: Vec<Status> = (done..).take(expected.len()).map(|number| ring.status(number)).collect();
    assert_eq!(statuses, expected);
    count
}
