//! `spillway tier`: a daemon that moves pages of processes between fast and slow memory nodes.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use signal_hook::consts::signal as signals;
use spillway_core::size::Size;
use spillway_marker::wire::SOCKET_VARIABLE;
use spillway_report::whole_file;
use spillway_sys::{machine, process};
use spillway_tier::daemon::Daemon;
use spillway_tier::group::{Config, Group, LocalBudget};
use spillway_tier::markers::{self, Markers, Migration};
use spillway_tier::nodes::NodeSet;
use spillway_tier::pace::ScanPace;
use spillway_tier::service::{self, JOURNAL, STATE_DIRECTORY, Service};
use spillway_tier::settings::{self, KernelSettings};
use spillway_tier::source::Choice;
use spillway_tier::status::Request;

use crate::exit::{self, Refusal, complain};
use crate::run::preload;

/// What is managed where the command line says nothing.
const CONFIGURATION: &str = "/etc/spillway/tier.toml";

const EXAMPLE: &str = "\
Examples:
  spillway tier --local 20% --policy hotbox -- redis-server
  spillway tier --slow 1 --local 4G --policy indigo --pid 1234
  spillway tier --config /etc/spillway/tier.toml
  spillway tier status

Exit status: the program's own; 0 when all processes have ended or a signal
ended the daemon; 125 if it could not start or go on, 126 if the program cannot
be executed, 127 if it was not found.";

const STATUS_EXAMPLE: &str = "\
Examples:
  spillway tier status
  spillway tier status --json

Exit status: 0, or 1 if no daemon runs.";

/// Move pages of running processes between fast and slow memory nodes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE, args_conflicts_with_subcommands = true)]
pub struct TierArgs {
    #[command(subcommand)]
    command: Option<TierCommand>,
    /// Nodes of fast memory, such as 0,2-3 [default: those with CPUs]
    #[arg(long, value_name = "NODES")]
    fast: Option<NodeSet>,
    /// Nodes of slow memory [default: those without CPUs, or in a slower tier]
    #[arg(long, value_name = "NODES")]
    slow: Option<NodeSet>,
    /// Most fast memory: a size, or a share of what the processes have [default: all]
    #[arg(long, value_name = "SIZE|PCT")]
    local: Option<LocalBudget>,
    /// The policy; 'spillway lab list' names them
    #[arg(long, value_name = "NAME", default_value = "hotbox")]
    policy: String,
    /// A setting of the policy, such as throttle=false; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
    /// A process to manage; may be repeated
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// A control group to manage, by its directory; may be repeated
    #[arg(long, value_name = "PATH")]
    cgroup: Vec<PathBuf>,
    /// Groups and their limits from a TOML file [default: /etc/spillway/tier.toml]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "cgroup", "program", "local", "settings"])]
    config: Option<PathBuf>,
    /// Where knowledge of use comes from: page-tables, idle-pages, hardware-samples, damon, hint-faults or
    /// auto
    #[arg(long, value_name = "NAME", default_value = "auto")]
    source: Choice,
    /// Counters of accesses by node for HotBox's pauses, and of the link to slow memory where it has them, as
    /// a file that can be mapped [default: telemetry, and probes]
    #[arg(long, value_name = "FILE")]
    counters: Option<PathBuf>,
    /// Most memory to move in a second
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    rate: Size,
    /// Most of one core that telemetry, policy and moves may take, in percent
    #[arg(long, value_name = "PCT", default_value_t = 2.0)]
    telemetry_cpu: f64,
    /// Least time between two scans, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100)]
    scan_interval: u64,
    /// How marked pages of PROGRAM come to fast memory: 'on-demand', by their next access, which stops at the
    /// page; 'batches', with all that a scan found accessed; 'auto', the first that works here
    #[arg(long, value_name = "HOW", default_value = "batches")]
    migration: Migration,
    /// What decides when scans come: the budget of --telemetry-cpu alone ('budget'), or up to eight times as
    /// often while fast memory is short of free pages ('pressure')
    #[arg(long, value_name = "PACE", default_value = "budget")]
    scan_pace: ScanPace,
    /// Most of one core that measuring the way to slow memory may take, in percent; 0: measure it once
    #[arg(long, value_name = "PCT", default_value_t = 0.1)]
    link_cpu: f64,
    /// Go on although the kernel migrates pages by itself
    #[arg(long)]
    beside_kernel: bool,
    /// Turn NUMA balancing and demotion off meanwhile, and put them back at the end
    #[arg(long, conflicts_with = "beside_kernel")]
    pause_kernel: bool,
    /// Where the daemon's socket lies
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state: PathBuf,
    /// Write the last status to this file at the end, as JSON
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// A program to run and manage, with what it starts
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum TierCommand {
    Status(StatusArgs),
}

/// Say what the daemon does: what is where, what moved in the last minute and why.
#[derive(Args, Debug)]
#[command(after_help = STATUS_EXAMPLE)]
struct StatusArgs {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    /// Where the daemon's socket lies
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state: PathBuf,
}

/// A setting of a policy.
#[derive(Clone, Debug)]
struct Setting(String, Value);

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or(format!("'{text}' is no setting: write KEY=VALUE"))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        Ok(Self(key.to_owned(), value))
    }
}

