//! Ctrl-C in the middle of whatever takes long, and a signal from elsewhere: it ends with the status that
//! docs/reference/exit-codes.md names, and leaves no process, socket, control group, swap device or file
//! behind. `top` and its terminal are in seen.rs, `pool drain` in pool_drain.rs, `bench physical`'s settings
//! in bench_physical.rs, what `lab train` and `lab sweep` keep in lab_train.rs and lab_cli.rs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::OFlags;
use rustix::process::Signal;
use support::child::{Finished, PATIENCE, Running, until};
use support::tools::{c_program, tool};
use tempfile::TempDir;

/// What a command under test and all that it starts have in their environment.
const MARK: &str = "SPILLWAY_INTERRUPTED_IN_A_TEST";

/// How a command is told to end.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Ctrl-C: the terminal tells all of its process group.
    Keyboard,
    /// Somebody tells the command alone.
    Alone(Signal),
}

const ALL_WAYS: [Way; 4] =
    [Way::Keyboard, Way::Alone(Signal::INT), Way::Alone(Signal::TERM), Way::Alone(Signal::HUP)];

impl Way {
    fn send(self, to: &Running) {
        match self {
            Self::Keyboard => to.signal_group(Signal::INT),
            Self::Alone(signal) => to.signal(signal),
        }
    }

    /// The status of what ends by the signal itself, as a shell tells it.
    fn by_signal(self) -> i32 {
        match self {
            Self::Keyboard => 128 + Signal::INT.as_raw(),
            Self::Alone(signal) => 128 + signal.as_raw(),
        }
    }
}

/// Where a command works, and by what it and what it has started are known.
struct Place {
    work: TempDir,
    temporary: TempDir,
    mark: String,
}

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            work: tempfile::tempdir().unwrap(),
            temporary: tempfile::tempdir().unwrap(),
            mark: format!("{}-{number}", std::process::id()),
        }
    }

    fn start(&self, words: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
        command.args(words).current_dir(self.work.path());
        Running::start(command.env(MARK, &self.mark).env("TMPDIR", self.temporary.path()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// The command's processes, with their command lines.
    fn processes(&self) -> Vec<(u32, String)> {
        let mark = format!("{MARK}={}", self.mark);
        let is_ours = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
        };
        let line = |pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let all = fs::read_dir("/proc").unwrap().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter(is_ours).map(|pid| (pid, line(pid))).collect()
    }

    /// What is left of the command, but for these files.
    fn left(&self, pids: &[u32], stays: &[&str]) -> Vec<String> {
        let names = |directory: &Path| -> Vec<String> {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        let of_pids = |name: &String| {
            let mut numbers = name.split(|letter: char| !letter.is_ascii_digit());
            numbers.any(|number| number.parse().is_ok_and(|number| pids.contains(&number)))
        };
        let mut left: Vec<String> =
            self.processes().into_iter().map(|(pid, line)| format!("process {pid}: {line}")).collect();
        left.extend(names(self.work.path()).into_iter().filter(|name| !stays.contains(&name.as_str())));
        left.extend(names(self.temporary.path()));
        for directory in ["/run/spillway", "/tmp/spillway-0", "/dev/shm"] {
            left.extend(names(Path::new(directory)).into_iter().filter(of_pids));
        }
        for groups in ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"] {
            let of_bench = |name: &String| name.starts_with("spillway-bench-") && of_pids(name);
            left.extend(names(Path::new(groups)).into_iter().filter(of_bench));
        }
        let temporary = self.temporary.path().to_str().unwrap();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        left.extend(mounts.lines().filter(|line| line.contains(temporary)).map(str::to_owned));
        for device in names(Path::new("/sys/block")) {
            let backing = fs::read_to_string(format!("/sys/block/{device}/loop/backing_file"));
            left.extend(backing.ok().filter(|file| file.contains(temporary)));
        }
        left
    }
}

/// A command that takes long.
struct Case<'a> {
    words: &'a [&'a str],
    /// Whether it is in the middle of its work.
    is_at_work: &'a dyn Fn(&Place, &Running) -> bool,
    /// With which status it ends, told so.
    ends_with: &'a dyn Fn(Way) -> i32,
    /// A part of what it says to that on stderr.
    says: &'a str,
    /// Files that may stay, each whole.
    stays: &'a [&'a str],
}

