//! Can page faults be taken over here: the kernel, userfaultfd, its features, and who may use it.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mm::UserfaultfdFlags;

use super::check::{Check, Purpose, Status, as_root, has_capability, read_value};
use crate::uffd::{self, Features};

/// First kernel with `UFFDIO_MOVE`, the youngest feature that the pager stands on.
const KERNEL_NEEDED: (u32, u32) = (6, 8);

const KERNEL_REMEDY: &str = "sudo apt-get install -t bookworm-backports linux-image-amd64 && sudo reboot";
const CONTAINER_REMEDY: &str = "docker run --device /dev/userfaultfd ...";
/// The group whose members may use [`DEVICE`], by the rule that comes with the package.
const GROUP: &str = "spillway";
const DEVICE: &str = "/dev/userfaultfd";
const CAP_SYS_PTRACE: u32 = 19;

/// `UFFD_USER_MODE_ONLY`: a descriptor that serves no fault raised inside the kernel, which anyone may have.
const USER_MODE_ONLY: UserfaultfdFlags = UserfaultfdFlags::from_bits_retain(1);

/// What a feature bit is to Spillway.
struct FeatureUse {
    bit: Features,
    name: &'static str,
    essential: bool,
    present: &'static str,
    absent: &'static str,
}

/// A feature without which the pager cannot work.
const fn needed(
    bit: Features,
    name: &'static str,
    present: &'static str,
    absent: &'static str,
) -> FeatureUse {
    FeatureUse { bit, name, essential: true, present, absent }
}

/// A feature that something gains by.
const fn useful(
    bit: Features,
    name: &'static str,
    present: &'static str,
    absent: &'static str,
) -> FeatureUse {
    FeatureUse { bit, name, essential: false, present, absent }
}

/// A feature that changes nothing.
const fn unneeded(bit: Features, name: &'static str, why: &'static str) -> FeatureUse {
    FeatureUse { bit, name, essential: false, present: why, absent: why }
}

#[rustfmt::skip]
const FEATURES: [FeatureUse; 19] = [
    needed(Features::PAGEFAULT_FLAG_WP, "uffd-wp",
        "writes to a page on its way out are seen", "writes to a page on its way out would be lost"),
    needed(Features::MOVE, "uffd-move",
        "pages enter and leave the program uncopied", "pages cannot be taken out of a program safely"),
    needed(Features::POISON, "uffd-poison",
        "a page that is lost gives SIGBUS, never zeros", "a page that is lost could not be reported"),
    useful(Features::THREAD_ID, "uffd-thread-id",
        "a fault names the thread that waits", "a fault does not name the thread that waits"),
    useful(Features::SIGBUS, "uffd-sigbus",
        "faults can be served in the faulting thread", "faults can be served by another thread only"),
    useful(Features::WP_ASYNC, "uffd-wp-async",
        "written pages can be found without a fault", "written pages can be found by faults only"),
    useful(Features::WP_UNPOPULATED, "uffd-wp-unpopulated",
        "absent pages can be write-protected", "absent pages cannot be write-protected"),
    unneeded(Features::READ_WRITE_PROTECT, "uffd-rwp",
        "not used: a range has this or uffd-wp, which the pager needs"),
    unneeded(Features::READ_WRITE_PROTECT_ASYNC, "uffd-rwp-async",
        "not used: what is in use is read from accessed bits"),
    unneeded(Features::EXACT_ADDRESS, "uffd-exact-address", "not needed: the page is known anyway"),
    unneeded(Features::EVENT_FORK, "uffd-event-fork", "not needed: hooks see fork"),
    unneeded(Features::EVENT_REMAP, "uffd-event-remap", "not needed: hooks see mremap"),
    unneeded(Features::EVENT_REMOVE, "uffd-event-remove", "not needed: hooks see madvise"),
    unneeded(Features::EVENT_UNMAP, "uffd-event-unmap", "not needed: hooks see munmap"),
    unneeded(Features::MISSING_SHMEM, "uffd-missing-shmem", "not needed: shared memory is left alone"),
    unneeded(Features::MINOR_SHMEM, "uffd-minor-shmem", "not needed: shared memory is left alone"),
    unneeded(Features::WP_HUGETLBFS_SHMEM, "uffd-wp-shmem", "not needed: shared memory is left alone"),
    unneeded(Features::MISSING_HUGETLBFS, "uffd-missing-hugetlb", "not needed: huge page files are left \
                                                                   alone"),
    unneeded(Features::MINOR_HUGETLBFS, "uffd-minor-hugetlb", "not needed: huge page files are left alone"),
];

