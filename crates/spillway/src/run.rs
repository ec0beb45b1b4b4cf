//! `spillway run`: starts a program whose memory is managed, and supervises it.

use std::ffi::OsString;
use std::fs;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::{Args, ValueEnum};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::consts::signal as signals;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Sent};
use spillway_core::size::Size;
use spillway_events::catalogue::run as told;
use spillway_pager::run::program::{self, Program};
use spillway_pager::run::report::Report;
use spillway_pager::run::settings::{Block, FaultMode, MIN_LOCAL_BYTES, RUN_VARIABLE, Seal, Settings};
use spillway_pager::run::state::Counter;
use spillway_pager::run::supervisor::Supervisor;
use spillway_pager::run::views::BusyPagers;
use spillway_report::whole_file;
use spillway_snapshot::directory::Of;
use spillway_sys::{machine, process};

use crate::columns::for_terminal_on;
use crate::configuration::Configuration;
use crate::continuing;
use crate::ending::{self, ENDING};
use crate::exit::{self, Refusal, complain};
use crate::kept_library::{self, KeptLibrary};
use crate::local_limit::LocalLimit;
use crate::log::LogArgs;
use crate::run_events::{self, RunEvents};
use crate::run_recorder::Recording;
use crate::run_stores::{Statistics, StoresSeen};
use crate::tapes::Shelf;
use crate::watch::endpoint::{Endpoint, Place};
use crate::watch::run_snapshot;
use crate::watch::teller::{Teller, Telling};

/// Signals that end, stop or inform a program and that others send to it by its pid, which is ours.
const FORWARDED: [i32; 11] = [
    signals::SIGHUP,
    signals::SIGINT,
    signals::SIGQUIT,
    signals::SIGTERM,
    signals::SIGUSR1,
    signals::SIGUSR2,
    signals::SIGWINCH,
    signals::SIGALRM,
    signals::SIGPIPE,
    signals::SIGTSTP,
    signals::SIGCONT,
];

const EXAMPLE: &str = "\
Example:
  spillway run --local 512M --store compressed: -- sort -S 2G big.txt

Stores, filled in the order given:
  compressed:[?size=SIZE]            compressed RAM of this machine (default)
  ram:[?size=SIZE]                   plain copies in RAM, for measurements
  file:PATH?size=SIZE                a file or block device
  nbds://HOST/EXPORT?tls-certificates=DIR
                                     a donor, or any NBD server, by TLS
  nbd://HOST:PORT/EXPORT             the same without TLS; with ?plain where
                                     that is another machine
  nbd+unix:///EXPORT?socket=PATH     the same over a Unix socket
  shm:NAME                           a donor on this machine
  pool:HOST:PORT,HOST:PORT,...       several donors: of six and more any two
                                     may die (data=4&parity=2), of fewer one
                                     (copies=2)
  pool:etcd://HOST:PORT/NAME         the same by those that are registered
                                     there ('spillway donor --pool'); etcds://
                                     speaks TLS to etcd
A donor takes size=SIZE, what the program may need of it: the run is promised
that, or does not start; without it the run is promised what the donor gives.
ram: and shm: take fabric=fdr, a model of InfiniBand FDR, for measurements.
nbd:, nbd+unix: and shm: take, as ?NAME=VALUE&NAME=VALUE at the end:
  timeout=SECONDS                    give up a server silent for so long (60)
  reconnect=SECONDS                  give up one that is away for so long (10)
nbd: and nbd+unix: also, where the server is no donor of Spillway's:
  claim=free|take|none               refuse an export that another run uses
                                     (free), take it, or do not look
pool: takes copies=, least=, data=, parity=, size=, timeout= (2), reconnect=,
domain=, claim=, rebuild=, tls-certificates= and plain: see
docs/operate/pool.md. With spill=file:PATH (and spill-size=) pages for which
donors have no room go to a file of this machine.

Configuration file, with what is so without it ('bench physical --pool' makes
one of what it measures):
  [pool.local]
  reserve_bytes = \"4M\"            zeros kept ready for streams of first writes
  victim_window_pages = 512       oldest pages of which neighbours leave first
  by_reference = true             scattered pages leave with one flush a batch
  copy_share = 0.125              local pages, of the limit, of which
                                  compressed: keeps a copy
  huge_pages = false              ask for huge pages, and re-form them
  [pool.local.background]
  bytes_per_s = \"1G\"              most that is moved ahead of need; 0: no bound
  [fetch]
  overlap = true                  make room while a page is on its way
  strides = \"auto\"                off, trend, rounds: fetch where threads step
                                  to; auto: rounds where a store answers later
  huge_streams = false            streams go by huge pages of 2M

