//! A pool's last resort: programs that check every byte while donors have too little room, die and come back.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod support;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use fault_common::disks::SmallDisk;
use fault_common::{Hold, Scene};
use pool_common::{Donors, donor, refused, says};
use serde_json::Value;
use support::MIB;
use support::child::{PATIENCE, free_port, until};
use support::tools::c_program;

const PAGE_BYTES: usize = 4096;

/// The process `spillway run` of a program.
fn run_of(hold: &Hold) -> i32 {
    hold.running.pid().as_raw_nonzero().get()
}

/// What `status` says of the last resort of a run.
fn spill_row(scene: &Scene, hold: &Hold) -> Value {
    let run = run_of(hold);
    let output =
        Command::new(scene.spillway()).args(["status", &run.to_string(), "--json"]).output().unwrap();
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let stores = seen.pointer("/alive/0/run/stores").and_then(Value::as_array);
    let rows: Vec<&Value> = stores
        .into_iter()
        .flatten()
        .filter(|store| store["uri"].as_str().is_some_and(|uri| uri.starts_with("spill:")))
        .collect();
    let [row] = rows[..] else { panic!("not one last resort: {seen}") };
    row.clone()
}

fn spill(place: &Path, size: &str) -> String {
    format!("spill=file:{}&spill-size={size}", place.display())
}

#[test]
fn pages_for_which_full_donors_have_no_room_go_to_the_last_resort() {
    let (donors, scene) = (Donors::start(2, "16M"), Scene::new());
    let uri = donors.uri(&format!("?{}", spill(&scene.work().join("far"), "64M")));
    let mut hold = Hold::start(&scene, 40, &[uri]);
    hold.goes_on(3);
    let row = spill_row(&scene, &hold);
    let number = |name: &str| row[name].as_u64().unwrap();
    assert_eq!(number("capacity_bytes"), 64 * MIB, "{row}");
    assert!(number("used_bytes") > 8 * MIB && number("written_pages") > 1_000, "{row}");
    assert!(number("fetched_pages") > 100 && row["is_sealed"] == true && row["health"] == "ok", "{row}");
    says(&hold.running, "takes pages for which donors have no room");
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
    // Nothing is left where it lay, however the run ends: it never had a name for long.
    assert!(!scene.work().join("far").exists());
}