fn refuse(error: impl std::fmt::Display) -> Refusal {
    (exit::CANNOT_START, format!("tier: {error}"))
}

/// Runs the daemon, or asks one for its status.
pub fn run(args: TierArgs) -> ExitCode {
    let ended = match &args.command {
        Some(TierCommand::Status(status)) => print_status(status),
        None => manage(&args),
    };
    ended.unwrap_or_else(|(status, text)| {
        complain(text);
        ExitCode::from(status)
    })
}

impl TierArgs {
    fn config(&self) -> Result<Config, Refusal> {
        let named = !self.pid.is_empty() || !self.cgroup.is_empty() || !self.program.is_empty();
        let mut config = if named {
            let group = Group {
                name: "command-line".to_owned(),
                policy: self.policy.clone(),
                settings: self
                    .settings
                    .iter()
                    .map(|Setting(key, value)| (key.clone(), value.clone()))
                    .collect(),
                local: self.local,
                pids: self.pid.clone(),
                cgroups: self.cgroup.clone(),
            };
            Config {
                source: self.source,
                migration_per_s: self.rate.bytes().to_string(),
                telemetry_cpu_pct: self.telemetry_cpu,
                scan_interval_ms: self.scan_interval,
                scan_pace: self.scan_pace,
                link_cpu_pct: self.link_cpu,
                group: vec![group],
                ..Config::default()
            }
        } else {
            let path = self.config.as_deref().unwrap_or(Path::new(CONFIGURATION));
            if self.config.is_none() && !path.exists() {
                return Err(refuse(format!(
                    "nothing to manage; give --pid, --cgroup or -- PROGRAM, or write {CONFIGURATION}"
                )));
            }
            Config::read(path).map_err(refuse)?
        };
        config.fast = self.fast.clone().or(config.fast);
        config.slow = self.slow.clone().or(config.slow);
        config.counters = self.counters.clone().or(config.counters);
        config.beside_kernel |= self.beside_kernel;
        config.pause_kernel |= self.pause_kernel;
        Ok(config)
    }
}

/// Which signal asks us to end; 0 for none.
fn ending_signal() -> Result<Arc<AtomicUsize>, Refusal> {
    let received = Arc::new(AtomicUsize::new(0));
    for signal in [signals::SIGINT, signals::SIGTERM, signals::SIGHUP] {
        signal_hook::flag::register_usize(signal, received.clone(), signal as usize).map_err(refuse)?;
    }
    Ok(received)
}

