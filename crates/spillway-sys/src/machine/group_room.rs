//! How much memory the control group of this process may still take.

use std::fs;
use std::path::{Path, PathBuf};

use super::memory::memory_group;

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// A control group that limits memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRoom {
    /// The file that holds the limit.
    pub limit_file: PathBuf,
    /// The limit, in bytes.
    pub limit_bytes: u64,
    /// What is left of it, in bytes: what its processes hold and could not be made to give up is gone.
    pub room_bytes: u64,
}

/// The control group with the least room, of this process's own and all above it; `None` where none has a
/// limit.
#[must_use]
pub fn group_room() -> Option<GroupRoom> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    least_room(Path::new(MOUNT), &membership)
}

/// The names that the two versions of control groups have for the same things.
struct Names {
    limit: &'static str,
    used: &'static str,
    /// The field of `memory.stat` that counts what can be had back at once.
    reclaimable: &'static str,
}

const FIRST: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};
const SECOND: Names = Names { limit: "memory.max", used: "memory.current", reclaimable: "inactive_file" };

fn least_room(mount: &Path, membership: &str) -> Option<GroupRoom> {
    let (version, path) = memory_group(membership)?;
    let (root, names) = match version {
        1 => (mount.join("memory"), FIRST),
        _ => (mount.to_owned(), SECOND),
    };
    // In a container the path may be that of the machine, while the mount shows only the part below.
    let own = root.join(path.trim_start_matches('/'));
    let own = if own.join("memory.stat").exists() { own } else { root.clone() };
    own.ancestors()
        .take_while(|directory| directory.starts_with(&root))
        .filter_map(|directory| room_of(directory, &names))
        .min_by_key(|group| group.room_bytes)
}

fn room_of(directory: &Path, names: &Names) -> Option<GroupRoom> {
    let number = |name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit_file = directory.join(names.limit);
    // Version 1 writes "no limit" as a number close to 2^63, version 2 as a word.
    let limit_bytes = number(names.limit).filter(|bytes| *bytes < 1 << 60)?;
    let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let reclaimable = stat.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == names.reclaimable).then(|| value.trim().parse::<u64>().ok())?
    });
    let used_bytes = number(names.used)?.saturating_sub(reclaimable.unwrap_or(0));
    Some(GroupRoom { limit_file, limit_bytes, room_bytes: limit_bytes.saturating_sub(used_bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(directory: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(directory).unwrap();
        for (name, text) in files {
            fs::write(directory.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_tightest_group_above_counts_and_files_in_cache_do_not() {
        let mount = tempfile::tempdir().unwrap();
        let slice = mount.path().join("user.slice");
        group(
            &slice,
            &[
                ("memory.max", "1000\n"),
                ("memory.current", "900\n"),
                ("memory.stat", "anon 700\ninactive_file 200\n"),
            ],
        );
        let own = slice.join("donor");
        group(
            &own,
            &[("memory.max", "500\n"), ("memory.current", "50\n"), ("memory.stat", "inactive_file 0\n")],
        );
        let room = least_room(mount.path(), "0::/user.slice/donor\n").unwrap();
        let expected = GroupRoom { limit_file: slice.join("memory.max"), limit_bytes: 1000, room_bytes: 300 };
        assert_eq!(room, expected);
        fs::write(slice.join("memory.max"), "max\n").unwrap();
        assert_eq!(least_room(mount.path(), "0::/user.slice/donor\n").unwrap().room_bytes, 450);
        fs::write(own.join("memory.max"), "max\n").unwrap();
        assert_eq!(least_room(mount.path(), "0::/user.slice/donor\n"), None);
    }

    #[test]
    fn the_first_version_has_other_names_and_a_container_sees_its_own_part() {
        let mount = tempfile::tempdir().unwrap();
        let files = [
            ("memory.limit_in_bytes", "104857600\n"),
            ("memory.usage_in_bytes", "4857600\n"),
            ("memory.stat", "cache 1\ntotal_inactive_file 857600\n"),
        ];
        group(&mount.path().join("memory/jobs/7"), &files);
        let membership = "9:memory:/jobs/7\n0::/\n";
        assert_eq!(least_room(mount.path(), membership).unwrap().room_bytes, 104_857_600 - 4_000_000);
        group(&mount.path().join("memory"), &files);
        assert_eq!(
            least_room(mount.path(), "9:memory:/of/the/machine\n").unwrap().limit_file,
            mount.path().join("memory/memory.limit_in_bytes")
        );
        assert_eq!(least_room(mount.path(), ""), None);
    }
}
