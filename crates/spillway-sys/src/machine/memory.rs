//! The memory system: system calls that the pager uses, limits, and settings that change how it fares.

use std::path::Path;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::process::{Resource, getrlimit};

use super::check::{Check, as_root, has_capability, print_bytes, read_value};

const CAP_IPC_LOCK: u32 = 14;

/// Below this a program with many mappings can run out of them, because managed ranges split mappings.
const MAP_COUNT_WANTED: u64 = 65_530;
/// Descriptors that the pager, its stores and the program's own files may want together.
const FILES_WANTED: u64 = 1024;
/// Enough for the pager's own memory of a program of several GiB.
const MEMLOCK_WANTED_BYTES: u64 = 64 << 20;
/// With less than this free, hardly any local limit can be held.
const AVAILABLE_WANTED_BYTES: u64 = 256 << 20;

/// System calls, limits, settings and the memory itself.
pub(super) fn checks() -> Vec<Check> {
    vec![
        pagemap_scan(),
        process_madvise(),
        file_limit(),
        memlock_limit(),
        map_count(),
        overcommit(),
        huge_pages(),
        memory(),
        swap(),
        control_group(),
    ]
}

fn pagemap_scan() -> Check {
    const NAME: &str = "pagemap-scan";
    match scan_nothing() {
        Ok(()) => Check::ok(NAME, "yes", "written pages can be found by range"),
        Err(error) => Check::warn(NAME, error.to_string(), "written pages cannot be found by range"),
    }
}

/// `struct pm_scan_arg` of Linux `include/uapi/linux/fs.h` (6.7).
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    bytes: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    region_count: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any_of_mask: u64,
    return_mask: u64,
}

const PAGEMAP_SCAN: Opcode = 0xC060_6610;
const _: () = assert!(PAGEMAP_SCAN == opcode::read_write::<ScanArgument>(b'f', 16));

/// Scans an empty range, which tells whether the request is known.
fn scan_nothing() -> rustix::io::Result<()> {
    let pagemap = std::fs::File::open("/proc/self/pagemap")
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let mut argument = ScanArgument { bytes: size_of::<ScanArgument>() as u64, ..ScanArgument::default() };
    // SAFETY: the opcode takes exactly this structure; an empty range and no regions write nothing else.
    unsafe { ioctl(&pagemap, Updater::<PAGEMAP_SCAN, _>::new(&mut argument)) }
}

fn process_madvise() -> Check {
    const NAME: &str = "process-madvise";
    match advise_nothing() {
        Ok(()) => Check::ok(NAME, "yes", "scattered pages can be dropped in one call"),
        Err(error) => Check::warn(NAME, error.to_string(), "scattered pages are dropped one call each"),
    }
}

/// Gives advice on no ranges at all, which tells whether this process may drop pages of its own that way.
fn advise_nothing() -> std::io::Result<()> {
    let this = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())?;
    let no_ranges = std::ptr::null::<libc::iovec>();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&this);
    // SAFETY: with a count of 0 no range is read or changed.
    let result = unsafe {
        libc::syscall(libc::SYS_process_madvise, fd, no_ranges, 0_usize, libc::MADV_DONTNEED, 0_u32)
    };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

fn file_limit() -> Check {
    const NAME: &str = "open-files";
    let soft = getrlimit(Resource::Nofile).current;
    let found = soft.map_or("unlimited".into(), |count| format!("limit {count}"));
    if soft.is_none_or(|count| count >= FILES_WANTED) {
        Check::ok(NAME, found, "room for the program and its stores")
    } else {
        Check::warn(NAME, found, "a program with many files may run out of them")
            .mended_by_hand(format!("ulimit -n {FILES_WANTED}"), "in your shell")
    }
}