impl Case<'_> {
    /// Interrupts it in the middle; where it worked, and how it ended.
    fn interrupt(&self, way: Way) -> (Place, Finished) {
        self.interrupt_in(Place::new(), way)
    }

    fn interrupt_in(&self, place: Place, way: Way) -> (Place, Finished) {
        let words = self.words;
        let mut running = place.start(words);
        until(PATIENCE, &format!("{words:?} to be at work"), || {
            let (text, complaint) = (running.text(), running.complaint());
            assert!(!running.has_ended(), "{words:?} ended by itself: {text} {complaint}");
            (self.is_at_work)(&place, &running).then_some(())
        });
        let pids: Vec<u32> = place.processes().into_iter().map(|(pid, _)| pid).collect();
        way.send(&running);
        let finished = running.finish(PATIENCE);
        let complaint = finished.complaint();
        assert_eq!(finished.code(), (self.ends_with)(way), "{words:?}, {way:?}: {complaint}");
        assert!(complaint.contains(self.says), "{words:?}, {way:?}: {complaint}");
        assert!(!complaint.contains("panicked") && !complaint.contains("left behind"), "{complaint}");
        // A control group may be in use for a moment after its last process.
        until(
            PATIENCE,
            &format!("{words:?}, {way:?} to leave nothing: {:?}", place.left(&pids, self.stays)),
            || place.left(&pids, self.stays).is_empty().then_some(()),
        );
        (place, finished)
    }
}

/// It has used the processor, and goes on.
fn has_computed(_: &Place, running: &Running) -> bool {
    let stat =
        fs::read_to_string(format!("/proc/{}/stat", running.pid().as_raw_nonzero())).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    ticks(11) + ticks(12) >= 5
}

/// Whether it has a handler for SIGINT.
fn catches(running: &Running) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", running.pid().as_raw_nonzero()));
    let status = status.unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught & 1 << (Signal::INT.as_raw() - 1) != 0
}

#[test]
fn what_serves_and_watches_is_ended_so_and_ends_well() {
    let donor = ["donor", "--memory", "64M", "--listen", "127.0.0.1:0", "--unix", "donor.sock"];
    let donor = Case {
        words: &donor,
        is_at_work: &|place, running| {
            running.text().contains("listening") && place.path("donor.sock").exists()
        },
        ends_with: &|_| 0,
        says: "",
        stays: &[],
    };
    // SIGHUP does not end it.
    for way in &ALL_WAYS[..3] {
        let (_, finished) = donor.interrupt(*way);
        assert!(finished.text().contains("ended: "), "{}", finished.text());
    }
    let dashboard = Case {
        words: &["dashboard", "--listen", "127.0.0.1:0"],
        is_at_work: &|_, running| running.text().contains("http://"),
        ends_with: &|_| 0,
        says: "",
        stays: &[],
    };
    ALL_WAYS.into_iter().for_each(|way| drop(dashboard.interrupt(way)));
    let waits = Case {
        words: &["record", "--wait", "none.history", "nobody-is-called-so"],
        is_at_work: &|_, running| catches(running),
        ends_with: &|_| 1,
        says: "nothing was recorded",
        stays: &[],
    };
    ALL_WAYS.into_iter().for_each(|way| drop(waits.interrupt(way)));
}

#[test]
fn a_recorder_that_is_interrupted_has_kept_what_it_saw() {
    let place = Place::new();
    let mut seen = place.start(&["donor", "--memory", "64M", "--unix", "donor.sock"]);
    seen.expect("listening");
    let pid = seen.pid().as_raw_nonzero().to_string();
    let looks =
        |place: &Place| fs::read_to_string(place.path("a.history")).unwrap_or_default().lines().count();
    let records = Case {
        words: &["record", "--every", "0.1", "a.history", &pid],
        is_at_work: &|place, _| looks(place) > 2,
        ends_with: &|_| 0,
        says: "",
        stays: &["a.history"],
    };
    for way in ALL_WAYS {
        let (place, _) = records.interrupt(way);
        let figures = place.start(&["report", "--json", "a.history"]).finish(PATIENCE).success();
        let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
        assert_eq!(figures["is_cut_off"], false, "{figures}");
    }
    seen.signal(Signal::TERM);
    seen.finish(PATIENCE).success();
}

#[test]
fn a_run_ends_as_its_program_does_with_whole_files() {
    let hold = c_program("hold");
    let words =
        ["run", "--local", "8M", "--stats", "stats.json", "--record", "faults", "--", hold.to_str().unwrap()];
    let words = [&words[..], &["16", "1000"]].concat();
    let run = Case {
        words: &words,
        is_at_work: &|_, running| running.text().contains("ready"),
        ends_with: &Way::by_signal,
        says: "",
        stays: &["stats.json", "faults"],
    };
    for way in ALL_WAYS {
        let (place, _) = run.interrupt(way);
        let stats = fs::read_to_string(place.path("stats.json")).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        assert_eq!(stats["exit_status"], way.by_signal(), "{stats}");
        place.start(&["lab", "replay", "faults", "--json"]).finish(PATIENCE).success();
    }
}

#[test]
fn what_only_computes_ends_by_the_signal_and_leaves_no_half_of_anything() {
    let case = |words| Case {
        words,
        is_at_work: &has_computed,
        ends_with: &Way::by_signal,
        says: "",
        // What lab train goes on from; see lab_train.rs.
        stays: &["model.part"],
    };
    for words in [
        &["lab", "run", "--workload", "ligra-bfs", "--policy", "hotbox", "--size", "1G", "--json"][..],
        &["lab", "judge", "--json"],
        &["lab", "train", "--out", "model"],
        &["lab", "figure", "all", "--plots", "."],
    ] {
        for way in [Way::Keyboard, Way::Alone(Signal::TERM)] {
            let (_, finished) = case(words).interrupt(way);
            assert_eq!(finished.text(), "", "{words:?}");
        }
    }
}

