//! Redirecting a function of a loaded library: its first bytes become a jump.
//!
//! Interposing a symbol catches calls between libraries, not those that libc makes to itself, and malloc's
//! calls to mmap are of that kind. All names of such a function lead to one body, so the body is what must be
//! changed.

use rustix::io::Result;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

use crate::at_rest;
use crate::page::PAGE_SIZE;

/// Bytes that a jump overwrites.
pub const JUMP_BYTES: usize = 14;

/// `jmp [rip+0]` and the address behind it.
fn jump_to(target: usize) -> [u8; JUMP_BYTES] {
    let mut code = [0xFF, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    code[6..].copy_from_slice(&target.to_le_bytes());
    code
}

/// Makes every call of the function at `function` go to `target`.
///
/// # Safety
/// `function` must be the first instruction of a function of at least [`JUMP_BYTES`] bytes into whose
/// beginning nothing jumps, that no thread runs at this moment; `target` must have the same calling
/// convention.
pub unsafe fn redirect(function: usize, target: usize) -> Result<()> {
    let page = function & !(PAGE_SIZE - 1);
    let bytes = (function + JUMP_BYTES).next_multiple_of(PAGE_SIZE) - page;
    let address = std::ptr::with_exposed_provenance_mut(page);
    // SAFETY: the pages hold code, which stays executable throughout.
    unsafe { mprotect(address, bytes, MprotectFlags::READ | MprotectFlags::WRITE | MprotectFlags::EXEC)? };
    let code = jump_to(target);
    // SAFETY: writable since the call above; the caller vouches that nobody executes here.
    unsafe {
        std::ptr::copy_nonoverlapping(
            code.as_ptr(),
            std::ptr::with_exposed_provenance_mut(function),
            JUMP_BYTES,
        )
    };
    // SAFETY: as it was before.
    unsafe { mprotect(address, bytes, MprotectFlags::READ | MprotectFlags::EXEC) }
}

/// The same for several functions, each with its target, while all other threads but the `raw_threads` are
/// held still elsewhere.
///
/// # Errors
/// EBUSY where another thread is always in one of them, and the kernel's.
///
/// # Safety
/// As [`redirect`], but for who runs them.
pub unsafe fn redirect_all(raw_threads: usize, redirections: &[(usize, usize)]) -> Result<()> {
    // Who stands before the first byte runs the jump.
    let is_within = |place: usize, function: usize| (function + 1..function + JUMP_BYTES).contains(&place);
    let may_rest_at = |place| !redirections.iter().any(|&(function, _)| is_within(place, function));
    at_rest::with_others_held(raw_threads, &may_rest_at, &mut || {
        // SAFETY: nobody else runs, and nobody stands within.
        redirections.iter().try_for_each(|&(function, target)| unsafe { redirect(function, target) })
    })?
}

/// The first `bytes` bytes of a function.
///
/// # Safety
/// They must be mapped for reading for as long as the program runs.
#[must_use]
pub unsafe fn code_at(function: usize, bytes: usize) -> &'static [u8] {
    // SAFETY: by the caller's word.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(function), bytes) }
}

/// Places `code` in executable memory. It was built for the address that `build` is given.
pub fn place<E: From<rustix::io::Errno>>(
    bytes: usize,
    build: impl FnOnce(usize) -> std::result::Result<Vec<u8>, E>,
) -> std::result::Result<usize, E> {
    let bytes = bytes.next_multiple_of(PAGE_SIZE);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping aliases nothing.
    let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)? };
    let code = build(memory.expose_provenance())?;
    assert!(code.len() <= bytes, "code longer than its memory");
    // SAFETY: in range by the assertion, writable, and ours.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), memory.cast(), code.len()) };
    // SAFETY: ours; nobody refers to it as data any more.
    unsafe { mprotect(memory, bytes, MprotectFlags::READ | MprotectFlags::EXEC)? };
    Ok(memory.expose_provenance())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Long enough, and with a name of its own.
    #[inline(never)]
    extern "C" fn original(n: u64) -> u64 {
        std::hint::black_box(n).wrapping_mul(std::hint::black_box(3)).wrapping_add(std::hint::black_box(1))
    }

    extern "C" fn replacement(n: u64) -> u64 {
        n + 1000
    }

    #[test]
    fn a_redirected_function_is_the_other() {
        let function: extern "C" fn(u64) -> u64 = std::hint::black_box(original);
        assert_eq!(function(2), 7);
        // SAFETY: only this test calls it; same signature.
        unsafe { redirect(function as *const () as usize, replacement as *const () as usize).unwrap() };
        assert_eq!(std::hint::black_box(function)(2), 1002);
    }
}
