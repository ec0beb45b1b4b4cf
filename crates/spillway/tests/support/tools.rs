//! Programs that the tests run: other people's, and our own in C and other languages.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of a program that the tests need. Fails with the command that installs it.
pub fn tool(name: &str, package: &str) -> PathBuf {
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search_path)
        .chain(["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("'{name}' is missing; install it: apt-get install {package}"))
}

/// Debian's Python, which is the one that Debian's numpy belongs to.
pub fn python() -> PathBuf {
    let python = PathBuf::from("/usr/bin/python3");
    assert!(python.is_file(), "'{}' is missing; install it: apt-get install python3", python.display());
    python
}

/// Where PostgreSQL's programs lie.
pub fn postgres_directory() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let directories = versions.map(|version| version.path().join("bin"));
    let found = directories.filter(|directory| directory.join("pgbench").is_file()).max();
    found.expect("PostgreSQL is missing; install it: apt-get install postgresql")
}

/// A source under `tests/programs`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs").join(name)
}

/// The C program of this name, built with `flags`. Built once for all tests.
pub fn c_program_with(name: &str, flags: &[&str]) -> PathBuf {
    compiled(name, &tool("cc", "gcc"), flags)
}

/// The C program of this name, linked with musl in place of glibc.
pub fn musl_program(name: &str) -> PathBuf {
    compiled(name, &tool("musl-gcc", "musl-tools"), &[])
}

fn compiled(name: &str, compiler: &Path, flags: &[&str]) -> PathBuf {
    let source = source(&format!("{name}.c"));
    let mut hasher = DefaultHasher::new();
    let headers = ["pattern.h", "guest.h"].map(|name| fs::read(source.with_file_name(name)).unwrap());
    (fs::read(&source).unwrap(), headers, flags, compiler).hash(&mut hasher);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{:016x}", hasher.finish()));
    if program.exists() {
        return program;
    }
    // Other tests may be building the same: each under a name of its own, and the last one stays.
    let own = program.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
    let output = Command::new(compiler)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&own)
        .arg(&source)
        .args(flags)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
    fs::rename(&own, &program).unwrap();
    program
}

/// The C program of this name.
pub fn c_program(name: &str) -> PathBuf {
    c_program_with(name, &[])
}

/// Compiles a Java class under `tests/programs` into `directory`, with the compiler that is in every JRE of
/// Debian's.
pub fn java_class(name: &str, directory: &Path) -> PathBuf {
    let java = tool("java", "default-jre-headless");
    let output = Command::new(&java)
        .args(["-m", "jdk.compiler/com.sun.tools.javac.Main", "-d"])
        .arg(directory)
        .arg(source(&format!("{name}.java")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}.java: {}", String::from_utf8_lossy(&output.stderr));
    java
}