fn memlock_limit() -> Check {
    const NAME: &str = "memlock";
    let soft = getrlimit(Resource::Memlock).current;
    let found = soft.map_or("unlimited".into(), |bytes| format!("limit {}", print_bytes(bytes)));
    if soft.is_none_or(|bytes| bytes >= MEMLOCK_WANTED_BYTES) || has_capability(CAP_IPC_LOCK) {
        Check::ok(NAME, found, "pager memory can be locked")
    } else {
        Check::warn(NAME, found, "the kernel may swap out the pager's own memory")
            .mended_by_hand(as_root("prlimit --memlock=unlimited --pid $$"), "in your shell")
    }
}

fn map_count() -> Check {
    const NAME: &str = "max-map-count";
    match read_value::<u64>("/proc/sys/vm/max_map_count") {
        Some(count) if count >= MAP_COUNT_WANTED => {
            Check::ok(NAME, count.to_string(), "managed ranges may split mappings")
        }
        Some(count) => {
            Check::warn(NAME, count.to_string(), "a program with many mappings may run out of them")
                .mended_by(as_root("sysctl -w vm.max_map_count=262144"), "until the next boot")
        }
        None => Check::warn(NAME, "unknown", "/proc/sys cannot be read"),
    }
}

fn overcommit() -> Check {
    const NAME: &str = "overcommit";
    match read_value::<u32>("/proc/sys/vm/overcommit_memory") {
        Some(0) => Check::ok(NAME, "mode 0", "one allocation may not exceed memory"),
        Some(1) => Check::ok(NAME, "mode 1", "allocations of any size are granted"),
        Some(2) => Check::warn(NAME, "mode 2", "far memory counts against the machine's own")
            .mended_by(as_root("sysctl -w vm.overcommit_memory=1"), "until the next boot"),
        _ => Check::warn(NAME, "unknown", "/proc/sys cannot be read"),
    }
}

fn huge_pages() -> Check {
    const NAME: &str = "huge-pages";
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    match setting.ok().as_deref().and_then(chosen) {
        Some(mode) => Check::ok(NAME, mode, "managed memory is split into 4 KiB pages"),
        None => Check::ok(NAME, "not built in", "managed memory has 4 KiB pages"),
    }
}

