//! What is installed beside the command: manual pages, completions, units, rules and examples.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn packaging(path: &str) -> PathBuf {
    root().join("packaging").join(path)
}

fn output(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn text(command: &mut Command) -> String {
    String::from_utf8(output(command).stdout).unwrap()
}

fn spillway(arguments: &[&str]) -> String {
    text(Command::new(env!("CARGO_BIN_EXE_spillway")).args(arguments))
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Every command with its help, out of the reference.
fn commands() -> Vec<(String, String)> {
    let reference = spillway(&["generate", "reference"]);
    let parts = reference.split("\n## ").skip(1).map(|part| part.split_once('\n').unwrap());
    parts.map(|(name, help)| (name.to_owned(), help.to_owned())).collect()
}

/// The long options that a help names at the beginning of a line.
fn options(help: &str) -> BTreeSet<&str> {
    let starts = help.lines().filter(|line| line.trim_start().starts_with('-'));
    let words = starts.flat_map(|line| line.split([' ', '=', ','])).filter(|word| word.starts_with("--"));
    words.filter(|word| word.len() > 2).collect()
}

#[test]
fn the_reference_of_the_commands_is_as_the_help_is() {
    let written = fs::read_to_string(root().join("docs/reference/commands.md")).unwrap();
    assert!(
        written == spillway(&["generate", "reference"]),
        "out of date; renew it: cargo run -p spillway -- generate reference > docs/reference/commands.md"
    );
}

#[test]
fn every_command_has_a_manual_page_with_all_its_options() {
    let directory = TempDir::new().unwrap();
    let to = directory.path().join("man1");
    spillway(&["generate", "man", "--to", to.to_str().unwrap()]);
    let commands = commands();
    assert!(commands.len() > 20, "{}", commands.len());
    for (name, help) in &commands {
        let path = to.join(format!("{}.1", name.replace(' ', "-")));
        let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for heading in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH EXAMPLES"] {
            assert!(page.contains(heading), "{name}: {heading}");
        }
        for option in options(help) {
            assert!(page.contains(&option.replace('-', "\\-")), "{name}: {option}");
        }
    }
    assert_eq!(fs::read_dir(&to).unwrap().count(), commands.len());
    if is_installed("groff") {
        let warnings = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww", "-z"])
            .arg(to.join("spillway-run.1"))
            .output();
        assert_eq!(String::from_utf8_lossy(&warnings.unwrap().stderr), "");
    }
}

#[test]
fn completions_know_every_command() {
    let directory = TempDir::new().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = spillway(&["generate", "completions", shell]);
        for (name, _) in commands() {
            let word = name.rsplit(' ').next().unwrap();
            assert!(script.contains(word), "{shell}: {name}");
        }
        let path = directory.path().join(shell);
        fs::write(&path, script).unwrap();
        if is_installed(shell) {
            let flag = if shell == "fish" { "--no-execute" } else { "-n" };
            output(Command::new(shell).arg(flag).arg(&path));
        }
    }
    let ask = r#"source "$1"; COMP_WORDS=(spillway doc); COMP_CWORD=1; _spillway spillway doc spillway
                 echo "${COMPREPLY[@]}""#;
    assert_eq!(
        text(Command::new("bash").args(["-c", ask, "-"]).arg(directory.path().join("bash"))),
        "doctor\n"
    );
}

#[test]
fn services_have_few_rights() {
    for (unit, starts) in [("donor", "spillway donor $DONOR_OPTIONS"), ("tier", "spillway tier --config")] {
        let path = packaging(&format!("systemd/spillway-{unit}.service"));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(&format!("\nExecStart=/usr/bin/{starts}")), "{text}");
        for line in [
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            "ProtectHome=yes",
            "PrivateTmp=yes",
            "PrivateDevices=yes",
            "ProtectKernelModules=yes",
            "MemoryDenyWriteExecute=yes",
            "RestrictNamespaces=yes",
            "SystemCallArchitectures=native",
            "SystemCallFilter=@system-service",
            "Restart=on-failure",
        ] {
            assert!(text.lines().any(|own| own.starts_with(line)), "{unit}: {line}");
        }
        if is_installed("systemd-analyze") {
            // Tenths: 3.0 at most.
            output(
                Command::new("systemd-analyze")
                    .args(["security", "--offline=true", "--threshold=30", "--no-pager"])
                    .arg(&path),
            );
        }
    }
    let donor = fs::read_to_string(packaging("systemd/spillway-donor.service")).unwrap();
    assert!(donor.contains("\nDynamicUser=yes\n") && donor.contains("\nCapabilityBoundingSet=\n"), "{donor}");
}

