//! The descriptors of ours that stand in the program's table are none of the program's.

use rustix::process::{Resource, getrlimit};
use spillway_pager::inline::Inline;
use spillway_sys::raw;

use super::leaving::leave;

/// The answer to a call that would use, close or replace a descriptor of ours; `None` for any other.
pub fn answer(pager: &Inline, number: usize, a: [usize; 6]) -> Option<isize> {
    let is_ours = |index: usize| pager.owns_descriptor(a[index] as i32);
    match number as i64 {
        libc::SYS_close | libc::SYS_dup | libc::SYS_fcntl if is_ours(0) => Some(-libc::EBADF as isize),
        libc::SYS_dup2 | libc::SYS_dup3 if is_ours(0) => Some(-libc::EBADF as isize),
        libc::SYS_dup2 | libc::SYS_dup3 if is_ours(1) => Some(give_number(number, a)),
        _ => None,
    }
}

/// Makes a call that takes a number of ours, as far as the program may have it: what stands there is of use
/// in inline mode only.
fn give_number(number: usize, a: [usize; 6]) -> isize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if a[1] as u32 as u64 >= limit {
        return -libc::EBADF as isize;
    }
    leave();
    // SAFETY: takes no address.
    unsafe { raw::syscall(number, a) }
}

/// close_range(2) around our descriptors.
pub fn close_range(pager: &Inline, a: [usize; 6]) -> isize {
    let [first, last] = [a[0], a[1]].map(|fd| fd as u32 as usize);
    let mut own: Vec<usize> = pager.descriptors().iter().map(|&fd| fd as usize).collect();
    own.sort_unstable();
    let mut start = first;
    let mut result = 0;
    for end in own.into_iter().filter(|fd| (first..=last).contains(fd)).chain([last + 1]) {
        // What the kernel refuses as a whole it refuses in parts too.
        if start < end || first > last {
            // SAFETY: takes no address.
            let part = unsafe {
                raw::syscall(libc::SYS_close_range as usize, [start, end.wrapping_sub(1), a[2], 0, 0, 0])
            };
            result = result.min(part);
        }
        start = end + 1;
    }
    result
}