/// Listens for markers, or says why pages move in batches.
fn open_markers(args: &TierArgs, config: &Config) -> Result<(Option<Markers>, String), Refusal> {
    let none = |why: String| match args.migration {
        Migration::OnDemand => Err(refuse(format!("--migration on-demand: {why}; take batches"))),
        Migration::Auto | Migration::Batches => Ok((None, why)),
    };
    if args.migration == Migration::Batches {
        return none("--migration says so".to_owned());
    }
    let policies =
        config.group.iter().map(Group::build_policy).collect::<Result<Vec<_>, _>>().map_err(refuse)?;
    if args.program.is_empty() {
        return none("only a program that the daemon starts can have a marker".to_owned());
    }
    if !policies.iter().any(|policy| policy.marks_to_promote()) {
        return none(format!("{} marks pages to learn what is used, too many to stop at each", args.policy));
    }
    if machine::preload_library().is_none() {
        return none("the preload library is missing".to_owned());
    }
    match Markers::open() {
        Ok(markers) if args.migration == Migration::OnDemand => {
            Ok((Some(markers), "it was named".to_owned()))
        }
        Ok(markers) => Ok((Some(markers), "the best that works here".to_owned())),
        Err(reason) => none(markers::why(reason)),
    }
}

fn start_program(words: &[OsString], markers: Option<&Markers>) -> Result<Child, Refusal> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    if let (Some(markers), Some(library)) = (markers, machine::preload_library()) {
        command.env(SOCKET_VARIABLE, markers.name()).env("LD_PRELOAD", preload(&library));
    }
    // Pages are moved one by one: a huge page with one hot part would come whole.
    process::without_huge_pages(&mut command);
    command.spawn().map_err(|error| {
        let status = exit::cannot_execute(&error);
        (status, format!("tier: {}", exit::why_not_executed(Path::new(&words[0]), &error)))
    })
}

fn manage(args: &TierArgs) -> Result<ExitCode, Refusal> {
    let config = args.config()?;
    if args.program.is_empty()
        && config.group.iter().all(|group| group.pids.is_empty() && group.cgroups.is_empty())
    {
        return Err(refuse("no group has pids or cgroups; nothing would ever be managed"));
    }
    config.check().map_err(refuse)?;
    let (markers, why) = open_markers(args, &config)?;
    let mut service = Service::open(&args.state).map_err(refuse)?;
    let mut settings = settle_kernel(args, &config)?;
    Daemon::check(&config).map_err(refuse)?;
    let signal = ending_signal()?;
    let mut program = match args.program.as_slice() {
        [] => None,
        words => Some(start_program(words, markers.as_ref())?),
    };
    let started = Daemon::start(config, program.as_ref().map(Child::id), &mut settings).map_err(refuse);
    let managed = started.and_then(|mut daemon| {
        daemon.migrate_by(markers, why);
        announce(&daemon);
        let managed = serve(&mut daemon, &mut service, &signal, program.as_mut());
        write_stats(args, &daemon);
        managed
    });
    drop((service, settings));
    // A program that we started outlives what became of us.
    let code = program.map_or(ExitCode::SUCCESS, |program| end_with(program, signal.load(Ordering::Acquire)));
    managed.map(|()| code)
}

/// Puts back what a daemon left changed that was killed, and changes what this one is to change.
fn settle_kernel(args: &TierArgs, config: &Config) -> Result<KernelSettings, Refusal> {
    let (mut settings, restored) = KernelSettings::open(&args.state.join(JOURNAL)).map_err(refuse)?;
    for path in restored {
        complain(format!("tier: {}: put back as it was before a daemon that was killed", path.display()));
    }
    if config.pause_kernel {
        settings::pause_kernel(Path::new("/"), &mut settings).map_err(refuse)?;
    }
    Ok(settings)
}

/// Takes turns until all has ended or a signal came.
fn serve(
    daemon: &mut Daemon,
    service: &mut Service,
    signal: &AtomicUsize,
    mut program: Option<&mut Child>,
) -> Result<(), Refusal> {
    while signal.load(Ordering::Acquire) == 0 {
        let Some(wait) = daemon.turn().map_err(refuse)? else { return Ok(()) };
        service.serve(wait, daemon.also_waits_for(), &mut |request| daemon.answer(request));
        // Reaped here, so that its number is not held by what is left of it.
        if let Some(program) = program.as_mut() {
            let _ = program.try_wait();
        }
    }
    Ok(())
}

