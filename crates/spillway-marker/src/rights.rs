//! What the marker's thread may do: no more than the program. It needs a capability to begin, and none later.
//! Threads have their rights each for itself, and libc tells those that it knows of when the program gives
//! some up; it does not know of this one.

use rustix::io::Result;
use rustix::process::{Gid, Uid, getgid, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

/// Gives up all capabilities of the calling thread but those by which it can become another user.
///
/// # Errors
/// The kernel's; none is known.
pub fn give_up() -> Result<()> {
    keep(CapabilitySet::SETUID | CapabilitySet::SETGID)
}

fn keep(some: CapabilitySet) -> Result<()> {
    let permitted = capabilities(None)?.permitted & some;
    set_capabilities(
        None,
        CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() },
    )
}

/// The real user and group that `/proc/PID/status` has.
fn owners(status: &str) -> Option<(u32, u32)> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some((field("Uid:")?, field("Gid:")?))
}

/// Becomes whom the program has become, by its status. Whether this thread is the program's user now; where
/// it is not, it should not go on.
pub fn follow(status: &str) -> bool {
    let Some((user, group)) = owners(status) else { return false };
    if (user, group) == (getuid().as_raw(), getgid().as_raw()) {
        return true;
    }
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    // Without the capability to change groups those of before stay, which are then not the program's.
    set_thread_groups(&[]).is_ok()
        && set_thread_res_gid(group, group, group).is_ok()
        && set_thread_res_uid(user, user, user).is_ok()
        && keep(CapabilitySet::empty()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_process_is_read() {
        let status = "Name:\tx y\nUid:\t5\t6\t7\t8\nGid:\t9\t1\t1\t1\nGroups:\t4\n";
        assert_eq!(owners(status), Some((5, 9)));
        assert_eq!(owners("Name:\tx\nUid:\n"), None);
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(follow(&own), "who is the same need not change");
        assert!(!follow("nonsense"));
    }
}
