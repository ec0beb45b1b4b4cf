//! Calls that the kernel allows or understands by how many threads a process has: it counts the pager's too.

use std::ffi::c_int;

use spillway_sys::raw;

use crate::inline::presence::is_single_threaded;
use crate::process::{complain, to_libc};

/// Stands in for libc's unshare(2), to say why the kernel refuses it.
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    to_libc(raw_unshare(flags as usize)) as c_int
}

/// Stands in for libc's setns(2), to say why the kernel refuses it.
pub unsafe extern "C" fn setns(descriptor: c_int, kind: c_int) -> c_int {
    to_libc(raw_setns(descriptor as usize, kind as usize)) as c_int
}

pub fn raw_unshare(flags: usize) -> isize {
    let alone = libc::CLONE_NEWUSER | libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_VM;
    // SAFETY: takes no address.
    let result = unsafe { raw::syscall(libc::SYS_unshare as usize, [flags, 0, 0, 0, 0, 0]) };
    explain_refusal("unshare", result, flags & alone as usize != 0)
}

pub fn raw_setns(descriptor: usize, kind: usize) -> isize {
    // SAFETY: takes no address.
    let result = unsafe { raw::syscall(libc::SYS_setns as usize, [descriptor, kind, 0, 0, 0, 0]) };
    let alone = kind == 0 || kind & (libc::CLONE_NEWUSER | libc::CLONE_NEWNS) as usize != 0;
    explain_refusal("setns", result, alone)
}

/// Says why the kernel refuses to a program of one thread what such a program may do.
fn explain_refusal(call: &str, result: isize, wants_one_thread: bool) -> isize {
    if result == -libc::EINVAL as isize && wants_one_thread && is_single_threaded() {
        complain(&format!(
            "{call}(2) is refused, since Spillway's threads are in this process; clone(2) with \
             the same flags is not"
        ));
    }
    result
}

/// exit(2), which ends the process with its last thread, and the program's last one is not the pager's.
pub fn raw_exit(status: usize) -> isize {
    let number = if is_single_threaded() { libc::SYS_exit_group } else { libc::SYS_exit };
    // SAFETY: takes no address, and does not return.
    unsafe { raw::syscall(number as usize, [status, 0, 0, 0, 0, 0]) }
}