Exit status: the program's own; 125 if Spillway could not start it, 126 if it
cannot be executed, 127 if it was not found.

SIGHUP, SIGINT, SIGQUIT and SIGTERM are passed on. A program that was told so
and hangs, waiting for memory that does not come, is killed within a second.";

/// Run a program with less local memory than it needs.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct RunArgs {
    /// Most memory that the program and its children keep local, such as 512M; or a share, such as 25%, of
    /// the memory that they could use: the machine's, or their control group's if that is less
    #[arg(long, value_name = "SIZE|PCT")]
    pub local: LocalLimit,
    /// Where the rest is kept; several are filled in the order given
    #[arg(long, value_name = "URI", default_value = "compressed:")]
    pub store: Vec<String>,
    /// Start without those of several stores that cannot be used now
    #[arg(long)]
    pub allow_missing_stores: bool,
    /// How much is fetched at once: streams follows the program's faults, elastic is dcm's blocks of up to
    /// 64K (elastic:2M: of up to 2M), or a size from 4K to 2M
    #[arg(long, value_name = "BLOCK", default_value = "streams")]
    pub block: Block,
    /// Who serves faults: a pager thread, or the faulting thread itself, which is faster over stores in
    /// memory [default: $SPILLWAY_FAULT_MODE, or auto]
    #[arg(long, value_name = "MODE", value_enum)]
    pub fault_mode: Option<AskedMode>,
    /// Which stores' pages are encrypted and signed before they leave, with a key that the run alone has
    #[arg(long, value_name = "STORES", value_enum, default_value_t)]
    pub seal: AskedSeal,
    /// Settings of each tier's frames, and of what leaves first ([replacement]) (TOML) [default:
    /// /etc/spillway/run.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Write a JSON summary to this file when the program ends
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
    /// Tell metrics to Prometheus there, as OpenMetrics text: ADDR:PORT, :PORT (of this machine alone) or
    /// unix:PATH
    #[arg(long, value_name = "WHERE")]
    pub metrics: Option<Place>,
    #[command(flatten)]
    pub log: LogArgs,
    /// Print the summary to stderr as JSON
    #[arg(long)]
    pub json: bool,
    /// Write what the pager does to this file, for 'spillway lab replay'; each further program of the run
    /// writes FILE.2, FILE.3 and so on, forked children none
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Record where the program faults on a tape in this directory, or fetch by the tape that it has of the
    /// same program, arguments and --local (with --block streams); a tape that proves useless is dropped
    #[arg(long, value_name = "DIR")]
    pub tape: Option<PathBuf>,
    /// The program and its arguments; options of Spillway's go before it
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Environment variable that stands in for `--fault-mode`.
const FAULT_MODE_VARIABLE: &str = "SPILLWAY_FAULT_MODE";

/// What `--fault-mode` can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AskedMode {
    /// Inline where all stores are memory of this machine
    #[default]
    Auto,
    /// A thread of the pager's
    Thread,
    /// The thread that faults itself
    Inline,
}

impl AskedMode {
    fn of_environment() -> Result<Self, Refusal> {
        let Ok(text) = std::env::var(FAULT_MODE_VARIABLE) else { return Ok(Self::Auto) };
        Self::from_str(&text, false).map_err(|_| {
            refuse(format!(
                "{FAULT_MODE_VARIABLE} is '{text}'; set it to auto, thread or inline, or unset it"
            ))
        })
    }

    fn by_name(self) -> Option<FaultMode> {
        match self {
            Self::Auto => None,
            Self::Thread => Some(FaultMode::Thread),
            Self::Inline => Some(FaultMode::Inline),
        }
    }
}

/// What `--seal` can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AskedSeal {
    /// Those that lead to other machines: nbd: by TCP
    #[default]
    Remote,
    /// All; compressed: cannot be among them
    All,
    /// None: whoever keeps a page can read it, and swap it for another
    None,
}

impl AskedSeal {
    /// The setting, where the stores can have it.
    fn over(self, stores: &[String]) -> Result<Seal, Refusal> {
        let seal = match self {
            Self::Remote => Seal::Remote,
            Self::All => Seal::All,
            Self::None => Seal::None,
        };
        match seal.spoils(stores) {
            None => Ok(seal),
            Some(store) => Err(refuse(format!(
                "--seal all: what is sealed cannot be compressed, so store {store} would hold less than \
                 ram:; name ram: in its place, or leave --seal out"
            ))),
        }
    }
}

