//! In which calls a thread was: its stack is unwound by the tables that compilers leave in programs and
//! libraries (`.eh_frame`), out of copies of its registers and of the stack's innermost bytes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use object::{Object, ObjectSection, ObjectSegment, ReadCache};
use spillway_core::page::PAGE_SIZE;
use spillway_pager::run::stacks::Origin;
use spillway_sys::maps::Mapping;

/// Calls that are told of one stack, the innermost first.
pub const MOST_FRAMES: usize = 12;
/// Files whose tables are kept, and no larger table. Beyond them all are forgotten.
const MOST_FILES: usize = 256;
const MOST_TABLE_BYTES: u64 = 64 << 20;
/// Processes whose modules are kept. Beyond them all are forgotten.
const MOST_PROCESSES: usize = 64;

type Bytes = Arc<[u8]>;

/// What is known of processes and of files.
#[derive(Default)]
pub struct Unwinding {
    files: BTreeMap<(u64, u64), Option<Arc<Tables>>>,
    processes: BTreeMap<u32, Modules>,
}

/// The code of a process.
#[derive(Default)]
pub struct Modules {
    /// The lines of its map that have code, by which a change is noticed.
    code: String,
    unwinder: UnwinderX86_64<Bytes>,
    cache: CacheX86_64,
}

/// The unwind tables of a file.
struct Tables {
    /// Where each segment begins in the file, its bytes, and the address that the file has for it.
    segments: Vec<[u64; 3]>,
    frames: Option<(Range<u64>, Bytes)>,
    index: Option<(Range<u64>, Bytes)>,
}

impl Unwinding {
    /// The code of a process as it is mapped now.
    pub fn modules(&mut self, pid: u32) -> &mut Modules {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let has_code =
            |line: &&str| line.split(' ').nth(1).is_some_and(|permissions| permissions.contains('x'));
        let code: String = maps.lines().filter(has_code).flat_map(|line| [line, "\n"]).collect();
        if self.processes.get(&pid).is_none_or(|known| known.code != code) {
            if self.processes.len() >= MOST_PROCESSES {
                self.processes.clear();
            }
            let modules = self.modules_of(pid, &code);
            self.processes.insert(pid, modules);
        }
        self.processes.entry(pid).or_default()
    }

    fn modules_of(&mut self, pid: u32, code: &str) -> Modules {
        let mut modules = Modules { code: code.to_owned(), ..Modules::default() };
        for mapping in code.lines().filter_map(Mapping::parse).filter(|mapping| mapping.inode != 0) {
            let tables = self.tables(&path_of(pid, &mapping.name));
            if let Some(module) = tables.and_then(|tables| tables.module(&mapping)) {
                modules.unwinder.add_module(module);
            }
        }
        modules
    }

    fn tables(&mut self, path: &Path) -> Option<Arc<Tables>> {
        let status = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let file = (status.dev(), status.ino());
        if self.files.len() >= MOST_FILES && !self.files.contains_key(&file) {
            self.files.clear();
        }
        self.files.entry(file).or_insert_with(|| Tables::read(path).map(Arc::new)).clone()
    }
}

/// The file as a process sees it, which may have another root.
pub fn path_of(pid: u32, name: &str) -> PathBuf {
    Path::new(&format!("/proc/{pid}/root")).join(name.trim_start_matches('/'))
}

impl Tables {
    fn read(path: &Path) -> Option<Self> {
        // Of a large file only what is needed is read.
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let table = |name: &str| {
            let section = file.section_by_name(name).filter(|section| section.size() <= MOST_TABLE_BYTES)?;
            let addresses = section.address()..section.address().checked_add(section.size())?;
            Some((addresses, Bytes::from(section.data().ok()?)))
        };
        let segments = file.segments().map(|segment| {
            let (start, bytes) = segment.file_range();
            [start, bytes, segment.address()]
        });
        Some(Self { segments: segments.collect(), frames: table(".eh_frame"), index: table(".eh_frame_hdr") })
    }

