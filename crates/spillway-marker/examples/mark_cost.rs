//! What a mark costs: taking a page out of its place, the access that stops at it, and what it would cost to
//! migrate the page in the fault - by move_pages(2) or by a copy - beside a batch. On any machine: pages are
//! moved to the node where they are, so that of a migration all is in the figures but the copy of 4 KiB and
//! the new page tables' entry.
//!
//! usage: `cargo run --release --package spillway-marker --example mark_cost -- [PAGES [ROUNDS]]`
#![allow(clippy::unwrap_used, clippy::expect_used, unsafe_code)]

use std::os::fd::OwnedFd;
use std::ptr;
use std::time::Instant;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::thread::{CpuSet, sched_setaffinity};
use spillway_marker::call::introduce;
use spillway_marker::wire::{self, Outcome};
use spillway_sys::migration::move_pages;
use spillway_sys::page::PAGE_SIZE;

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}

/// A marker on a CPU of its own, or on the program's.
fn marker(cpu: usize) -> (OwnedFd, std::thread::JoinHandle<()>) {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let marker = introduce(theirs, 0).expect("as root, on Linux 6.8 or later");
    let thread = std::thread::spawn(move || {
        pin(cpu);
        marker.run();
    });
    recv(&ours, &mut [0_u8; 64][..], RecvFlags::empty()).unwrap();
    (ours, thread)
}

/// Reads reports until the one that says that all orders are done.
fn wait_for_end(socket: &OwnedFd) {
    send(socket, &wire::encode_orders(&[1]), SendFlags::empty()).unwrap();
    loop {
        let mut packet = [0; wire::MOST_BYTES];
        let (read, _) = recv(socket, &mut packet[..], RecvFlags::empty()).unwrap();
        let reports = wire::decode_reports(&packet[..read]).unwrap();
        if reports.iter().any(|report| report.address == 1) {
            return;
        }
    }
}

fn percentiles(mut times: Vec<u64>) -> String {
    times.sort_unstable();
    let at = |pct: usize| times[(times.len() - 1) * pct / 100] as f64 / 1000.0;
    format!("median {:.1} us, 90% {:.1} us, 99% {:.1} us", at(50), at(90), at(99))
}

fn since_ns(from: Instant) -> u64 {
    from.elapsed().as_nanos() as u64
}

fn main() {
    let argument = |at: usize, default: usize| {
        std::env::args().nth(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let (pages, rounds) = (argument(1, 2000), argument(2, 5));
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    // Every second page is used, so that none lies beside another.
    let bytes = 2 * pages * PAGE_SIZE;
    // SAFETY: a new mapping.
    let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, 3, flags, -1, 0) }.cast::<u8>();
    assert_ne!(memory.cast(), libc::MAP_FAILED);
    let addresses: Vec<u64> =
        (0..pages).map(|page| (memory.expose_provenance() + 2 * page * PAGE_SIZE) as u64).collect();
    // SAFETY: within the mapping.
    let read = |address: u64| unsafe { ptr::with_exposed_provenance::<u8>(address as usize).read_volatile() };
    pin(0);
    for cpu in [0, 1] {
        let (socket, thread) = marker(cpu);
        let (mut marks, mut accesses) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let began = Instant::now();
            addresses.chunks(wire::MOST_ORDERS).for_each(|some| {
                send(&socket, &wire::encode_orders(some), SendFlags::empty()).unwrap();
            });
            wait_for_end(&socket);
            marks.push(since_ns(began) / pages as u64);
            for &address in &addresses {
                let began = Instant::now();
                read(address);
                accesses.push(since_ns(began));
            }
            let outcomes = std::iter::from_fn(|| {
                let mut packet = [0; wire::MOST_BYTES];
                let (read, _) = recv(&socket, &mut packet[..], RecvFlags::DONTWAIT).ok()?;
                wire::decode_reports(&packet[..read])
            });
            let other = outcomes.flatten().filter(|report| report.outcome != Outcome::Accessed).count();
            assert_eq!(other, 0, "all were marked, and accessed");
        }
        println!("marker on CPU {cpu}, program on CPU 0:");
        println!("  to mark a page: {}", percentiles(marks));
        println!("  the access that stops at it: {}", percentiles(accesses));
        drop(socket);
        thread.join().unwrap();
    }
    let own = std::process::id();
    let single: Vec<u64> = addresses
        .iter()
        .take(500)
        .map(|&address| {
            let began = Instant::now();
            assert!(move_pages(own, &[address], 0).unwrap()[0].is_ok());
            since_ns(began)
        })
        .collect();
    println!("move_pages(2) of one page: {}", percentiles(single));
    let many = addresses.len().min(1024);
    let batches: Vec<u64> = (0..rounds)
        .map(|_| {
            let began = Instant::now();
            move_pages(own, &addresses[..many], 0).unwrap();
            since_ns(began) / many as u64
        })
        .collect();
    println!("move_pages(2) of {many} pages, for each: {}", percentiles(batches));
}
