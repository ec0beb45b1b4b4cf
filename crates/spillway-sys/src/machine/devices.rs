//! What stands around the memory: nodes, networks, disks, and Spillway's own library.

use std::path::{Path, PathBuf};

use super::check::{Check, Purpose, as_root, read_value};

const LIBRARY: &str = "libspillway_preload.so";

/// Nodes, RDMA, UCX, io_uring and the library.
pub(super) fn checks() -> Vec<Check> {
    vec![nodes(), rdma(), ucx(), io_uring(), preload_check()]
}

/// The library that enters a program: beside this executable, or in `../lib/spillway` where it is installed.
#[must_use]
pub fn preload_library() -> Option<PathBuf> {
    let executable = std::fs::read_link("/proc/self/exe").ok()?;
    preload_library_of(&executable)
}

fn preload_library_of(executable: &Path) -> Option<PathBuf> {
    let directory = executable.parent()?;
    [directory.join(LIBRARY), directory.join("../lib/spillway").join(LIBRARY)]
        .into_iter()
        .find(|path| path.is_file())
}

pub(super) fn preload_check() -> Check {
    const NAME: &str = "preload-library";
    match preload_library() {
        Some(path) => Check::ok(NAME, path.display().to_string(), "enters the program that runs"),
        None => Check::missing(
            NAME,
            format!("no {LIBRARY}"),
            "it belongs beside this command or in ../lib/spillway",
        )
        .mended_by_hand(
            "cargo build --release --workspace",
            "in Spillway's sources; or install its package anew",
        ),
    }
    .essential()
}

fn nodes() -> Check {
    const NAME: &str = "numa-nodes";
    let nodes = list("/sys/devices/system/node")
        .into_iter()
        .filter(|name| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok()))
        .map(|name| (cpu_less(&name), name))
        .collect::<Vec<_>>();
    let without =
        nodes.iter().filter(|(cpu_less, _)| *cpu_less).map(|(_, name)| name.as_str()).collect::<Vec<_>>();
    let count = nodes.len().max(1);
    if without.is_empty() {
        Check::ok(NAME, format!("{count}, each with CPUs"), "no memory-only node (CXL)")
    } else {
        Check::ok(NAME, format!("{count}, without CPUs: {}", without.join(", ")), "slower memory in reach")
    }
    .for_purpose(Purpose::Tier)
}

/// A node that is memory only, as CXL memory is: its list of CPUs is empty.
fn cpu_less(node: &str) -> bool {
    std::fs::read_to_string(format!("/sys/devices/system/node/{node}/cpulist"))
        .is_ok_and(|cpus| cpus.trim().is_empty())
}

fn rdma() -> Check {
    const NAME: &str = "rdma";
    match list("/sys/class/infiniband") {
        devices if devices.is_empty() => Check::absent(NAME, "no device", "donors are reached over TCP"),
        devices => Check::ok(NAME, devices.join(", "), "not used yet: donors are reached over TCP"),
    }
    .for_purpose(Purpose::Nothing)
}

fn ucx() -> Check {
    const NAME: &str = "ucx";
    const DIRECTORIES: [&str; 4] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];
    let found =
        DIRECTORIES.iter().map(|dir| format!("{dir}/libucp.so.0")).find(|path| Path::new(path).exists());
    match found {
        Some(path) => Check::ok(NAME, path, "only RDMA wants it"),
        None => Check::absent(NAME, "no libucp.so.0", "only RDMA wants it"),
    }
    .for_purpose(Purpose::Nothing)
}

fn io_uring() -> Check {
    const NAME: &str = "io-uring";
    let setting = read_value::<u32>("/proc/sys/kernel/io_uring_disabled").unwrap_or(0);
    match uring_refusal().raw_os_error() {
        // The kernel looked at the arguments, so it would have granted good ones.
        Some(libc::EFAULT | libc::EINVAL) => Check::ok(NAME, "yes", "file: stores can be used"),
        Some(libc::ENOSYS) => {
            Check::warn(NAME, "absent", "file: stores cannot be used: the kernel lacks CONFIG_IO_URING")
        }
        _ if setting > 0 => {
            Check::warn(NAME, format!("io_uring_disabled={setting}"), "file: stores cannot be used")
                .mended_by(as_root("sysctl -w kernel.io_uring_disabled=0"), "until the next boot")
        }
        _ => Check::warn(NAME, "forbidden", "file: stores cannot be used: a seccomp filter forbids it")
            .mended_by_hand("docker run --security-opt seccomp=unconfined ...", "in a container"),
    }
}

/// Asks for an impossible ring; how that is refused tells whether a possible one would be granted.
fn uring_refusal() -> std::io::Error {
    let no_parameters = std::ptr::null_mut::<u8>();
    // SAFETY: the kernel reads no memory through a null pointer and answers EFAULT.
    let _ = unsafe { libc::syscall(libc::SYS_io_uring_setup, 0_u32, no_parameters) };
    std::io::Error::last_os_error()
}

/// Names in a directory, sorted; none where it cannot be read.
fn list(directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_beside_the_command_or_installed() {
        let root = tempfile::tempdir().unwrap();
        let executable = root.path().join("bin/spillway");
        assert_eq!(preload_library_of(&executable), None);
        let installed = root.path().join("lib/spillway");
        std::fs::create_dir_all(root.path().join("bin")).unwrap();
        std::fs::create_dir_all(&installed).unwrap();
        std::fs::write(installed.join(LIBRARY), "").unwrap();
        let found = preload_library_of(&executable).unwrap().canonicalize().unwrap();
        assert_eq!(found, installed.join(LIBRARY).canonicalize().unwrap());
        std::fs::write(root.path().join("bin").join(LIBRARY), "").unwrap();
        assert_eq!(preload_library_of(&executable), Some(root.path().join("bin").join(LIBRARY)));
    }
}
