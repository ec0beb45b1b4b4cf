//! `spillway tier` on two memory nodes: QEMU boots a Debian kernel with a node that has CPUs and one that has none, and the
//! guest runs a workload with a scattered hot tenth under policies. Run by `make test-full` and `make rig`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use support::child::Running;
use support::guest::{archived, kernel};
use support::tools::{c_program_with, tool};

/// Memory of each node.
const NODE_MIB: u32 = 512;
/// The workload's.
const WORKLOAD_MIB: u32 = 64;
const SECONDS: u32 = 60;
/// QEMU translates the guest's code.
const LONGEST: Duration = Duration::from_secs(15 * 60);

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// A program without what only debuggers read.
fn stripped(program: &Path) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("program");
    let status = Command::new(tool("strip", "binutils")).arg("-o").arg(&to).arg(program).status().unwrap();
    assert!(status.success());
    fs::read(to).unwrap()
}

/// The libraries that a program wants, by path.
fn libraries(program: &Path) -> BTreeSet<PathBuf> {
    let output = Command::new(tool("ldd", "libc-bin")).arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// The guest's first files.
fn initial_files() -> Vec<u8> {
    let spillway = Path::new(env!("CARGO_BIN_EXE_spillway"));
    let mut directories = BTreeSet::new();
    let mut files = vec![
        ("init".to_owned(), fs::read(c_program_with("guest_tier", &["-static"])).unwrap()),
        ("hot_tenth".to_owned(), fs::read(c_program_with("hot_tenth", &["-static"])).unwrap()),
        ("spillway".to_owned(), stripped(spillway)),
    ];
    for library in libraries(spillway) {
        let name = library.to_str().unwrap().trim_start_matches('/').to_owned();
        directories
            .extend(Path::new(&name).ancestors().skip(1).map(|above| above.to_str().unwrap().to_owned()));
        files.push((name, fs::read(&library).unwrap()));
    }
    directories.remove("");
    let directories = directories.iter().flat_map(|name| archived(name, DIRECTORY, &[]));
    let files = files.iter().flat_map(|(name, contents)| archived(name, PROGRAM, contents));
    directories.chain(files).chain(archived("TRAILER!!!", 0, &[])).collect()
}

/// What the guest printed between the lines that begin and end `section`.
fn section<'a>(console: &'a str, name: &str) -> &'a str {
    let kind = name.split(' ').next().unwrap();
    let (_, rest) = console.split_once(&format!("BEGIN {name}\n")).unwrap_or_else(|| panic!("{console}"));
    rest.split_once(&format!("END {kind}")).unwrap_or_else(|| panic!("{console}")).0
}

/// The JSON in what the guest printed.
fn parsed(text: &str) -> Value {
    let start = text.find(['{', '[']).unwrap_or_else(|| panic!("{text}"));
    let value = serde_json::Deserializer::from_str(&text[start..]).into_iter().next();
    value.unwrap().unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Boots the guest, and returns what it wrote to its console.
fn boot(policies: &str, local_pct: u32) -> String {
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path().join("initial-files");
    fs::write(&files, initial_files()).unwrap();
    let mut command = Command::new(tool("qemu-system-x86_64", "qemu-system-x86"));
    command.args(["-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(["-m", &format!("{}M", 2 * NODE_MIB), "-smp", "1", "-serial", "stdio"]);
    for (node, cpus) in [(0, ",cpus=0"), (1, "")] {
        command.args(["-object", &format!("memory-backend-ram,id=m{node},size={NODE_MIB}M")]);
        command.args(["-numa", &format!("node,nodeid={node},memdev=m{node}{cpus}")]);
    }
    command.arg("-kernel").arg(kernel()).arg("-initrd").arg(&files);
    let append = format!(
        "console=ttyS0 panic=-1 quiet no_timer_check numa_balancing=disable tier_policies={policies} \
         tier_mib={WORKLOAD_MIB} tier_seconds={SECONDS} tier_local={local_pct}%"
    );
    let console = Running::start(command.args(["-append", &append])).finish(LONGEST).success();
    let console = console.replace('\r', "");
    assert!(console.contains("all policies ran"), "{console}");
    console
}

/// A row of results, out of what the guest printed.
fn row(console: &str, policy: &str, local_pct: u32) -> Value {
    let workload = parsed(section(console, &format!("workload {policy}")));
    let policy = policy.split(':').next().unwrap();
    let status = parsed(section(console, &format!("status {policy}")));
    let group = &status["groups"][0];
    let good_put = match group["promotions"].as_f64().unwrap() {
        0.0 => Value::Null,
        promotions => json!(group["promotions_used"].as_f64().unwrap() / promotions),
    };
    json!({
        "workload": "hot-tenth",
        "policy": policy,
        "local_pct": local_pct,
        "local_hit_ratio": workload["local_hit_ratio"],
        "local_use_ratio": group["local_use_ratio"],
        "good_put": good_put,
        "promotions": group["promotions"],
        "demotions": group["demotions"],
        "refused": group["refused"],
        "telemetry_cpu_pct": group["telemetry_cpu_pct"],
    })
}

/// The program went on, and the next daemon put back what the killed one had changed.
fn a_killed_daemon_did_no_harm(printed: &str) {
    for expected in [
        "while it runs:\n0\nfalse\n",
        "after it was killed:\n0\nfalse\n",
        "the program ended with status 0\n",
        "/proc/sys/kernel/numa_balancing: put back",
        "the next daemon ended with status 0\n",
        "at the end:\n1\ntrue\n",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
}

#[test]
fn hot_pages_come_to_the_fast_node_of_a_guest() {
    // Under QEMU both nodes are equally fast, so that INDIGO's Equation 1 promises nothing; its rates are those of looks.
    const POLICIES: [&str; 4] = ["first-touch", "hotbox", "tpp", "indigo-thresholds:rate_threshold_hz=1.5"];
    let local_pct = 25;
    let console = boot(&POLICIES.join(","), local_pct);
    println!("{console}");
    let checks = parsed(section(&console, "doctor"));
    let tiers = checks.as_array().unwrap().iter().find(|check| check["check"] == "memory-tiers").unwrap();
    let found = tiers["found"].as_str().unwrap();
    assert!(found.contains("fast: node 0") && found.contains("slow: node 1"), "{found}");

    a_killed_daemon_did_no_harm(section(&console, "killed"));

    let rows: Vec<_> = POLICIES.iter().map(|policy| row(&console, policy, local_pct)).collect();
    let results = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../rig");
    fs::create_dir_all(&results).unwrap();
    let text = serde_json::to_string_pretty(&rows).unwrap();
    fs::write(results.join("results.json"), &text).unwrap();
    println!("{text}");
    let ratio = |at: usize| rows[at]["local_hit_ratio"].as_f64().unwrap();
    // A quarter of pages of either kind is local without migration.
    assert!((0.15..0.35).contains(&ratio(0)), "{text}");
    assert_eq!(rows[0]["promotions"], 0, "{text}");
    // How far it comes depends on how fast QEMU is.
    assert!(ratio(1) > ratio(0) + 0.1, "{text}");
}
