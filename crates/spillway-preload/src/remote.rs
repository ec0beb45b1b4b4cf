//! process_vm_readv(2) and process_vm_writev(2), in parts: the kernel pins the other process's pages of a
//! whole call, and what is pinned can make no room. In inline mode the other process brings its pages in
//! before.

use std::sync::atomic::{AtomicBool, Ordering};

use spillway_core::page::PAGE_SIZE;
use spillway_pager::inline::Inline;
use spillway_pager::inline::foreign::Foreign;
use spillway_sys::signal;

use crate::inline::presence::{frame, pager};
use crate::process::complain;
use crate::vectors::{Vectors, addresses};

/// Bytes of a part.
const PART_BYTES: usize = 256 << 10;
/// Times that pages are asked for anew which have gone before the kernel came to them.
const TRIES: usize = 64;
const EFAULT: isize = -(libc::EFAULT as isize);

/// Makes such a call by `call`.
pub fn transfer(number: usize, a: [usize; 6], call: &mut dyn FnMut(usize, [usize; 6]) -> isize) -> isize {
    let [process, own, own_count, theirs, their_count, flags] = a;
    let lists = (Vectors::of_program(own, own_count), Vectors::of_program(theirs, their_count));
    // What the kernel refuses it refuses as a whole.
    let (Some(mut own), Some(mut theirs), 0) = (lists.0, lists.1, flags) else { return call(number, a) };
    if own.left == 0 || theirs.left == 0 {
        return call(number, a);
    }
    let writes = number as i64 == libc::SYS_process_vm_writev;
    let (mut done, mut tries) = (0_isize, 0);
    while own.left > 0 && theirs.left > 0 {
        let bytes = PART_BYTES.min(own.left).min(theirs.left);
        let (mine, far) = (own.first(bytes), theirs.first(bytes));
        let can_be_asked = pager().is_some_and(|pager| {
            // Reads find most pages there; a write may not even be tried on a page that its process is about
            // to evict.
            (writes || tries > 0) && bring_in(pager, process as u32, &far, writes)
        });
        let at = |list: &[[usize; 2]]| list.as_ptr().expose_provenance();
        let result = call(number, [process, at(&mine), mine.len(), at(&far), far.len(), 0]);
        if result > 0 {
            done += result;
            own.advance(result as usize);
            theirs.advance(result as usize);
            // Less than was asked for: the next page may have to be brought in.
            tries = usize::from((result as usize) < bytes);
        } else if result == EFAULT && pager().is_some() && (tries == 0 || can_be_asked) && tries < TRIES {
            tries += 1;
        } else {
            return if done == 0 { result } else { done };
        }
    }
    done
}

/// Has a process bring in parts of its memory. False where that changes nothing.
fn bring_in(pager: &Inline, process: u32, parts: &[[usize; 2]], writes: bool) -> bool {
    if signal::shares_memory_with(process) {
        let hold = pager.hold(frame());
        let mut room = 2 * PART_BYTES + parts.len() * 2 * PAGE_SIZE;
        return addresses(parts).all(|part| pager.make_ready(part, hold.as_ref(), &mut room));
    }
    addresses(parts).all(|part| match pager.bring_in_elsewhere(process, part, writes) {
        Foreign::Ready => true,
        Foreign::NotOurs => false,
        Foreign::Silent => {
            static IS_SAID: AtomicBool = AtomicBool::new(false);
            if !IS_SAID.swap(true, Ordering::Relaxed) {
                complain(&format!(
                    "process {process} does not bring in its far memory, so another's access to it ends \
                     short; is it stopped?"
                ));
            }
            false
        }
    })
}