/// The kernel, userfaultfd, the permission, and each feature.
pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![kernel()];
    match features() {
        Ok((features, way)) => {
            checks.push(Check::ok("userfaultfd", way, "page faults can be taken over").essential());
            checks.push(permission());
            checks.extend(FEATURES.iter().map(|known| feature(known, features)));
        }
        Err(error) => checks.push(no_userfaultfd(error)),
    }
    checks
}

/// What the kernel can do, and how it is to be had. The user-mode-only descriptor tells even those who may
/// not handle the kernel's faults; where a container forbids that system call, the device tells too.
fn features() -> Result<(Features, &'static str)> {
    let by_call = open_user_mode_only().map(|fd| {
        let features = uffd::handshake(&fd, 0).map_or(Features::empty(), Features::from_bits_truncate);
        (features, "present")
    });
    by_call.or_else(|error| {
        let device = open_device().map_err(|_| error)?;
        uffd::supported_features(Some(device.as_fd()))
            .map(|found| (found, "present, by the device"))
            .map_err(|_| error)
    })
}

fn kernel() -> Check {
    const NAME: &str = "kernel";
    let Some(release) = read_value::<String>("/proc/sys/kernel/osrelease") else {
        return Check::warn(NAME, "unknown", "/proc is not mounted, which Spillway needs")
            .mended_by(as_root("mount -t proc proc /proc"), "");
    };
    match parse_release(&release) {
        Some(version) if version >= KERNEL_NEEDED => Check::ok(NAME, release, "6.8 or later is needed"),
        // The features decide, because a vendor may have carried them to an older kernel.
        _ => {
            Check::warn(NAME, release, "6.8 or later is needed").mended_by_hand(KERNEL_REMEDY, "on Debian 12")
        }
    }
}

/// Major and minor number of a kernel release such as `6.18.44-amd64`.
fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn open_user_mode_only() -> Result<OwnedFd> {
    // SAFETY: makes a new descriptor and touches no memory.
    unsafe { rustix::mm::userfaultfd(UserfaultfdFlags::CLOEXEC | USER_MODE_ONLY) }
}

fn no_userfaultfd(error: Errno) -> Check {
    const NAME: &str = "userfaultfd";
    match error {
        Errno::NOSYS => Check::missing(NAME, "absent", "the kernel was built without CONFIG_USERFAULTFD")
            .mended_by_hand(KERNEL_REMEDY, "on Debian 12"),
        Errno::PERM | Errno::ACCESS => {
            Check::missing(NAME, "forbidden", "a seccomp filter, such as a container's, forbids it")
                .mended_by_hand(CONTAINER_REMEDY, "in a container")
        }
        error => Check::missing(NAME, error.to_string(), "page faults cannot be taken over"),
    }
    .essential()
}

/// Whether faults that the kernel raises for a program, as in read(2), can be handled too, and by which
/// right.
fn permission() -> Check {
    let device = open_device();
    let by_call = uffd::supported_features(None);
    let by_device = match &device {
        Ok(fd) => uffd::supported_features(Some(fd.as_fd())),
        Err(error) => Err(*error),
    };
    let privileged = has_capability(CAP_SYS_PTRACE) || !allowed_to_all();
    let held = [
        (by_call.is_ok() && privileged, "CAP_SYS_PTRACE"),
        (by_call.is_ok() && allowed_to_all(), "vm.unprivileged_userfaultfd=1"),
        (by_device.is_ok(), DEVICE),
    ];
    permission_check(&held, &Device::find(), has_group(GROUP))
}

