//! `spillway explain`: what the tier daemon knows of a process or of one of its pages.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use spillway_tier::service::{self, STATE_DIRECTORY};
use spillway_tier::status::Request;

use crate::exit::complain;
use crate::tier::{bytes, print, reason};

const EXAMPLE: &str = "\
Examples:
  spillway explain --pid 1234
  spillway explain --pid 1234 0x7f3a5c000000

Exit status: 0, or 1 if no daemon manages the process.";

/// Say where a process's memory lies, or why a page lies where it does.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct ExplainArgs {
    /// The process
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

/// Runs the command.
pub fn run(args: &ExplainArgs) -> ExitCode {
    let request = Request::Explain { process: args.pid, address: args.address };
    let explained = service::ask(&args.state, &request)
        .map_err(|error| (1, format!("explain: {error}")))
        .and_then(|found| print(&if args.json { format!("{found:#}\n") } else { describe(&found) }));
    explained.unwrap_or_else(|(status, text)| {
        complain(text);
        ExitCode::from(status)
    })
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
