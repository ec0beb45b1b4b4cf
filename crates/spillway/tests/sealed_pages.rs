//! Sealed pages: whoever keeps them can read none, and no page of another place, time or run passes for one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod hostile_nbd;
mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use donor_common::Donor;
use fault_common::{Catch, Hold, Scene};
use hostile_nbd::{Hostile, Manner};
use support::MIB;
use support::child::{PATIENCE, Running, until};
use support::tools::{c_program, tool};

const PAGE_BYTES: usize = 4096;
const HELD_MIB: u64 = 24;

/// What the C programs write: words that count up from one that is no small number. A run of these is no
/// chance.
fn shows_a_program(bytes: &[u8]) -> bool {
    let words = || bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let counts_up = words().zip(words().skip(1)).all(|(one, next)| next == one.wrapping_add(1));
    counts_up && words().next().is_some_and(|first| first > u64::from(u32::MAX))
}

/// Places in the memory of a process at which what a program wrote can be read.
fn readable_places(pid: u32) -> usize {
    const WINDOW: usize = 64;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut found = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).unwrap());
        let mut bytes = vec![0; (to - from) as usize];
        // Some cannot be read; the pages that were stored are not among them, as the unsealed run shows.
        if memory.read_exact_at(&mut bytes, from).is_ok() {
            // A page follows its request's header in a stream, which has a length that 4 divides.
            found += bytes.windows(WINDOW).step_by(4).filter(|window| shows_a_program(window)).count();
        }
    }
    found
}

#[test]
fn a_donors_memory_shows_nothing_of_what_the_program_wrote() {
    let scene = Scene::new();
    let places = |options: &[&str]| {
        let donor = Donor::start("64M", &[]);
        let catch = Catch::start_with(&scene, options, HELD_MIB, &donor.tcp_uri(""));
        let places = readable_places(donor.pid());
        let caught = catch.looks();
        assert_eq!((caught.right, caught.lost), (HELD_MIB * MIB / 4096, 0), "{caught:?}");
        places
    };
    assert_eq!(places(&[]), 0);
    let unsealed = places(&["--seal", "none"]);
    assert!(unsealed > 1_000, "the search finds what is there: {unsealed}");
}

#[test]
fn a_server_is_given_no_page_that_it_can_read() {
    let scene = Scene::new();
    for (options, is_readable) in [(&[][..], false), (&["--seal", "all"], false), (&["--seal", "none"], true)]
    {
        let server = Hostile::start(128 * MIB);
        let catch = Catch::start_with(&scene, options, HELD_MIB, &server.uri(""));
        let given = server.count_pages(|page| page != &[0; PAGE_BYTES]);
        let readable = server.count_pages(|page| shows_a_program(page));
        assert!(given > 2_000 && (readable > given / 2) == is_readable, "{options:?}: {readable} of {given}");
        assert!(is_readable || readable == 0, "{options:?}: {readable} of {given}");
        assert_eq!(catch.looks().lost, 0);
    }
}

/// Of the pages that are not as they were stored each is lost, with its line, and the others are right.
fn only_these_are_lost(scene: &Scene, server: &Hostile, options: &[&str], manner: Manner, reason: &str) {
    let catch = Catch::start_with(scene, options, HELD_MIB, &server.uri(""));
    server.behave(manner);
    let caught = catch.looks();
    assert_eq!(caught.right + caught.lost, HELD_MIB * MIB / 4096);
    assert!(
        caught.lost >= 50 && caught.right > 6 * caught.lost,
        "{manner:?}: {} {}",
        caught.right,
        caught.lost
    );
    let is_end = |line: &&str| line.contains(reason) && line.contains("SIGBUS");
    let lines = caught.complaint.lines().filter(is_end).count() as u64;
    assert_eq!(lines, caught.lost, "{manner:?}: {}", caught.complaint);
}

#[test]
fn only_pages_that_were_changed_or_swapped_are_lost() {
    let scene = Scene::new();
    for manner in [Manner::FlipsABitOfSome, Manner::SwapsSome] {
        only_these_are_lost(&scene, &Hostile::start(128 * MIB), &[], manner, "seal is wrong");
    }
}

