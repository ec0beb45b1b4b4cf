//! Where the threads of a run's programs wait for pages: what their pagers have noted of faults that they
//! serve where they happen, and what is seen from here of others, as long as somebody asks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use spillway_pager::run::sites::SAMPLE_NS;
use spillway_pager::run::views::RunView;
use spillway_snapshot::sites::{Site, Sites};
use spillway_sys::maps::Mapping;

use crate::watch::symbols::Symbols;

/// Between two looks at the threads of a run.
const EVERY: Duration = Duration::from_millis(50);
/// So long after somebody has asked.
const ASKED_FOR: Duration = Duration::from_secs(10);
/// Threads that one look sees, and instructions that are kept of all.
const MOST_THREADS: usize = 64;
const MOST_KEPT: usize = 4096;
/// Where a thread sleeps that waits for a page: the kernel's function.
const WAITING: &str = "handle_userfault";

/// What was seen from outside, and the names of functions.
#[derive(Default)]
pub struct RunSites {
    /// By process and instruction, how long it waited, in microseconds.
    seen: BTreeMap<(u32, u64), u64>,
    others_us: u64,
    until: Option<Instant>,
    due: Option<Instant>,
    symbols: Symbols,
}

impl RunSites {
    /// Looks at the threads if that is due; returns in what time it is again.
    pub fn go_on(&mut self, view: &RunView) -> Option<Duration> {
        let now = Instant::now();
        if self.until.is_none_or(|until| until <= now) {
            return None;
        }
        if self.due.is_none_or(|due| due <= now) {
            self.due = Some(now + EVERY);
            self.look(view);
        }
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    fn look(&mut self, view: &RunView) {
        let mut room = MOST_THREADS;
        for entry in view.run.processes() {
            let process = view.run.process(entry);
            if process.serves_inline().load(std::sync::atomic::Ordering::Relaxed) != 0 {
                continue;
            }
            let pid = process.pid();
            for instruction in waiting(pid, &mut room) {
                let waited_us = EVERY.as_micros() as u64;
                if self.seen.len() >= MOST_KEPT && !self.seen.contains_key(&(pid, instruction)) {
                    self.others_us += waited_us;
                } else {
                    *self.seen.entry((pid, instruction)).or_default() += waited_us;
                }
            }
        }
    }

    /// Where the programs of a run waited.
    pub fn sites(&mut self, view: &RunView) -> Sites {
        self.until = Some(Instant::now() + ASKED_FOR);
        let us = |samples: u64| samples * SAMPLE_NS / 1000;
        let noted = view.run.sites();
        let inline = noted
            .read()
            .into_iter()
            .map(|site| ((view.run.process(site.entry).pid(), site.instruction), us(site.samples)));
        let mut by_process: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for ((pid, instruction), waited_us) in inline.chain(self.seen.iter().map(|(key, us)| (*key, *us))) {
            by_process.entry(pid).or_default().push((instruction, waited_us));
        }
        let mut met = Vec::new();
        for (pid, instructions) in by_process {
            met.extend(self.named(pid, &instructions));
        }
        Sites::of(met, self.others_us + us(noted.left_out()))
    }

    /// What a process's instructions belong to.
    fn named(&mut self, pid: u32, instructions: &[(u64, u64)]) -> Vec<Site> {
        let mappings = mappings_of(pid);
        // By file, so that each is read once.
        let mut by_file: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
        let mut met = Vec::new();
        for &(instruction, waited_us) in instructions {
            let holds =
                |mapping: &&Mapping| (mapping.start as u64..mapping.end as u64).contains(&instruction);
            match mappings.iter().find(holds) {
                Some(mapping) if mapping.inode != 0 => {
                    let offset = instruction - mapping.start as u64 + mapping.file_offset;
                    by_file.entry(&mapping.name).or_default().push((offset, waited_us));
                }
                _ => met.push(Site { waited_us, ..Site::default() }),
            }
        }
        for (name, places) in by_file {
            let offsets: Vec<u64> = places.iter().map(|(offset, _)| *offset).collect();
            let functions = self.symbols.functions(&path_of(pid, name), &offsets);
            met.extend(places.iter().zip(functions).map(|(&(_, waited_us), function)| Site {
                file: Some(name.to_owned()),
                function,
                waited_us,
            }));
        }
        met
    }
}

/// The file as the process sees it, which may have another root.
fn path_of(pid: u32, name: &str) -> PathBuf {
    Path::new(&format!("/proc/{pid}/root")).join(name.trim_start_matches('/'))
}

fn mappings_of(pid: u32) -> Vec<Mapping> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    text.lines().filter_map(Mapping::parse).collect()
}

/// The instructions at which threads of a process wait for a page.
fn waiting(pid: u32, room: &mut usize) -> Vec<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for thread in threads {
        if *room == 0 {
            break;
        }
        *room -= 1;
        let waits = fs::read_to_string(thread.path().join("wchan")).is_ok_and(|place| place == WAITING);
        if waits {
            let registers = fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
            found.extend(instruction_in(&registers));
        }
    }
    found
}

/// The last word of `/proc/PID/syscall`: the instruction that waits, or to which its system call returns.
fn instruction_in(registers: &str) -> Option<u64> {
    let last = registers.split_whitespace().last()?;
    u64::from_str_radix(last.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_where_a_thread_sleeps_and_not_where_it_runs() {
        assert_eq!(instruction_in("-1 0x7ffd3a2b1c08 0x401136\n"), Some(0x40_1136));
        let of_call = "0 0x3 0x7f 0x1000 0x0 0x0 0x0 0x7ffd3a2b1c08 0x7f1e0a2b3c4d\n";
        assert_eq!(instruction_in(of_call), Some(0x7f1e_0a2b_3c4d));
        for text in ["running\n", "", "-1"] {
            assert_eq!(instruction_in(text), None);
        }
    }

    #[test]
    fn code_in_no_file_and_of_processes_that_are_gone_is_counted_without_a_name() {
        let mut sites = RunSites::default();
        let met = sites.named(u32::MAX, &[(0x1000, 3), (0, 4)]);
        assert_eq!(met, [Site { waited_us: 3, ..Site::default() }, Site { waited_us: 4, ..Site::default() }]);
        let own = instruction_in as *const () as u64;
        let named = sites.named(std::process::id(), &[(own, 5)]);
        assert!(named[0].file.is_some() && named[0].waited_us == 5, "{named:?}");
        assert!(named[0].function.as_ref().is_some_and(|name| name.contains("instruction_in")), "{named:?}");
        assert!(waiting(std::process::id(), &mut 3).is_empty(), "nobody waits for a page here");
    }
}