/// The word in brackets of a setting such as `always [madvise] never`.
fn chosen(setting: &str) -> Option<&str> {
    setting.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

fn memory() -> Check {
    const NAME: &str = "memory";
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (Some(total), Some(available)) =
        (meminfo_bytes(&info, "MemTotal:"), meminfo_bytes(&info, "MemAvailable:"))
    else {
        return Check::warn(NAME, "unknown", "/proc/meminfo cannot be read");
    };
    let found = format!("{} of {} available", print_bytes(available), print_bytes(total));
    if available >= AVAILABLE_WANTED_BYTES {
        Check::ok(NAME, found, "for local limits")
    } else {
        Check::warn(NAME, found, "little room for local memory: keep the rest elsewhere, on file: or nbd:")
    }
}

/// A field of `/proc/meminfo`, which counts in KiB.
fn meminfo_bytes(info: &str, field: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

fn swap() -> Check {
    const NAME: &str = "swap";
    let table = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    match swap_devices(&table).as_slice() {
        [] => Check::ok(NAME, "none", "only Spillway takes pages away"),
        devices => Check::warn(NAME, devices.join(", "), "the kernel may swap out what Spillway keeps local")
            .mended_by_hand(as_root("swapoff -a"), "if what is swapped out fits in memory"),
    }
}

/// The devices and files in `/proc/swaps`.
fn swap_devices(table: &str) -> Vec<&str> {
    table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect()
}

fn control_group() -> Check {
    const NAME: &str = "memory-cgroup";
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some((version, path)) = memory_group(&membership) else {
        return Check::ok(NAME, "none", "no limit but the machine's");
    };
    match group_limit_bytes(Path::new("/"), version, path) {
        Some(limit) => Check::ok(
            NAME,
            format!("version {version}, limit {}", print_bytes(limit)),
            "local memory and compressed stores share it",
        ),
        None => Check::ok(NAME, format!("version {version}, no limit"), "all memory may be used"),
    }
}

/// The memory that this process may use, in bytes: the machine's, or what its control group or one above it
/// may have where that is less. None where `/proc` does not say.
#[must_use]
pub fn usable_memory_bytes() -> Option<u64> {
    usable_memory_bytes_of(Path::new("/"))
}

fn usable_memory_bytes_of(root: &Path) -> Option<u64> {
    let info = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let total = meminfo_bytes(&info, "MemTotal:")?;
    let membership = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limit = memory_group(&membership).and_then(|(version, path)| group_limit_bytes(root, version, path));
    Some(limit.map_or(total, |limit| limit.min(total)))
}

/// The least limit of the control group and those above it.
fn group_limit_bytes(root: &Path, version: u32, path: &str) -> Option<u64> {
    let (hierarchy, file) = match version {
        1 => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => ("sys/fs/cgroup", "memory.max"),
    };
    let groups = Path::new(path.trim_start_matches('/')).ancestors();
    let files = groups.map(|group| root.join(hierarchy).join(group).join(file));
    // Version 1 writes "no limit" as a number close to 2^63, version 2 as a word.
    files.filter_map(|file| read_value::<u64>(&file)).filter(|bytes| *bytes < 1 << 60).min()
}

/// Version of the memory control group, and this process's path in it, from `/proc/self/cgroup`.
pub(super) fn memory_group(membership: &str) -> Option<(u32, &str)> {
    let entries = || membership.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let first = entries().find(|(names, _)| names.split(',').any(|name| name == "memory"));
    let unified = || entries().find(|(names, _)| names.is_empty());
    let (version, path) = match first {
        Some((_, path)) => (1, path),
        None => (2, unified()?.1),
    };
    Some((version, path.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("always"), None);
    }

    #[test]
    fn meminfo_counts_kib() {
        let info = "MemTotal:       24689344 kB\nMemAvailable:        512 kB\n";
        assert_eq!(meminfo_bytes(info, "MemAvailable:"), Some(512 << 10));
        assert_eq!(meminfo_bytes(info, "SwapTotal:"), None);
    }

    #[test]
    fn swap_devices_are_named() {
        let table = "Filename Type Size Used Priority\n/dev/sda2 partition 8 0 -2\n/swap file 8 0 -3\n";
        assert_eq!(swap_devices(table), ["/dev/sda2", "/swap"]);
        assert!(swap_devices("Filename Type Size Used Priority\n").is_empty());
    }

    #[test]
    fn the_usable_memory_is_the_machines_or_a_control_groups() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(usable_memory_bytes_of(root.path()), None);
        write("proc/meminfo", "MemTotal:       1048576 kB\n");
        assert_eq!(usable_memory_bytes_of(root.path()), Some(1 << 30));
        write("proc/self/cgroup", "0::/jobs/7\n");
        write("sys/fs/cgroup/jobs/7/memory.max", "max\n");
        assert_eq!(usable_memory_bytes_of(root.path()), Some(1 << 30));
        // Of the group above.
        write("sys/fs/cgroup/jobs/memory.max", "268435456\n");
        assert_eq!(usable_memory_bytes_of(root.path()), Some(256 << 20));
        write("sys/fs/cgroup/jobs/7/memory.max", "134217728\n");
        assert_eq!(usable_memory_bytes_of(root.path()), Some(128 << 20));
        write("proc/self/cgroup", "4:memory:/old\n0::/jobs/7\n");
        write("sys/fs/cgroup/memory/old/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(usable_memory_bytes_of(root.path()), Some(1 << 30));
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n");
        assert_eq!(usable_memory_bytes_of(root.path()), Some(1 << 30));
    }

    #[test]
    fn both_versions_of_control_groups_are_told_apart() {
        let first = "9:memory:/jobs/7\n8:cpu,cpuacct:/\n0::/unified\n";
        assert_eq!(memory_group(first), Some((1, "/jobs/7")));
        assert_eq!(memory_group("0::/user.slice\n"), Some((2, "/user.slice")));
        assert_eq!(memory_group("0::/\n"), Some((2, "")));
        assert_eq!(memory_group(""), None);
    }
}
