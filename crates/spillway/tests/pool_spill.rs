//! A pool's last resort: programs that check every byte while donors have too little room, die and come back.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod support;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fault_common::disks::{FailingDevice, SmallDisk};
use fault_common::{BY_SIGBUS, Catch, Filled, Hold, SOON, Scene};
use pool_common::{Donors, donor, pool_command, refused, says, stores_of};
use rustix::process::Signal;
use serde_json::Value;
use support::MIB;
use support::child::{PATIENCE, Running, free_port, until};
use support::tools::c_program;

const PAGE_BYTES: usize = 4096;
/// What a shell says of a program that Ctrl-C has ended.
const BY_SIGINT: i32 = 130;

/// The process `spillway run` of a program.
fn run_of(hold: &Hold) -> i32 {
    hold.running.pid().as_raw_nonzero().get()
}

/// What `status` says of the last resort of a run.
fn spill_row(scene: &Scene, hold: &Hold) -> Value {
    spill_row_of(scene, run_of(hold))
}

/// The same by the number of the process `spillway run`.
fn spill_row_of(scene: &Scene, run: i32) -> Value {
    let stores = stores_of(scene, &run);
    let is_spill = |store: &&Value| store["uri"].as_str().is_some_and(|uri| uri.starts_with("spill:"));
    let rows: Vec<&Value> = stores.iter().filter(is_spill).collect();
    let [row] = rows[..] else { panic!("not one last resort: {stores:?}") };
    row.clone()
}

