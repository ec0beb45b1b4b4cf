//! What is installed beside the command: manual pages, completions, units, rules and examples.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use object::{Object, ObjectSection};
use rustix::fs::inotify;
use rustix::process::Signal;
use support::child::{PATIENCE, Running};
use support::tools::{python, source, tool};
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
        let flag = if shell == "fish" { "--no-execute" } else { "-n" };
        output(Command::new(tool(shell, shell)).arg(flag).arg(&path));
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
        // Tenths: 3.0 at most.
        output(
            Command::new(tool("systemd-analyze", "systemd"))
                .args(["security", "--offline=true", "--threshold=30", "--no-pager"])
                .arg(&path),
        );
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
fn the_tools_of_systemd_take_rules_and_slice() {
    let root = TempDir::new().unwrap();
    for directory in ["etc", "dev", "usr/lib/tmpfiles.d"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    fs::copy(packaging("tmpfiles/spillway.conf"), root.path().join("usr/lib/tmpfiles.d/spillway.conf"))
        .unwrap();
    // The rule names users and groups by name: here they are who runs this.
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    fs::write(root.path().join("etc/passwd"), format!("root:x:{uid}:{gid}::/root:/bin/sh\n")).unwrap();
    fs::write(root.path().join("etc/group"), format!("spillway:x:{gid}:\n")).unwrap();
    let device = root.path().join("dev/userfaultfd");
    fs::write(&device, "").unwrap();
    fs::set_permissions(&device, fs::Permissions::from_mode(0o600)).unwrap();
    let root_option = format!("--root={}", root.path().display());
    let said = output(Command::new(tool("systemd-tmpfiles", "systemd")).args([
        "--create",
        &root_option,
        "spillway.conf",
    ]));
    assert_eq!(String::from_utf8_lossy(&said.stderr), "");
    let mode_of = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode_of(&device), mode_of(&root.path().join("run/spillway"))), (0o660, 0o755));
    // It came with systemd 254.
    let knows_verify = Command::new("udevadm").args(["verify", "--help"]).output();
    if knows_verify.is_ok_and(|output| output.status.success()) {
        output(Command::new("udevadm").arg("verify").arg(packaging("udev/60-spillway.rules")));
    }
    let slice = output(
        Command::new(tool("systemd-analyze", "systemd"))
            .args(["verify", "--man=no"])
            .arg(packaging("systemd/spillway.slice")),
    );
    assert_eq!(String::from_utf8_lossy(&slice.stderr), "");
}

/// A build of its own, as `make install` takes it.
fn build_at(place: &Path) {
    let build = Path::new(env!("CARGO_BIN_EXE_spillway")).parent().unwrap().canonicalize().unwrap();
    fs::create_dir_all(place).unwrap();
    for file in ["spillway", "libspillway_preload.so"] {
        std::os::unix::fs::symlink(build.join(file), place.join(file)).unwrap();
    }
}

fn install(build: &Path, to: &Path) {
    output(Command::new(root().join("scripts/install")).args([build, to]));
}

#[test]
fn a_run_that_goes_on_while_another_build_is_installed_ends_right_and_so_does_what_it_begins_later() {
    let directory = TempDir::new().unwrap();
    let (build, to) = (directory.path().join("build"), directory.path().join("usr"));
    build_at(&build);
    install(&build, &to);
    let [command, library] =
        ["bin/spillway", "lib/spillway/libspillway_preload.so"].map(|file| to.join(file));
    let stats = directory.path().join("stats.json");
    let mut running = Running::start(
        Command::new(&command)
            .args(["run", "--local", "8M", "--stats", stats.to_str().unwrap(), "--"])
            .arg(python())
            .arg(source("upgraded.py")),
    );
    running.expect("ready");
    let before = fs::metadata(&library).unwrap().ino();
    // What replaces a file must not write to it, nor be without it for a moment.
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, library.parent().unwrap(), inotify::WatchFlags::ALL_EVENTS).unwrap();
    install(&build, &to);
    assert_ne!(fs::metadata(&library).unwrap().ino(), before);
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    let name = library.file_name().unwrap().to_str().unwrap();
    let mut came = 0;
    while let Ok(event) = events.next() {
        let harms = inotify::ReadFlags::MODIFY | inotify::ReadFlags::DELETE | inotify::ReadFlags::MOVED_FROM;
        if event.file_name().is_some_and(|of| of.to_str() == Ok(name)) {
            assert!(!event.events().intersects(harms), "{:?}", event.events());
            came += usize::from(event.events().contains(inotify::ReadFlags::MOVED_TO));
        }
    }
    assert_eq!(came, 1);
    running.signal(Signal::USR1);
    let finished = running.finish(PATIENCE);
    let said = "ready\nforked: whole, the old library\nbegun anew: whole, the new library\n\
                the first: whole, the old library\n";
    assert_eq!(finished.success(), said);
    assert_eq!(finished.complaint(), "");
    // Half of 16 MiB came back, in each of the three processes.
    let stats: serde_json::Value = serde_json::from_str(&fs::read_to_string(&stats).unwrap()).unwrap();
    assert!(stats["processes"].as_u64() >= Some(3), "{stats}");
    assert!(stats["pages_fetched"].as_u64() > Some(3 * 2048), "{stats}");
}

/// Whether a program has what only debuggers read.
fn has_debug_information(file: &Path) -> bool {
    let bytes = fs::read(file).unwrap();
    let parsed = object::File::parse(&*bytes).unwrap();
    parsed.sections().any(|section| section.name().is_ok_and(|name| name == ".debug_line"))
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
    assert!(has_debug_information(Path::new(env!("CARGO_BIN_EXE_spillway"))));
    for file in [&command, &to.join("lib/spillway/libspillway_preload.so")] {
        assert!(!has_debug_information(file), "{}", file.display());
    }
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
