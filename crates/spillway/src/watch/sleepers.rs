//! Threads that wait for a page, as they are seen from outside: nobody is stopped for it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use spillway_pager::run::stacks::{Origin, STACK_BYTES};
use spillway_sys::maps::Mapping;

/// Where a thread sleeps that waits for a page: the kernel's function.
const WAITING: &str = "handle_userfault";

/// A thread that sleeps in the kernel.
pub struct Sleeper {
    /// Where it was before. Its frame pointer is not known, and told as 0.
    pub origin: Origin,
    /// Its files in `/proc`.
    directory: PathBuf,
}

/// The threads of a process that wait for a page. At most `room` are looked at, of which they are taken.
pub fn waiting(pid: u32, room: &mut usize) -> Vec<Sleeper> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for thread in threads {
        if *room == 0 {
            break;
        }
        *room -= 1;
        if sleeps_in(&thread.path(), WAITING) {
            found.extend(Sleeper::at(thread.path()));
        }
    }
    found
}

fn sleeps_in(thread: &Path, place: &str) -> bool {
    fs::read_to_string(thread.join("wchan")).is_ok_and(|found| found == place)
}

/// The last two words of `/proc/PID/syscall`: the stack pointer, and the instruction that waits, or to which
/// its system call returns. None of a thread that runs.
fn origin_in(registers: &str) -> Option<Origin> {
    let mut words = registers.split_whitespace().rev().map(|word| {
        let digits = word.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    });
    let (instruction, stack_pointer) = (words.next()??, words.next()??);
    Some(Origin { instruction, stack_pointer, frame_pointer: 0 })
}

impl Sleeper {
    fn at(directory: PathBuf) -> Option<Self> {
        let origin = origin_in(&fs::read_to_string(directory.join("syscall")).ok()?)?;
        Some(Self { origin, directory })
    }

    /// What lies from its stack pointer on, of the main thread of a process. Other threads' stacks lie where
    /// memory of ours might: to read that might mean to wait for it.
    pub fn main_stack(&self) -> Option<Vec<u64>> {
        let maps = fs::read_to_string(self.directory.join("maps")).ok()?;
        let stack_pointer = self.origin.stack_pointer;
        let holds = |mapping: &Mapping| {
            mapping.name == "[stack]" && (mapping.start as u64..mapping.end as u64).contains(&stack_pointer)
        };
        let end = maps.lines().filter_map(Mapping::parse).find(holds)?.end as u64;
        let mut bytes = vec![0; STACK_BYTES.min((end - stack_pointer) as usize)];
        let read = File::open(self.directory.join("mem"))
            .and_then(|memory| memory.read_at(&mut bytes, stack_pointer));
        let words = bytes[..read.ok()?].as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        // Where it has gone on meanwhile, what was read is of another moment.
        let is_there = Self::at(self.directory.clone()).is_some_and(|now| now.origin == self.origin);
        is_there.then_some(words)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::Duration;

    /// A program that sleeps in libc, and its only thread as it does.
    pub fn asleep() -> (Child, Sleeper) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let directory = PathBuf::from(format!("/proc/{0}/task/{0}", child.id()));
        while !fs::read_to_string(directory.join("wchan")).unwrap().contains("nanosleep") {
            std::thread::sleep(Duration::from_millis(1));
        }
        let sleeper = Sleeper::at(directory).unwrap();
        (child, sleeper)
    }

    #[test]
    fn registers_are_read_where_a_thread_sleeps_and_not_where_it_runs() {
        let origin =
            |stack_pointer, instruction| Some(Origin { instruction, stack_pointer, frame_pointer: 0 });
        assert_eq!(origin_in("-1 0x7ffd3a2b1c08 0x401136\n"), origin(0x7ffd_3a2b_1c08, 0x40_1136));
        let of_call = "0 0x3 0x7f 0x1000 0x0 0x0 0x0 0x7ffd3a2b1c08 0x7f1e0a2b3c4d\n";
        assert_eq!(origin_in(of_call), origin(0x7ffd_3a2b_1c08, 0x7f1e_0a2b_3c4d));
        for text in ["running\n", "", "-1", "-1 0x1"] {
            assert_eq!(origin_in(text), None);
        }
    }

    #[test]
    fn the_stack_of_a_program_that_sleeps_is_copied_and_of_one_that_has_ended_nothing() {
        let (mut child, sleeper) = asleep();
        let words = sleeper.main_stack().unwrap();
        assert!((10..=STACK_BYTES / 8).contains(&words.len()), "{}", words.len());
        assert!(waiting(child.id(), &mut 3).is_empty(), "it waits for no page");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(sleeper.main_stack(), None);
    }
}
