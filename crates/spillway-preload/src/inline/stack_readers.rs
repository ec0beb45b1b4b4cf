//! Handlers by which a program stops its threads to read their stacks: collectors of garbage that send
//! themselves a signal (SBCL's, Mono's, and Boehm's, which Guile has).
//!
//! In inline mode a thread that waits in a system call waits on the stack of our handlers, and a handler of
//! the program's is run there, too: who looks for pointers from the stopped thread's stack pointer on would
//! look in the wrong place, and free what is in use. So such a program is not served inline.
//!
//! What tells them: the handler is for a signal that is left to programs, and asks for the interrupted
//! registers (`SA_SIGINFO`), or blocks nearly everything meanwhile and has the interrupted call go on
//! afterwards (`SA_RESTART`; Node's, which reads no stack, has not). The Java machine's is let be: its
//! threads stop at places of their own choosing.

use spillway_sys::maps;
use spillway_sys::signal::bit;

use crate::program_memory::read_words;

/// Signals that are left to programs; so are all from [`FIRST_REAL_TIME`] on.
const FOR_PROGRAMS: u64 =
    bit(libc::SIGUSR1) | bit(libc::SIGUSR2) | bit(libc::SIGPWR) | bit(libc::SIGXCPU) | bit(libc::SIGURG);
/// Below are the kernel's own, and two of libc's.
const FIRST_REAL_TIME: usize = 34;
const SIGNALS: usize = 64;
/// A mask of so many signals was filled, and then spared a few.
const NEARLY_ALL: u32 = 40;
const JAVA_MACHINE: &str = "libjvm.so";

/// Whether an rt_sigaction(2) sets such a handler.
pub fn is_set_by([number, new, ..]: [usize; 6]) -> bool {
    let is_for_programs = match number {
        1..FIRST_REAL_TIME => bit(number as i32) & FOR_PROGRAMS != 0,
        FIRST_REAL_TIME..=SIGNALS => true,
        _ => false,
    };
    if !is_for_programs || new == 0 {
        return false;
    }
    let Ok([handler, flags, _, mask]) = read_words(new) else { return false };
    reads_stacks(handler, flags, mask as u64) && !is_java_machines(handler)
}

fn reads_stacks(handler: usize, flags: usize, mask: u64) -> bool {
    let is_handler = !matches!(handler, libc::SIG_DFL | libc::SIG_IGN);
    let asks_for = |flag: i32| flags & flag as usize != 0;
    let stops_unnoticed = mask.count_ones() >= NEARLY_ALL && asks_for(libc::SA_RESTART);
    is_handler && (asks_for(libc::SA_SIGINFO) || stops_unnoticed)
}

fn is_java_machines(handler: usize) -> bool {
    let mappings = maps::read().unwrap_or_default();
    let of_handler = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&handler));
    of_handler.is_some_and(|mapping| mapping.name.ends_with(JAVA_MACHINE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_registers_or_blocks_nearly_all_reads_stacks() {
        let (asks, goes_on) = (libc::SA_SIGINFO as usize, libc::SA_RESTART as usize);
        for (handler, flags, mask, expected) in [
            (4096, asks, 0, true),
            (4096, goes_on, u64::MAX, true),
            (4096, 0, u64::MAX, false),
            (4096, goes_on, bit(libc::SIGUSR1), false),
            (libc::SIG_IGN, asks, u64::MAX, false),
            (libc::SIG_DFL, asks, u64::MAX, false),
        ] {
            assert_eq!(reads_stacks(handler, flags, mask), expected, "{handler} {flags:#x} {mask:#x}");
        }
    }

    #[test]
    fn a_signal_of_the_kernels_and_a_question_set_nothing() {
        let action = [4096_usize, libc::SA_SIGINFO as usize, 0, 0];
        let new = action.as_ptr().expose_provenance();
        let is_set = |number: i32, new| is_set_by([number as usize, new, 0, 8, 0, 0]);
        for number in [libc::SIGSEGV, libc::SIGINT, libc::SIGCHLD, libc::SIGPROF, 32, 33, 0, 65] {
            assert!(!is_set(number, new), "{number}");
        }
        for number in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGPWR, libc::SIGXCPU, libc::SIGURG, 34, 64] {
            assert!(is_set(number, new), "{number}");
            assert!(!is_set(number, 0), "{number} is asked for only");
        }
    }
}