/// Waits for the program, after passing on what ended us, and ends as it does.
fn end_with(mut program: Child, signal: usize) -> ExitCode {
    let running = matches!(program.try_wait(), Ok(None));
    if let (true, Some(signal)) = (running, Signal::from_named_raw(signal as i32)) {
        let _ = kill_process(Pid::from_child(&program), signal);
    }
    match program.wait() {
        Ok(status) => {
            if let Some(signal) = status.signal() {
                process::end_by_signal(signal);
            }
            ExitCode::from(status.code().unwrap_or(exit::CANNOT_START.into()) as u8)
        }
        Err(error) => {
            complain(format!("tier: cannot wait for the program: {error}"));
            ExitCode::from(exit::CANNOT_START)
        }
    }
}

fn announce(daemon: &Daemon) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let status = daemon.status();
        let groups = status.groups.len();
        let _ = writeln!(
            stderr,
            "spillway: tier: {groups} group(s); fast nodes {}, slow nodes {}; telemetry from {}",
            status.fast, status.slow, status.source.name
        );
    }
}

fn write_stats(args: &TierArgs, daemon: &Daemon) {
    let Some(path) = &args.stats else { return };
    let json = serde_json::to_string_pretty(&daemon.status()).unwrap_or_default();
    if let Err(error) = whole_file::write(path, format!("{json}\n")) {
        complain(format!("tier: --stats {}: {error}; name a file that can be written", path.display()));
    }
}

fn print_status(args: &StatusArgs) -> Result<ExitCode, Refusal> {
    let failed = |error: service::ServiceError| (1, format!("tier: {error}"));
    let status = service::ask(&args.state, &Request::Status).map_err(failed)?;
    let text = if args.json { format!("{status:#}\n") } else { describe(&status) };
    print(&text)
}