#[test]
fn a_report_and_an_import_that_are_interrupted_leave_what_was_there_before() {
    let header = "{\"form\":\"spillway-history\",\"version\":1,\"spillway_version\":\"0\",\
                  \"began_unix_s\":1.0,\"interval_s\":1.0}\n";
    let accesses = "4096,r\n8192,w\n".repeat(4096);
    for (words, begin, made) in [
        (&["report", "input", "--out", "made"][..], header, "made"),
        (&["lab", "import", "--format", "plain", "-o", "made", "input"], accesses.as_str(), "made"),
    ] {
        for way in [Way::Keyboard, Way::Alone(Signal::TERM)] {
            let place = Place::new();
            // A pipe with a name, of which there is more to come.
            let pipe = Command::new(tool("mkfifo", "coreutils")).arg(place.path("input")).status();
            assert!(pipe.unwrap().success());
            fs::write(place.path(made), "before").unwrap();
            let writer: RefCell<Option<File>> = RefCell::new(None);
            let is_read = |place: &Place, _: &Running| {
                let flags = OFlags::NONBLOCK.bits() as i32;
                let mut writer = writer.borrow_mut();
                if writer.is_none() {
                    let opened = OpenOptions::new().write(true).custom_flags(flags).open(place.path("input"));
                    *writer = opened.ok();
                    return false;
                }
                // The whole of it fits into the pipe.
                writer.as_mut().is_some_and(|pipe| pipe.write_all(begin.as_bytes()).is_ok())
            };
            let case = Case {
                words,
                is_at_work: &is_read,
                ends_with: &Way::by_signal,
                says: "",
                stays: &["input", made],
            };
            let (place, _) = case.interrupt_in(place, way);
            assert_eq!(fs::read_to_string(place.path(made)).unwrap(), "before", "{words:?}, {way:?}");
        }
    }
}

#[test]
fn a_recording_of_accesses_ends_with_its_program_and_is_whole() {
    // The emulated program sleeps, so that its first accesses have been told.
    let sleeps = |place: &Place| {
        let sleepers = place.processes().into_iter().filter(|(_, line)| line.contains("qemu"));
        let calls = sleepers.filter_map(|(pid, _)| fs::read_to_string(format!("/proc/{pid}/syscall")).ok());
        // nanosleep and clock_nanosleep.
        calls.into_iter().any(|call| call.starts_with("35 ") || call.starts_with("230 "))
    };
    let record = Case {
        words: &["lab", "record", "-o", "a.trace", "--", "sleep", "1000"],
        is_at_work: &|place, _| sleeps(place),
        ends_with: &Way::by_signal,
        says: "records of",
        stays: &["a.trace"],
    };
    for way in ALL_WAYS {
        let (place, _) = record.interrupt(way);
        let words = ["lab", "run", "--trace", "a.trace", "--policy", "hotbox", "--json"];
        place.start(&words).finish(PATIENCE).success();
    }
}

#[test]
fn benchmarks_take_down_what_they_have_set_up() {
    let is_held = |place: &Place, _: &Running| place.processes().len() > 1;
    let sleeps =
        |place: &Place, _: &Running| place.processes().iter().any(|(_, line)| line == "sleep\01000\0");
    let sorts = |place: &Place, _: &Running| {
        let mut programs = place.processes().into_iter();
        programs.any(|(_, line)| line.split('\0').next().is_some_and(|program| program.ends_with("sort")))
    };
    let has_donors = |place: &Place, _: &Running| {
        place.processes().iter().filter(|(_, line)| line.contains("\0donor\0")).count() >= 3
    };
    let paging = ["bench", "paging", "--quick", "--memory", "48M", "--threads", "1", "--store", "nbd_tcp"];
    let command = ["bench", "command", "--local", "16M", "--", "sh", "-c", "sleep 1000 & wait"];
    let programs = ["bench", "programs", "--quick", "--program", "sort", "--local", "50"];
    let pool = ["bench", "pool", "--quick"];
    type IsAtWork<'a> = &'a dyn Fn(&Place, &Running) -> bool;
    let cases: [(&[&str], IsAtWork<'_>, Way); 6] = [
        (&paging, &is_held, Way::Keyboard),
        (&paging, &is_held, Way::Alone(Signal::TERM)),
        (&command, &sleeps, Way::Keyboard),
        (&command, &sleeps, Way::Alone(Signal::HUP)),
        (&programs, &sorts, Way::Keyboard),
        (&pool, &has_donors, Way::Keyboard),
    ];
    for (words, is_at_work, way) in cases {
        let case = Case { words, is_at_work, ends_with: &|_| 1, says: "interrupted", stays: &[] };
        case.interrupt(way);
    }
}
