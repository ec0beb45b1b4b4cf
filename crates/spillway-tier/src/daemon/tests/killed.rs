//! Daemons that are killed with SIGKILL at moments of chance, while a program that they manage checks all of
//! its memory. Both are this test program, started anew.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use spillway_core::page::PAGE_SIZE;
use spillway_sys::memory::Area;

use super::*;
use crate::group::LocalBudget;
use crate::settings::pause_kernel;

const PLACE: &str = "SPILLWAY_TEST_PLACE";
const PROGRAM: &str = "SPILLWAY_TEST_PROGRAM";
const KILLS: u64 = 15;
/// Of these, so many not before they moved a page.
const FIRST: u64 = 3;
const PAGES: usize = 1024;

/// What the daemon changes.
const SETTINGS: [(&str, &str); 2] =
    [("proc/sys/kernel/numa_balancing", "1"), ("sys/kernel/mm/numa/demotion_enabled", "1")];

/// A part of the test, which does not outlive it.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(part: &str, place: &Path, program: u32) -> Started {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", &format!("daemon::tests::killed::{part}")])
        .env(PLACE, place)
        .env(PROGRAM, program.to_string())
        .stdout(Stdio::null());
    Started(command.spawn().unwrap())
}

fn place() -> PathBuf {
    std::env::var_os(PLACE).expect("the test that starts it says where").into()
}

#[test]
#[ignore = "a part of the test below, which starts it"]
fn a_daemon() {
    let place = place();
    let program: u32 = std::env::var(PROGRAM).unwrap().parse().unwrap();
    let (mut settings, _) = KernelSettings::open(&place.join("journal")).unwrap();
    pause_kernel(&place, &mut settings).unwrap();
    let nodes = tempfile::tempdir_in(&place).unwrap();
    let group = Group { local: Some(LocalBudget::Pct(20.0)), ..group("g", &[program]) };
    let config =
        Config { group: vec![group], scan_interval_ms: 5, telemetry_cpu_pct: 100.0, ..Config::default() };
    let mut daemon = Daemon::pretend(config, nodes.path(), &mut settings).unwrap();
    while let Some(wait) = daemon.turn().unwrap() {
        let counts = &daemon.status().groups[0].counts;
        if counts.promotions + counts.demotions > 0 {
            std::fs::write(place.join("moved"), "").unwrap();
        }
        std::thread::sleep(wait);
    }
}

#[test]
#[ignore = "a part of the test below, which starts it"]
fn a_program() {
    let place = place();
    let area = Area::new(PAGES * PAGE_SIZE).unwrap();
    let value = |page: usize, round: u64| page as u64 * 31 + round;
    let word = |page: usize| &area.words(page * PAGE_SIZE, 1)[0];
    (0..PAGES).for_each(|page| word(page).store(value(page, 0), Ordering::Relaxed));
    let mut round = 0;
    while !place.join("enough").exists() {
        for page in 0..PAGES {
            assert_eq!(word(page).load(Ordering::Relaxed), value(page, round), "page {page}");
            word(page).store(value(page, round + 1), Ordering::Relaxed);
        }
        round += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(round > 1, "it ran");
}

#[test]
fn a_daemon_that_is_killed_at_any_moment_harms_no_program_and_the_next_puts_settings_back() {
    let tree = Tree::new();
    SETTINGS.iter().for_each(|(path, value)| tree.write(path, value));
    let mut program = start("a_program", tree.root(), 0);
    let moved = tree.root().join("moved");
    let mut killed_while_changed = 0;
    for kill in 0..KILLS {
        let _ = std::fs::remove_file(&moved);
        let mut daemon = start("a_daemon", tree.root(), program.0.id());
        // Some come to move pages, however busy the machine is; the others are killed whenever it comes.
        while kill < FIRST && !moved.exists() {
            assert!(daemon.0.try_wait().unwrap().is_none(), "it goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(kill * 7919 % 60_000));
        drop(daemon);
        let is_changed = SETTINGS.iter().any(|(path, value)| tree.read(path) != *value);
        killed_while_changed += u64::from(is_changed);
        assert!(
            !is_changed || tree.root().join("journal").exists(),
            "what was changed stands in the journal"
        );
        if kill % 2 == 0 {
            continue; // The next daemon puts back by itself, and changes again.
        }
        let (_settings, restored) = KernelSettings::open(&tree.root().join("journal")).unwrap();
        assert!(!is_changed || !restored.is_empty());
        SETTINGS.iter().for_each(|(path, value)| assert_eq!(tree.read(path), *value, "{path}, kill {kill}"));
    }
    assert!(killed_while_changed >= FIRST, "{killed_while_changed}");
    std::fs::write(tree.root().join("enough"), "").unwrap();
    assert!(program.0.wait().unwrap().success(), "it found all that it wrote");
    drop(KernelSettings::open(&tree.root().join("journal")).unwrap());
    SETTINGS.iter().for_each(|(path, value)| assert_eq!(tree.read(path), *value, "{path}"));
}
