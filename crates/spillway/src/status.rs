//! `spillway status`: what runs on this machine, in one table.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use spillway_donor::status::{MemoryStatus, Status};
use spillway_snapshot::reader::{self, Seen};
use spillway_snapshot::snapshot::{Body, Health, Process, Run, Snapshot, Store, VERSION};
use unicode_width::UnicodeWidthStr;

use crate::columns::{columns, fitted};
use crate::exit::{Refusal, complain};
use crate::short::{bytes, count, micros, percent, printable, seconds, wrapped};
use crate::tier::print;
use crate::watch::donor_snapshot::donor_of;

const EXAMPLE: &str = "\
Examples:
  spillway status
  spillway status redis-server
  spillway status --json

LOCAL is memory that is local, OF the limit of it, P99 how long the slowest
hundredth of faults took at least, LOST the time that threads waited for faults
since the start, in percent of the time that passed: 200% where two threads
waited all the time. Of a donor LOCAL is what it holds, OF what it lends.

Exit status: 0, or 1 if nothing runs, or nothing of that number or name. A user
sees what is its own; root sees everything.";

/// From so many columns on a row has all its numbers.
const WIDE_COLUMNS: usize = 80;

/// Said where nothing runs.
pub const NOTHING: &str = "nothing runs; start a program: spillway run --local 512M -- PROGRAM";

/// Say what runs on this machine: programs on far memory, donors of memory, and daemons.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct StatusArgs {
    /// One of them alone, with its processes and stores: by the number of a process, or by name
    #[arg(value_name = "PID|NAME")]
    what: Option<String>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Looks once, and prints what is there.
pub fn run(args: &StatusArgs) -> ExitCode {
    report(args).unwrap_or_else(|(status, text)| {
        complain(text);
        ExitCode::from(status)
    })
}

/// What `--json` prints of all.
#[derive(Serialize)]
struct Alive<'a> {
    version: u32,
    alive: Vec<&'a Snapshot>,
    silent: Vec<Silent<'a>>,
}

/// One that does not tell of itself.
#[derive(Serialize)]
struct Silent<'a> {
    socket: &'a str,
    uid: u32,
    reason: String,
}

fn report(args: &StatusArgs) -> Result<ExitCode, Refusal> {
    let seen = reader::look();
    let is_meant = |snapshot: &&Snapshot| args.what.as_ref().is_none_or(|what| is_called(snapshot, what));
    let alive: Vec<&Snapshot> =
        seen.iter().filter_map(|seen| seen.answer.as_ref().ok()).filter(is_meant).collect();
    let silent: Vec<Silent<'_>> = match args.what {
        Some(_) => Vec::new(),
        None => seen.iter().filter_map(silent).collect(),
    };
    let is_empty = alive.is_empty() && silent.is_empty();
    if args.json {
        let found = Alive { version: VERSION, alive, silent };
        let text = serde_json::to_string_pretty(&found).map_err(|error| (1, format!("status: {error}")))?;
        print(&format!("{text}\n"))?;
        return Ok(ExitCode::from(u8::from(is_empty)));
    }
    if is_empty {
        let nothing = match &args.what {
            Some(what) => format!("nothing that runs is called '{what}'; 'spillway status' lists what does"),
            None => NOTHING.to_owned(),
        };
        return Err((1, format!("status: {nothing}")));
    }
    print(&fitted(&table(&alive, &silent, args.what.is_some(), columns()), columns()))
}

fn silent(seen: &Seen) -> Option<Silent<'_>> {
    let reason = seen.answer.as_ref().err()?.to_string();
    Some(Silent { socket: &seen.socket, uid: seen.uid, reason })
}

/// Whether somebody who names this process or program means this.
pub fn is_called(snapshot: &Snapshot, what: &str) -> bool {
    let Ok(pid) = what.parse::<u32>() else { return snapshot.name == what };
    let is_of_run = match &snapshot.body {
        Body::Run { run } => {
            run.program_pid == pid || run.processes.iter().any(|process| process.pid == Some(pid))
        }
        Body::Donor { .. } | Body::Tier { .. } => false,
    };
    snapshot.pid == pid || is_of_run
}

