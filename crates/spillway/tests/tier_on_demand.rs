//! `spillway tier` where marked pages stop the program: a real program with the preload library, a real
//! daemon, on a machine of one node of which half the memory is pretended to be slow.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use spillway_marker::wire::SOCKET_VARIABLE;
use spillway_pager::run::rendezvous::BUILD_NUMBER;
use spillway_tier::daemon::Daemon;
use spillway_tier::group::{Config, Group, LocalBudget};
use spillway_tier::markers::Markers;
use spillway_tier::settings::KernelSettings;
use spillway_tier::status::Status;
use support::tools::c_program_with;

/// More than a block of pretended memory, so that some of it lies far.
const PROGRAM_MIB: &str = "384";
const HOT_PAGES: &str = "1000";

fn preload_library() -> String {
    let library = Path::new(env!("CARGO_BIN_EXE_spillway")).with_file_name("libspillway_preload.so");
    assert!(library.is_file(), "build it: cargo build --workspace");
    library.to_str().unwrap().to_owned()
}

/// A program that checks its memory, and ends with its standard input.
struct Program(Child);

impl Program {
    fn start(markers: Option<&Markers>) -> Self {
        let mut command = Command::new(c_program_with("marked", &[]));
        command.args([PROGRAM_MIB, HOT_PAGES]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(markers) = markers {
            command.env("LD_PRELOAD", preload_library()).env(SOCKET_VARIABLE, markers.name());
        }
        spillway_sys::process::without_huge_pages(&mut command);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    /// It has found all that it wrote.
    fn end(mut self) {
        drop(self.0.stdin.take());
        let mut said = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.0.wait().unwrap().success(), "{said}");
        assert!(said.contains("rounds"), "{said}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Site {
    directory: tempfile::TempDir,
    settings: KernelSettings,
}

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (settings, _) = KernelSettings::open(&directory.path().join("journal")).unwrap();
        Self { directory, settings }
    }

    fn daemon(&mut self, program: &Program, policy: &str) -> Daemon {
        let group = Group {
            name: "g".into(),
            policy: policy.into(),
            // What windows of it look like hangs on the machine's load.
            settings: [("throttle".to_owned(), serde_json::json!(false))].into_iter().collect(),
            local: Some(LocalBudget::Pct(90.0)),
            pids: vec![program.0.id()],
            ..Group::default()
        };
        let config = Config {
            group: vec![group],
            scan_interval_ms: 20,
            telemetry_cpu_pct: 100.0,
            ..Config::default()
        };
        Daemon::pretend(config, &self.directory.path().join("root"), &mut self.settings).unwrap()
    }
}

fn turn_until(daemon: &mut Daemon, done: impl Fn(&Status) -> bool) {
    loop {
        let wait = daemon.turn().unwrap().expect("the program runs");
        if done(&daemon.status()) {
            return;
        }
        std::thread::sleep(wait);
    }
}

#[test]
fn marked_pages_stop_the_program_migrate_with_their_next_access_and_hold_what_they_held() {
    let markers = Markers::open(BUILD_NUMBER).unwrap();
    let program = Program::start(Some(&markers));
    let mut site = Site::new();
    let mut daemon = site.daemon(&program, "hotbox");
    daemon.migrate_by(Some(markers), "a test".to_owned());
    turn_until(&mut daemon, |status| {
        status.migration.counts.accessed > 300 && status.groups[0].counts.promotions > 200
    });
    let status = daemon.status();
    let migration = &status.migration;
    assert_eq!((migration.by, migration.why.as_str(), migration.markers), ("on-demand", "a test", 1));
    assert!(migration.counts.marked >= migration.counts.accessed);
    // Scans stand for no fault of a page that a marker has.
    let counts = &status.groups[0].counts;
    assert!(
        counts.hint_faults <= migration.counts.accessed + migration.counts.refused.values().sum::<u64>(),
        "{counts:?}"
    );
    // The daemon dies with pages marked.
    drop(daemon);
    program.end();
}

#[test]
fn without_a_marker_pages_move_in_batches() {
    let program = Program::start(None);
    let mut site = Site::new();
    let mut daemon = site.daemon(&program, "hotbox");
    turn_until(&mut daemon, |status| status.groups[0].counts.promotions > 200);
    let migration = daemon.status().migration;
    assert_eq!((migration.by, migration.markers, migration.counts.marked), ("batches", 0, 0));
    assert!(!migration.why.is_empty());
    drop(daemon);
    program.end();
}

#[test]
fn a_program_with_the_library_and_no_daemon_runs_as_ever() {
    let markers = Markers::open(BUILD_NUMBER).unwrap();
    let name = markers.name().to_owned();
    drop(markers);
    let output: Output = Command::new("sh")
        .args(["-c", "echo $((6 * 7)); exit 3"])
        .env("LD_PRELOAD", preload_library())
        .env(SOCKET_VARIABLE, name)
        .output()
        .unwrap();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"42\n"[..], Some(3)));
    assert!(output.stderr.is_empty());
}

#[test]
fn migration_on_demand_is_refused_where_it_cannot_be_had() {
    let refused = |arguments: &[&str]| {
        let state = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_spillway"))
            .args(["tier", "--beside-kernel", "--state", state.path().to_str().unwrap()])
            .args(arguments)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = refused(&["--migration", "sometimes", "--", "true"]);
    assert!(code == Some(2) && text.contains("on-demand or batches"), "{text}");
    let (code, text) = refused(&["--migration", "on-demand", "--pid", "1"]);
    assert!(code == Some(125) && text.contains("only a program that the daemon starts"), "{text}");
    let (code, text) = refused(&["--migration", "on-demand", "--policy", "indigo", "--", "true"]);
    assert!(code == Some(125) && text.contains("indigo marks pages to learn"), "{text}");
}
