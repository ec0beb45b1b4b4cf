//! `spillway explain`: what a run's pager, or the tier daemon, knows of a process or of one of its pages.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use spillway_snapshot::reader::{self, Seen};
use spillway_snapshot::request;
use spillway_snapshot::snapshot::{Body, Snapshot};
use spillway_tier::service::{self, STATE_DIRECTORY, ServiceError};
use spillway_tier::status::Request;

use crate::columns::for_terminal;
use crate::exit::{Refusal, complain};
use crate::short::printable;
use crate::status::is_called;
use crate::tier::{bytes, print, reason};

const EXAMPLE: &str = "\
Examples:
  spillway explain --pid 1234
  spillway explain --pid 1234 0x7f3a5c000000

Of a process under 'spillway run' it says what limits the run, which pages leave
next, and where the page of an address is; the program's pager answers, which
stops nothing. /proc/1234/maps has addresses.

Exit status: 0, or 1 if neither a run nor a daemon manages the process, or it
does not answer.";

/// Say where a process's memory lies, why a page lies where it does, and what limits its run.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct ExplainArgs {
    /// The process to be explained
    #[arg(long, value_name = "PID")]
    pid: u32,
    /// An address of it, such as 0x7f3a5c000000
    #[arg(value_name = "ADDRESS", value_parser = parse_address)]
    address: Option<u64>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    /// Where the daemon's socket lies
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state: PathBuf,
}

fn parse_address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| format!("'{text}' is no address: write hexadecimal digits, as /proc/PID/maps does"))
}

/// Asks the run that the process is of, or else the daemon, and prints the answer.
pub fn run(args: &ExplainArgs) -> ExitCode {
    let explained = explain(args).and_then(|text| print(&text));
    explained.unwrap_or_else(|(status, text)| {
        complain(format!("explain: {text}"));
        ExitCode::from(status)
    })
}

fn explain(args: &ExplainArgs) -> Result<String, Refusal> {
    let pid = args.pid.to_string();
    let is_of_run = |seen: &Seen| {
        let snapshot = seen.answer.as_ref().ok().filter(|seen| matches!(seen.body, Body::Run { .. }));
        snapshot.is_some_and(|snapshot| is_called(snapshot, &pid))
    };
    let shown = |found: &Value, describe: fn(&Value) -> String| {
        if args.json { format!("{found:#}\n") } else { for_terminal(&describe(found)) }
    };
    if let Some(seen) = reader::look().into_iter().find(is_of_run) {
        // Whoever names the supervisor means its program.
        let process = match &seen.answer {
            Ok(Snapshot { pid, body: Body::Run { run }, .. }) if *pid == args.pid => run.program_pid,
            _ => args.pid,
        };
        let request = request::Request::Explain { process, address: args.address };
        let found = reader::ask_further(&seen, &request).map_err(|error| (1, error.to_string()))?;
        return Ok(shown(&found, describe_run));
    }
    let request = Request::Explain { process: args.pid, address: args.address };
    let found = service::ask(&args.state, &request).map_err(|error| match error {
        ServiceError::NoDaemon(..) => {
            (1, format!("process {pid} is of no run of yours ('spillway status' lists these), and {error}"))
        }
        error => (1, error.to_string()),
    })?;
    Ok(shown(&found, describe))
}

/// What a run told of a process of its.
fn describe_run(found: &Value) -> String {
    let mut text = String::new();
    let name = printable(found["name"].as_str().unwrap_or("-"), 40);
    let mode = found["fault_mode"].as_str().unwrap_or_default();
    let _ = writeln!(text, "process {} ({name}), faults served {}", found["process"], in_mode(mode));
    let _ = writeln!(
        text,
        "  local {}, of that {} left to the kernel; far {}",
        bytes(&found["local_bytes"]),
        bytes(&found["native_bytes"]),
        bytes(&found["far_bytes"])
    );
    let _ = writeln!(
        text,
        "  its run has {} of at most {} local",
        bytes(&found["run_local_bytes"]),
        bytes(&found["local_limit_bytes"])
    );
    for limit in found["limits"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "  {}", in_words(limit));
    }
    if found["page"].is_object() {
        describe_page_of_run(&mut text, &found["page"]);
    }
    let next = found["next"].as_array().into_iter().flatten();
    let next: Vec<String> = next
        .map(|next| {
            let address = next["address"].as_u64().unwrap_or(0);
            format!("{address:#x} ({})", printable(next["queue"].as_str().unwrap_or_default(), 20))
        })
        .collect();
    match next.is_empty() {
        true => text += "no page is in line to leave\n",
        false => {
            let _ = writeln!(text, "next to leave, as things are:");
            next.chunks(3).for_each(|line| text += &format!("  {}\n", line.join(" ")));
        }
    }
    text
}

fn in_mode(mode: &str) -> &'static str {
    if mode == "inline" { "in its own threads" } else { "by the pager's threads" }
}