/// Prints a report; a reader that went away has seen what it wanted.
pub fn print(text: &str) -> Result<ExitCode, Refusal> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err((1, format!("standard output: {error}; the report could not be printed")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// A number of bytes out of a report.
pub fn bytes(value: &Value) -> Size {
    Size::from_bytes(value.as_u64().unwrap_or(0))
}

/// Why a page moved, in words.
pub fn reason(value: &Value) -> &str {
    match value.as_str() {
        Some("accessed") => "hot, and accessed",
        Some("placement") => "beyond the budget when first seen",
        _ => "by the policy, in the background",
    }
}

fn describe(status: &Value) -> String {
    let mut text = String::new();
    let uptime = Duration::from_secs_f64(status["uptime_s"].as_f64().unwrap_or(0.0).max(0.0));
    let _ = writeln!(
        text,
        "process {}, for {} s; fast nodes {}, slow nodes {}",
        status["pid"],
        uptime.as_secs(),
        status["fast"].as_str().unwrap_or_default(),
        status["slow"].as_str().unwrap_or_default()
    );
    let cpu_pct = status["cpu_pct"].as_f64().unwrap_or(0.0);
    let _ = writeln!(
        text,
        "telemetry from {} ({}); {} managed, CPU {cpu_pct:.1}% of a core",
        status["source"]["name"].as_str().unwrap_or_default(),
        status["source"]["why"].as_str().unwrap_or_default(),
        bytes(&status["managed_bytes"])
    );
    text += &describe_link(&status["link"]);
    text += &describe_migration(&status["migration"]);
    for group in status["groups"].as_array().into_iter().flatten() {
        describe_group(&mut text, group);
    }
    text
}

/// The way to slow memory, as it is at present.
fn describe_link(link: &Value) -> String {
    let number = |key: &str| link[key].as_f64().unwrap_or(0.0);
    format!(
        "slow memory answers in {:.0} ns (idle {:.0}, fast memory {:.0}); {:.0}% of {}/s left, by {} ({})\n",
        number("latency_ns"),
        number("idle_latency_ns"),
        number("local_latency_ns"),
        number("available_share") * 100.0,
        Size::from_bytes(number("bytes_per_s") as u64),
        link["source"].as_str().unwrap_or_default(),
        link["why"].as_str().unwrap_or_default(),
    )
}

/// How marked pages come to fast memory.
fn describe_migration(migration: &Value) -> String {
    let by = migration["by"].as_str().unwrap_or_default();
    let why = migration["why"].as_str().unwrap_or_default();
    let count = |key: &str| migration[key].as_u64().unwrap_or(0);
    if by != "on-demand" {
        return format!("marked pages migrate in {by} ({why})\n");
    }
    let mut text = format!(
        "marked pages migrate on demand ({why}): {} process(es) with a marker; {} pages marked, \
         {} accessed since, {} given back\n",
        count("markers"),
        count("marked"),
        count("accessed"),
        count("returned"),
    );
    for (name, pages) in migration["refused"].as_object().into_iter().flatten() {
        let _ = writeln!(text, "  not marked {pages} pages: {}", name.replace('_', " "));
    }
    text
}

fn describe_group(text: &mut String, group: &Value) {
    let name = |key: &str| group[key].as_str().unwrap_or_default().to_owned();
    let count = |key: &str| group[key].as_u64().unwrap_or(0);
    let processes = group["processes"].as_array().map_or(0, Vec::len);
    let _ = writeln!(text, "\n{}: {}, {processes} process(es)", name("name"), name("policy"));
    let _ = writeln!(
        text,
        "  local      {} of at most {}; far {}",
        bytes(&group["local_bytes"]),
        bytes(&group["local_limit_bytes"]),
        bytes(&group["far_bytes"])
    );
    let _ = writeln!(
        text,
        "  scans      {} by {}, {} of them early; the last two {:.0} ms apart",
        count("scans"),
        name("scan_pace"),
        count("early_scans"),
        group["scan_interval_ms"].as_f64().unwrap_or(0.0)
    );
    let alone = &group["left_alone"];
    let _ = writeln!(
        text,
        "  left alone {} shared or files', {} locked, {} bound",
        bytes(&alone["shared_bytes"]),
        bytes(&alone["locked_bytes"]),
        bytes(&alone["bound_bytes"])
    );
    if let Some(ratio) = group["local_use_ratio"].as_f64() {
        let _ = writeln!(text, "  in use     {:.1}% of pages found in use were local", ratio * 100.0);
    }
    let _ = writeln!(
        text,
        "  moved      {} pages promoted ({} used since), {} demoted",
        count("promotions"),
        count("promotions_used"),
        count("demotions")
    );
    for sum in group["last_minute"].as_array().into_iter().flatten() {
        let to = sum["to"].as_str().unwrap_or_default();
        let pages = sum["pages"].as_u64().unwrap_or(0);
        let _ = writeln!(text, "  last minute {pages} pages {to}: {}", reason(&sum["reason"]));
    }
    for (name, pages) in group["refused"].as_object().into_iter().flatten() {
        let _ = writeln!(text, "  not moved  {pages} pages: {}", name.replace('_', " "));
    }
    if let Some(why) = group["paused"].as_str() {
        let _ = writeln!(text, "  paused     {why}");
    }
    if let Some(remark) = group["remark"].as_str() {
        let _ = writeln!(text, "  by         {remark}");
    }
    if let Some(why) = group["ended"].as_str() {
        let _ = writeln!(text, "  ended      {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_pages_migrate_is_told_in_one_line() {
        let batches = serde_json::json!({ "by": "batches", "why": "it was named", "markers": 0 });
        assert_eq!(describe_migration(&batches), "marked pages migrate in batches (it was named)\n");
        let on_demand = serde_json::json!({
            "by": "on-demand", "why": "the best that works here", "markers": 2, "marked": 50, "accessed": 40,
            "returned": 3, "refused": { "not_there": 7 },
        });
        assert_eq!(
            describe_migration(&on_demand),
            "marked pages migrate on demand (the best that works here): 2 process(es) with a marker; \
             50 pages marked, 40 accessed since, 3 given back\n  not marked 7 pages: not there\n"
        );
    }

    #[test]
    fn the_way_to_slow_memory_is_told_in_one_line() {
        let link = serde_json::json!({
            "source": "probes", "why": "several nodes are fast", "latency_ns": 612.4,
            "idle_latency_ns": 410.0, "local_latency_ns": 96.0, "bytes_per_s": 10_u64 << 30,
            "available_share": 0.335,
        });
        assert_eq!(
            describe_link(&link),
            "slow memory answers in 612 ns (idle 410, fast memory 96); 34% of 10.0 GiB/s left, by probes \
             (several nodes are fast)\n"
        );
    }
}
