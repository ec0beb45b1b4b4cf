//! Every program at half and at a quarter of the memory that it wants, on compressed RAM and on a donor by
//! TCP, with work for minutes. Run by `make test-full`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod support;

use donor_common::Donor;
use support::workloads::{
    BRK, GUILE, JVM, MEMCACHED, MULTIPROCESSING, NODE, NUMPY, PIPELINE, POSTGRES, REDIS, SBCL, SEGMENTS,
    SORT, SQLITE, STRESS, Scale, THREADS, Workload,
};

fn in_all_combinations(workload: Workload) {
    let unlimited = workload.unlimited(Scale::Full);
    for percent in [50, 25] {
        workload.limited(Scale::Full, &unlimited, percent, "compressed:");
        let donor = Donor::start("4G", &["--force"]);
        workload.limited(Scale::Full, &unlimited, percent, &donor.tcp_uri(""));
    }
}

#[test]
fn sort() {
    in_all_combinations(SORT);
}

#[test]
fn pipeline() {
    in_all_combinations(PIPELINE);
}

#[test]
fn redis() {
    in_all_combinations(REDIS);
}

#[test]
fn memcached() {
    in_all_combinations(MEMCACHED);
}

#[test]
fn numpy() {
    in_all_combinations(NUMPY);
}

#[test]
fn multiprocessing() {
    in_all_combinations(MULTIPROCESSING);
}

#[test]
fn threads() {
    in_all_combinations(THREADS);
}

#[test]
fn jvm() {
    in_all_combinations(JVM);
}

#[test]
fn node() {
    in_all_combinations(NODE);
}

#[test]
fn sbcl() {
    in_all_combinations(SBCL);
}

#[test]
fn guile() {
    in_all_combinations(GUILE);
}

#[test]
fn sqlite() {
    in_all_combinations(SQLITE);
}

#[test]
fn postgres() {
    in_all_combinations(POSTGRES);
}

#[test]
fn stress() {
    in_all_combinations(STRESS);
}

#[test]
fn segments() {
    in_all_combinations(SEGMENTS);
}

#[test]
fn brk() {
    in_all_combinations(BRK);
}
