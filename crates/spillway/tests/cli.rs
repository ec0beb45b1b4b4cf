//! The command line as its users meet it: help, errors, pipes, and `doctor` with and without rights.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const COMMANDS: [&[&str]; 27] = [
    &[],
    &["run"],
    &["status"],
    &["top"],
    &["tier"],
    &["tier", "status"],
    &["explain"],
    &["advise"],
    &["donor"],
    &["donor", "drop"],
    &["doctor"],
    &["check"],
    &["generate"],
    &["generate", "man"],
    &["generate", "completions"],
    &["generate", "reference"],
    &["lab"],
    &["lab", "run"],
    &["lab", "figure"],
    &["lab", "sweep"],
    &["lab", "advise"],
    &["lab", "list"],
    &["lab", "replay"],
    &["lab", "calibrate"],
    &["bench"],
    &["bench", "ablation"],
    &["bench", "dcm"],
];
const NOBODY: &str = "65534";

fn spillway<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spillway")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("ended by a signal")
}

/// A copy of the command that every user may run, with or without a file that stands for the preloaded
/// library: `doctor` looks whether it is there.
fn installation(with_library: bool) -> (TempDir, PathBuf) {
    let directory = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o755)).tempdir().unwrap();
    let command = directory.path().join("spillway");
    // Copied by another process: a child that another test forks meanwhile would hold our file open for
    // writing, and the command could not be executed.
    let copied =
        Command::new("install").args(["-m", "755", env!("CARGO_BIN_EXE_spillway")]).arg(&command).status();
    assert!(copied.unwrap().success());
    if with_library {
        std::fs::write(directory.path().join("libspillway_preload.so"), "").unwrap();
    }
    (directory, command)
}

fn doctor(command: &Path) -> (i32, Vec<Value>) {
    let output = Command::new(command).args(["doctor", "--json"]).output().unwrap();
    (code(&output), serde_json::from_slice(&output.stdout).unwrap())
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Runs the command without any right that root has.
fn as_nobody(command: &Path, arguments: &[&str]) -> Output {
    let mut unprivileged = if is_root() {
        let mut setpriv = Command::new("setpriv");
        setpriv.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
        setpriv.arg(command);
        setpriv
    } else {
        Command::new(command)
    };
    unprivileged.args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Whether this machine keeps userfaultfd from ordinary users, as kernels do by default.
fn guarded() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap();
    let open =
        std::fs::metadata("/dev/userfaultfd").is_ok_and(|device| device.permissions().mode() & 0o6 == 0o6);
    setting.trim() == "0" && !open
}

fn check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no check {name}"))
}

#[test]
fn every_help_has_an_example_and_fits_80_columns() {
    for command in COMMANDS {
        let output = spillway(&[command, &["--help"]].concat());
        let help = stdout(&output);
        assert_eq!(code(&output), 0, "{command:?}");
        assert!(help.contains("Example"), "{command:?}: {help}");
        let call = ["spillway", command.first().unwrap_or(&"run")].join(" ");
        assert!(help.contains(&call), "{command:?}: {help}");
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{command:?}: {line}");
        }
    }
}

#[test]
fn help_names_every_exit_status() {
    let help = stdout(&spillway(&["--help"]));
    for status in ["2 ", "125 ", "126 ", "127 "] {
        assert!(help.contains(&format!("\n  {status}")), "{status}: {help}");
    }
}

