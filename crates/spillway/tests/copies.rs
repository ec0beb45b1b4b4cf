//! Copies of local pages in `compressed:`: they take of the memory that the limit is to save, so there are
//! as many as `copy_share` allows, and none of a page that was written to.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Pid;
use serde_json::Value;
use support::MIB;
use support::child::{PATIENCE, until};
use support::launch::Launch;
use support::tools::c_program;

const LOCAL_MIB: u64 = 16;
/// A count is made each 256 pages by each thread, and 256 slots that nobody needs wait for company.
const UNSEEN_BYTES: u64 = 3 * MIB;

fn run_of(pid: Pid) -> Option<Value> {
    let mut status = Command::new(env!("CARGO_BIN_EXE_spillway"));
    status.args(["status", "--json", &pid.as_raw_nonzero().to_string()]).stdin(Stdio::null());
    let status: Value = serde_json::from_slice(&status.output().unwrap().stdout).unwrap();
    status["alive"].as_array().unwrap().first().map(|found| found["run"].clone())
}

/// Bytes of local pages that the store holds too, before compression, once 30,000 pages were fetched.
fn copied_bytes(mode: &str, copy_share: &str, program: &str, arguments: &[&str]) -> u64 {
    let launch = Launch::limited(LOCAL_MIB * MIB, "compressed:");
    let config = launch.work().join("run.toml");
    fs::write(&config, format!("[pool.local]\ncopy_share = {copy_share}\n")).unwrap();
    let launch = launch.with_option("--config").with_option(config.to_str().unwrap());
    let mut command = launch.command(c_program(program));
    let watched = launch.start(command.args(arguments).env("SPILLWAY_FAULT_MODE", mode));
    let run = until(PATIENCE, "pages to come and go", || {
        let run = run_of(watched.running.pid())?;
        (run["fetched_pages"].as_u64()? > 30_000).then_some(run)
    });
    let bytes = |value: &Value| value.as_u64().unwrap();
    bytes(&run["stores"][0]["used_bytes"]).saturating_sub(bytes(&run["far_bytes"]))
}

#[test]
fn the_compressed_store_keeps_as_many_copies_as_it_is_told() {
    for mode in ["inline", "thread"] {
        let copied = |share| copied_bytes(mode, share, "favourites", &["64", "6", "100000000"]);
        let (all, some, none) = (copied("1.0"), copied("0.125"), copied("0.0"));
        assert!(all > LOCAL_MIB * MIB / 2, "{mode}: {all}");
        assert!(some < LOCAL_MIB * MIB / 8 + UNSEEN_BYTES, "{mode}: {some}");
        assert!(none < UNSEEN_BYTES, "{mode}: {none}");
    }
}

#[test]
fn a_page_that_is_written_to_keeps_no_copy() {
    for mode in ["inline", "thread"] {
        // Every other visit of a page writes to it.
        let copied = copied_bytes(mode, "1.0", "hold", &["64", "100"]);
        assert!(copied < LOCAL_MIB * MIB * 4 / 5, "{mode}: {copied}");
    }
}
