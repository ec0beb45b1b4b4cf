//! The examples print what their pages say. full_examples.rs has those that take minutes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod examples_common;

use std::fs;
use std::path::Path;

use examples_common::{examples, prints_what_it_says};

#[test]
fn a_batch_job_has_a_limit() {
    prints_what_it_says("batch-job");
}

#[test]
fn python_has_more_data_than_local_memory() {
    prints_what_it_says("python");
}

#[test]
fn redis_has_its_far_memory_with_a_donor() {
    prints_what_it_says("redis-with-donor");
}

#[test]
fn a_jvm_has_a_heap_larger_than_local_memory() {
    prints_what_it_says("jvm");
}

#[test]
fn one_machine_lends_to_another() {
    prints_what_it_says("two-machines");
}

#[test]
fn a_recorded_job_is_read_out_of_its_report() {
    prints_what_it_says("report");
}

#[test]
fn every_example_is_run_and_listed() {
    let listed = fs::read_to_string(examples().join("README.md")).unwrap();
    let tests = ["tests/examples.rs", "tests/full_examples.rs"]
        .map(|file| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap());
    let this = tests.concat();
    let paths = fs::read_dir(examples()).unwrap().map(|entry| entry.unwrap().path());
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "sh")) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(listed.contains(&format!("({name}.sh)")), "examples/README.md does not list {name}");
        assert!(
            this.contains(&format!("prints_what_it_says(\"{name}\""))
                || this.contains(&format!("prints_in_the_end(\"{name}\"")),
            "no test runs {name}"
        );
        assert!(path.with_extension("out").is_file(), "{name}.out is missing");
    }
}