#[test]
fn the_donor_listens_to_this_machine_only_unless_told_otherwise() {
    let settings = fs::read_to_string(packaging("default/spillway-donor")).unwrap();
    let options =
        settings.lines().find_map(|line| line.strip_prefix("DONOR_OPTIONS=\"")?.strip_suffix('"')).unwrap();
    assert!(options.contains("--listen 127.0.0.1:"), "{options}");
    // Understood, but for the option that follows.
    let wrong = Command::new(env!("CARGO_BIN_EXE_spillway"))
        .arg("donor")
        .args(options.split(' '))
        .args(["--max-connections", "0"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(2) && error.contains("max-connections"), "{error}");
}

#[test]
fn example_configurations_are_taken() {
    for entry in fs::read_dir(packaging("examples")).unwrap() {
        let path = entry.unwrap().path();
        let said = spillway(&["check", path.to_str().unwrap()]);
        let kind = path.file_stem().unwrap().to_str().unwrap();
        assert!(said.contains(&format!(": well: 'spillway {kind}' would take it")), "{said}");
    }
}

#[test]
fn what_the_package_is_to_hold_is_there() {
    let manifest = fs::read_to_string(root().join("crates/spillway/Cargo.toml")).unwrap();
    let manifest: toml::Table = toml::from_str(&manifest).unwrap();
    let deb = &manifest["package"]["metadata"]["deb"];
    let (built, written): (Vec<_>, Vec<_>) = deb["assets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|asset| asset[0].as_str().unwrap())
        .partition(|source| source.starts_with("target/release/"));
    assert!(built.len() >= 6 && written.len() >= 8, "{built:?} {written:?}");
    for source in written.iter().filter(|source| !source.contains('*')) {
        let path = root().join("crates/spillway").join(source);
        assert!(path.is_file(), "{}", path.display());
    }
    for script in ["postinst", "prerm", "postrm"] {
        output(Command::new("sh").arg("-n").arg(packaging("debian").join(script)));
    }
    for (rule, part) in [
        (
            "udev/60-spillway.rules",
            "KERNEL==\"userfaultfd\", SUBSYSTEM==\"misc\", GROUP=\"spillway\", MODE=\"0660\"",
        ),
        ("tmpfiles/spillway.conf", "z /dev/userfaultfd 0660 root spillway"),
        ("sysusers/spillway.conf", "g spillway"),
    ] {
        assert!(fs::read_to_string(packaging(rule)).unwrap().contains(part), "{rule}");
    }
}

#[test]
fn an_installed_build_runs_programs_and_is_removed_whole() {
    let build = Path::new(env!("CARGO_BIN_EXE_spillway")).parent().unwrap();
    assert!(build.join("libspillway_preload.so").is_file(), "build it: cargo build --workspace");
    let directory = TempDir::new().unwrap();
    let to = directory.path().join("usr/local");
    let said = text(Command::new(root().join("scripts/install")).args([build, &to]));
    assert_eq!(said.lines().last(), Some("  spillway doctor"), "{said}");
    let command = to.join("bin/spillway");
    assert!(to.join("share/man/man1/spillway-run.1").is_file());
    let doctor = Command::new(&command).arg("doctor").output().unwrap();
    if doctor.status.success() {
        assert_eq!(text(Command::new(&command).args(["run", "--local", "32M", "echo", "far"])), "far\n");
    } else {
        assert!(!String::from_utf8(doctor.stdout).unwrap().contains("preload-library"));
    }
    output(Command::new(root().join("scripts/uninstall")).arg(&to));
    let files = text(Command::new("find").arg(&to).args(["-type", "f"]));
    assert_eq!(files, "");
}
