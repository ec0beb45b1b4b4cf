//! Where the threads of a run's programs wait for pages: what their pagers have noted of faults that they
//! serve where they happen, and what is seen from here of others, as long as somebody asks.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use spillway_pager::run::sites::SAMPLE_NS;
use spillway_pager::run::views::RunView;
use spillway_snapshot::sites::{Frame, Site, Sites, Stack};
use spillway_sys::maps::Mapping;

use crate::watch::sleepers::waiting;
use crate::watch::symbols::Symbols;
use crate::watch::unwinding::{Unwinding, path_of};

/// Between two looks at the threads of a run.
const EVERY: Duration = Duration::from_millis(50);
/// So long after somebody has asked.
const ASKED_FOR: Duration = Duration::from_secs(10);
/// Threads that one look sees, and instructions and stacks that are kept of all.
const MOST_THREADS: usize = 64;
const MOST_KEPT: usize = 4096;

/// What was seen from outside, and the names of functions.
#[derive(Default)]
pub struct RunSites {
    /// By process and instruction, how long it waited, in microseconds.
    seen: BTreeMap<(u32, u64), u64>,
    others_us: u64,
    /// By process and calls, the innermost first, how long it waited in them, in microseconds.
    calls: BTreeMap<(u32, Vec<u64>), u64>,
    until: Option<Instant>,
    due: Option<Instant>,
    symbols: Symbols,
    unwinding: Unwinding,
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
        let waited_us = EVERY.as_micros() as u64;
        for entry in view.run.processes() {
            let process = view.run.process(entry);
            if process.serves_inline().load(Ordering::Relaxed) != 0 {
                continue;
            }
            let pid = process.pid();
            for sleeper in waiting(pid, &mut room) {
                self.note(pid, sleeper.origin.instruction, waited_us);
                if let Some(stack) = sleeper.main_stack() {
                    let calls = self.unwinding.modules(pid).calls(sleeper.origin, &stack);
                    self.note_calls(pid, calls, waited_us);
                }
            }
        }
        self.take_stacks(view);
    }

    fn note(&mut self, pid: u32, instruction: u64, waited_us: u64) {
        if self.seen.len() >= MOST_KEPT && !self.seen.contains_key(&(pid, instruction)) {
            self.others_us += waited_us;
        } else {
            *self.seen.entry((pid, instruction)).or_default() += waited_us;
        }
    }

    /// Unwinds the stacks that the run's pagers have copied.
    fn take_stacks(&mut self, view: &RunView) {
        let mut by_process: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for stack in view.run.stacks().take() {
            by_process.entry(view.run.process(stack.entry).pid()).or_default().push(stack);
        }
        for (pid, stacks) in by_process {
            let modules = self.unwinding.modules(pid);
            let unwound =
                stacks.iter().map(|stack| (modules.calls(stack.origin, &stack.words), us(stack.samples)));
            for (calls, waited_us) in unwound.collect::<Vec<_>>() {
                self.note_calls(pid, calls, waited_us);
            }
        }
    }

    fn note_calls(&mut self, pid: u32, calls: Vec<u64>, waited_us: u64) {
        let key = (pid, calls);
        if self.calls.len() < MOST_KEPT || self.calls.contains_key(&key) {
            *self.calls.entry(key).or_default() += waited_us;
        }
    }

    /// Where the programs of a run waited, and, from the first time on that this is asked, in which calls.
    pub fn sites(&mut self, view: &RunView) -> Sites {
        self.until = Some(Instant::now() + ASKED_FOR);
        view.run.stacks().ask(monotonic_ns().saturating_add(ASKED_FOR.as_nanos() as u64));
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
        for (pid, waited) in by_process {
            let instructions: Vec<u64> = waited.iter().map(|(instruction, _)| *instruction).collect();
            let named = self.named(pid, &instructions).into_iter().zip(waited);
            met.extend(named.map(|(Frame { file, function }, (_, waited_us))| Site {
                file,
                function,
                waited_us,
            }));
        }
        Sites::of(met, self.others_us + us(noted.left_out())).with_stacks(self.stacks())
    }

    /// The calls by their names.
    fn stacks(&mut self) -> Vec<Stack> {
        let mut by_process: BTreeMap<u32, Vec<(Vec<u64>, u64)>> = BTreeMap::new();
        for ((pid, calls), waited_us) in &self.calls {
            by_process.entry(*pid).or_default().push((calls.clone(), *waited_us));
        }
        let mut stacks = Vec::new();
        for (pid, waited) in by_process {
            let mut addresses: Vec<u64> = waited.iter().flat_map(|(calls, _)| calls).copied().collect();
            addresses.sort_unstable();
            addresses.dedup();
            let names: BTreeMap<u64, Frame> =
                addresses.iter().copied().zip(self.named(pid, &addresses)).collect();
            stacks.extend(waited.into_iter().map(|(calls, waited_us)| {
                let frames = calls.iter().map(|call| names.get(call).cloned().unwrap_or_default());
                Stack { frames: frames.collect(), waited_us }
            }));
        }
        stacks
    }

    /// What a process's instructions belong to.
    fn named(&mut self, pid: u32, instructions: &[u64]) -> Vec<Frame> {
        let mappings = mappings_of(pid);
        // By file, so that each is read once.
        let mut by_file: BTreeMap<&str, Vec<(usize, u64)>> = BTreeMap::new();
        for (at, &instruction) in instructions.iter().enumerate() {
            let holds =
                |mapping: &&Mapping| (mapping.start as u64..mapping.end as u64).contains(&instruction);
            if let Some(mapping) = mappings.iter().find(holds).filter(|mapping| mapping.inode != 0) {
                let offset = instruction - mapping.start as u64 + mapping.file_offset;
                by_file.entry(&mapping.name).or_default().push((at, offset));
            }
        }
        let mut named = vec![Frame::default(); instructions.len()];
        for (name, places) in by_file {
            let offsets: Vec<u64> = places.iter().map(|(_, offset)| *offset).collect();
            let functions = self.symbols.functions(&path_of(pid, name), &offsets);
            for ((at, _), function) in places.into_iter().zip(functions) {
                named[at] = Frame { file: Some(name.to_owned()), function };
            }
        }
        named
    }
}