/// The table for so many columns.
fn table(alive: &[&Snapshot], silent: &[Silent<'_>], is_detailed: bool, columns: usize) -> String {
    let names = ["PID", "PROGRAM", "UP", "PROCS", "LOCAL", "OF", "FAR", "FAULTS", "P99", "LOST"];
    let mut text = line(columns, names);
    for snapshot in alive {
        match &snapshot.body {
            Body::Run { run } => {
                text += &of_run(snapshot, run, columns);
                text += &stores(run, is_detailed);
                if is_detailed {
                    text += &processes(run, snapshot.uptime_s, columns);
                    text += &causes(run);
                }
            }
            Body::Donor { .. } => text += &of_donor(snapshot, is_detailed, columns),
            Body::Tier { tier } => text += &of_tier(snapshot, tier, columns),
        }
    }
    for Silent { socket, reason, .. } in silent {
        wrapped(&format!("{socket}: {reason}"), columns).iter().for_each(|line| text += &format!("{line}\n"));
    }
    text
}

/// A row; on a narrow terminal with what matters most alone: local, far and lost.
fn line(columns: usize, cells: [&str; 10]) -> String {
    let [pid, name, numbers @ ..] = cells;
    let is_shown = |at: usize| columns >= WIDE_COLUMNS || [2, 4, 7].contains(&at);
    let numbers: String = numbers
        .iter()
        .enumerate()
        .filter(|(at, _)| is_shown(*at))
        .map(|(_, number)| format!(" {number:>6}"))
        .collect();
    // Names of others have been made printable.
    let room = (columns - (8 + numbers.len()).min(columns)).clamp(1, 16);
    let name = if name.width() > room { printable(name, room) } else { name.to_owned() };
    format!("{pid:>7} {name}{:gap$}{numbers}\n", "", gap = room - name.width())
}

/// The share of the time that threads waited for faults.
pub fn lost_share(total_us: f64, passed_s: f64) -> f64 {
    if passed_s > 0.0 { total_us / 1e6 / passed_s } else { 0.0 }
}

/// The name of what is another user's says whose it is.
pub fn name_of(snapshot: &Snapshot) -> String {
    match snapshot.uid == rustix::process::geteuid().as_raw() {
        true => snapshot.name.clone(),
        false => format!("{}@{}", snapshot.name, snapshot.uid),
    }
}

fn of_run(snapshot: &Snapshot, run: &Run, columns: usize) -> String {
    line(
        columns,
        [
            &run.program_pid.to_string(),
            &printable(&name_of(snapshot), 16),
            &seconds(snapshot.uptime_s),
            &(run.processes.len() as u64 + run.processes_unlisted).to_string(),
            &bytes(run.local_bytes as f64),
            &bytes(run.local_limit_bytes as f64),
            &bytes(run.far_bytes as f64),
            &count(run.faults.all() as f64),
            &micros(run.fault_latency.p99_us),
            &percent(lost_share(run.fault_latency.total_us, snapshot.uptime_s)),
        ],
    )
}

/// A donor, with what it lends below it; all that it tells where it is asked for.
fn of_donor(snapshot: &Snapshot, is_detailed: bool, columns: usize) -> String {
    let donor = donor_of(snapshot);
    let size = |of: fn(&MemoryStatus) -> u64| {
        donor.as_ref().map_or_else(|| "-".to_owned(), |donor| bytes(of(&donor.memory) as f64))
    };
    let row = line(
        columns,
        [
            &snapshot.pid.to_string(),
            &printable(&name_of(snapshot), 16),
            &seconds(snapshot.uptime_s),
            "1",
            &size(|memory| memory.used_bytes),
            &size(|memory| memory.offered_bytes),
            "-",
            "-",
            "-",
            "-",
        ],
    );
    let below = match &donor {
        None => "it is of another version: ask by the 'spillway' of that one\n".to_owned(),
        Some(donor) if is_detailed => donor.to_string(),
        Some(donor) => lends(donor) + "\n",
    };
    let lines = below.lines().flat_map(|line| wrapped(line, columns - 8));
    row + &lines.map(|line| format!("        {line}\n")).collect::<String>()
}

/// What a donor lends to whom, in one line.
pub fn lends(donor: &Status) -> String {
    let memory = &donor.memory;
    let size = |size_bytes: u64| bytes(size_bytes as f64);
    format!(
        "{}{} promised, {} free; {}; read {}, written {}; {} refused",
        if donor.is_ending { "ending; " } else { "" },
        size(memory.promised_bytes),
        size(memory.free_bytes),
        match donor.clients.len() {
            1 => "1 client".to_owned(),
            several => format!("{several} clients"),
        },
        size(donor.counts.read_bytes),
        size(donor.counts.written_bytes),
        count((donor.counts.refusals + donor.counts.refused_connections) as f64),
    )
}

/// The daemon's groups, together.
fn of_tier(snapshot: &Snapshot, tier: &serde_json::Value, columns: usize) -> String {
    let groups = || tier["groups"].as_array().into_iter().flatten();
    let sum = |key: &str| groups().filter_map(|group| group[key].as_f64()).sum::<f64>();
    let processes: usize = groups().filter_map(|group| Some(group["processes"].as_array()?.len())).sum();
    line(
        columns,
        [
            &snapshot.pid.to_string(),
            &printable(&name_of(snapshot), 16),
            &seconds(snapshot.uptime_s),
            &processes.to_string(),
            &bytes(sum("local_bytes")),
            &bytes(sum("local_limit_bytes")),
            &bytes(sum("far_bytes")),
            "-",
            "-",
            "-",
        ],
    )
}

fn processes(run: &Run, uptime_s: f64, columns: usize) -> String {
    let row = |process: &Process| {
        let pid = process.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        line(
            columns,
            [
                &pid,
                &format!("  {}", printable(process.name.as_deref().unwrap_or("-"), 14)),
                "",
                &process.fault_mode,
                &bytes(process.local_bytes as f64),
                "",
                &bytes(process.far_bytes as f64),
                &count(process.faults.all() as f64),
                &micros(process.fault_latency.p99_us),
                &percent(lost_share(process.fault_latency.total_us, uptime_s)),
            ],
        )
    };
    let rows: String = run.processes.iter().map(row).collect();
    match run.processes_unlisted {
        0 => rows,
        more => format!("{rows}        and {more} processes more\n"),
    }
}

/// Stores that something is wrong with, or all.
fn stores(run: &Run, all: bool) -> String {
    run.stores.iter().filter(|store| all || store.health != Health::Ok).map(of_store).collect()
}

/// How a store is, in words.
pub fn health(store: &Store) -> &'static str {
    match store.health {
        Health::Ok => "ok",
        Health::Full => "full",
        Health::Silent => "silent",
        Health::Failing => "failing",
        Health::Unknown => "cannot be looked at",
    }
}

