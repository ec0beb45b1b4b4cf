//! A copy of a process that goes on when it has ended. A process of its own: a fork shares all pages, which
//! those who refer to pages must not meet.
#![allow(unsafe_code, clippy::unwrap_used)]

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, setpgid, test_kill_process_group, waitpid};
use spillway_sys::process::split_off;

/// A process in a group of its own that splits off a copy and ends at once.
fn splits_off_and_ends() -> Pid {
    // SAFETY: the copy makes system calls alone, and ends without anything of this process's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _ = setpgid(None, None);
        if split_off() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        // SAFETY: ends this process, which needs nothing of it any more.
        unsafe { libc::_exit(0) };
    }
    Pid::from_raw(child).unwrap()
}

#[test]
fn who_splits_off_leaves_none_of_its_group_behind() {
    for _ in 0..100 {
        let pid = splits_off_and_ends();
        assert!(waitpid(Some(pid), WaitOptions::empty()).is_ok_and(|ended| ended.is_some()));
        assert_eq!(test_kill_process_group(pid), Err(Errno::SRCH));
    }
}