/// The same program writes the same pages twice: by their contents and their places nobody could tell.
#[test]
fn pages_of_another_run_are_not_taken() {
    let scene = Scene::new();
    let server = Hostile::start(128 * MIB);
    let earlier = Catch::start(&scene, HELD_MIB, &server.uri(""));
    server.keep_for_later();
    drop(earlier);
    only_these_are_lost(&scene, &server, &[], Manner::SomeOfAnotherRun, "seal is wrong");
}

/// Without a seal the checksum finds accidents, as it does over stores of this machine.
#[test]
fn without_a_seal_wrong_bytes_are_noticed_still() {
    let scene = Scene::new();
    for manner in [Manner::FlipsABitOfSome, Manner::SwapsSome] {
        let server = Hostile::start(128 * MIB);
        only_these_are_lost(&scene, &server, &["--seal", "none"], manner, "wrong checksum");
    }
}

/// Parent and children give slots back and take up each other's, while what they had in common is shared.
#[test]
fn forked_processes_seal_side_by_side() {
    let (scene, donor) = (Scene::new(), Donor::start("256M", &[]));
    let mut command = scene.run("8M", &[donor.tcp_uri("")], c_program("fault_hold"));
    let mut hold = Hold::start_by(command.args(["16", "3"]));
    hold.goes_on(16);
    assert_eq!(readable_places(donor.pid()), 0);
    assert_eq!(hold.ends_whole().complaint(), "");
}

#[test]
fn pages_are_sealed_in_threads_of_either_kind_of_this_machine_too() {
    let scene = Scene::new();
    for mode in ["thread", "inline"] {
        for children in ["0", "2"] {
            let options = ["--seal", "all", "--fault-mode", mode];
            let mut command = scene.run_with(&options, "8M", &["ram:"], c_program("fault_hold"));
            let mut hold = Hold::start_by(command.args(["24", children]));
            hold.goes_on(8);
            assert_eq!(hold.ends_whole().complaint(), "", "{mode} {children}");
            assert!(scene.stats().count("pages_fetched") > 1_000, "{mode} {children}");
        }
    }
}

#[test]
fn what_cannot_be_sealed_is_refused() {
    let scene = Scene::new();
    let refused = |options: &[&str], store: &str| {
        let finished = Running::start(&mut scene.run_with(options, "8M", &[store], "true")).finish(PATIENCE);
        assert_eq!(finished.code(), 125, "{finished:?}");
        finished.complaint()
    };
    let complaint = refused(&["--seal", "all"], "compressed:?size=64M");
    assert!(complaint.contains("compressed:?size=64M") && complaint.contains("name ram:"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}

/// A program has a cryptographic library of its own, for whose symbols ours must not stand in: it lends none
/// at all, and borrows none of a cipher.
#[test]
fn the_library_lends_no_program_its_cipher() {
    let library = Path::new(env!("CARGO_BIN_EXE_spillway")).with_file_name("libspillway_preload.so");
    let symbols = |which: &str| {
        let output = Command::new(tool("nm", "binutils")).args(["-D", which]).arg(&library).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().to_lowercase()
    };
    assert_eq!(symbols("--defined-only"), "");
    let borrowed = symbols("--undefined-only");
    assert!(borrowed.contains(" u memcpy"), "{borrowed}");
    for part in ["gcm", "aes", "openssl", "crypto", "evp_"] {
        assert_eq!(borrowed.lines().find(|line| line.contains(part)), None, "{part}");
    }
}

/// Waiting for a page's write takes no seal from another: a server that refuses some writes costs versions.
#[test]
fn writes_that_fail_and_are_made_again_are_sealed_anew() {
    let (scene, server) = (Scene::new(), Hostile::start(256 * MIB));
    let mut hold = Hold::start(&scene, HELD_MIB, &[server.uri("")]);
    server.behave_every(7, Manner::RefusesWrites(hostile_nbd::errno::EIO));
    until(PATIENCE, "refusals", || (server.misdeeds() >= 40).then_some(()));
    server.behave(Manner::Honest);
    hold.goes_on(8);
    assert_eq!(server.count_pages(|page| shows_a_program(page)), 0);
    hold.ends_whole();
}