/// Fills a disk with a file; where that is.
fn fill_up(disk: &SmallDisk) -> PathBuf {
    let ballast = disk.path().join("ballast");
    let mut filling = File::create(&ballast).unwrap();
    while filling.write_all(&[1; PAGE_BYTES]).is_ok() {}
    ballast
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
fn coded_pages_for_which_full_donors_have_no_room_go_to_the_last_resort() {
    let (donors, scene) = (Donors::start(6, "12M"), Scene::new());
    let uri = donors.uri(&format!("?data=4&parity=2&{}", spill(&scene.work().join("far"), "64M")));
    let mut hold = Hold::start(&scene, 40, &[uri]);
    hold.goes_on(3);
    let row = spill_row(&scene, &hold);
    let number = |name: &str| row[name].as_u64().unwrap();
    // How much lies there hangs on how soon donors have discarded what is dead.
    assert!(number("used_bytes") > 0 && number("written_pages") > 1_000, "{row}");
    assert!(number("fetched_pages") > 100 && row["is_sealed"] == true && row["health"] == "ok", "{row}");
    says(&hold.running, "takes pages for which donors have no room");
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn with_a_last_resort_all_donors_of_a_code_may_die_and_pages_return_to_others() {
    let (mut donors, scene) = (Donors::start(4, "64M"), Scene::new());
    let ports = [free_port(), free_port()];
    let start = |number: usize| Some(donor(number, "64M", ports[number], &[]));
    (0..2).for_each(|number| donors.0[number] = start(number));
    let query = "data=2&parity=2&reconnect=1";
    let uri = donors.uri(&format!("?{query}&{}", spill(&scene.work().join("far"), "64M")));
    let mut hold = Hold::start(&scene, 16, &[uri]);
    hold.goes_on(1);
    for (round, dead) in [[0, 1], [2, 3]].into_iter().enumerate() {
        dead.into_iter().for_each(|number| donors.kill(number));
        until(PATIENCE, &format!("all pages to be whole: {}", hold.running.complaint()), || {
            let said = hold.running.complaint();
            (said.matches("or are in the last resort, again").count() > round).then_some(())
        });
    }
    hold.goes_on(2);
    let used = || spill_row(&scene, &hold)["used_bytes"].as_u64().unwrap();
    let all = used();
    assert!(all > 8 * MIB, "{all}");
    (0..2).for_each(|number| donors.0[number] = start(number));
    // Two parts of each row return, and the last resort has the two others.
    until(PATIENCE, "what donors have to be read from them", || {
        (donors_hold(&scene, &donors) > 8 * MIB).then_some(())
    });
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn processes_of_a_run_share_the_last_resort_of_coded_pages() {
    let (mut donors, scene) = (Donors::start(6, "16M"), Scene::new());
    let uri = donors.uri(&format!("?data=4&parity=2&{}", spill(&scene.work().join("far"), "192M")));
    let mut command = scene.run("16M", &[uri], c_program("fault_hold"));
    let mut hold = Hold::start_by(command.args(["16", "4"]));
    hold.goes_on(3);
    donors.kill(1);
    donors.kill(4);
    hold.goes_on(5);
    let used = || spill_row(&scene, &hold)["used_bytes"].as_u64().unwrap();
    until(PATIENCE, "parts in the last resort", || (used() > 8 * MIB).then_some(()));
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn where_the_last_resort_of_coded_pages_is_full_too_memory_is_refused_and_nothing_is_lost() {
    let (donors, scene) = (Donors::start(6, "12M"), Scene::new());
    let uri = donors.uri(&format!("?data=4&parity=2&{}", spill(&scene.work().join("far"), "24M")));
    let filled = scene.fill(80, &[&uri]);
    assert_eq!((filled.right, filled.lost), (2 * filled.written, 0), "{filled:?}");
    assert!(filled.refused > 0 && filled.written > (24 * MIB) / PAGE_BYTES as u64, "{filled:?}");
    assert!(filled.complaint.contains("is full with its 24 MiB"), "{filled:?}");
}

/// Ctrl-C ends the program, and the file, which has no name, goes with the last process of the run.
#[test]
fn a_run_that_is_interrupted_gives_the_space_of_its_last_resort_back() {
    for query in ["copies=2", "data=4&parity=2"] {
        let (donors, scene, disk) = (Donors::start(6, "12M"), Scene::new(), SmallDisk::tmpfs(96));
        let free = || rustix::fs::statvfs(disk.path()).unwrap().f_bfree;
        let before = free();
        let uri = donors.uri(&format!("?{query}&{}", spill(&disk.path().join("far"), "64M")));
        let mut hold = Hold::start(&scene, 56, &[uri]);
        hold.goes_on(1);
        assert!(free() < before, "{query}: nothing is in the last resort");
        hold.running.signal(Signal::INT);
        let finished = hold.running.finish(PATIENCE);
        assert_eq!(finished.code(), BY_SIGINT, "{query}: {finished:?}");
        until(PATIENCE, "the space to be free again", || (free() == before).then_some(()));
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
    }
}

/// What the first two donors hold.
fn donors_hold(scene: &Scene, donors: &Donors) -> u64 {
    let pool = format!("{},{}", donors.address(0), donors.address(1));
    let seen: Value =
        serde_json::from_str(&pool_command(scene, &["status", &pool, "--json"]).text()).unwrap();
    let each = seen["donors"].as_array().unwrap();
    each.iter().map(|donor| donor["held_bytes"].as_u64().unwrap_or(0)).sum()
}

#[test]
fn a_last_resort_on_a_disk_that_fills_up_says_so_and_is_used_again() {
    let (mut donors, scene, disk) = (Donors::start(2, "64M"), Scene::new(), SmallDisk::tmpfs(48));
    let uri = donors.uri(&format!("?{}", spill(&disk.path().join("far"), "40M")));
    let mut hold = Hold::start(&scene, 24, &[uri]);
    hold.goes_on(1);
    let ballast = fill_up(&disk);
    donors.kill(0);
    says(&hold.running, "takes no page more (its file system is full)");
    says(&hold.running, "stay on fewer than 2 donors");
    hold.goes_on(1);
    fs::remove_file(&ballast).unwrap();
    says(&hold.running, "takes pages again");
    says(&hold.running, "all pages are on 2 donors, or in the last resort, again");
    donors.kill(1);
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

/// Of a disk that fails exactly what it alone had is lost, and the line says so at once: to wait for each
/// page as for a donor, 10 s, would take hours.
#[test]
fn exactly_the_pages_that_a_failing_last_resort_alone_has_give_sigbus() {
    for (query, donors) in
        [("copies=2", Donors::start(2, "16M")), ("data=4&parity=2", Donors::start(6, "12M"))]
    {
        let (scene, device) = (Scene::new(), FailingDevice::attach(128));
        let uri = donors.uri(&format!("?{query}&{}", spill(Path::new(device.path()), "120M")));
        // What leaves once the disk takes nothing any more has another place.
        let catch = Catch::start_with(&scene, &["--store", "ram:"], 72, &uri);
        let spilled_bytes = spill_row_of(&scene, catch.run())["used_bytes"].as_u64().unwrap();
        catch.while_stopped(|| device.fail());
        let caught = catch.looks();
        assert_eq!(caught.right + caught.lost, 72 << 8, "{query}: {caught:?}");
        // What donors have is right, and so is what is local.
        let most_lost = spilled_bytes / PAGE_BYTES as u64;
        assert!(caught.lost > 1_000 && caught.lost <= most_lost, "{query}: {spilled_bytes}: {caught:?}");
        assert!(caught.right > 2 * (8 << 8), "{query}: {caught:?}");
        let line = format!("its last resort, file:{}, does not give it (", device.path());
        assert!(caught.complaint.contains(&line), "{query}: {caught:?}");
        assert!(caught.complaint.contains("nput/output error"), "{query}: {caught:?}");
    }
}

/// The only whole copy of each page is on the disk: its donors have died one after the other.
#[test]
fn a_last_resort_that_fails_after_all_donors_of_a_code_have_died_ends_the_program_with_its_name() {
    let (mut donors, scene, device) = (Donors::start(4, "64M"), Scene::new(), FailingDevice::attach(80));
    let uri = donors.uri(&format!("?data=2&parity=2&{}", spill(Path::new(device.path()), "64M")));
    let mut hold = Hold::start(&scene, 24, &[uri]);
    hold.goes_on(1);
    for (round, dead) in [[0, 1], [2, 3]].into_iter().enumerate() {
        dead.into_iter().for_each(|number| donors.kill(number));
        until(PATIENCE, &format!("all pages to be whole: {}", hold.running.complaint()), || {
            let said = hold.running.complaint();
            (said.matches("or are in the last resort, again").count() > round).then_some(())
        });
    }
    hold.goes_on(2);
    hold.while_stopped(|| device.fail());
    let finished = hold.running.finish(SOON);
    let complaint = finished.complaint();
    assert_eq!(finished.code(), BY_SIGBUS, "{complaint}");
    assert!(!finished.text().contains("whole"), "{}", finished.text());
    let lines: Vec<&str> = complaint.lines().filter(|line| line.contains("SIGBUS")).collect();
    let [line] = lines[..] else { panic!("not one line: {complaint}") };
    let last = format!("its last resort, file:{}, does not give it (", device.path());
    assert!(line.contains(&last) && line.contains("nput/output error"), "{line}");
    assert!(line.contains("check that disk"), "{line}");
}

#[test]
fn a_last_resort_of_coded_pages_whose_disk_fills_up_says_so_and_is_used_again() {
    let (mut donors, scene, disk) = (Donors::start(6, "64M"), Scene::new(), SmallDisk::tmpfs(64));
    let uri = donors.uri(&format!("?data=4&parity=2&reconnect=1&{}", spill(&disk.path().join("far"), "56M")));
    let mut hold = Hold::start(&scene, 24, &[uri]);
    hold.goes_on(1);
    let ballast = fill_up(&disk);
    [0, 1].into_iter().for_each(|number| donors.kill(number));
    says(&hold.running, "takes no page more (its file system is full)");
    says(&hold.running, "stay with fewer than 6 parts");
    hold.goes_on(2);
    fs::remove_file(&ballast).unwrap();
    says(&hold.running, "takes pages again");
    says(&hold.running, "or are in the last resort, again");
    // Four parts of each row are left without these: two of them in the file.
    [2, 3].into_iter().for_each(|number| donors.kill(number));
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

/// The file may grow to 96 MiB, and its disk is full: the program ends where it needs memory that nobody has
/// room for, and the line says so. What it had written was right until then.
#[test]
fn where_the_disk_of_the_last_resort_is_full_a_program_that_needs_more_ends_with_a_line() {
    for query in ["copies=2", "data=4&parity=2"] {
        let (donors, scene, disk) = (Donors::start(6, "12M"), Scene::new(), SmallDisk::tmpfs(100));
        let uri = donors.uri(&format!("?{query}&{}", spill(&disk.path().join("far"), "96M")));
        let (reader, mut tell) = std::io::pipe().unwrap();
        // It begins once the disk is full.
        let mut command = scene.run("8M", &[&uri], "/bin/sh");
        command.args(["-c", r#"echo begins; read line; exec "$0" "$1""#]);
        let mut running = Running::start_with(command.arg(c_program("fault_hold")).arg("120"), reader);
        running.expect("begins");
        let _ballast = fill_up(&disk);
        tell.write_all(b"go\n").unwrap();
        let finished = running.finish(PATIENCE);
        let complaint = finished.complaint();
        assert_eq!(finished.code(), BY_SIGBUS, "{query}: {} {complaint}", finished.text());
        assert!(complaint.lines().all(|line| line.starts_with("spillway: ")), "{query}: {complaint}");
        let lines: Vec<&str> = complaint.lines().filter(|line| line.contains("SIGBUS")).collect();
        let [line] = lines[..] else { panic!("{query}: not one line: {complaint}") };
        assert!(line.contains("is full"), "{query}: {line}");
    }
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

/// Donor and last resort are full, and another donor that has room does not answer for a while: the program
/// waits for it, and no memory is refused.
#[test]
fn a_donor_that_has_room_and_is_silent_for_a_while_is_waited_for_where_all_others_are_full() {
    let mut donors = Donors::start(1, "16M");
    donors.add("4M", &[]);
    let scene = Scene::new();
    for also in [String::new(), format!("&{}", spill(scene.work(), "4M"))] {
        let query = format!("copies=1&reconnect=60{also}");
        let (reader, mut tell) = std::io::pipe().unwrap();
        // It begins once the larger one is silent.
        let mut command = scene.run("8M", &[&donors.uri(&format!("?{query}"))], "/bin/sh");
        command.args(["-c", r#"echo begins; read line; exec "$0" "$1""#]);
        let mut running = Running::start_with(command.arg(c_program("fault_full")).arg("24"), reader);
        running.expect("begins");
        donors.signal(0, Signal::STOP);
        says(&running, "is away");
        tell.write_all(b"go\n").unwrap();
        says(&running, "the donors that have room, 127.0.0.2");
        donors.signal(0, Signal::CONT);
        let finished = running.finish(PATIENCE);
        let pages = (24 * MIB) / PAGE_BYTES as u64;
        let whole = format!("begins\nwritten {pages} refused 0\nright {} lost 0\n", 2 * pages);
        assert_eq!(finished.success(), whole, "{query}: {}", finished.complaint());
    }
}

/// Of a pool of two donors one dies before anything is written: what the other one has room for is used
/// whole, though more slots are free.
#[test]
fn where_a_donor_has_died_all_memory_of_the_other_is_used_before_any_is_refused() {
    let (mut donors, scene) = (Donors::start(2, "8M"), Scene::new());
    let (reader, mut tell) = std::io::pipe().unwrap();
    let mut command = scene.run("8M", &[&donors.uri("?copies=1&reconnect=1")], "/bin/sh");
    command.args(["-c", r#"echo begins; read line; exec "$0" "$1""#]);
    let mut running = Running::start_with(command.arg(c_program("fault_full")).arg("24"), reader);
    running.expect("begins");
    donors.kill(0);
    says(&running, "is away");
    tell.write_all(b"go\n").unwrap();
    let finished = running.finish(PATIENCE);
    let filled = Filled::read(&finished);
    assert_eq!((filled.right, filled.lost), (2 * filled.written, 0), "{filled:?}");
    assert!(filled.refused > 0 && filled.complaint.contains("is full"), "{filled:?}");
    assert!(filled.written > (15 * MIB) / PAGE_BYTES as u64, "{filled:?}");
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
        ("pool:a:1,b:1,c:1?data=2&parity=1&spill-size=1G", &["spill-size", "name it by spill=file:PATH"]),
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
    let coded = Donors::start(6, "12M");
    let query = format!("?data=4&parity=2&{}", spill(&new, "8M"));
    refused(
        &coded.uri(&query),
        &["4 extents of 2M", "what is coded needs 8", "spill-size=SIZE, 16M or more"],
    );
    let query = format!("?size=100M&{}", spill(&new, "8M"));
    refused(&donors.uri(&query), &["16 MiB of pages", "its last resort for 8 MiB", "100 MiB were asked for"]);
    assert!(!new.exists());
}