/// What an ordinary user sees of [`DEVICE`].
#[derive(Debug, PartialEq, Eq)]
enum Device {
    /// There is no such device.
    None,
    /// There is one, with these owner, group and mode.
    Guarded { user: u32, group: u32, mode: u32 },
}

impl Device {
    fn find() -> Self {
        match std::fs::metadata(DEVICE) {
            Ok(found) => Self::Guarded { user: found.uid(), group: found.gid(), mode: found.mode() & 0o777 },
            Err(_) => Self::None,
        }
    }

    /// Why it gives no right.
    fn lack(&self) -> String {
        match self {
            Self::None => format!("no {DEVICE}"),
            Self::Guarded { user: 0, group: 0, mode } => format!("{DEVICE} is root's (mode {mode:o})"),
            Self::Guarded { user, group, mode } => {
                format!("{DEVICE} is user {user}'s and group {group}'s (mode {mode:o})")
            }
        }
    }
}

/// Whether this machine has a group of that name.
fn has_group(name: &str) -> bool {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    groups.lines().any(|line| line.split(':').next() == Some(name))
}

fn permission_check(rights: &[(bool, &str)], device: &Device, has_group: bool) -> Check {
    const NAME: &str = "uffd-permission";
    let held: Vec<_> = rights.iter().filter(|(held, _)| *held).map(|(_, name)| *name).collect();
    if !held.is_empty() {
        let found = format!("by {}", held.join(", "));
        return Check::ok(NAME, found, "the kernel's own faults are served too").essential();
    }
    let lacks = rights.iter().filter(|(_, name)| *name != DEVICE).map(|(_, name)| format!("no {name}"));
    let found = format!("refused: {}, {}", lacks.collect::<Vec<_>>().join(", "), device.lack());
    let check = Check::missing(NAME, found, "the kernel's own faults cannot be served").essential();
    with_permission_remedies(check, device, has_group)
}

/// The ways to the permission: those for one user or group before that for all users.
fn with_permission_remedies(mut check: Check, device: &Device, has_group: bool) -> Check {
    let join = as_root(&format!("usermod --append --groups {GROUP} \"$(id -un)\""));
    if *device != Device::None {
        if has_group {
            check = check.mended_by(join.clone(), "for you, from your next login on");
        }
        let hand_over =
            [as_root(&format!("chgrp \"$(id -gn)\" {DEVICE}")), as_root(&format!("chmod 660 {DEVICE}"))];
        check = check.mended_by(hand_over.join(" && "), "for users of your group, until the next boot");
        if !has_group {
            let rule = format!("echo 'KERNEL==\"userfaultfd\", GROUP=\"{GROUP}\", MODE=\"0660\"'");
            let steps = [
                as_root(&format!("groupadd --system --force {GROUP}")),
                join,
                format!("{rule} | {}", as_root("tee /etc/udev/rules.d/60-spillway.rules")),
                as_root("udevadm control --reload"),
                as_root("udevadm trigger --name-match=userfaultfd"),
            ];
            check =
                check.mended_by(steps.join(" && "), "for members of a new group, from your next login on");
        }
    }
    let for_all = as_root("sysctl -w vm.unprivileged_userfaultfd=1");
    check.mended_by(for_all, "for every user of this machine, until the next boot")
}

fn open_device() -> Result<OwnedFd> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

fn allowed_to_all() -> bool {
    read_value::<u32>("/proc/sys/vm/unprivileged_userfaultfd") == Some(1)
}

