//! dcm's elastic blocks under whole programs: with every kind of store, in either fault mode.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod support;

use donor_common::Donor;
use support::MIB;
use support::launch::Launch;
use support::tools::c_program;

/// Programs that read at random, in order, fork, move and discard, with a quarter of their memory local.
/// Each compares what it reads with what it wrote.
fn programs_read_what_they_wrote(block: &str, fault_mode: &str, store: &str) {
    let launch = Launch::limited(8 * MIB, store);
    let launch = launch.with_option("--block").with_option(block);
    let launch = launch.with_option("--fault-mode").with_option(fault_mode);
    let random = launch.run_with(c_program("favourites"), &["32", "4", "20000"]).success();
    assert_eq!(random, "whole\n", "{block}, {fault_mode}, {store}");
    let stats = launch.stats();
    assert!(stats.count("pages_fetched") > 0, "{}", stats.0);
    launch.run_with(c_program("reread"), &["24", "2"]).success();
    launch.run_with(c_program("segments"), &["1"]).success();
    launch.run_with(c_program("fork_storm"), &["16", "5"]).success();
}

#[test]
fn elastic_blocks_bring_the_right_pages_from_every_store() {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("file:{}/store?size=128M", directory.path().display());
    for block in ["elastic", "elastic:2M"] {
        // Larger blocks take the same way to a store: with the longer tests they are tried on each, and each
        // store of this machine in either mode.
        let is_in_every_way = cfg!(feature = "full-tests");
        let is_on_every_store = block == "elastic" || is_in_every_way;
        if is_on_every_store {
            programs_read_what_they_wrote(block, "thread", &file);
            for uri in [|donor: &Donor| donor.tcp_uri("e"), |donor: &Donor| donor.unix_uri("e")] {
                // Each keeps what the programs before have left there.
                let donor = Donor::start("256M", &[]);
                programs_read_what_they_wrote(block, "thread", &uri(&donor));
            }
        }
        for (store, mode) in
            [("ram:", "inline"), ("compressed:", "thread"), ("ram:", "thread"), ("compressed:", "inline")]
                .into_iter()
                .take(if is_in_every_way { 4 } else { 2 })
        {
            programs_read_what_they_wrote(block, mode, store);
        }
    }
}

/// Blocks of memory that is read from end to end again and again grow, and those of which single pages are
/// read are taken apart.
#[test]
fn elastic_blocks_grow_and_are_taken_apart() {
    let launch = Launch::local_mib(8).with_option("--block").with_option("elastic");
    launch.run_with(c_program("favourites"), &["32", "4", "40000"]).success();
    let stats = launch.stats();
    // What was written in order comes in blocks first.
    assert!(stats.count("pages_fetched_ahead") > 0 && stats.count("blocks_reduced") > 0, "{}", stats.0);
    let blocks = stats.0["blocks"].as_object().unwrap();
    assert!(blocks.keys().all(|bytes| bytes.parse::<u64>().unwrap() <= 64 << 10), "{}", stats.0);
    assert!(blocks["4096"].as_u64() > blocks.get("65536").and_then(serde_json::Value::as_u64), "{}", stats.0);
}
