//! The local limit as seen from outside, and the statistics.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::MIB;
use support::child::Running;
use support::launch::Launch;
use support::tools::{c_program, tool};
use support::watch::{anonymous_bytes, child_of, descendants, expect_state, managed_bytes, pager_bytes};

/// What may be resident: the limit and 1% or 4 MiB, whichever is larger.
fn allowed_bytes(local_mib: u64) -> u64 {
    local_mib * MIB + (local_mib * MIB / 100).max(4 * MIB)
}

/// Looks at a running program until it ends, and at others like it until it has looked a hundred times. One
/// process: all its anonymous memory counts, the pager's own included.
fn stays_within(launch: &Launch, program: &str, arguments: &[&str], local_mib: u64) {
    let (mut most, mut looks) = (0, 0);
    while looks < 100 {
        let mut watched = launch.start(launch.command(c_program(program)).args(arguments));
        let pid = child_of(watched.running.pid()).as_raw_nonzero().get();
        while !watched.running.has_ended() {
            most = most.max(anonymous_bytes(&[pid]));
            looks += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        watched.finish().success();
    }
    assert!(most >= local_mib * MIB * 3 / 4, "only {most} bytes were ever resident");
    assert!(
        most <= allowed_bytes(local_mib),
        "{most} bytes were resident, {} are allowed",
        allowed_bytes(local_mib)
    );
}

#[test]
fn one_process_never_holds_more_than_its_limit() {
    for local_mib in [8, 32] {
        stays_within(&Launch::local_mib(local_mib), "hold", &["64", "3"], local_mib);
    }
}

#[test]
fn threads_together_never_hold_more_than_the_limit() {
    // Forked children would share what is counted here.
    stays_within(&Launch::local_mib(16), "many_threads", &["8", "16384"], 16);
}

#[test]
fn large_data_segments_never_hold_more_than_the_limit() {
    stays_within(&Launch::local_mib(16), "segments", &["2"], 16);
}

#[test]
fn what_was_mapped_before_main_never_holds_more_than_the_limit() {
    stays_within(&Launch::local_mib(8), "early", &["2"], 8);
}

/// Stops a whole group, adds up what its processes hold managed, and lets it go on.
fn managed_by_group(running: &Running) -> u64 {
    let pids = descendants(running.pid().as_raw_nonzero().get());
    running.signal_group(Signal::STOP);
    let stopped: Vec<i32> = pids.into_iter().filter(|&pid| has_stopped(pid)).collect();
    let bytes = stopped.iter().map(|&pid| managed_bytes(pid)).sum();
    running.signal_group(Signal::CONT);
    bytes
}

fn has_stopped(pid: i32) -> bool {
    let pid = Pid::from_raw(pid).unwrap();
    for _ in 0..1000 {
        match support::watch::state(pid) {
            Some('T') => return true,
            None | Some('Z' | 'X') => return false,
            Some(_) => std::thread::sleep(Duration::from_micros(200)),
        }
    }
    false
}

#[test]
fn a_family_of_processes_shares_one_limit() {
    let local_mib = 16;
    let launch = Launch::local_mib(local_mib);
    let (mut most, mut looks) = (0, 0);
    while looks <= 20 {
        let mut program = launch.start(launch.command(c_program("families")).args(["wide", "24"]));
        while !program.running.has_ended() {
            most = most.max(managed_by_group(&program.running));
            looks += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(program.finish().success(), "whole\n");
    }
    assert!(most > local_mib * MIB / 2, "at most {most} bytes");
    assert!(
        most <= allowed_bytes(local_mib),
        "{most} bytes were resident, {} are allowed",
        allowed_bytes(local_mib)
    );
    let stats = launch.stats();
    assert!(stats.count("processes") >= 13 && stats.count("forks") >= 12, "{}", stats.0);
}

#[test]
fn statistics_say_what_happened() {
    let launch = Launch::local_mib(16);
    launch.run_with(c_program("hold"), &["64", "2"]).success();
    let stats = launch.stats();
    let count = |key: &str| stats.count(key);
    assert!((12 * MIB..=16 * MIB).contains(&count("peak_local_bytes")), "{}", stats.0);
    assert!((64 * MIB..80 * MIB).contains(&count("managed_bytes")), "{}", stats.0);
    // Every page is touched first once, a run of up to 64 in one fault, and three quarters of them must leave
    // and come back to be checked.
    assert!((16_384 / 64..17_500).contains(&count("faults.first_touch")), "{}", stats.0);
    assert!((64 * MIB..80 * MIB).contains(&count("zeroed_bytes")), "{}", stats.0);
    assert!(count("plain_zeroed_bytes") > count("zeroed_bytes") + 40 * MIB, "{}", stats.0);
    assert!(count("pages_fetched") >= 12_288, "{}", stats.0);
    assert!((1..=count("pages_fetched")).contains(&count("faults.fetch")), "{}", stats.0);
    assert!(count("pages_written_back") >= 12_288, "{}", stats.0);
    assert_eq!(count("faults.refused"), 0);
    for kind in ["inactive", "writeback", "other"] {
        count(&format!("faults.{kind}"));
    }
    count("clean_drops");
    // Pages travel whole, plus or minus what the store adds or saves.
    let (fetched, written) = (count("pages_fetched") * 4096, count("pages_written_back") * 4096);
    assert!((1..=fetched * 2).contains(&count("bytes_in")), "{}", stats.0);
    assert!((1..=written * 2).contains(&count("bytes_out")), "{}", stats.0);
    let latency = ["p50", "p90", "p99", "max"].map(|part| stats.number(&format!("fault_latency_us.{part}")));
    assert!(latency[0] > 0.0 && latency.is_sorted(), "{latency:?}");
    assert!((1.0..PATIENCE_S).contains(&stats.number("wall_s")), "{}", stats.0);
    assert_eq!((count("exit_status"), count("processes")), (0, 1));
    assert_eq!(stats.0["settings"]["local_bytes"], 16 * MIB);
    assert_eq!(stats.0["settings"]["stores"][0], "compressed:");
    assert_eq!(stats.0["command"][1], "64");
}

const PATIENCE_S: f64 = 120.0;

#[test]
fn a_program_below_its_limit_keeps_everything_local() {
    let launch = Launch::local_mib(256);
    launch.run_with(c_program("hold"), &["32", "1"]).success();
    let stats = launch.stats();
    for key in ["pages_fetched", "pages_written_back", "clean_drops", "bytes_in", "bytes_out"] {
        assert_eq!(stats.count(key), 0, "{key}: {}", stats.0);
    }
}

#[test]
fn what_fits_is_left_to_the_kernel() {
    let launch = Launch::local_mib(256);
    launch.run_with(c_program("hold"), &["64", "1"]).success();
    let stats = launch.stats();
    assert!(stats.count("native_bytes") >= 64 << 20, "{}", stats.0);
    assert!(stats.count("faults.first_touch") < 1000, "{}", stats.0);
}

#[test]
fn memory_that_was_never_written_reads_as_zeros_and_takes_no_frame() {
    let launch = Launch::local_mib(16);
    launch.run_with(c_program("touch"), &["64", "read"]).success();
    let stats = launch.stats();
    assert!(stats.count("zero_page_maps") >= 16_000, "{}", stats.0);
    assert!(stats.count("faults.first_touch") < 16_000, "runs come in one fault: {}", stats.0);
    // What is still there at the end may have been written unseen.
    assert!(stats.count("zeroed_bytes") <= 20 * MIB, "{}", stats.0);
    assert!(stats.count("plain_zeroed_bytes") >= 56 * MIB, "{}", stats.0);
    assert!(stats.count("pages_written_back") < 1000, "the program's other memory: {}", stats.0);
}

#[test]
fn who_writes_soon_what_is_read_first_gets_frames() {
    for mode in ["thread", "inline"] {
        let launch = Launch::local_mib(16).with_option(&format!("--fault-mode={mode}"));
        assert_eq!(launch.run_with(c_program("touch"), &["64", "add"]).success(), "whole\n");
        let stats = launch.stats();
        // Of 16,384 pages some are read before that is known, and one run in 16 after.
        assert!((1..8_000).contains(&stats.count("zero_page_maps")), "{mode}: {}", stats.0);
        assert!(stats.count("pages_written_back") > 8_000, "{mode}: {}", stats.0);
    }
}

#[test]
fn what_is_read_first_and_written_later_stays() {
    for local_mib in [8, 24] {
        let launch = Launch::local_mib(local_mib);
        assert_eq!(launch.run_with(c_program("zeros"), &["32"]).success(), "whole\n");
        let stats = launch.stats();
        assert!(stats.count("zero_page_maps") > 0 && stats.count("pages_written_back") > 0, "{}", stats.0);
    }
}

#[test]
fn first_writes_come_out_of_the_reserve_where_there_is_room() {
    let launch = Launch::local_mib(64);
    // More than fits, so that it is managed, of which little is used, again and again.
    let finished = launch.run_with(c_program("touch"), &["256", "again", "60"]);
    assert_eq!(finished.success(), "whole\n");
    let stats = launch.stats();
    assert!(stats.count("reserve_pages_used") > 0, "{}", stats.0);
    assert!(stats.count("peak_local_bytes") <= 24 * MIB, "16 are in use, 4 in reserve: {}", stats.0);
}

/// A launch whose configuration file says this.
fn configured(local_mib: u64, text: &str) -> Launch {
    with_configuration(Launch::local_mib(local_mib), text)
}

fn with_configuration(launch: Launch, text: &str) -> Launch {
    let path = launch.work().join("pool.toml");
    std::fs::write(&path, text).unwrap();
    launch.with_option("--config").with_option(path.to_str().unwrap())
}

#[test]
fn dense_ranges_become_huge_pages_where_that_is_asked_for() {
    let launch = configured(48, "[pool.local]\nhuge_pages = true\n");
    assert_eq!(launch.run_with(c_program("huge"), &["128", "24"]).success(), "whole\n");
    let stats = launch.stats();
    assert!(stats.count("huge_pages_formed") > 0, "{}", stats.0);
    assert!((0.0..1.0).contains(&stats.number("fragmentation_index")), "{}", stats.0);
    assert_eq!(stats.0["settings"]["pool"]["huge_pages"], true);
}

#[test]
fn without_reserve_window_and_budget_the_same_pages_come() {
    let text = "[pool.local]\nreserve_bytes = 0\nvictim_window_pages = 0\n\
                [pool.local.background]\nbytes_per_s = 0\n";
    let launch = configured(16, text);
    assert_eq!(launch.run_with(c_program("touch"), &["256", "again", "20"]).success(), "whole\n");
    assert_eq!(launch.stats().count("reserve_pages_used"), 0);
    let launch = configured(16, text);
    assert_eq!(launch.run_with(c_program("zeros"), &["32"]).success(), "whole\n");
}

#[test]
fn a_configuration_of_nonsense_is_refused_with_its_line() {
    let launch = configured(16, "[pool.local]\nreserve = 1\n");
    let finished = launch.run_with("true", &[] as &[&str]);
    let error = finished.complaint();
    assert_eq!((finished.code(), error.lines().count()), (125, 1), "{error}");
    assert!(error.contains("line 2: unknown field `reserve`"), "{error}");
}

#[test]
fn what_was_left_to_the_kernel_is_taken_over_whole() {
    for (local_mib, is_far) in [(32, true), (64, true), (256, false)] {
        let launch = Launch::local_mib(local_mib);
        let finished = launch.run_with(c_program("native"), &["48", "64"]);
        assert_eq!(finished.success(), "whole\n");
        let stats = launch.stats();
        assert!(stats.count("native_bytes") > 0, "{}", stats.0);
        assert_eq!(stats.count("pages_written_back") > 0, is_far, "{}", stats.0);
        assert_eq!(stats.count("pages_found_gone"), 0, "{}", stats.0);
    }
}

/// How much a program fetches that uses 6 of its 64 MiB all the time, with 16 MiB local.
fn fetched_by_favourites(replacement: &str) -> (u64, u64) {
    let launch = configured(16, &format!("[replacement]\n{replacement}\n"));
    let finished = launch.run_with(c_program("favourites"), &["64", "6", "300000"]);
    assert_eq!(finished.success(), "whole\n");
    let stats = launch.stats();
    (stats.count("pages_fetched"), stats.count("use_scans"))
}

#[test]
fn what_is_in_use_stays_where_accessed_bits_can_be_read() {
    // Without returns and luck, so that scans alone tell.
    let alone = "random_promotion = 0.0\nreturn_share = 0.0";
    let (without, none) = fetched_by_favourites(&format!("{alone}\nscan_share = 0.0"));
    let (with, scans) = fetched_by_favourites(alone);
    assert!(none == 0 && scans > 0, "{none} and {scans} scans");
    // An access in eight is to the others, of which one in five is local: 30,000 must be fetched.
    assert!(with < without * 7 / 10, "{with} pages fetched with scans, {without} without");
}

/// setpriv(1), which takes the right to read accessed bits from what it starts.
fn without_rights(command: &Command) -> Command {
    let mut without = Command::new(tool("setpriv", "util-linux"));
    without.args(["--bounding-set=-bpf,-perfmon,-sys_admin", "--inh-caps=-all"]);
    without.arg(command.get_program()).args(command.get_args());
    without
}

#[test]
fn who_may_not_read_accessed_bits_is_told_by_the_supervisor() {
    let launch = Launch::local_mib(16);
    let program = without_rights(Command::new(c_program("favourites")).args(["64", "6", "100000"]));
    let finished = launch.run(launch.command(program.get_program()).args(program.get_args()));
    assert_eq!(finished.success(), "whole\n");
    let stats = launch.stats();
    assert!(stats.count("use_scans") > 0 && stats.count("pages_kept_in_use") > 0, "{}", stats.0);
}

#[test]
fn a_supervisor_that_is_stopped_holds_nobody_up() {
    let launch = Launch::local_mib(16);
    let program = without_rights(Command::new(c_program("favourites")).args(["64", "6", "3000000"]));
    let running = launch.start(launch.command(program.get_program()).args(program.get_args()));
    // Questions meanwhile are answered too late.
    std::thread::sleep(Duration::from_millis(500));
    let supervisor = running.running.pid();
    kill_process(supervisor, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    kill_process(supervisor, Signal::CONT).unwrap();
    assert_eq!(running.finish().success(), "whole\n");
}

#[test]
fn where_nobody_may_read_accessed_bits_a_program_runs_without() {
    let launch = Launch::local_mib(16);
    let mut command = launch.command(c_program("favourites"));
    let finished = launch.run(&mut without_rights(command.args(["64", "6", "100000"])));
    assert_eq!(finished.success(), "whole\n");
    let stats = launch.stats();
    assert!(stats.count("pages_fetched") > 0 && stats.count("use_scans") == 0, "{}", stats.0);
}

#[test]
fn idle_processes_give_room_to_those_at_work() {
    let fetched = |scan_share: &str| {
        let launch = configured(24, &format!("[replacement]\nscan_share = {scan_share}\n"));
        let finished = launch.run_with(c_program("idlers"), &["4", "3", "18", "12"]);
        assert_eq!(finished.success(), "whole\n");
        launch.stats().count("pages_fetched")
    };
    // 18 MiB in use and 12 that wait, of 24.
    let (with, without) = (fetched("0.125"), fetched("0.0"));
    assert!(
        with < without / 2,
        "{with} pages fetched where the idle are asked, {without} where they are not"
    );
}

#[test]
fn every_block_brings_the_right_pages() {
    for block in ["4K", "16K", "64K", "2M", "elastic", "elastic:2M", "streams"] {
        let launch = Launch::local_mib(16).with_option("--block").with_option(block);
        launch.run_with(c_program("hold"), &["48", "1"]).success();
        let stats = launch.stats();
        let (fetched, ahead) = (stats.count("pages_fetched"), stats.count("pages_fetched_ahead"));
        assert!(fetched > 0 && (ahead > 0) == (block != "4K"), "{block}: {}", stats.0);
        let blocks = stats.0["blocks"].as_object().unwrap();
        assert_eq!(blocks.keys().all(|size| size == "4096"), block == "4K", "{block}: {}", stats.0);
        let may_read_ahead = block == "streams" && std::thread::available_parallelism().unwrap().get() > 1;
        assert_eq!(stats.count("pages_read_ahead") > 0, may_read_ahead, "{block}: {}", stats.0);
        // Its memory is read from end to end at first.
        assert!(block != "streams" || stats.number("prefetch_accuracy") > 0.5, "{block}: {}", stats.0);
        let largest = blocks.keys().filter_map(|size| size.parse::<u64>().ok()).max();
        assert!(block != "elastic" || largest.is_some_and(|bytes| bytes <= 64 << 10), "{}", stats.0);
    }
}

#[test]
fn a_stream_that_goes_down_comes_in_blocks_and_ahead_as_one_that_goes_up() {
    for (mode, store) in [("inline", "ram:"), ("thread", "compressed:"), ("thread", "ram:?fabric=fdr")] {
        for huge_streams in [false, true] {
            let launch = Launch::limited(32 * MIB, store);
            let launch = with_configuration(launch, &format!("[fetch]\nhuge_streams = {huge_streams}\n"));
            let launch = launch.with_option("--fault-mode").with_option(mode);
            let said = launch.run_with(c_program("downwards"), &["96", "2"]).success();
            assert_eq!(said, "whole\n", "{mode} {store}");
            let stats = launch.stats();
            let (fetched, ahead) = (stats.count("pages_fetched"), stats.count("pages_fetched_ahead"));
            assert!(fetched > 10_000 && ahead > fetched * 3 / 4, "{mode} {store}: {}", stats.0);
            let may_read_ahead = std::thread::available_parallelism().unwrap().get() > 1;
            let is_read_ahead = stats.count("pages_read_ahead") > 0;
            assert!(huge_streams || is_read_ahead == may_read_ahead, "{mode} {store}: {}", stats.0);
        }
    }
}

#[test]
fn streams_come_and_leave_by_huge_pages_and_every_page_is_right() {
    // With the longer tests `ram:` by itself too.
    let ways =
        [("inline", "compressed:"), ("thread", "ram:?fabric=fdr"), ("inline", "ram:"), ("thread", "ram:")];
    let tried = if cfg!(feature = "full-tests") { ways.len() } else { 2 };
    for (mode, store) in ways.into_iter().take(tried) {
        for on in [true, false] {
            let launch = Launch::limited(64 * MIB, store);
            let launch = with_configuration(launch, &format!("[fetch]\nhuge_streams = {on}\n"));
            let launch = launch.with_option("--fault-mode").with_option(mode);
            launch.run_with(c_program("hold"), &["160", "2"]).success();
            let stats = launch.stats();
            let may = on && spillway_sys::memory::may_have_huge_pages();
            assert_eq!(stats.count("huge_ranges_in") > 0, may, "{mode} {store}: {}", stats.0);
            assert!(on || stats.count("huge_ranges_out") == 0, "{mode} {store}: {}", stats.0);
            assert!(stats.count("peak_local_bytes") <= 64 * MIB, "{mode} {store}: {}", stats.0);
        }
    }
}

#[test]
fn every_page_is_right_whether_or_not_room_is_made_while_it_comes() {
    let blocks = ["4K", "64K", "streams", "elastic"].map(|block| (block, true));
    for (block, overlap) in blocks.into_iter().chain([("streams", false), ("elastic", false)]) {
        let launch = Launch::limited(16 * MIB, "ram:?fabric=fdr");
        let launch = with_configuration(launch, &format!("[fetch]\noverlap = {overlap}\n"));
        let launch = launch.with_option("--block").with_option(block);
        launch.run_with(c_program("hold"), &["48", "2"]).success();
        let stats = launch.stats();
        assert!(stats.count("pages_fetched") > 0, "{block}: {}", stats.0);
        assert_eq!(stats.count("reads_posted") > 0, overlap, "{block}: {}", stats.0);
    }
}

/// Anonymous memory of a program that does next to nothing.
fn own_kib(launch: Option<&Launch>) -> u64 {
    let (grep, arguments) = (tool("grep", "grep"), ["^Anonymous:", "/proc/self/smaps_rollup"]);
    let said = match launch {
        Some(launch) => launch.run_with(grep, &arguments).success(),
        None => {
            let output = Command::new(grep).args(arguments).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        }
    };
    said.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_process_costs_at_most_a_mib_and_a_half() {
    const MOST_KIB: u64 = 1536;
    let alone = own_kib(None);
    for mode in ["inline", "thread"] {
        let launch = Launch::local_mib(2048).with_option(&format!("--fault-mode={mode}"));
        // Whether the reserve is filled before the program ends is a matter of time; the limit pays for it.
        let launch = with_configuration(launch, "[pool.local]\nreserve_bytes = 0\n");
        let managed = own_kib(Some(&launch));
        assert!(managed < alone + MOST_KIB, "{mode}: {managed} KiB, {alone} without Spillway");
    }
}

#[test]
fn metadata_costs_at_most_one_percent() {
    let taken_for = |mib: u64| {
        let launch = Launch::local_mib(16);
        let mut program = launch.start(launch.command(c_program("hold")).args([&mib.to_string(), "100"]));
        program.running.expect("ready\n");
        let child = child_of(program.running.pid());
        let taken = pager_bytes(child);
        kill_process(child, Signal::USR1).unwrap();
        assert_eq!(program.finish().success(), "ready\nwhole\n");
        taken
    };
    // What does not grow with the program, such as buffers of threads, is no metadata.
    let (small, large) = (taken_for(32), taken_for(160));
    let allowed = (160 - 32) * MIB / 100;
    assert!(
        large > small && large - small <= allowed,
        "{small} bytes, {large} bytes: {allowed} more are allowed"
    );
}

#[test]
fn unchanged_pages_are_dropped_and_come_back_as_they_were_written_last() {
    for store in ["compressed:", "ram:"] {
        let launch = Launch::limited(16 * MIB, store);
        let finished = launch.run_with(c_program("reread"), &["48", "2"]);
        assert_eq!(finished.success(), "whole\n");
        let stats = launch.stats();
        assert!(stats.count("clean_drops") > 10_000, "{store}: {}", stats.0);
    }
}

#[test]
fn the_smallest_limit_is_enough_to_go_on() {
    let launch = Launch::local_mib(4);
    assert_eq!(launch.run_with(c_program("threads"), &["2", "1"]).success(), "whole\n");
    let launch = Launch::local_mib(4);
    let script = "seq 1 50000 | sort -S 16M -rn | head -n 1";
    assert_eq!(launch.run_with(tool("sh", "dash"), &["-c", script]).success(), "50000\n");
}

#[test]
fn less_than_the_smallest_limit_is_refused_with_the_remedy() {
    let launch = Launch::limited(4 * MIB - 1, "compressed:");
    let finished = launch.run_with("true", &[] as &[&str]);
    let error = finished.complaint();
    assert_eq!((finished.code(), error.lines().count()), (125, 1), "{error}");
    assert!(error.contains("--local") && error.contains("give at least 4.0 MiB"), "{error}");
}

#[test]
fn statistics_that_cannot_be_written_are_refused_before_the_program_starts() {
    let launch = Launch::unlimited();
    let installed = support::launch::Installation::new();
    let begun = launch.work().join("begun");
    for path in ["/nonexistent/stats.json", "/proc/stats.json", "/"] {
        let mut command = launch.command(installed.command());
        command.args(["run", "--local", "8M", "--stats", path, "--", "touch"]).arg(&begun);
        let finished = launch.run(&mut command);
        let error = finished.complaint();
        assert_eq!((finished.code(), error.lines().count()), (125, 1), "{error}");
        assert!(error.contains(&format!("--stats {path}: ")) && error.contains("can be written"), "{error}");
        assert!(!begun.exists());
    }
}

#[test]
fn a_stopped_program_is_not_harmed_by_long_absence() {
    let launch = Launch::local_mib(8);
    let mut program = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    program.running.expect("ready\n");
    let child = child_of(program.running.pid());
    kill_process(child, Signal::STOP).unwrap();
    expect_state(child, "T");
    std::thread::sleep(Duration::from_secs(2));
    kill_process(child, Signal::CONT).unwrap();
    kill_process(child, Signal::USR1).unwrap();
    assert_eq!(program.finish().success(), "ready\nwhole\n");
}