/// Runs the program, and ends as it does.
pub fn run(args: RunArgs) -> ExitCode {
    if let Err(error) = args.log.begin(false) {
        complain(format!("run: {error}"));
        return ExitCode::from(exit::CANNOT_START);
    }
    match start(&args) {
        Ok(started) => started.supervise(&args),
        Err((status, text)) => {
            told::cannot_start(&text, status.into());
            ExitCode::from(status)
        }
    }
}

/// A program that runs.
struct Started {
    supervisor: Supervisor,
    child: Child,
    at: Instant,
    recording: Option<Recording>,
    teller: Option<Teller>,
    /// Absent where the kernel does not map the run's state once more.
    stores: Option<StoresSeen>,
    /// Absent where they are told as text.
    events: Option<RunEvents>,
    _library: KeptLibrary,
}

fn refuse(error: impl std::fmt::Display) -> Refusal {
    (exit::CANNOT_START, format!("run: {error}"))
}

fn start(args: &RunArgs) -> Result<Started, Refusal> {
    let local_bytes = args.local.of_this_machine().map_err(refuse)?;
    if local_bytes.bytes() < MIN_LOCAL_BYTES {
        let least = Size::from_bytes(MIN_LOCAL_BYTES);
        return Err(refuse(format!(
            "--local {} is less than a program needs to make progress; give at least {least}, such as 64M",
            args.local
        )));
    }
    if let Some(failure) = machine::essential_failures().first() {
        return Err(refuse(failure));
    }
    let configuration = Configuration::find(args.config.as_deref()).map_err(refuse)?;
    let stats = args.stats.as_deref().map(check_stats_file).transpose()?;
    let library =
        kept_library::find().ok_or_else(|| refuse("the preload library is missing; reinstall Spillway"))?;
    let program = locate(&args.program[0])?;
    let kind = program::examine(&program, rustix::process::getuid().as_raw());
    if let Some(reason) = kind.unmanaged_because() {
        let name = program.display().to_string();
        told::unmanaged(&format!("{name} runs unmanaged: {reason}"), &name, reason);
    }
    let asked = args.fault_mode.map_or_else(AskedMode::of_environment, Ok)?;
    let (fault_mode, fault_mode_reason) = FaultMode::choose(asked.by_name(), &args.store);
    if args.fault_mode == Some(AskedMode::Inline) && fault_mode == FaultMode::Thread {
        let text = format!("--fault-mode inline: faults are served by threads, for {fault_mode_reason}");
        told::not_inline(&text, &fault_mode_reason);
    }
    let settings = Settings {
        local_bytes,
        stores: args.store.clone(),
        store_slots: Vec::new(),
        block: args.block,
        fault_mode,
        fault_mode_reason,
        replacement: configuration.replacement,
        pool: configuration.pool.local,
        fetch: configuration.fetch,
        seal: args.seal.over(&args.store)?,
    };
    let metrics = args
        .metrics
        .as_ref()
        .map(Endpoint::bind)
        .transpose()
        .map_err(|error| refuse(format!("--metrics {error}")))?;
    let token = token().map_err(refuse)?;
    spillway_store::membership::open_by(spillway_etcd::open);
    let mut supervisor =
        Supervisor::with_stores(settings, token, args.allow_missing_stores).map_err(refuse)?;
    for notice in supervisor.notices() {
        told::notice(&format!("run: {notice}"));
    }
    supervisor.watch_stores(run_events::hear).map_err(refuse)?;
    let recording = args.record.as_deref().map(|path| begin_recording(path, &mut supervisor)).transpose()?;
    if let Some(directory) = &args.tape {
        supervisor.keep_tapes(Box::new(Shelf::new(directory, local_bytes)));
    }
    let busy = supervisor.busy_pagers().map_err(refuse)?;
    forward_signals(busy).map_err(refuse)?;
    let mut command = Command::new(&args.program[0]);
    command.args(&args.program[1..]);
    if !matches!(kind, Program::ForeignLoader(_)) {
        command.env(RUN_VARIABLE, supervisor.run_variable()).env("LD_PRELOAD", preload(&library.path));
    }
    process::die_with_parent(&mut command);
    let at = Instant::now();
    let child = command.spawn().map_err(|error| {
        let _ = stats;
        let status = exit::cannot_execute(&error);
        (status, format!("run: {}", exit::why_not_executed(Path::new(&args.program[0]), &error)))
    })?;
    CHILD_PID.store(child.id() as i32, Ordering::Release);
    // The program has its own limit by now.
    process::allow_many_descriptors();
    let teller = begin_to_tell(args, &supervisor, child.id(), at, metrics);
    let stores = supervisor.view().ok().map(StoresSeen::new);
    let events = args.log.is_json().then(|| RunEvents::begin(supervisor.settings(), child.id()));
    Ok(Started { supervisor, child, at, recording, teller, stores, events, _library: library })
}