#[test]
fn with_a_last_resort_all_donors_may_die_one_after_the_other() {
    let (mut donors, scene) = (Donors::start(2, "64M"), Scene::new());
    let uri = donors.uri(&format!("?spill=file:{}&reconnect=1", scene.work().display()));
    let mut hold = Hold::start(&scene, 24, &[uri]);
    hold.goes_on(1);
    donors.kill(0);
    says(&hold.running, "all pages are on 2 donors, or in the last resort, again");
    donors.kill(1);
    hold.goes_on(3);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn pages_return_from_the_last_resort_when_a_donor_has_room_again() {
    let (mut donors, scene) = (Donors::start(2, "64M"), Scene::new());
    let port = free_port();
    donors.0[0] = Some(donor(0, "64M", port, &[]));
    let uri = donors.uri(&format!("?{}", spill(&scene.work().join("far"), "48M")));
    let mut hold = Hold::start(&scene, 24, &[uri]);
    hold.goes_on(1);
    donors.kill(0);
    says(&hold.running, "all pages are on 2 donors, or in the last resort, again");
    assert!(spill_row(&scene, &hold)["used_bytes"].as_u64().unwrap() > 16 * MIB);
    donors.0[0] = Some(donor(0, "64M", port, &[]));
    says(&hold.running, "is empty again: donors have room for all pages");
    donors.kill(1);
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn a_last_resort_on_a_disk_that_fills_up_says_so_and_is_used_again() {
    let (mut donors, scene, disk) = (Donors::start(2, "64M"), Scene::new(), SmallDisk::tmpfs(48));
    let uri = donors.uri(&format!("?{}", spill(&disk.path().join("far"), "40M")));
    let mut hold = Hold::start(&scene, 24, &[uri]);
    hold.goes_on(1);
    let ballast = disk.path().join("ballast");
    let mut filling = File::create(&ballast).unwrap();
    while filling.write_all(&[1; PAGE_BYTES]).is_ok() {}
    donors.kill(0);
    says(&hold.running, "takes no page more (its file system is full)");
    says(&hold.running, "stay on fewer than 2 donors");
    hold.goes_on(1);
    drop(filling);
    fs::remove_file(&ballast).unwrap();
    says(&hold.running, "takes pages again");
    says(&hold.running, "all pages are on 2 donors, or in the last resort, again");
    donors.kill(1);
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn where_the_last_resort_is_full_too_memory_is_refused_and_nothing_is_lost() {
    let (donors, scene) = (Donors::start(2, "16M"), Scene::new());
    let uri = donors.uri(&format!("?{}", spill(&scene.work().join("far"), "4M")));
    let filled = scene.fill(64, &[&uri]);
    assert_eq!((filled.right, filled.lost), (2 * filled.written, 0), "{filled:?}");
    assert!(filled.refused > 0 && filled.written > (20 * MIB) / PAGE_BYTES as u64, "{filled:?}");
    assert!(filled.complaint.contains("is full with its 4 MiB"), "{filled:?}");
}

/// Pages of the scratch file of a run, which has no name any more: how many there are, and how many of them
/// show what the C programs write, words that count up.
fn look_into_the_last_resort(run: i32) -> (usize, usize) {
    let descriptors = fs::read_dir(format!("/proc/{run}/fd")).unwrap().flatten();
    let is_it = |path: &Path| {
        fs::read_link(path).is_ok_and(|link| link.to_string_lossy().ends_with("/far (deleted)"))
    };
    let path = descriptors.map(|entry| entry.path()).find(|path| is_it(path)).expect("the file");
    let file = File::open(path).unwrap();
    let (mut pages, mut readable, mut page) = (0, 0, [0; PAGE_BYTES]);
    for number in 0..file.metadata().unwrap().len() / PAGE_BYTES as u64 {
        file.read_exact_at(&mut page, number * PAGE_BYTES as u64).unwrap();
        let words: Vec<u64> =
            page.as_chunks::<8>().0.iter().take(8).map(|word| u64::from_le_bytes(*word)).collect();
        let counts_up = words.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1));
        pages += usize::from(page.iter().any(|byte| *byte != 0));
        readable += usize::from(counts_up && words[0] > u64::from(u32::MAX));
    }
    (pages, readable)
}

#[test]
fn what_is_in_the_last_resort_is_sealed_as_at_donors() {
    for (options, is_readable) in [(&[][..], false), (&["--seal", "none"], true)] {
        let (donors, scene) = (Donors::start(2, "8M"), Scene::new());
        let uri = donors.uri(&format!("?{}", spill(&scene.work().join("far"), "32M")));
        let mut command = scene.run_with(options, "8M", &[uri], c_program("fault_hold"));
        let mut hold = Hold::start_by(command.arg("24"));
        hold.goes_on(1);
        let run = run_of(&hold);
        let (pages, readable) = until(PATIENCE, "pages in the last resort", || {
            let found = look_into_the_last_resort(run);
            (found.0 > 500).then_some(found)
        });
        assert_eq!(readable > pages / 2, is_readable, "{options:?}: {readable} of {pages}");
        assert!(is_readable || readable == 0, "{options:?}: {readable} of {pages}");
        hold.ends_whole();
    }
}

#[test]
fn a_last_resort_that_cannot_be_is_refused_in_one_line() {
    for (uri, reasons) in [
        ("pool:a:1,b:1?spill=/x", &["spill", "'/x' is no file of this machine", "spill=file:PATH"][..]),
        ("pool:a:1,b:1?spill=file:", &["path of spill=file: is missing", "spill-size=SIZE"]),
        ("pool:a:1,b:1?spill-size=1G", &["spill-size", "name it by spill=file:PATH"]),
        ("pool:a:1,b:1,c:1?data=2&parity=1&spill=file:/x", &["spill", "pools of copies", "leave it out"]),
    ] {
        refused(uri, reasons);
    }
    let (donors, scene) = (Donors::start(2, "16M"), Scene::new());
    let there = scene.work().join("there");
    fs::write(&there, "x").unwrap();
    let new = scene.work().join("far");
    for (place, size, reasons) in [
        (Path::new("/no/such/place/far"), "8M", &["/no/such/place/far", "check the path"][..]),
        (&there, "8M", &["last resort", "exists already", "name a file that does not exist"]),
        (Path::new("/dev/null"), "8M", &["last resort", "exists already"]),
        (&new, "1M", &["no extent of 2M", "spill-size=SIZE"]),
        (&new, "8T", &["MiB free", "may need 8388608 MiB", "spill-size="]),
    ] {
        refused(&donors.uri(&format!("?{}", spill(place, size))), reasons);
    }
    let query = format!("?size=100M&{}", spill(&new, "8M"));
    refused(&donors.uri(&query), &["16 MiB of pages", "its last resort for 8 MiB", "100 MiB were asked for"]);
    assert!(!new.exists());
}
