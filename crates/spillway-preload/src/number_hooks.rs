//! What stands in place of libc's syscall, and of wrappers whose call is served by its number: in inline mode
//! in the program's own threads, else as the memory hooks have it.

use std::ffi::{c_int, c_long, c_uchar, c_ulong, c_void};

use spillway_sys::raw_thread::is_raw_thread;

use crate::exec_hooks;
use crate::inline::presence;
use crate::inline::system_calls::perform;
use crate::memory_hooks::pass_on;
use crate::process::to_libc;

/// syscall(2): the calls that have hooks go through them.
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    to_libc(by_number(number as usize, [a, b, c, d, e, f])) as c_long
}

fn by_number(number: usize, arguments: [usize; 6]) -> isize {
    if let Some(result) = exec_hooks::by_number(number, arguments) {
        return result;
    }
    if !is_raw_thread() && presence::pager().is_some() {
        perform(number, arguments, None)
    } else {
        pass_on(number, arguments)
    }
}

/// Stands in for libc's mincore(2), which is served by its number.
pub unsafe extern "C" fn mincore(address: *mut c_void, bytes: usize, to: *mut c_uchar) -> c_int {
    let arguments = [address.expose_provenance(), bytes, to.expose_provenance(), 0, 0, 0];
    to_libc(by_number(libc::SYS_mincore as usize, arguments)) as c_int
}

/// Stands in for libc's process_vm_readv(2), which is served by its number.
pub unsafe extern "C" fn process_vm_readv(
    pid: libc::pid_t,
    own: usize,
    own_count: c_ulong,
    theirs: usize,
    their_count: c_ulong,
    flags: c_ulong,
) -> isize {
    let arguments = [pid as usize, own, own_count as usize, theirs, their_count as usize, flags as usize];
    to_libc(by_number(libc::SYS_process_vm_readv as usize, arguments))
}

/// Stands in for libc's process_vm_writev(2), which is served by its number.
pub unsafe extern "C" fn process_vm_writev(
    pid: libc::pid_t,
    own: usize,
    own_count: c_ulong,
    theirs: usize,
    their_count: c_ulong,
    flags: c_ulong,
) -> isize {
    let arguments = [pid as usize, own, own_count as usize, theirs, their_count as usize, flags as usize];
    to_libc(by_number(libc::SYS_process_vm_writev as usize, arguments))
}

/// Stands in for libc's ioctl(2), which is served by its number.
pub unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: usize) -> c_int {
    let arguments = [descriptor as usize, request as usize, argument, 0, 0, 0];
    to_libc(by_number(libc::SYS_ioctl as usize, arguments)) as c_int
}

/// Stands in for libc's setsockopt(2), which is served by its number.
pub unsafe extern "C" fn setsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    bytes: libc::socklen_t,
) -> c_int {
    let arguments =
        [socket as usize, level as usize, name as usize, value.expose_provenance(), bytes as usize, 0];
    to_libc(by_number(libc::SYS_setsockopt as usize, arguments)) as c_int
}

/// Stands in for libc's prctl(2), which is served by its number.
pub unsafe extern "C" fn prctl(operation: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    to_libc(by_number(libc::SYS_prctl as usize, [operation as usize, a, b, c, d, 0])) as c_int
}
