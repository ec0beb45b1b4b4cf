//! The strings of an exec, of which there may be more than a call should hold.

use rustix::process::{Resource, getrlimit};
use spillway_core::page::PAGE_SIZE;

use crate::reach::{BadAddress, Reader};

/// Bytes of a string at most: exec refuses longer ones (`MAX_ARG_STRLEN`).
pub const MOST_STRING_BYTES: usize = 32 * PAGE_SIZE;

/// Touches the strings of an exec, of which there may be more than can be held. `None` for any other call,
/// and the kernel's errno where an address is wrong or there are too many.
pub fn bring_strings(number: usize, a: [usize; 6]) -> Option<Result<(), i32>> {
    let (path, arrays) = match number as i64 {
        libc::SYS_execve => (a[0], [a[1], a[2]]),
        libc::SYS_execveat => (a[1], [a[2], a[3]]),
        _ => return None,
    };
    let (mut reader, mut bytes) = (Reader::default(), 0);
    let mut bring = || {
        reader.string(path, MOST_STRING_BYTES)?;
        for array in arrays.into_iter().filter(|&array| array != 0) {
            for string in reader.pointers(array)? {
                bytes += size_of::<usize>() + reader.string(string, MOST_STRING_BYTES)?.len() + 1;
            }
        }
        Ok(())
    };
    Some(match bring() {
        Err(BadAddress) => Err(libc::EFAULT),
        Ok(()) if bytes > most_exec_bytes() => Err(libc::E2BIG),
        Ok(()) => Ok(()),
    })
}

/// What the strings of an exec and their addresses may take (`bprm_stack_limits`).
fn most_exec_bytes() -> usize {
    const MOST: u64 = 6 << 20;
    const LEAST: u64 = 128 << 10;
    let stack_bytes = getrlimit(Resource::Stack).current.unwrap_or(u64::MAX);
    (stack_bytes / 4).clamp(LEAST, MOST) as usize
}