    /// The file's code as it lies in a process; none where the file has no such code.
    fn module(&self, mapping: &Mapping) -> Option<Module<Bytes>> {
        let offset = mapping.file_offset;
        let holds = |[start, bytes, _]: &&[u64; 3]| {
            // Whole pages are mapped.
            (*start - *start % PAGE_SIZE as u64..start.saturating_add(*bytes)).contains(&offset)
        };
        let [start, _, address] = self.segments.iter().find(holds)?;
        let stated = address.wrapping_add(offset).wrapping_sub(*start);
        let section = |table: &Option<(Range<u64>, Bytes)>| table.clone().unzip();
        let ((eh_frame_svma, eh_frame), (eh_frame_hdr_svma, eh_frame_hdr)) =
            (section(&self.frames), section(&self.index));
        let sections = ExplicitModuleSectionInfo {
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            ..ExplicitModuleSectionInfo::default()
        };
        let lies_at = mapping.start as u64..mapping.end as u64;
        Some(Module::new(
            mapping.name.clone(),
            lies_at,
            (mapping.start as u64).wrapping_sub(stated),
            sections,
        ))
    }
}

impl Modules {
    /// The instruction at which a thread was and those of the calls around it, the innermost first: as many
    /// as the copy of its stack reaches.
    pub fn calls(&mut self, origin: Origin, stack: &[u64]) -> Vec<u64> {
        let Origin { instruction, stack_pointer, frame_pointer } = origin;
        let mut read = |address: u64| {
            let offset =
                address.checked_sub(stack_pointer).filter(|offset| offset.is_multiple_of(8)).ok_or(())?;
            stack.get((offset / 8) as usize).copied().ok_or(())
        };
        let registers = UnwindRegsX86_64::new(instruction, stack_pointer, frame_pointer);
        let mut frames = self.unwinder.iter_frames(instruction, registers, &mut self.cache, &mut read);
        let mut calls = Vec::new();
        while calls.len() < MOST_FRAMES
            && let Ok(Some(frame)) = frames.next()
        {
            calls.push(frame.address_for_lookup());
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::sleepers::tests::asleep;
    use crate::watch::symbols::Symbols;

    #[test]
    fn calls_are_found_from_the_inside_out() {
        let (mut child, sleeper) = asleep();
        let stack = sleeper.main_stack().unwrap();
        let mut unwinding = Unwinding::default();
        let calls = unwinding.modules(child.id()).calls(sleeper.origin, &stack);
        let maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let maps: Vec<Mapping> = maps.lines().filter_map(Mapping::parse).collect();
        let places: Vec<(&str, u64)> = calls
            .iter()
            .map(|call| {
                let holds = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&(*call as usize));
                let mapping =
                    maps.iter().find(holds).unwrap_or_else(|| panic!("{call:#x} is no code: {calls:x?}"));
                (mapping.name.as_str(), call - mapping.start as u64 + mapping.file_offset)
            })
            .collect();
        let mut symbols = Symbols::default();
        let mut named =
            |&(file, offset): &(&str, u64)| symbols.functions(Path::new(file), &[offset]).remove(0);
        // libc waits, and has been called by the program, which has been started by libc.
        assert!(named(&places[0]).is_some_and(|name| name.contains("nanosleep")), "{places:x?}");
        let is_programs = |(file, _): &(&str, u64)| file.ends_with("/sleep");
        let first = places.iter().position(is_programs).unwrap_or_else(|| panic!("{places:x?}"));
        let last = places.iter().rposition(is_programs).unwrap();
        assert!(first > 0 && last > first && places[first..last].len() < MOST_FRAMES, "{places:x?}");
        assert_eq!(unwinding.modules(std::process::id()).calls(sleeper.origin, &[]).len(), 1, "no stack");
    }

    #[test]
    fn a_stack_that_makes_no_sense_ends_the_calls() {
        let mut unwinding = Unwinding::default();
        let instruction = Tables::read as *const () as u64;
        let origin = Origin { instruction, stack_pointer: 0x7000, frame_pointer: 0x7008 };
        for pid in [std::process::id(), u32::MAX] {
            let modules = unwinding.modules(pid);
            let own = (0..64).map(|at| at * 8 + 0x7000).collect();
            for stack in [vec![u64::MAX; 64], vec![instruction; 64], own, vec![0; 64]] {
                let calls = modules.calls(origin, &stack);
                assert!((1..=MOST_FRAMES).contains(&calls.len()) && calls[0] == instruction, "{calls:x?}");
            }
        }
    }
}
