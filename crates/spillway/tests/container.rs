//! What a container gets is enough: one device, no right, no system call userfaultfd(2). And what is said of
//! containers in packaging/container is so.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::geteuid;
use support::launch::Installation;
use support::tools::{c_program, tool};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn expect_success(what: &str, output: &Output) -> String {
    let said = text(&output.stdout);
    assert!(output.status.success(), "{what}: {}: {said}{}", output.status, text(&output.stderr));
    said
}

/// A script that makes a root of its own below `$ROOT` - programs, libraries, three devices, /proc, /tmp -
/// and runs what follows in it, as user 10001 without rights, in namespaces of its own.
const CONTAINED: &str = r#"
set -euo pipefail
mount -t tmpfs -o mode=755 tmpfs "$ROOT"
for directory in usr bin sbin lib lib64 etc; do
    [[ -e /$directory ]] || continue
    if [[ -L /$directory ]]; then cp --no-dereference "/$directory" "$ROOT/$directory"; continue; fi
    mkdir "$ROOT/$directory"
    mount --rbind "/$directory" "$ROOT/$directory"
done
mkdir "$ROOT"/{dev,proc,tmp,opt,sys}
chmod 1777 "$ROOT/tmp"
for device in null urandom; do
    touch "$ROOT/dev/$device"
    mount --bind "/dev/$device" "$ROOT/dev/$device"
done
# Of a group that the container's user is in, as the package's rule has it on the node.
mknod "$ROOT/dev/userfaultfd" c $((0x$(stat -c %t /dev/userfaultfd))) $((0x$(stat -c %T /dev/userfaultfd)))
chgrp "$GROUP" "$ROOT/dev/userfaultfd"
chmod 660 "$ROOT/dev/userfaultfd"
mount -t proc proc "$ROOT/proc"
mount --bind "$INSTALLED" "$ROOT/opt"
exec chroot "$ROOT" setpriv --reuid=10001 --regid=10001 --groups="$GROUP" --bounding-set=-all \
    --inh-caps=-all --no-new-privs env -i PATH=/usr/bin:/bin "$@"
"#;

/// Runs a command as in a container.
fn contained(arguments: &[&str]) -> Output {
    let installed = Installation::new();
    let root = tempfile::tempdir().unwrap();
    let mut command = Command::new(tool("unshare", "util-linux"));
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"]);
    command.args(["bash", "-c", CONTAINED, "contained"]).args(arguments);
    command.env("ROOT", root.path()).env("GROUP", "10777");
    command.env("INSTALLED", installed.command().parent().unwrap());
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_container_with_the_device_and_nothing_else_has_far_memory() {
    assert!(geteuid().is_root(), "only root makes containers: run this test as root");
    let said = expect_success("doctor", &contained(&["/opt/spillway", "doctor"]));
    assert!(said.starts_with("This machine can run programs on far memory"), "{said}");
    let sorting = "seq 300000 | rev >/tmp/lines && /opt/spillway run --local 8M --stats /tmp/stats -- \
                   sort --parallel=1 -S 64M -o /tmp/sorted /tmp/lines && sort --check /tmp/sorted && \
                   grep -o '\"local_bytes\":8388608' /tmp/stats && \
                   (grep -c '\"pages_fetched\":0,' /tmp/stats || true)";
    let said = expect_success("sort", &contained(&["bash", "-c", sorting]));
    assert_eq!(said, "\"local_bytes\":8388608\n0\n", "pages were fetched");
}

#[test]
fn the_system_call_may_be_forbidden_where_the_device_is_there() {
    assert!(geteuid().is_root(), "the device is root's: run this test as root");
    let forbid = c_program("forbid_call");
    let spillway = env!("CARGO_BIN_EXE_spillway");
    let run = |arguments: &[&str]| {
        Command::new(&forbid).arg(spillway).args(arguments).stdin(Stdio::null()).output().unwrap()
    };
    let said = expect_success("doctor", &run(&["doctor", "--all"]));
    assert!(said.starts_with("This machine can run programs on far memory"), "{said}");
    let python = "x = [str(i) for i in range(300000)]; print(x[7], x[-1])";
    for mode in ["thread", "inline"] {
        let arguments =
            ["run", "--local", "8M", "--fault-mode", mode, "--", "/usr/bin/python3", "-c", python];
        assert_eq!(expect_success(mode, &run(&arguments)), "7 299999\n");
    }
}

fn packaging(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join("packaging/container").join(name)).unwrap()
}

#[test]
fn the_image_and_the_pod_ask_for_no_more_than_is_needed() {
    let image = packaging("Containerfile");
    let user = image.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    assert_eq!(user, "10001:10001");
    assert!(image.contains("COPY spillway.deb") && !image.contains("ADD http"), "{image}");
    // The pod as a program reads it.
    let pod = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging/container/pod.yaml");
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let output = Command::new("/usr/bin/python3").args(["-c", script]).arg(&pod).output().unwrap();
    assert!(output.status.success(), "{}; apt-get install python3-yaml", text(&output.stderr));
    let pod: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (spec, container) = (&pod["spec"], &pod["spec"]["containers"][0]);
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let rights = &container["securityContext"];
    assert_eq!(
        (&rights["allowPrivilegeEscalation"], &rights["readOnlyRootFilesystem"]),
        (&false.into(), &true.into())
    );
    assert_eq!(rights["capabilities"], serde_json::json!({ "drop": ["ALL"] }));
    assert!(
        rights.get("privileged").is_none()
            && spec.get("hostPID").is_none()
            && spec.get("hostNetwork").is_none()
    );
    // Its command line is one that this command takes, but for the place of the metrics, which is the pod's.
    let arguments: Vec<&str> =
        container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let here: Vec<&str> =
        arguments.iter().map(|word| if *word == "0.0.0.0:9100" { "127.0.0.1:0" } else { word }).collect();
    let output =
        Command::new(env!("CARGO_BIN_EXE_spillway")).args(&here).stdin(Stdio::null()).output().unwrap();
    assert!(expect_success("the pod's command", &output).starts_with("sort (GNU coreutils)"));
    // Local and compressed memory fit under its limit, with a tenth to spare.
    let mib = |text: &str| text.trim_end_matches(['M', 'i', 'B']).parse::<f64>().unwrap();
    let local = mib(arguments[arguments.iter().position(|word| *word == "--local").unwrap() + 1]);
    let store = arguments.iter().find_map(|word| word.strip_prefix("compressed:?size=")).unwrap();
    assert_eq!(container["resources"]["limits"]["memory"], "1Gi");
    assert!((local + mib(store)) * 1.1 < 1024.0);
}
