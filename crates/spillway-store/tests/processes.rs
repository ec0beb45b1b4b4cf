//! Several processes on one store, some of which are killed in the middle of their work.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};

use spillway_store::testing::{expect_pages, fill, open_store, page_of};
use spillway_store::{Lane, SharedParts, StoreSpec};

/// Slots that each process has to itself.
const SLOTS_EACH: u32 = 200;

/// Set for a process that is started by the test: URI, path of the shared file, capacity, and its number.
const ROLE: &str = "SPILLWAY_TEST_STORE_WRITER";

/// Not a test by itself: what the processes of the other tests run.
#[test]
fn writer_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [uri, path, capacity_slots, number] = role.split('\n').collect::<Vec<_>>()[..] else {
        panic!("{role}")
    };
    let spec: StoreSpec = uri.parse().unwrap();
    let number: u32 = number.parse().unwrap();
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let parts = SharedParts {
        capacity_slots: capacity_slots.parse().unwrap(),
        fd: Some(file.into()),
        held: Vec::new(),
        spill: None,
        notice: None,
    };
    let store = spec.open(parts, "test").unwrap();
    write_and_check(&mut *store.open_lane().unwrap(), number, u64::MAX);
}

/// Writes, checks and discards the slots of process `number`, round after round; says on stdout when it is at
/// it.
fn write_and_check(lane: &mut dyn Lane, number: u32, rounds: u64) {
    let slots: Vec<_> = (number * SLOTS_EACH..(number + 1) * SLOTS_EACH).collect();
    for round in 0..rounds {
        let data: Vec<_> = slots
            .iter()
            .map(|slot| page_of(round << 20 | u64::from(*slot).wrapping_mul(round | 1)))
            .collect();
        assert_eq!(fill(lane, &slots, &data), slots.len());
        expect_pages(lane, &slots, &data);
        if round == 1 {
            println!("\nat work");
        }
        let (some, _) = slots.split_at((round % 5) as usize * 50);
        lane.discard(some);
    }
}

/// A process of ours, killed when dropped.
struct Writer(Child);

impl Writer {
    fn start(uri: &str, parts: &SharedParts, number: u32) -> Self {
        let fd = parts.fd.as_ref().unwrap().as_raw_fd();
        let path = format!("/proc/{}/fd/{fd}", std::process::id());
        let role = format!("{uri}\n{path}\n{}\n{number}", parts.capacity_slots);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer_process", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut writer = Self(child);
        let lines = BufReader::new(writer.0.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "at work"), "the writer failed early");
        writer
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Some processes write and are killed, again and again; one that stays, and this one, never see wrong data,
/// and in the end hardly any memory is missing.
fn survive_killed_writers(uri: &str, kills: u32) {
    let (parts, store) = open_store(uri);
    let mut lane = store.open_lane().unwrap();
    let kept: Vec<u32> = (900..1000).collect();
    let data: Vec<_> = kept.iter().map(|slot| page_of(u64::from(*slot))).collect();
    assert_eq!(fill(&mut *lane, &kept, &data), kept.len());

    let mut steady = Writer::start(uri, &parts, 0);
    for kill in 0..kills {
        let victims = [Writer::start(uri, &parts, 1), Writer::start(uri, &parts, 2)];
        write_and_check(&mut *lane, 3, 2 + u64::from(kill) % 5);
        drop(victims); // SIGKILL, wherever they are.
        expect_pages(&mut *lane, &kept, &data);
        assert!(steady.is_running(), "a process saw wrong data");
    }
    assert!(steady.is_running());
    drop(steady);
    expect_pages(&mut *lane, &kept, &data);

    lane.discard(&(0..1000).collect::<Vec<_>>());
    let left = store.stored_bytes();
    // A killed process loses at most the page or the span that it had in hand.
    let lost = u64::from(2 * kills + 1) * (64 << 10);
    let kept_for_reuse = 2 << 20;
    assert!(left <= lost + kept_for_reuse + (64 << 10), "{left} bytes are left after {kills} kills");
    assert_eq!(fill(&mut *lane, &kept, &data), kept.len());
    expect_pages(&mut *lane, &kept, &data);
}

#[test]
fn compressed_survives_killed_writers() {
    survive_killed_writers("compressed:?size=32M", 8);
}

#[test]
fn ram_survives_killed_writers() {
    survive_killed_writers("ram:?size=8M", 3);
}
