//! What a lane by a shared-memory ring must stand from its donor: no message and no word in the ring makes it
//! panic, wait for what does not come, or take another page for the one that it asked for. Shared by the
//! property test (`peers.rs`) and the fuzz target (`fuzz/fuzz_targets/ring.rs`).

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use spillway_core::page::PAGE_SIZE;
use spillway_store::shm::doorbell::{self, COUNT_MASK};
use spillway_store::shm::hello::{
    HELLO_BYTES, Purpose, WELCOME_BYTES, Welcome, decode_hello, decode_welcome, encode_hello, encode_welcome,
    socket_name,
};
use spillway_store::shm::ring::{ENTRIES, Operation, Ring};
use spillway_store::{Lane, ReadRequest, SharedParts, StoreSpec, WriteRequest};
use spillway_sys::shared_memory::SharedMemory;

/// Pages that the lane asks for.
const ASKED: usize = 6;
/// Far longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes `data` for a hello, a welcome, and what a donor does with its ring.
pub fn exercise(data: &[u8]) {
    hello(data);
    welcome(data);
    words(data);
    let (how, steps) = data.split_first().unwrap_or((&0, &[]));
    met(*how, steps);
}

fn padded<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let count = data.len().min(N);
    bytes[..count].copy_from_slice(&data[..count]);
    bytes
}

fn hello(data: &[u8]) {
    for said in [padded::<HELLO_BYTES>(data), padded(&[b"SPLRING2", data].concat())] {
        if let Some(hello) = decode_hello(&said) {
            assert_eq!(decode_hello(&encode_hello(&hello)), Some(hello));
        }
    }
}

fn welcome(data: &[u8]) {
    for said in [padded::<WELCOME_BYTES>(data), padded(&[b"SPLRING2", data].concat())] {
        if let Some(welcome) = decode_welcome(&said) {
            assert_eq!(decode_welcome(&encode_welcome(welcome)), Some(welcome));
        }
    }
}

/// The words of a ring as either side reads them.
fn words(data: &[u8]) {
    let (file, ring) = Ring::create().expect("a ring");
    let raw = SharedMemory::map(&file).expect("its memory");
    let bytes = data.len().min(2 * PAGE_SIZE);
    raw.write(0, &data[..bytes]);
    raw.write(PAGE_SIZE, &data[..bytes.min(PAGE_SIZE)]);
    for number in [0, 1, ENTRIES - 1, ENTRIES, u32::MAX] {
        let (operation, slot) = ring.request(number);
        if let Some(operation) = operation {
            ring.put_request(number, operation, slot);
            assert_eq!(ring.request(number), (Some(operation), slot));
        }
        ring.put_status(number, ring.status(number));
    }
    assert!(
        doorbell::count(ring.submitted()) <= COUNT_MASK && doorbell::count(ring.completed()) <= COUNT_MASK
    );
}

/// A lane that meets a donor which does as `steps` say.
fn met(how: u8, steps: &[u8]) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("odd-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let address = SocketAddr::from_abstract_name(socket_name(&name)).expect("a short name");
    let listener = UnixListener::bind_addr(&address).expect("a name of this process alone");
    let spec: StoreSpec = format!("shm:{name}").parse().expect("the URI of a ring");
    let parts =
        SharedParts { capacity_slots: 1 << 20, fd: None, held: Vec::new(), spill: None, notice: None };
    let store = spec.open(parts, "a run").expect("a store that is asked later");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (stream, _) = listener.accept().expect("a lane");
            donor(stream, how, steps);
        });
        let begun = Instant::now();
        match store.open_lane() {
            Ok(mut lane) => {
                assert!(!how.is_multiple_of(4) || steps.len() >= WELCOME_BYTES, "a ring without a welcome");
                ask(&mut *lane);
            }
            Err(error) => assert!(how % 4 != 3, "{error}"),
        }
        assert!(begun.elapsed() < PATIENCE / 2, "a lane waits for what does not come");
    });
}

/// What the donor puts into entry `number`.
fn mark(number: u32) -> u8 {
    (number % ENTRIES) as u8 + 1
}

fn ask(lane: &mut dyn Lane) {
    let mut pages = [[0; PAGE_SIZE]; ASKED];
    let mut batch: Vec<ReadRequest<'_>> =
        (0..).zip(&mut pages).map(|(slot, page)| ReadRequest { slot, page, outcome: Ok(()) }).collect();
    lane.read(&mut batch);
    let outcomes: Vec<bool> = batch.iter().map(|request| request.outcome.is_ok()).collect();
    for (number, (page, is_ok)) in (0..).zip(pages.iter().zip(outcomes)) {
        // Who counts what he has not done leaves there what was there.
        let is_of_entry = [0, mark(number)].iter().any(|mark| page.iter().all(|byte| byte == mark));
        assert!(!is_ok || is_of_entry, "page {number} is another's");
    }
    let page = [7; PAGE_SIZE];
    let mut batch = [9, 10].map(|slot| WriteRequest { slot, page: &page, outcome: Ok(()) });
    lane.write(&mut batch);
    lane.post_reads(&[1, 2]);
    lane.discard(&[3]);
}

/// Says hello back, as it is or as it should be, and answers as the steps say: how a request ended, and how
/// many are completed by now. In the end it is gone, or counts what was never asked for.
fn donor(mut stream: UnixStream, how: u8, steps: &[u8]) {
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello).expect("a hello");
    let hello = decode_hello(&hello).expect("a hello of our own");
    assert_eq!(hello.purpose, Purpose::Lane);
    let (file, ring) = Ring::create().expect("a ring");
    let (said, steps) = match how % 4 {
        0 => steps.split_at(steps.len().min(WELCOME_BYTES)),
        _ => (&encode_welcome(Welcome::Slots(1 << 20))[..], steps),
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let null = std::fs::File::open("/dev/null").expect("a file that is no ring");
    let fds = [if how % 4 == 2 { null.as_fd() } else { file.as_fd() }];
    if how % 4 != 1 {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    if sendmsg(&stream, &[IoSlice::new(said)], &mut control, SendFlags::NOSIGNAL).is_err() {
        return;
    }
    let raw = SharedMemory::map(&file).expect("the ring's memory");
    let mut done = 0u32;
    for step in steps {
        // A lane that has failed submits nothing more.
        let deadline = Instant::now() + Duration::from_millis(2);
        while doorbell::count(ring.submitted()) == done && Instant::now() < deadline {
            std::thread::yield_now();
        }
        if doorbell::count(ring.submitted()) == done {
            break;
        }
        let (operation, _) = ring.request(done);
        if operation == Some(Operation::Read) {
            ring.write_page(done, &[mark(done); PAGE_SIZE]);
        }
        let entry = PAGE_SIZE + (done % ENTRIES) as usize * 16;
        raw.atomics_u32(entry + 8, 1)[0].store(u32::from(step & 3), Ordering::Relaxed);
        done = done.wrapping_add(1) & COUNT_MASK;
        match step >> 2 {
            // It counts less, more, or anything.
            60 => doorbell::ring(ring.completed(), done.wrapping_sub(2) & COUNT_MASK),
            61 => doorbell::ring(ring.completed(), done + 1),
            62 => doorbell::ring(ring.completed(), u32::from(*step) << 20),
            63 => raw.atomics_u32(64, 1)[0].store(u32::MAX, Ordering::Release),
            _ => doorbell::ring(ring.completed(), done),
        }
    }
    // Nobody submits so many, so that who waits for this donor waits no longer.
    doorbell::ring(ring.completed(), done.wrapping_add(ENTRIES * 2) & COUNT_MASK);
}
