//! Real programs with a quarter or half of the memory that they want: each gives the answer that it gives
//! with all of it. `full_programs.rs` has the same at length, in all combinations.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod support;

use donor_common::Donor;
use support::workloads::{
    BRK, GUILE, JVM, MEMCACHED, MULTIPROCESSING, NODE, NUMPY, PIPELINE, POSTGRES, REDIS, SBCL, SEGMENTS,
    SORT, SQLITE, STRESS, Scale, THREADS, Workload,
};

fn on_compressed_ram(workload: Workload, percent: u64) {
    workload.compare(Scale::Quick, percent, "compressed:");
}

fn on_a_donor(workload: Workload, percent: u64) {
    let donor = Donor::start("2G", &["--force"]);
    workload.compare(Scale::Quick, percent, &donor.tcp_uri(""));
}

#[test]
fn sort_at_a_quarter() {
    on_compressed_ram(SORT, 25);
}

#[test]
fn sort_at_half_on_a_donor() {
    on_a_donor(SORT, 50);
}

#[test]
fn pipeline_at_a_quarter() {
    on_compressed_ram(PIPELINE, 25);
}

#[test]
fn redis_at_a_quarter() {
    on_compressed_ram(REDIS, 25);
}

#[test]
fn redis_at_half_on_a_donor() {
    on_a_donor(REDIS, 50);
}

#[test]
fn memcached_at_a_quarter() {
    on_compressed_ram(MEMCACHED, 25);
}

#[test]
fn numpy_at_half() {
    on_compressed_ram(NUMPY, 50);
}

#[test]
fn multiprocessing_at_half() {
    on_compressed_ram(MULTIPROCESSING, 50);
}

#[test]
fn threads_at_a_quarter() {
    on_compressed_ram(THREADS, 25);
}

#[test]
fn jvm_at_half() {
    on_compressed_ram(JVM, 50);
}

#[test]
fn node_at_half() {
    on_compressed_ram(NODE, 50);
}

#[test]
fn sbcl_at_half() {
    on_compressed_ram(SBCL, 50);
}

#[test]
fn guile_at_half() {
    on_compressed_ram(GUILE, 50);
}

#[test]
fn sqlite_at_a_quarter() {
    on_compressed_ram(SQLITE, 25);
}

#[test]
fn postgres_at_half() {
    on_compressed_ram(POSTGRES, 50);
}

#[test]
fn stress_at_half() {
    on_compressed_ram(STRESS, 50);
}

#[test]
fn segments_at_a_quarter() {
    on_compressed_ram(SEGMENTS, 25);
}

#[test]
fn brk_at_a_quarter() {
    on_compressed_ram(BRK, 25);
}