fn of_store(store: &Store) -> String {
    let mut text = format!("        {}  {}", printable(&store.uri, 40), health(store));
    let _ = write!(text, "; holds {}", bytes(store.used_bytes as f64));
    if let Some(stored_bytes) = store.stored_bytes.filter(|_| store.compression_ratio.is_some()) {
        let _ = write!(text, " in {}", bytes(stored_bytes as f64));
    }
    let _ = writeln!(
        text,
        "\n          fetched {} pages, written {}; failed {}, refused for want of room {}",
        count(store.fetched_pages as f64),
        count(store.written_pages as f64),
        count((store.failed_reads + store.failed_writes) as f64),
        count(store.full_refusals as f64),
    );
    text
}

/// Why there were faults, and what left.
fn causes(run: &Run) -> String {
    let count = |number: u64| count(number as f64);
    let (faults, evictions) = (run.faults, run.evictions);
    let used = run.prefetch.accuracy.map_or_else(String::new, |share| format!(", {} used", percent(share)));
    format!(
        "        faults: {} fetched, {} first touch, {} others, {} refused\n\
         \x20       fetched ahead: {} pages{used}\n\
         \x20       evicted: {} written, {} clean, {} zero; kept in use {}, refused {}\n",
        count(faults.fetch),
        count(faults.first_touch),
        count(faults.inactive + faults.writeback + faults.other),
        count(faults.refused),
        count(run.prefetch.fetched_ahead_pages),
        count(evictions.written_pages),
        count(evictions.clean_dropped_pages),
        count(evictions.zero_dropped_pages),
        count(evictions.kept_in_use_pages),
        count(evictions.refused_pages),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::donor_snapshot::tests::donor_snapshot;
    use crate::watch::metrics::tests::whole_snapshot;

    #[test]
    fn a_table_fits_the_terminal_whatever_the_names() {
        let mut snapshot = whole_snapshot();
        snapshot.name = "\u{1b}[31m a program of a very long name".to_owned();
        snapshot.uptime_s = 1e7;
        let Body::Run { run } = &mut snapshot.body else { panic!("no run") };
        run.processes_unlisted = 5000;
        run.stores[0].uri =
            "nbd://a-host-of-a-very-long-name.example:10809/an-export-of-a-long-name".to_owned();
        run.processes.push(Process {
            pid: Some(4_194_303),
            name: Some("a name".repeat(9)),
            fault_mode: "inline".to_owned(),
            local_bytes: u64::MAX,
            native_bytes: 0,
            far_bytes: u64::MAX,
            faults: run.faults,
            fault_latency: run.fault_latency.clone(),
            fetched_pages: 0,
            fetched_ahead_pages: 0,
            written_pages: 0,
            evictions: run.evictions,
            heat: None,
        });
        for columns in [80, 79, 60, 40] {
            let text = fitted(&table(&[&snapshot], &[], true, columns), columns);
            for line in text.lines() {
                assert!(line.width() <= columns, "{line}");
                assert!(!line.contains('\u{1b}'));
            }
            assert!(text.contains("full") && text.contains("and 5000 processes more"), "{text}");
            let names: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
            let all = ["PID", "PROGRAM", "UP", "PROCS", "LOCAL", "OF", "FAR", "FAULTS", "P99", "LOST"];
            let few = ["PID", "PROGRAM", "LOCAL", "FAR", "LOST"];
            assert_eq!(names, if columns == 80 { &all[..] } else { &few[..] });
        }
    }

    #[test]
    fn a_donor_is_told_in_two_lines_and_in_all_it_says_where_it_is_asked_for() {
        let mut snapshot = donor_snapshot(1e5, 4 << 20);
        let short = table(&[&snapshot], &[], false, 80);
        assert_eq!(short.lines().count(), 1 + 2, "{short}");
        for text in ["4.0M", "64M", "48M promised, 16M free; 1 client;", "1 refused"] {
            assert!(short.contains(text), "no {text} in {short}");
        }
        donor_in(&mut snapshot)["clients"][0]["client"] = "\u{1b}[2J".repeat(30).into();
        let long = table(&[&snapshot], &[], true, 80);
        assert!(long.contains("nbd://127.0.0.1:10809") && long.contains("never swapped"), "{long}");
        for line in short.lines().chain(long.lines()) {
            assert!(line.chars().count() <= 80 && !line.contains('\u{1b}'), "{line}");
        }
        *donor_in(&mut snapshot) = serde_json::json!({});
        assert!(table(&[&snapshot], &[], false, 80).contains("another version"));
    }

    fn donor_in(snapshot: &mut Snapshot) -> &mut serde_json::Value {
        let Body::Donor { donor } = &mut snapshot.body else { panic!("no donor") };
        donor
    }

    #[test]
    fn a_run_is_found_by_its_name_and_by_any_of_its_processes() {
        let mut snapshot = whole_snapshot();
        let Body::Run { run } = &mut snapshot.body else { panic!("no run") };
        run.program_pid = 11;
        for (what, expected) in [("x", true), ("7", true), ("11", true), ("12", false), ("y", false)] {
            assert_eq!(is_called(&snapshot, what), expected, "{what}");
        }
    }
}
