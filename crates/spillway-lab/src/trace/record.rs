//! Records what an unmodified program does to memory: runs it under QEMU's user mode with a plugin (HotBox
//! used PIN).
//!
//! The plugin is C, built with the machine's compiler for each recording. Each thread of the program is a
//! task. What a tiny first-level cache of a thread would catch is left out, and instructions count as work;
//! programs that the recorded one starts, and processes that it forks, run but are not recorded.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufReader, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};

use spillway_core::page::PAGE_SHIFT;

use super::{INSTRUCTIONS_PER_NS, TraceError, TraceSummary, TraceWriter};
use crate::access::Access;
use crate::memory::LINE_BYTES;

const EMULATOR: &str = "qemu-x86_64";
const COMPILER: &str = "cc";
const PLUGIN_SOURCE: &str = include_str!("record_plugin.c");

/// A record of the plugin, as `record_plugin.c` says.
#[derive(Clone, Copy)]
struct RawRecord(u64);

impl RawRecord {
    fn value(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }

    fn kind(self) -> u64 {
        self.0 >> 48 & 3
    }

    fn bytes(self) -> u64 {
        1 << (self.0 >> 50 & 15)
    }

    /// Of two that tell of a release, the first.
    fn is_address_of_release(self) -> bool {
        self.kind() == 3 && self.bytes() == 1
    }

    fn task(self) -> u32 {
        (self.0 >> 54) as u32
    }
}

/// What came of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// What the trace holds.
    pub summary: TraceSummary,
    /// How the program ended.
    pub status: ExitStatus,
}

/// Runs a program and writes what it does to memory to `out`. The program has our standard streams. `begun`
/// is told the number of its process, by which it can be ended.
///
/// # Errors
/// The program, QEMU or the compiler is missing or fails, or `out` cannot be written.
pub fn record(
    program: &OsStr,
    arguments: &[OsString],
    out: impl Write,
    begun: impl FnOnce(u32),
) -> Result<Recorded, TraceError> {
    let emulator =
        find(OsStr::new(EMULATOR)).ok_or_else(|| missing(EMULATOR, "install the package qemu-user"))?;
    let shown = program.to_string_lossy();
    let program = find(program).ok_or_else(|| missing(&shown, "give its path, or a name on PATH"))?;
    if !is_x86_64_program(&program)? {
        return Err(TraceError::Record {
            thing: program.to_string_lossy().into_owned(),
            reason: "it is no x86-64 program".to_owned(),
            remedy: "for a script, record its interpreter with the script as its first argument",
        });
    }
    let folder = tempfile::tempdir()?;
    let plugin = build_plugin(folder.path())?;
    let (reader, sender) = pipe()?;
    fcntl_setfd(&sender, FdFlags::empty()).map_err(std::io::Error::from)?;
    let mut option = OsString::from("file=");
    option.push(plugin);
    option.push(format!(",fd={}", sender.as_raw_fd()));
    let mut command = Command::new(emulator);
    command.arg("-plugin").arg(option).arg(program).args(arguments);
    let mut child = command.spawn()?;
    drop(sender);
    begun(child.id());
    let written = convert(BufReader::with_capacity(1 << 20, reader), out);
    // Where the trace could not be written the pipe is closed by now, which ends the program.
    let status = child.wait()?;
    let summary = written?;
    if summary.records == 0 {
        return Err(TraceError::Record {
            thing: shown.into_owned(),
            reason: format!("{EMULATOR} sent no accesses and ended with {status}"),
            remedy: "see what it wrote above",
        });
    }
    Ok(Recorded { summary, status })
}

/// Turns what the plugin sends into a trace.
fn convert(mut source: impl Read, out: impl Write) -> Result<TraceSummary, TraceError> {
    let mut writer = TraceWriter::new(out)?;
    let mut bytes = [0; 8];
    let mut released_at = HashMap::new();
    // A program that is killed may leave a part of a record.
    while source.read_exact(&mut bytes).is_ok() {
        let record = RawRecord(u64::from_le_bytes(bytes));
        let (task, address) = (record.task(), record.value());
        let make = match record.kind() {
            0 => Access::read,
            1 => Access::write,
            2 => {
                writer.append(task, Access::compute_ns(address / INSTRUCTIONS_PER_NS))?;
                continue;
            }
            _ if record.is_address_of_release() => {
                released_at.insert(task, address >> PAGE_SHIFT);
                continue;
            }
            _ => {
                if let Some(page_number) = released_at.remove(&task) {
                    writer.append_release(task, page_number, address)?;
                }
                continue;
            }
        };
        writer.append(task, make(address))?;
        let last = (address + record.bytes() - 1) / LINE_BYTES;
        for line in address / LINE_BYTES + 1..=last {
            writer.append(task, make(line * LINE_BYTES))?;
        }
    }
    writer.finish()
}