/// The run goes on where nobody can look at it.
fn begin_to_tell(
    args: &RunArgs,
    supervisor: &Supervisor,
    pid: u32,
    began: Instant,
    metrics: Option<Endpoint>,
) -> Option<Teller> {
    if let (Some(endpoint), true) = (&metrics, std::io::stderr().is_terminal()) {
        let url = endpoint.url("/metrics");
        told::metrics_told(&format!("run: metrics are told at {url}"), &url);
    }
    let view = supervisor.view().map_err(|error| unseen(&error));
    let program = run_snapshot::Program { command: command_of(args), pid, began };
    let subject = Box::new(run_snapshot::RunSubject::new(view.ok()?, program));
    start_teller(Telling { of: Of::Run, subject, metrics })
}

fn unseen(reason: &dyn std::fmt::Display) {
    let reason = reason.to_string();
    told::unseen(&format!("run: 'spillway top' cannot see it: {reason}"), &reason);
}

fn start_teller(telling: Telling) -> Option<Teller> {
    match Teller::start(telling) {
        Ok((teller, failure)) => {
            failure.iter().for_each(|failure| unseen(failure));
            Some(teller)
        }
        Err(error) => {
            unseen(&error);
            None
        }
    }
}

/// The program and its arguments, for reports.
fn command_of(args: &RunArgs) -> Vec<String> {
    args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn begin_recording(path: &Path, supervisor: &mut Supervisor) -> Result<Recording, Refusal> {
    let (recording, recorder) = Recording::begin(path).map_err(|error| {
        refuse(format!("--record {}: {error}; name a file that can be written", path.display()))
    })?;
    supervisor.record(recorder);
    Ok(recording)
}

/// The statistics must not fail at the end of a long run for a reason that can be seen at its start.
fn check_stats_file(path: &Path) -> Result<(), Refusal> {
    fs::OpenOptions::new().create(true).append(true).open(path).map(|_| ()).map_err(|error| {
        refuse(format!("--stats {}: {error}; name a file that can be written", path.display()))
    })
}

fn locate(name: &OsString) -> Result<PathBuf, Refusal> {
    let search_path = std::env::var("PATH").unwrap_or_default();
    program::find(Path::new(name), &search_path).ok_or_else(|| {
        (exit::NOT_FOUND, format!("run: {}: not found; give its path, or check PATH", name.display()))
    })
}

/// The value of LD_PRELOAD that loads this library, and what it named before.
pub fn preload(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

fn token() -> std::io::Result<String> {
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

const HUNG: &str =
    "run: the program was told to end and hangs, waiting for memory that does not come; it is killed";

/// The kernel writes it when the pager's threads have ended already.
const CORE_DUMP: &str = "run: the core dump has zeros in place of memory that was far; \
    run with more --local for a whole one";

static CHILD_PID: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);

/// Passes on the signals that somebody sends to us in place of the program. What the terminal sends, it
/// sends to both. A program that is told to end and hangs in Spillway is ended.
fn forward_signals(busy: BusyPagers) -> std::io::Result<()> {
    let mut received = SignalsInfo::<WithOrigin>::new(FORWARDED)?;
    std::thread::spawn(move || {
        for origin in received.forever() {
            let by_process = matches!(origin.cause, Cause::Sent(Sent::User | Sent::Queue | Sent::TKill));
            let pid = Pid::from_raw(CHILD_PID.load(Ordering::Acquire));
            if let (true, Some(pid), Some(signal)) = (by_process, pid, Signal::from_named_raw(origin.signal))
                && (signal != Signal::CONT || continuing::is_for_program(pid))
            {
                let _ = kill_process(pid, signal);
                if ENDING.contains(&signal) {
                    let busy = busy.clone();
                    std::thread::spawn(move || {
                        ending::see_to(
                            pid,
                            signal,
                            || busy.is_busy(),
                            || busy.takes_turns(),
                            || busy.waits_for_silent(),
                            || told::program_hangs(HUNG),
                        );
                    });
                }
            }
            if origin.signal == signals::SIGTSTP {
                process::stop_by_terminal_signal();
            }
        }
    });
    Ok(())
}

impl Started {
    fn supervise(mut self, args: &RunArgs) -> ExitCode {
        let status = match self.wait() {
            Ok(status) => status,
            Err(error) => {
                let reason = error.to_string();
                told::wait_failed(&format!("run: cannot wait for the program: {reason}"), &reason);
                return ExitCode::from(exit::CANNOT_START);
            }
        };
        if status.core_dumped()
            && self.supervisor.run().counter(Counter::PagesWrittenBack).load(Ordering::Relaxed) > 0
        {
            told::core_dump_incomplete(CORE_DUMP);
        }
        self.supervisor.end_tape(self.child.id());
        self.look(true);
        self.report(args, status);
        if let Some(recording) = self.recording.take() {
            recording.end();
        }
        let telling = self.teller.take().and_then(Teller::stop);
        if self.supervisor.has_processes() {
            self.supervisor.pause_watch();
            if process::split_off() {
                self.supervisor.go_on_as_copy();
                self.stay_for_children(telling);
                return ExitCode::SUCCESS;
            }
            std::mem::forget(telling);
            // The copy goes on with what the supervisor holds open.
            std::mem::forget(self.supervisor);
        } else {
            drop((self.supervisor, telling));
        }
        if let Some(signal) = status.signal() {
            process::end_by_signal(signal);
        }
        ExitCode::from(status.code().unwrap_or(exit::CANNOT_START.into()) as u8)
    }

    /// Serves the run's processes until the program ends.
    fn wait(&mut self) -> std::io::Result<ExitStatus> {
        let pid = Pid::from_child(&self.child);
        let ended = pidfd_open(pid, PidfdFlags::empty())?;
        loop {
            self.supervisor.serve(ended.as_fd());
            self.stores.iter_mut().for_each(StoresSeen::look);
            self.look(false);
            if let Some(status) = self.child.try_wait()? {
                // Hears that the program's own connection has ended.
                self.supervisor.serve(ended.as_fd());
                return Ok(status);
            }
        }
    }

    /// Tells what is new in the run.
    fn look(&mut self, is_last: bool) {
        if let Some(events) = &mut self.events {
            events.look(self.supervisor.run(), self.supervisor.settings(), is_last);
        }
    }

    fn report(&mut self, args: &RunArgs, status: ExitStatus) {
        let exit_status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        let wall_s = self.at.elapsed().as_secs_f64();
        let (run, settings) = (self.supervisor.run(), self.supervisor.settings());
        let report = Report::new(run, settings, command_of(args), wall_s, exit_status);
        let stores = self.stores.take().map(StoresSeen::told).unwrap_or_default();
        let statistics = Statistics { report, stores };
        let json = serde_json::to_string(&statistics).unwrap_or_default();
        told::ended(
            &format!("run: the program has ended after {wall_s:.1} s, with status {exit_status}"),
            exit_status.cast_unsigned().into(),
            wall_s,
        );
        if let Some(path) = &args.stats
            && let Err(error) = whole_file::write(path, format!("{json}\n"))
        {
            let (file, reason) = (path.display().to_string(), error.to_string());
            let text = format!("run: --stats {file}: {reason}; make room there, or have --json print them");
            told::stats_unwritten(&text, &file, &reason);
        }
        let mut stderr = std::io::stderr();
        let text =
            if args.json { json } else { for_terminal_on(&stderr, statistics.report.summary().trim_end()) };
        if args.json || stderr.is_terminal() {
            let _ = writeln!(stderr, "{}", text.trim_end());
        }
    }

    /// The program has left processes behind (a daemon, say), whose memory is still managed.
    fn stay_for_children(&mut self, telling: Option<Telling>) {
        let Ok(null) = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())
        else {
            return;
        };
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
        let (reader, _writer) = match rustix::pipe::pipe() {
            Ok(ends) => ends,
            Err(_) => return,
        };
        let _teller = telling.and_then(start_teller);
        while self.supervisor.has_processes() {
            self.supervisor.serve(reader.as_fd());
            self.look(false);
        }
        self.look(true);
    }
}