fn feature(known: &FeatureUse, features: Features) -> Check {
    let FeatureUse { bit, name, essential, present, absent } = *known;
    let check = if features.contains(bit) {
        Check::ok(name, "yes", present)
    } else if essential {
        Check::missing(name, "no", absent).mended_by_hand(KERNEL_REMEDY, "on Debian 12")
    } else if present == absent {
        Check::new(name, Status::Absent, "no", absent)
    } else {
        Check::warn(name, "no", absent)
    };
    let check = if present == absent { check.for_purpose(Purpose::Nothing) } else { check };
    if essential { check.essential() } else { check }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_parsed() {
        assert_eq!(parse_release("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(parse_release("6.1.0-37-amd64"), Some((6, 1)));
        assert_eq!(parse_release("7.0"), Some((7, 0)));
        assert_eq!(parse_release("six"), None);
        assert!((6, 7) < KERNEL_NEEDED && (6, 10) > KERNEL_NEEDED && (7, 0) > KERNEL_NEEDED);
    }

    const ROOTS: Device = Device::Guarded { user: 0, group: 0, mode: 0o600 };

    #[test]
    fn one_right_is_enough() {
        let check = permission_check(&[(false, "A"), (true, "B")], &Device::None, false);
        assert_eq!((check.status, check.found.as_str()), (Status::Ok, "by B"));
        assert!(check.remedies.is_empty() && !check.prevents_running());
    }

    #[test]
    fn a_device_that_is_roots_is_told_from_one_that_is_not_there() {
        let rights = [(false, "A"), (false, DEVICE)];
        let found = |device: &Device| permission_check(&rights, device, false).found;
        assert_eq!(found(&Device::None), "refused: no A, no /dev/userfaultfd");
        assert_eq!(found(&ROOTS), "refused: no A, /dev/userfaultfd is root's (mode 600)");
        let groups = Device::Guarded { user: 0, group: 7, mode: 0o660 };
        assert_eq!(found(&groups), "refused: no A, /dev/userfaultfd is user 0's and group 7's (mode 660)");
    }

    #[test]
    fn remedies_for_one_user_come_before_that_for_all() {
        let remedies = |device: &Device, has_group: bool| {
            let check = permission_check(&[(false, "A")], device, has_group);
            assert!(check.prevents_running());
            check.remedies.into_iter().map(|remedy| remedy.command).collect::<Vec<_>>()
        };
        let without_device = remedies(&Device::None, true);
        assert_eq!(without_device.len(), 1);
        assert!(without_device[0].ends_with("sysctl -w vm.unprivileged_userfaultfd=1"));
        let new_group = remedies(&ROOTS, false);
        assert!(new_group[0].contains("chgrp") && new_group[1].contains("rules.d"), "{new_group:?}");
        assert_eq!(new_group[2..], without_device);
        let old_group = remedies(&ROOTS, true);
        assert!(old_group[0].contains("usermod") && old_group[1].contains("chgrp"), "{old_group:?}");
        assert_eq!(old_group[2..], without_device);
    }

    #[test]
    fn each_feature_has_one_check() {
        let named = FEATURES.iter().fold(Features::empty(), |all, known| all | known.bit);
        assert_eq!(named, Features::all());
    }

    #[test]
    fn an_old_kernel_lacks_what_is_essential() {
        let old = Features::all() - Features::MOVE - Features::WP_ASYNC;
        let checks = FEATURES.iter().map(|known| feature(known, old)).collect::<Vec<_>>();
        let failures = checks.iter().filter(|check| check.prevents_running()).collect::<Vec<_>>();
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].name, "uffd-move");
        assert_eq!(failures[0].first_remedy(), Some(KERNEL_REMEDY));
        assert!(checks.iter().any(|check| check.name == "uffd-wp-async" && check.status == Status::Warn));
    }

    #[test]
    fn a_forbidden_call_is_told_from_an_absent_one() {
        assert!(no_userfaultfd(Errno::NOSYS).meaning.contains("CONFIG_USERFAULTFD"));
        assert!(no_userfaultfd(Errno::PERM).meaning.contains("seccomp"));
        assert!(no_userfaultfd(Errno::MFILE).prevents_running());
    }
}
