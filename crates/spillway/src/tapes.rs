//! `spillway run --tape`: a directory of tapes, one for each program, input and local limit.
//!
//! Whatever is wrong with the directory or a tape costs a line on stderr, and no program.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use spillway_core::size::Size;
use spillway_events::catalogue::run as told;
use spillway_pager::run::state::{Counter, RunState};
use spillway_pager::run::supervisor::{TapeKeeper, TapeParts};
use spillway_pager::run::tape_log::{TapeCounter, TapeLog};
use spillway_policy::tape::{Score, Tape};
use spillway_sys::sealed_memory::SealedMemory;
use twox_hash::XxHash3_128;

/// A program that fetched less often than this has no tape: there is nothing to gain.
const LEAST_RUNS: usize = 256;
/// Nothing is said of a tape by fewer pages, or faults.
const LEAST_COUNTED: u64 = 256;
/// Bytes that a tape can have: what the most runs of the most mappings take, and to spare.
const MOST_BYTES: u64 = 64 << 20;
/// Characters of a program's name in that of its tape.
const NAME_CHARS: usize = 40;

fn complain(text: impl Display) {
    told::tape(&text.to_string());
}

/// A directory of tapes.
pub struct Shelf {
    directory: PathBuf,
    local: Size,
    open: Vec<Open>,
}

/// The tape of a program that runs.
struct Open {
    pid: u32,
    program: Program,
    path: PathBuf,
    log: TapeLog,
    is_played: bool,
}

/// What a tape is kept by.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Program {
    name: String,
    key: u128,
}

impl Program {
    /// The program of a process: its file, as it was built, its arguments, the sizes of the files that they
    /// name, and how much is local.
    fn of_process(pid: u32, local: Size) -> std::io::Result<Self> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let file = fs::read_link(process.join("exe"))?;
        let built = fs::metadata(process.join("exe"))?;
        let command = fs::read(process.join("cmdline"))?;
        let folder = fs::read_link(process.join("cwd"))?;
        let mut key = Key::default();
        key.add(file.as_os_str().as_bytes());
        key.add_numbers(&[built.size(), built.mtime().cast_unsigned(), local.bytes()]);
        for argument in command.split(|&byte| byte == 0).skip(1) {
            key.add(argument);
            let input = fs::metadata(folder.join(OsStr::from_bytes(argument)));
            let size = input.ok().filter(|input| input.is_file() && !argument.is_empty());
            key.add_numbers(&[size.map_or(u64::MAX, |input| input.len())]);
        }
        let name = file.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
        let plain =
            |char: char| if char.is_ascii_alphanumeric() || "._+-".contains(char) { char } else { '_' };
        let name = name.trim_start_matches('.').chars().map(plain).take(NAME_CHARS).collect();
        Ok(Self { name, key: key.0.finish_128() })
    }
}

/// What is told apart, each with its length.
#[derive(Default)]
struct Key(XxHash3_128);

impl Key {
    fn add(&mut self, bytes: &[u8]) {
        self.add_numbers(&[bytes.len() as u64]);
        self.0.write(bytes);
    }

    fn add_numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.0.write(&number.to_le_bytes()));
    }
}

impl Shelf {
    /// The tapes of a directory, which is made if it is not there, for runs with so much local memory.
    #[must_use]
    pub fn new(directory: &Path, local: Size) -> Self {
        if let Err(error) = fs::create_dir_all(directory) {
            complain(format_args!("run: --tape {}: {error}; the program runs without", directory.display()));
        }
        Self { directory: directory.to_owned(), local, open: Vec::new() }
    }

    fn open(&self, pid: u32) -> std::io::Result<(Open, TapeParts)> {
        let program = Program::of_process(pid, self.local)?;
        let path = self.directory.join(format!("{}-{:032x}.tape", program.name, program.key));
        let played = load(&path, program.key).unwrap_or_else(|why| {
            complain(format_args!("run: --tape {}: {why}; it is recorded anew", path.display()));
            None
        });
        let tape =
            played.map(|tape| SealedMemory::create("spillway-tape", &Score::words(&tape))).transpose()?;
        let (fd, log) = TapeLog::create()?;
        let is_played = tape.is_some();
        Ok((Open { pid, program, path, log, is_played }, TapeParts { log: fd, tape }))
    }
}

/// The tape of a file, if there is one; or why it is of no use.
fn load(path: &Path, key: u128) -> Result<Option<Tape>, String> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| error.to_string())?,
    };
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let tape = Tape::decode(&bytes).map_err(|error| error.to_string())?;
    if tape.key == key { Ok(Some(tape)) } else { Err("it is another program's".to_owned()) }
}

/// Puts a tape where the next run looks for it, whole or not at all.
fn keep(path: &Path, tape: &Tape) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let fresh = PathBuf::from(name);
    let written = File::create(&fresh).and_then(|mut file| {
        file.write_all(&tape.encode())?;
        file.sync_data()?;
        fs::rename(&fresh, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

/// Why a tape that was played is worth nothing, if it is not.
fn fault_of(log: &TapeLog) -> Option<String> {
    use TapeCounter::{Fetches, FetchesOnTape, PagesBrought, PagesUsed};
    let count = |counter| log.counted(counter);
    let (brought, used) = (count(PagesBrought), count(PagesUsed));
    if brought >= LEAST_COUNTED && 2 * used < brought {
        return Some(format!("of {brought} pages that came by it {used} were used"));
    }
    // Each page that came by it and was used spared a fault.
    let (needed, foretold) = (count(Fetches) + used, count(FetchesOnTape) + used);
    (needed >= LEAST_COUNTED && 8 * foretold < needed)
        .then(|| format!("of {needed} pages that the program came back to it had {foretold}"))
}

impl Open {
    fn end(self, run: &RunState) {
        let Self { program, path, log, is_played, .. } = self;
        let complain =
            |what: std::fmt::Arguments<'_>| complain(format_args!("run: --tape {}: {what}", path.display()));
        if is_played {
            run.count(Counter::TapesPlayed, 1);
            let Some(fault) = fault_of(&log) else { return };
            run.count(Counter::TapesDropped, 1);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    complain(format_args!("{fault}; it cannot be dropped: {error}"))
                }
                _ => complain(format_args!("{fault}; it is dropped")),
            }
            return;
        }
        let tape = log.tape(program.key);
        if tape.threads.iter().map(Vec::len).sum::<usize>() < LEAST_RUNS {
            return;
        }
        match keep(&path, &tape) {
            Ok(()) => run.count(Counter::TapesRecorded, 1),
            Err(error) => complain(format_args!("{error}; it is not kept")),
        }
    }
}

impl TapeKeeper for Shelf {
    fn begin(&mut self, pid: u32) -> Option<TapeParts> {
        match self.open(pid) {
            Ok((open, parts)) => {
                self.open.push(open);
                Some(parts)
            }
            Err(error) => {
                complain(format_args!("run: --tape: {error}; process {pid} runs without"));
                None
            }
        }
    }

    fn end(&mut self, pid: u32, run: &RunState) {
        if let Some(place) = self.open.iter().position(|open| open.pid == pid) {
            self.open.remove(place).end(run);
        }
    }
}