#[test]
fn version_is_the_package_version() {
    let output = spillway(&["--version"]);
    assert_eq!((code(&output), stdout(&output)), (0, format!("spillway {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn no_arguments_print_help_and_fail() {
    let output = spillway::<&str>(&[]);
    assert_eq!((code(&output), stdout(&output)), (2, String::new()));
    assert!(stderr(&output).contains("Usage:"));
}

#[test]
fn usage_errors_are_one_line_that_says_where_to_read_on() {
    let cases: [(&[&str], &str); 12] = [
        (&["rum"], "'spillway --help'"),
        (&["doctor", "--jsn"], "'spillway doctor --help'"),
        (&["doctor", "now"], "'spillway doctor --help'"),
        (&["run"], "'spillway run --help'"),
        (&["run", "--local", "12Q", "--", "true"], "'spillway run --help'"),
        (&["run", "--local", "1G", "--"], "'spillway run --help'"),
        (&["donor", "--no-such-flag"], "'spillway donor --help'"),
        (&["pool", "status"], "'spillway pool status --help'"),
        (&["lab", "run", "--policy", "lru"], "'spillway lab run --help'"),
        (&["bench", "report", "--to", "x"], "'spillway bench report --help'"),
        (&["explain", "--pid", "x"], "--pid <PID>': write a whole number;"),
        (&["report", "--no-such-flag"], "'--no-such-flag' found; see 'spillway report --help'"),
    ];
    for (arguments, pointer) in cases {
        let output = spillway(arguments);
        let error = stderr(&output);
        assert_eq!((code(&output), stdout(&output)), (2, String::new()), "{arguments:?}: {error}");
        assert!(error.starts_with("spillway: ") && error.ends_with('\n'), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        assert!(error.contains(pointer), "{arguments:?}: {error}");
    }
}

#[test]
fn a_program_needs_no_dashes_before_it_and_keeps_its_own_options() {
    let (_directory, command) = installation(true);
    let run = |arguments: &[&str]| Command::new(&command).args(arguments).output().unwrap();
    // Its options are its own, dashes or not; those of Spillway's go before it.
    for arguments in [
        &["run", "--local", "64M", "no-such", "--stats", "--local"][..],
        &["run", "--local", "64M", "--", "no-such", "-x"],
    ] {
        let output = run(arguments);
        let error = stderr(&output);
        let reached = [126, 127].contains(&code(&output)) && error.contains("no-such");
        assert!(reached || error.contains("uffd-permission"), "{arguments:?}: {error}");
    }
    // A misspelled option is no program.
    let output = run(&["run", "--locl", "64M", "true"]);
    assert!(code(&output) == 2 && stderr(&output).contains("'--locl'"), "{}", stderr(&output));
    let output = run(&["run", "true", "--local", "64M"]);
    let error = stderr(&output);
    assert!(code(&output) == 2 && error.contains("options of Spillway's go before the program"), "{error}");
    // Where there are subcommands, a program's name could be one misspelled.
    for arguments in [&["tier", "--local", "20%", "redis-server"][..], &["tier", "redis-server"]] {
        let output = run(arguments);
        let (error, tip) =
            (stderr(&output), "put '--' before the program: spillway tier ... -- redis-server");
        assert!(code(&output) == 2 && error.contains(tip) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn a_share_of_the_memory_is_a_limit_and_nonsense_is_named() {
    let (_directory, command) = installation(true);
    let run =
        |local: &str| Command::new(&command).args(["run", "--local", local, "no-such"]).output().unwrap();
    let output = run("50%");
    assert!([125, 127].contains(&code(&output)), "{}", stderr(&output));
    for wrong in ["0%", "101%", "half%"] {
        let output = run(wrong);
        let error = stderr(&output);
        assert!(code(&output) == 2 && error.contains(&format!("'{wrong}' is no share")), "{error}");
    }
    let error = stderr(&run("0.0000001%"));
    assert!(error.contains("at least 4.0 MiB"), "{error}");
}

#[test]
fn a_configuration_is_checked_without_running_anything() {
    let directory = TempDir::new().unwrap();
    let check = |name: &str, text: &str, more: &[&str]| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        let output = spillway(&[&["check", path.to_str().unwrap()], more].concat());
        (code(&output), stdout(&output).replace(path.to_str().unwrap(), name), stderr(&output))
    };
    let (status, said, _) = check("run.toml", "[fetch]\noverlap = false\n", &[]);
    assert_eq!(
        (status, said.as_str()),
        (0, "run.toml: well: 'spillway run' would take it; it sets 1 value\n")
    );
    let (status, said, error) = check("run.toml", "[fetch]\noverlaps = false\nstrides = 'leap'\n", &[]);
    assert_eq!((status, error.as_str()), (1, ""));
    assert!(said.contains("run.toml:2: unknown key 'overlaps'; did you mean 'overlap'?\n"), "{said}");
    assert!(said.contains("run.toml:3: strides: unknown variant `leap`"), "{said}");
    let (status, said, _) = check("tier.toml", "", &["--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (status, &said["kind"], &said["findings"][0]["line"]),
        (1, &Value::from("tier"), &Value::from(1))
    );
    let absent = spillway(&["check", "/no/such/file"]);
    assert_eq!((code(&absent), stdout(&absent)), (1, String::new()));
    assert!(stderr(&absent).contains("/no/such/file") && stderr(&absent).lines().count() == 1);
}

#[test]
fn bad_sizes_are_named_with_the_remedy() {
    let error = stderr(&spillway(&["run", "--local", "lots", "--", "true"]));
    assert!(error.contains("'lots' is not a size") && error.contains("such as 64K"), "{error}");
}

#[test]
fn no_argument_makes_it_panic() {
    let raw = OsString::from_vec(vec![0xFF, 0xFE, 0x80]);
    let long = OsString::from("9".repeat(100_000));
    let words = [raw, long, "".into(), "--".into(), "-".into(), "\u{0}".trim_matches('\0').into()];
    for command in ["", "run", "donor", "doctor"] {
        for word in &words {
            let output = spillway(&[OsStr::new(command), word, OsStr::new("--local"), word]);
            assert_eq!(code(&output), 2, "{command} {word:?}");
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!error.contains("panicked"), "{error}");
        }
    }
}

#[test]
fn no_colour_where_nobody_looks() {
    for arguments in [&["--help"][..], &["doctor"], &["doctor", "--json"], &["run", "--nonsense"]] {
        let output = spillway(arguments);
        assert!(!output.stdout.contains(&0x1B) && !output.stderr.contains(&0x1B), "{arguments:?}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    for arguments in [&["doctor"][..], &["doctor", "--json"], &["--help"]] {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let child = Command::new(env!("CARGO_BIN_EXE_spillway"))
            .args(arguments)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.code().is_some_and(|code| code <= 1), "{arguments:?}: {:?}", output.status);
        assert_eq!(stderr(&output), "", "{arguments:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_spillway")).arg("doctor").stdout(full).output().unwrap();
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).starts_with("spillway: standard output: "), "{}", stderr(&output));
}

#[test]
fn doctor_prints_each_check_in_json_and_in_words() {
    let (_directory, command) = installation(true);
    let (_, checks) = doctor(&command);
    let words = stdout(&Command::new(&command).args(["doctor", "--all"]).output().unwrap());
    let is_command = |line: &str| line.contains("mend: ") || line.contains("or:   ");
    assert!(words.lines().all(|line| line.chars().count() <= 80 || is_command(line)), "{words}");
    for check in &checks {
        let text = |key: &str| check[key].as_str().unwrap_or_else(|| panic!("{key} of {check}")).to_owned();
        let (name, status) = (text("check"), text("status"));
        assert!(["ok", "warn", "absent", "missing"].contains(&status.as_str()), "{check}");
        assert!(status != "missing" || check["essential"] == true, "what nobody misses is absent: {check}");
        assert!(["run", "tier", "nothing"].contains(&text("needed_by").as_str()), "{check}");
        assert!(!text("found").is_empty() && !text("meaning").is_empty(), "{check}");
        assert!(check["essential"].is_boolean(), "{check}");
        assert!(check["remedy"].is_string() || check["remedy"].is_null(), "{check}");
        assert_eq!(check["remedy"], check["remedies"][0]["command"], "{check}");
        assert!(words.contains(&format!("{status:<8}{name:<20} ")), "{name} is not in: {words}");
        if let Some(remedy) = check["remedy"].as_str() {
            assert!(words.contains(&format!("mend: {remedy}\n")), "{name}: {words}");
        }
    }
    for name in [
        "kernel",
        "userfaultfd",
        "uffd-permission",
        "uffd-wp",
        "uffd-move",
        "uffd-poison",
        "pagemap-scan",
        "process-madvise",
        "open-files",
        "memlock",
        "max-map-count",
        "overcommit",
        "huge-pages",
        "memory",
        "swap",
        "memory-cgroup",
        "numa-nodes",
        "rdma",
        "ucx",
        "io-uring",
        "preload-library",
    ] {
        check(&checks, name);
    }
}

#[test]
fn doctors_first_line_is_the_answer_and_the_rest_is_what_could_be_better() {
    for with_library in [true, false] {
        let (_directory, command) = installation(with_library);
        let output = Command::new(&command).arg("doctor").output().unwrap();
        let words = stdout(&output);
        let (_, checks) = doctor(&command);
        let answer = words.lines().next().unwrap();
        assert_eq!(
            answer.starts_with("This machine can run programs on far memory."),
            code(&output) == 0,
            "{words}"
        );
        let is_amiss = |check: &Value| check["status"] == "warn" || check["status"] == "missing";
        for check in checks.iter().filter(|check| check["needed_by"] == "run") {
            let row =
                format!("{:<8}{:<20} ", check["status"].as_str().unwrap(), check["check"].as_str().unwrap());
            assert_eq!(words.contains(&row), is_amiss(check), "{check}: {words}");
        }
        assert!(!words.contains("uffd-event-fork") && words.contains("spillway doctor --all"), "{words}");
    }
}

#[test]
fn doctor_mends_nothing_where_nobody_can_be_asked() {
    let output = spillway(&["doctor", "--fix"]);
    let error = stderr(&output);
    assert_eq!((code(&output), stdout(&output), error.lines().count()), (1, String::new(), 1), "{error}");
    assert!(error.contains("no terminal") && error.contains("--yes"), "{error}");
    assert_eq!(code(&spillway(&["doctor", "--yes"])), 2);
}

#[test]
fn doctor_does_what_it_proposes_where_it_is_told_to() {
    let (_directory, command) = installation(true);
    // Without rights nothing is changed: what is proposed fails, by name.
    let output = as_nobody(&command, &["doctor", "--fix", "--yes"]);
    let words = stdout(&output);
    assert!(words.trim_end().lines().last().unwrap().starts_with("This machine can"), "{words}");
    if guarded() && is_root() {
        let first = words.lines().find(|line| line.starts_with("+ ")).unwrap();
        assert!(first.contains("/dev/userfaultfd") && !first.contains("sysctl"), "{words}");
        assert!(
            code(&output) == 1 && stderr(&output).contains("spillway: doctor --fix: "),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn doctor_fails_exactly_when_something_essential_is_missing() {
    for with_library in [true, false] {
        let (_directory, command) = installation(with_library);
        let (code, checks) = doctor(&command);
        let failed = checks.iter().any(|check| check["essential"] == true && check["status"] == "missing");
        assert_eq!(code, i32::from(failed));
        assert!(with_library || failed);
    }
}

#[test]
fn doctor_finds_root_fit_to_run() {
    if !is_root() {
        eprintln!("not root: nothing to see here");
        return;
    }
    let (_directory, command) = installation(true);
    let (code, checks) = doctor(&command);
    assert_eq!(code, 0, "{checks:?}");
    assert_eq!(check(&checks, "uffd-permission")["status"], "ok");
}

#[test]
fn doctor_names_a_missing_library() {
    let (_directory, command) = installation(false);
    let (code, checks) = doctor(&command);
    assert_eq!(code, 1);
    let library = check(&checks, "preload-library");
    assert_eq!(library["status"], "missing");
    assert!(library["remedy"].is_string());
}

#[test]
fn doctor_tells_an_ordinary_user_which_right_is_missing_and_how_to_get_it() {
    let (_directory, command) = installation(true);
    let output = as_nobody(&command, &["doctor", "--json"]);
    let checks: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let permission = check(&checks, "uffd-permission");
    if guarded() {
        assert_eq!(code(&output), 1);
        assert_eq!(permission["status"], "missing");
        let remedies: Vec<_> = permission["remedies"].as_array().unwrap().iter().collect();
        let commands: Vec<_> = remedies.iter().map(|remedy| remedy["command"].as_str().unwrap()).collect();
        // That for all users comes last.
        assert_eq!(commands.last(), Some(&"sudo sysctl -w vm.unprivileged_userfaultfd=1"));
        if Path::new("/dev/userfaultfd").exists() {
            assert!(permission["found"].as_str().unwrap().contains("/dev/userfaultfd is "), "{permission}");
            assert!(commands.len() > 1 && commands[0].contains("/dev/userfaultfd"), "{permission}");
        }
        let words = stdout(&as_nobody(&command, &["doctor"]));
        assert!(words.lines().next().unwrap().contains("but not for you yet"), "{words}");
        assert!(commands.iter().all(|command| words.contains(&format!("{command}\n"))), "{words}");
    } else {
        assert_eq!(permission["status"], "ok");
    }
    // What the kernel can do is told all the same.
    assert_eq!(check(&checks, "uffd-move")["status"], "ok");
}

#[test]
fn run_refuses_with_the_words_of_doctor() {
    let (_directory, command) = installation(true);
    if !guarded() {
        eprintln!("this machine lets everybody use userfaultfd: nothing to refuse");
        return;
    }
    let checks: Vec<Value> =
        serde_json::from_slice(&as_nobody(&command, &["doctor", "--json"]).stdout).unwrap();
    let permission = check(&checks, "uffd-permission");
    let output = as_nobody(&command, &["run", "--local", "64M", "--", "true"]);
    let error = stderr(&output);
    assert_eq!((code(&output), error.lines().count()), (125, 1), "{error}");
    for key in ["check", "found", "meaning", "remedy"] {
        assert!(error.contains(permission[key].as_str().unwrap()), "{key}: {error}");
    }
}

#[test]
fn programs_that_cannot_be_started_give_the_statuses_of_env() {
    if guarded() && !is_root() {
        eprintln!("not root: the program would not be looked at");
        return;
    }
    let (directory, command) = installation(true);
    let plain = directory.path().join("plain");
    std::fs::write(&plain, "no program").unwrap();
    let absent = directory.path().join("absent");
    for (program, status) in
        [(plain.as_path(), 126), (directory.path(), 126), (&absent, 127), ("no-such".as_ref(), 127)]
    {
        let output =
            Command::new(&command).args(["run", "--local", "64M", "--"]).arg(program).output().unwrap();
        let error = stderr(&output);
        assert_eq!((code(&output), error.lines().count()), (status, 1), "{}: {error}", program.display());
        assert!(error.starts_with("spillway: ") && error.contains(program.to_str().unwrap()), "{error}");
        // Thing, reason and remedy.
        let remedy = if status == 126 { "name a program" } else { "give its path, or check PATH" };
        assert!(error.contains(remedy), "{error}");
    }
}

#[test]
fn lab_runs_a_policy_and_says_what_came_of_it() {
    let output =
        spillway(&["lab", "run", "--workload", "uniform-kv", "--policy", "tpp", "--size", "2M", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["run_s"].as_f64().unwrap() > 0.0 && report["local_hit_ratio"].as_f64().unwrap() < 1.0);
    let output = spillway(&["lab", "run", "--workload", "uniform-kv", "--policy", "tpp", "--size", "2M"]);
    assert!(stdout(&output).contains("run time"), "{}", stdout(&output));
}

#[test]
fn lab_refuses_what_it_does_not_know_by_name() {
    for (arguments, name) in [
        (["--workload", "nonsense", "--policy", "tpp"], "'nonsense'"),
        (["--workload", "scan", "--policy", "nonsense"], "'nonsense'"),
        (["--workload", "scan", "--set", "policy.speed=1"], "--policy"),
    ] {
        let output = spillway(&[&["lab", "run"][..], &arguments[..]].concat());
        assert_ne!(code(&output), 0);
        assert!(stderr(&output).contains(name), "{}", stderr(&output));
    }
}

#[test]
fn lab_sweeps_a_grid_into_a_table() {
    let directory = TempDir::new().unwrap();
    let grid = directory.path().join("grid.toml");
    std::fs::write(
        &grid,
        "workloads = ['uniform-kv']\npolicies = ['all-remote', 'hotbox']\nbytes = 2097152\n",
    )
    .unwrap();
    let out = directory.path().join("out");
    let output = spillway(&["lab", "sweep", grid.to_str().unwrap(), "-o", out.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(std::fs::read(out.join("runs.parquet")).unwrap().starts_with(b"PAR1"));
    std::fs::write(
        &grid,
        "workloads = ['uniform-kv']\npolicies = ['all-remote', 'hotbox', 'tpp']\nbytes = 2097152\n",
    )
    .unwrap();
    let output = spillway(&["lab", "sweep", grid.to_str().unwrap(), "-o", out.to_str().unwrap(), "--json"]);
    let swept: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let table = out.join("runs.parquet").display().to_string();
    let expected = serde_json::json!({ "table": table, "runs": 3, "runs_made": 1, "runs_kept": 2 });
    assert_eq!((swept, stderr(&output).as_str()), (expected, ""));
    std::fs::write(&grid, "workloads = 7").unwrap();
    let output = spillway(&["lab", "sweep", grid.to_str().unwrap(), "-o", out.to_str().unwrap()]);
    assert!(code(&output) == 1 && stderr(&output).contains("is no grid"), "{}", stderr(&output));
}
