//! Shared-memory rings whose client does not keep to the rules.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use common::Running;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use spillway_store::shm::doorbell;
use spillway_store::shm::hello::{
    GOODBYE, Hello, Purpose, WELCOME_BYTES, Welcome, decode_welcome, encode_hello, socket_name,
};
use spillway_store::shm::ring::{ENTRIES, Operation, Ring, Status};
use spillway_store::testing::{expect_pages, open_store, pages, write};
use spillway_sys::shared_memory::SharedMemory;

const MIB: u64 = 1 << 20;

fn connect(donor: &Running) -> UnixStream {
    let address = SocketAddr::from_abstract_name(socket_name(&donor.shm)).unwrap();
    let stream = UnixStream::connect_addr(&address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Says hello; the answer and the ring's file.
fn meet(donor: &Running, purpose: Purpose, token: &str) -> (UnixStream, Welcome, Option<OwnedFd>) {
    ask(donor, purpose, token, MIB)
}

fn ask(
    donor: &Running,
    purpose: Purpose,
    token: &str,
    size_bytes: u64,
) -> (UnixStream, Welcome, Option<OwnedFd>) {
    let mut stream = connect(donor);
    stream.write_all(&encode_hello(&Hello { purpose, size_bytes, token })).unwrap();
    let mut bytes = [0; WELCOME_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(&stream, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    assert_eq!(received.bytes, WELCOME_BYTES);
    let ring = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    (stream, decode_welcome(&bytes).unwrap(), ring)
}

fn is_hung_up_on(stream: &mut UnixStream) -> bool {
    matches!(stream.read(&mut [0]), Ok(0))
}

/// Waits until `count` requests are completed.
fn await_completed(ring: &Ring, count: u32) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while doorbell::count(ring.completed()) != count {
        assert!(std::time::Instant::now() < deadline, "{count} requests are not completed in 20 s");
        doorbell::wait(ring.completed(), doorbell::count(ring.completed()), Duration::from_millis(10));
    }
}

#[test]
fn clients_that_break_the_rules_hurt_only_themselves() {
    let donor = Running::start(4 * MIB);
    let (_parts, store) = open_store(&format!("{}?size=1M", donor.shm_uri()));
    let mut good = store.open_lane().unwrap();
    let content = pages(64, 5);
    let slots: Vec<u32> = (0..64).collect();
    assert!(write(&mut *good, &slots, &content).iter().all(Result::is_ok));

    // No hello, half a hello, a lane without a run.
    let mut stream = connect(&donor);
    stream.write_all(&[0xff; 4096]).unwrap_or(());
    assert!(stream.read(&mut [0]).is_ok_and(|bytes| bytes == 0) || stream.take_error().is_ok());
    drop(connect(&donor));
    let mut stream = connect(&donor);
    stream
        .write_all(&encode_hello(&Hello { purpose: Purpose::Lane, size_bytes: 0, token: "x" })[..20])
        .unwrap();
    drop(stream);
    assert_eq!(meet(&donor, Purpose::Lane, "unknown").1, Welcome::Lost);

    let (mut held, welcome, no_ring) = meet(&donor, Purpose::Run, "bad");
    assert_eq!((welcome, no_ring.is_none()), (Welcome::Slots(256), true));

    // Operations and slots that are none, then one that is.
    let (_stream, _, fd) = meet(&donor, Purpose::Lane, "bad");
    let fd = fd.unwrap();
    let ring = Ring::map(&fd).unwrap();
    let raw = SharedMemory::map(&fd).unwrap();
    ring.put_request(0, Operation::Write, 256);
    ring.put_request(1, Operation::Read, u32::MAX);
    raw.atomics_u32(4096 + 32, 1)[0].store(77, std::sync::atomic::Ordering::Relaxed);
    ring.write_page(3, &content[0]);
    ring.put_request(3, Operation::Write, 255);
    doorbell::ring(ring.submitted(), 4);
    await_completed(&ring, 4);
    let statuses: Vec<_> = (0..4).map(|number| ring.status(number)).collect();
    assert_eq!(statuses, [Status::Invalid, Status::Invalid, Status::Invalid, Status::Ok]);

    // More requests than the ring has entries, a count that runs backwards, a ring full of garbage.
    for count in [ENTRIES + 1, u32::MAX >> 1, 1 << 30] {
        let (mut stream, _, fd) = meet(&donor, Purpose::Lane, "bad");
        let ring = Ring::map(fd.unwrap()).unwrap();
        doorbell::ring(ring.submitted(), count);
        assert!(is_hung_up_on(&mut stream), "{count}");
    }
    let (mut stream, _, fd) = meet(&donor, Purpose::Lane, "bad");
    let raw = SharedMemory::map(fd.unwrap()).unwrap();
    for at in (0..raw.bytes()).step_by(4096) {
        raw.write(at, &[0xa5; 4096]);
    }
    // The donor may sleep; it looks around twice a second.
    assert!(is_hung_up_on(&mut stream));

    // The connection that holds a run's export says nothing more.
    held.write_all(b"x").unwrap();
    assert!(is_hung_up_on(&mut held));

    expect_pages(&mut *good, &slots, &content);
    drop(good);
    assert!(donor.stop().failed_connections >= 6);
}

#[test]
fn a_run_over_rings_is_promised_its_memory_and_ends_at_once() {
    let donor = Running::start(4 * MIB);
    for _ in 0..3 {
        let (mut first, welcome, _) = ask(&donor, Purpose::Run, "one", 4 * MIB);
        assert_eq!(welcome, Welcome::Slots(1024));
        let no_room = Welcome::NoRoom { free: 0, most: 1024 };
        assert_eq!(ask(&donor, Purpose::Run, "two", 4096).1, no_room);
        assert_eq!(ask(&donor, Purpose::Run, "two", 0).1, no_room);
        first.write_all(&[GOODBYE]).unwrap();
        assert!(is_hung_up_on(&mut first));
        assert_eq!(meet(&donor, Purpose::Lane, "one").1, Welcome::Lost);
    }
}

#[test]
fn many_lanes_at_once_share_one_export() {
    let donor = Running::start(16 * MIB);
    let (_parts, store) = open_store(&donor.shm_uri());
    std::thread::scope(|scope| {
        for lane in 0..8 {
            let store = &store;
            scope.spawn(move || {
                let mut mine = store.open_lane().unwrap();
                let content = pages(300, u64::from(lane));
                let slots: Vec<u32> = (0..300).map(|n| n * 8 + lane).collect();
                for _ in 0..5 {
                    assert!(write(&mut *mine, &slots, &content).iter().all(Result::is_ok));
                    expect_pages(&mut *mine, &slots, &content);
                    mine.discard(&slots[100..]);
                }
            });
        }
    });
}