fn build_plugin(folder: &Path) -> Result<PathBuf, TraceError> {
    let compiler = find(OsStr::new(COMPILER)).ok_or_else(|| missing(COMPILER, "install the package gcc"))?;
    let (source, plugin) = (folder.join("plugin.c"), folder.join("plugin.so"));
    if plugin.as_os_str().as_encoded_bytes().contains(&b',') {
        return Err(TraceError::Record {
            thing: plugin.to_string_lossy().into_owned(),
            reason: "QEMU takes no comma in a plugin's path".to_owned(),
            remedy: "set TMPDIR to a folder without one",
        });
    }
    std::fs::write(&source, PLUGIN_SOURCE)?;
    let mut command = Command::new(compiler);
    command
        .args(["-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread", "-o"])
        .arg(&plugin)
        .arg(&source);
    let built = command.stdin(Stdio::null()).output()?;
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr);
        return Err(TraceError::Record {
            thing: "the plugin".to_owned(),
            reason: format!("{COMPILER} failed: {}", said.lines().next().unwrap_or("it says nothing")),
            remedy: "install the packages gcc and libc6-dev",
        });
    }
    Ok(plugin)
}

fn missing(thing: &str, remedy: &'static str) -> TraceError {
    TraceError::Record { thing: thing.to_owned(), reason: "not found".to_owned(), remedy }
}

/// Whether a file begins as an ELF file of 64 bits for x86-64 does.
fn is_x86_64_program(path: &Path) -> Result<bool, TraceError> {
    let mut start = Vec::new();
    File::open(path)?.take(20).read_to_end(&mut start)?;
    Ok(start.starts_with(b"\x7fELF\x02\x01") && start.get(18..20) == Some(&[62, 0]))
}

/// A program by its path, or by its name on PATH.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Path::new(program).is_file().then(|| program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Action;
    use crate::trace::TraceReader;

    #[test]
    fn records_become_accesses() {
        let record = |value: u64, kind: u64, shift: u64, task: u64| {
            (value | kind << 48 | shift << 50 | task << 54).to_le_bytes().to_vec()
        };
        let mut sent = record(0x7fff_0000_1000, 0, 3, 0);
        sent.extend(record(90, 2, 0, 5));
        sent.extend(record(0x103c, 1, 3, 5));
        // Another task's record may come between the two of a release.
        sent.extend(record(0x5000, 3, 0, 5));
        sent.extend(record(0x9000, 3, 0, 0));
        sent.extend(record(300_000, 3, 1, 5));
        sent.extend([1, 2, 3]);
        let mut trace = Vec::new();
        let summary = convert(sent.as_slice(), &mut trace).unwrap();
        assert_eq!((summary.tasks, summary.records, summary.touched_pages), (6, 6, 2));
        let tasks = TraceReader::new(trace.as_slice()).unwrap().read_all().unwrap();
        assert_eq!(tasks[0], [Access::read(0x7fff_0000_1000)]);
        let most = Access::MOST_RELEASED_PAGES;
        let released = [Access::release(5, most), Access::release(5 + most, 300_000 - most)];
        let expected = [Access::compute_ns(30), Access::write(0x103c), Access::write(0x1040)];
        assert_eq!(tasks[5], [expected.as_slice(), released.as_slice()].concat());
    }

    #[test]
    fn scripts_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(!is_x86_64_program(&script).unwrap());
        assert!(is_x86_64_program(&std::env::current_exe().unwrap()).unwrap());
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = missing("qemu-x86_64", "install the package qemu-user").to_string();
        assert_eq!(error, "recording: qemu-x86_64: not found; install the package qemu-user");
    }

    /// Runs where QEMU and a compiler are installed; elsewhere it checks that this is said.
    #[test]
    fn a_real_program_is_recorded() {
        let mut trace = Vec::new();
        let arguments =
            ["if=/dev/zero", "of=/dev/null", "bs=1M", "count=4", "status=none"].map(OsString::from);
        match record(OsStr::new("dd"), &arguments, &mut trace, |_| ()) {
            Ok(recorded) => {
                assert!(recorded.status.success());
                let (mut reads, mut writes, mut released_pages) = (0, 0, 0);
                let reader = TraceReader::new(trace.as_slice()).unwrap();
                let summary = reader
                    .for_each(|_, access| match access.action() {
                        Action::Read(_) => reads += 1,
                        Action::Write(_) => writes += 1,
                        Action::Release(_, pages) => released_pages += pages,
                        Action::ComputeNs(_) => {}
                    })
                    .unwrap();
                assert_eq!(summary, recorded.summary);
                // The kernel fills a mebibyte four times, and reads it as often.
                let lines = 4 * (1 << 20) / LINE_BYTES;
                assert!(reads > lines && writes > lines, "{reads} {writes}");
                assert!(released_pages > 0, "a program gives some back while it starts");
            }
            Err(TraceError::Record { remedy, .. }) => assert!(remedy.starts_with("install"), "{remedy}"),
            Err(other) => panic!("{other}"),
        }
    }
}