/// What samples stand for, in microseconds.
const fn us(samples: u64) -> u64 {
    samples * SAMPLE_NS / 1000
}

/// As the pager's own clock tells it.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn mappings_of(pid: u32) -> Vec<Mapping> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    text.lines().filter_map(Mapping::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_in_no_file_and_of_processes_that_are_gone_has_no_name() {
        let mut sites = RunSites::default();
        assert_eq!(sites.named(u32::MAX, &[0x1000, 0]), [Frame::default(), Frame::default()]);
        let own = mappings_of as *const () as u64;
        let named = sites.named(std::process::id(), &[0, own]);
        assert!(named[0] == Frame::default() && named[1].file.is_some(), "{named:?}");
        assert!(named[1].function.as_ref().is_some_and(|name| name.contains("mappings_of")), "{named:?}");
    }

    #[test]
    fn stacks_of_the_same_functions_are_one_whatever_their_instructions() {
        let (pid, own) = (std::process::id(), mappings_of as *const () as u64);
        let mut sites = RunSites::default();
        for (calls, waited_us) in [(vec![own, own + 1], 3), (vec![own + 1, own], 4), (vec![own], 5)] {
            sites.note_calls(pid, calls, waited_us);
        }
        let told = Sites::default().with_stacks(sites.stacks());
        let waited: Vec<_> = told.stacks.iter().map(|stack| (stack.frames.len(), stack.waited_us)).collect();
        assert_eq!(waited, [(2, 7), (1, 5)]);
    }
}
