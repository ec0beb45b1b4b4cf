//! Samples of accesses from the rig's emulator to the daemon: what its C writes into the ring, the daemon
//! reads.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use spillway_tier::sample_ring::{SampleRing, Sampled};
use support::tools::tool;

/// Records of the ring, as `counters.h` has it.
const RECORDS: u64 = 1 << 15;

/// Fills a file as the emulator's plugin does: begins where the first argument is 0, and writes as many
/// samples from the number in the first argument on as the second says.
const SAMPLER: &str = r#"
#include "samples.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int file = open(argv[3], O_RDWR);
    char *memory = mmap(NULL, COUNTERS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return 1;
    volatile struct counters *counters = (volatile struct counters *)memory;
    volatile struct sample_record *ring = (volatile struct sample_record *)(memory + SAMPLES_AT);
    uint64_t first = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10), since = 0;
    if (first == 0) {
        counters->magic = COUNTERS_MAGIC;
        samples_begin(&counters->samples);
        counters->samples.process = 77;
    }
    /* Each miss that is seen stands for four. */
    for (uint64_t at = first; at < first + count; at++)
        if (samples_is_next(&counters->samples, 4, &since))
            samples_push(&counters->samples, ring, AREA_START + at * 64,
                         (at % 3 == 0 ? SAMPLE_STORE : 0) | (at % 5 == 0 ? SAMPLE_FAR : 0));
    return 0;
}
"#;

fn sampled(at: u64) -> Sampled {
    Sampled {
        process: 77,
        address: 0x3_0000_0000 + at * 64,
        write: at.is_multiple_of(3),
        far: at.is_multiple_of(5),
    }
}

#[test]
fn what_the_emulator_samples_the_daemon_reads() {
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("sampler.c"), directory.path().join("sampler"));
    fs::write(&source, SAMPLER).unwrap();
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../spillway-bench/rig");
    let mut compiler = Command::new(tool("cc", "gcc"));
    compiler
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(headers)
        .arg(&source)
        .arg("-o")
        .arg(&program);
    assert!(compiler.status().unwrap().success());
    let file = directory.path().join("counters");
    fs::write(&file, vec![0; 1 << 20]).unwrap();
    let write = |first: u64, count: u64| {
        let mut sampler = Command::new(&program);
        let status = sampler.args([first.to_string(), count.to_string()]).arg(&file).status().unwrap();
        assert!(status.success());
    };
    write(0, 10);
    let mut ring = SampleRing::open(&file).unwrap();
    let taken = |ring: &mut SampleRing| {
        let mut taken = Vec::new();
        ring.take(&mut |sampled| taken.push(sampled)).unwrap();
        taken
    };
    write(10, 10);
    assert!(taken(&mut ring).is_empty(), "nobody has asked for samples");
    ring.set_period(1);
    write(20, 10);
    assert_eq!(taken(&mut ring), (20..30).map(sampled).collect::<Vec<_>>(), "every miss that is seen");
    // The ring's end lies in here, and it is full before the last ones.
    write(30, RECORDS + 100);
    assert_eq!(taken(&mut ring), (30..30 + RECORDS).map(sampled).collect::<Vec<_>>());
    assert_eq!((ring.lost(), ring.cost_ns()), (100, (10 + RECORDS + 100) * 200));
    // A sample every 50 misses that are seen.
    ring.set_period(200);
    write(1, 500);
    assert_eq!(taken(&mut ring), (1..=10).map(|at| sampled(at * 50)).collect::<Vec<_>>());
}
