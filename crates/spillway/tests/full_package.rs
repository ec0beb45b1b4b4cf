//! The package, on a clean Debian root: made, installed, tried and purged; and the container image that is
//! made of it. Needs root and Debian's packages.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::{Command, Output};
use std::sync::LazyLock;

/// What `make package` makes.
static PACKAGE: LazyLock<String> = LazyLock::new(|| {
    assert!(rustix::process::getuid().is_root(), "only root installs packages: run this test as root");
    let made = run("make", &["--no-print-directory", "package"]);
    let text = String::from_utf8(made.stdout).unwrap();
    text.lines().rfind(|line| line.ends_with(".deb")).expect("make names the package").to_owned()
});

/// Runs a command in the repository, whose end must be a good one.
fn run(program: &str, arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(program).args(arguments).current_dir(root).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{out}\n{err}", output.status);
    output
}

#[test]
fn the_package_installs_runs_and_purges_on_a_clean_debian() {
    let tried = String::from_utf8(run("scripts/try-package", &[&PACKAGE]).stdout).unwrap();
    let typed = ["Typing what README.md shows", "\n3000000 2999999\n"];
    let tried_otherwise = ["can run programs on far memory", "found what it wrote", "Nothing is left."];
    for said in tried_otherwise.into_iter().chain(typed) {
        assert!(tried.contains(said), "{said}: {tried}");
    }
}

#[test]
fn the_image_is_built_and_runs_programs_with_the_device_alone() {
    let tried = String::from_utf8(run("scripts/try-image", &[&PACKAGE]).stdout).unwrap();
    for said in ["can run programs on far memory", "sorted as user 10001"] {
        assert!(tried.contains(said), "{said}: {tried}");
    }
}