/// What limits a run, in a sentence with a remedy.
fn in_words(limit: &Value) -> String {
    let store = printable(limit["store"].as_str().unwrap_or_default(), 60);
    match limit["what"].as_str().unwrap_or_default() {
        "local" => {
            "its limit is all taken, and pages are fetched again: more --local makes it faster".to_owned()
        }
        "stores_full" => {
            "its stores are full: a larger or further --store, or new memory is refused".to_owned()
        }
        "store_silent" => format!("{store} does not answer, and who needs its pages waits"),
        "store_failing" => format!("{store} fails pages: 'spillway status' says how many"),
        "pinned" => format!(
            "pages could not leave {} times, pinned or held by devices: more --local, or fewer such",
            limit["refused_pages"]
        ),
        "nothing" => "nothing limits it: what it needs fits, or nothing was fetched again".to_owned(),
        other => printable(other, 60),
    }
}

fn describe_page_of_run(text: &mut String, page: &Value) {
    let word = |key: &str| page[key].as_str().map(|word| printable(word, 60));
    let is = |key: &str| page[key].as_bool() == Some(true);
    let address = page["address"].as_u64().unwrap_or(0);
    let store = word("store").unwrap_or_else(|| "a store".to_owned());
    let lies = match page["state"].as_str().unwrap_or_default() {
        "far" => format!("is far, on {store}"),
        "mapped" => "is local".to_owned(),
        "inactive" => "is local but unmapped: it leaves next, unless it is touched".to_owned(),
        "writeback" => "is on its way out: it is being written to a store".to_owned(),
        "lost" => "is lost: every access gives SIGBUS, and a line on standard error has said why".to_owned(),
        "absent" => "holds nothing: it was never written, or was given up, and reads as zeros".to_owned(),
        "native" => {
            "is left to the kernel, for its mapping fits under the limit; it is managed when it does not"
                .to_owned()
        }
        _ => format!(
            "is left alone: {}",
            word("unmanaged_because").unwrap_or_else(|| "it is not managed".to_owned())
        ),
    };
    let _ = writeln!(text, "page {address:#x} {lies}");
    match (page["left_since_pages"].as_u64(), word("queue")) {
        (Some(left), _) => {
            let _ = writeln!(text, "  some {left} pages of the process have left since it did");
        }
        (None, Some(queue)) => {
            let _ = writeln!(text, "  it is in the {queue} queue{}", meaning(&queue));
        }
        _ => {}
    }
    match page["has_copy"].as_bool() {
        Some(true) => {
            let _ = writeln!(text, "  {store} has the same contents, so it can leave without a write");
        }
        Some(false) if page["store"].is_string() => {
            let _ = writeln!(
                text,
                "  it may have changed since it came from {store}: it is compared as it leaves"
            );
        }
        Some(false) => {
            let _ = writeln!(text, "  no store has it: it is written as it leaves, unless it holds zeros");
        }
        None => {}
    }
    if let Some(rank) = page["use_rank"].as_u64() {
        let _ = writeln!(text, "  scans found it in use: {rank} of 21");
    }
    for (key, words) in [
        ("came_ahead", "it was fetched along with another, before a fault asked for it"),
        ("is_shared", "a forked process has the same copy on the store"),
        ("is_busy", "it is being fetched, written or moved at this moment"),
    ] {
        if is(key) {
            let _ = writeln!(text, "  {words}");
        }
    }
}

fn meaning(queue: &str) -> &'static str {
    match queue {
        "proactive" => ", for it came back soon after it had left",
        "active" => ", from which the oldest leave",
        _ => "",
    }
}

fn describe(found: &Value) -> String {
    let mut text = String::new();
    let name = |key: &str| found[key].as_str().unwrap_or_default();
    let _ =
        writeln!(text, "process {} in group {}, policy {}", found["process"], name("group"), name("policy"));
    let _ = writeln!(text, "  local {}, far {}", bytes(&found["local_bytes"]), bytes(&found["far_bytes"]));
    if let Some(why) = found["paused"].as_str() {
        let _ = writeln!(text, "  migrations are paused: {why}");
    }
    if found["page"].is_object() {
        describe_page(&mut text, &found["page"]);
    }
    text
}

fn describe_page(text: &mut String, page: &Value) {
    let is = |key: &str| page[key].as_bool() == Some(true);
    let address = page["address"].as_u64().unwrap_or(0);
    let lies = match page["tier"].as_str() {
        Some(tier) => format!("lies in {tier} memory"),
        None => "is not managed: nothing lies there, or it is shared, locked or bound".to_owned(),
    };
    let huge = if is("huge") { ", as part of a huge page" } else { "" };
    let _ = writeln!(text, "page {address:#x} {lies}{huge}");
    if page["tier"].is_string() {
        let used = if is("accessed") { "was" } else { "was not" };
        let _ = writeln!(text, "  it {used} in use when last scanned");
    }
    if is("marked") {
        let _ = writeln!(text, "  it is hot: its next access brings it to local memory if there is room");
    }
    if is("refused") {
        let _ = writeln!(text, "  the kernel refused to move it: pinned, busy or shared");
    }
    for moved in page["moves"].as_array().into_iter().flatten() {
        let at_s = moved["at_ns"].as_f64().unwrap_or(0.0) / 1e9;
        let to = moved["to"].as_str().unwrap_or_default();
        let _ = writeln!(text, "  after {at_s:.1} s moved to {to} memory: {}", reason(&moved["reason"]));
    }
}
