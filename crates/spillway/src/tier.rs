//! `spillway tier`: a daemon that moves pages of processes between fast and slow memory nodes.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use clap::{Args, Subcommand};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use signal_hook::consts::signal as signals;
use spillway_core::size::Size;
use spillway_events::catalogue::tier as told;
use spillway_marker::wire::SOCKET_VARIABLE;
use spillway_pager::run::rendezvous::BUILD_NUMBER;
use spillway_report::whole_file;
use spillway_sys::process;
use spillway_tier::daemon::Daemon;
use spillway_tier::group::{Config, Group, LocalBudget};
use spillway_tier::markers::{self, Markers, Migration};
use spillway_tier::nodes::NodeSet;
use spillway_tier::pace::ScanPace;
use spillway_tier::service::{self, JOURNAL, STATE_DIRECTORY, Service};
use spillway_tier::settings::{self, KernelSettings};
use spillway_tier::source::Choice;
use spillway_tier::status::Request;

use crate::columns::for_terminal;
use crate::exit::{self, Refusal, complain};
use crate::kept_library::{self, KeptLibrary};
use crate::log::LogArgs;
use crate::run::preload;
use crate::tier_described::describe;
use crate::tier_events::TierEvents;
use crate::watch::endpoint::{Endpoint, Place};
use crate::watch::http::{self, Content, OPEN_METRICS};
use crate::watch::tier_metrics;

/// What is managed where the command line says nothing.
const CONFIGURATION: &str = "/etc/spillway/tier.toml";

/// The policy of what the command line names, where it says nothing of one.
const USUAL_POLICY: &str = "hotbox";

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
    /// The policy; 'spillway lab list' names them [default: hotbox]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
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
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "cgroup", "program"])]
    config: Option<PathBuf>,
    /// Where knowledge of use comes from: page-tables, idle-pages, hardware-samples, counter-samples, damon,
    /// hint-faults or auto [default: auto]
    #[arg(long, value_name = "NAME")]
    source: Option<Choice>,
    /// Counters of accesses by node for HotBox's pauses, of the link to slow memory and samples of accesses
    /// where it has them, as a file that can be mapped [default: telemetry, and probes]
    #[arg(long, value_name = "FILE")]
    counters: Option<PathBuf>,
    /// Most memory to move in a second, for each group [default: 1G]
    #[arg(long, value_name = "SIZE")]
    rate: Option<Size>,
    /// Most of one core that telemetry, policy and moves may take, in percent [default: 2]
    #[arg(long, value_name = "PCT")]
    telemetry_cpu: Option<f64>,
    /// Least time between two scans, in milliseconds [default: 100]
    #[arg(long, value_name = "MS")]
    scan_interval: Option<u64>,
    /// How marked pages of PROGRAM come to fast memory: 'on-demand', by their next access, which stops at the
    /// page; 'batches', with all that a scan found accessed; 'auto', the first that works here
    #[arg(long, value_name = "HOW", default_value = "batches")]
    migration: Migration,
    /// What decides when scans come: the budget of --telemetry-cpu alone ('budget'), or up to eight times as
    /// often while fast memory is short of free pages ('pressure') [default: budget]
    #[arg(long, value_name = "PACE")]
    scan_pace: Option<ScanPace>,
    /// Most of one core that measuring the way to slow memory may take, in percent; 0: measure it once
    /// [default: 0.1]
    #[arg(long, value_name = "PCT")]
    link_cpu: Option<f64>,
    /// Go on although the kernel migrates pages by itself
    #[arg(long)]
    beside_kernel: bool,
    /// Turn NUMA balancing and demotion off meanwhile, and put them back at the end
    #[arg(long, conflicts_with = "beside_kernel")]
    pause_kernel: bool,
    /// Where the daemon's socket lies
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state: PathBuf,
    /// Tell metrics to Prometheus there, as OpenMetrics text: ADDR:PORT, :PORT (of this machine alone) or
    /// unix:PATH
    #[arg(long, value_name = "WHERE")]
    metrics: Option<Place>,
    /// Write the last status to this file at the end, as JSON
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
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
    let refused = match &args.command {
        Some(TierCommand::Status(status)) => print_status(status).map_err(|refusal| (refusal, false)),
        None => match args.log.begin(false) {
            Ok(()) => manage(&args).map_err(|refusal| (refusal, true)),
            Err(error) => Err((refuse(error), false)),
        },
    };
    refused.unwrap_or_else(|((status, text), is_event)| {
        if is_event {
            told::cannot_start(&text, status.into())
        } else {
            complain(text)
        }
        ExitCode::from(status)
    })
}

impl TierArgs {
    /// What the command line names, or else the file that it names or the usual one; an option goes before
    /// the file's key.
    fn config(&self, usual: &Path) -> Result<Config, Refusal> {
        let named = !self.pid.is_empty() || !self.cgroup.is_empty() || !self.program.is_empty();
        let mut config = if named {
            Config { group: vec![self.own_group()], ..Config::default() }
        } else {
            self.read(usual)?
        };
        config.fast = self.fast.clone().or(config.fast);
        config.slow = self.slow.clone().or(config.slow);
        config.source = self.source.unwrap_or(config.source);
        config.counters = self.counters.clone().or(config.counters);
        config.migration_per_s = self.rate.map_or(config.migration_per_s, |rate| rate.bytes().to_string());
        config.telemetry_cpu_pct = self.telemetry_cpu.unwrap_or(config.telemetry_cpu_pct);
        config.scan_interval_ms = self.scan_interval.unwrap_or(config.scan_interval_ms);
        config.scan_pace = self.scan_pace.unwrap_or(config.scan_pace);
        config.link_cpu_pct = self.link_cpu.unwrap_or(config.link_cpu_pct);
        // Each of the two excludes the other, wherever that one stands.
        if self.beside_kernel || self.pause_kernel {
            (config.beside_kernel, config.pause_kernel) = (self.beside_kernel, self.pause_kernel);
        }
        Ok(config)
    }

    /// The group that the command line describes.
    fn own_group(&self) -> Group {
        Group {
            name: "command-line".to_owned(),
            policy: self.policy.clone().unwrap_or_else(|| USUAL_POLICY.to_owned()),
            settings: self.settings.iter().map(|Setting(key, value)| (key.clone(), value.clone())).collect(),
            local: self.local,
            pids: self.pid.clone(),
            cgroups: self.cgroup.clone(),
        }
    }

    /// Reads the file. An option that describes the command line's own group has none to describe then.
    fn read(&self, usual: &Path) -> Result<Config, Refusal> {
        let path = self.config.as_deref().unwrap_or(usual);
        if self.config.is_none() && !path.exists() {
            return Err(refuse(format!(
                "nothing to manage; give --pid, --cgroup or -- PROGRAM, or write {}",
                usual.display()
            )));
        }
        let of_a_group = [
            ("--policy", "policy", self.policy.is_some()),
            ("--set", "settings", !self.settings.is_empty()),
            ("--local", "local", self.local.is_some()),
        ];
        if let Some((option, key, _)) = of_a_group.into_iter().find(|(.., is_given)| *is_given) {
            let path = path.display();
            return Err(refuse(format!(
                "{option} is of what --pid, --cgroup or -- PROGRAM names; \
                 groups of {path} have the key '{key}'"
            )));
        }
        Config::read(path).map_err(refuse)
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

/// Markers, and the library that brings them.
type Marking = (Markers, KeptLibrary);

/// Listens for markers, or says why pages move in batches.
fn open_markers(args: &TierArgs, config: &Config) -> Result<(Option<Marking>, String), Refusal> {
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
        let policy = args.policy.as_deref().unwrap_or(USUAL_POLICY);
        return none(format!("{policy} marks pages to learn what is used, too many to stop at each"));
    }
    let Some(library) = kept_library::find() else {
        return none("the preload library is missing".to_owned());
    };
    match Markers::open(BUILD_NUMBER) {
        Ok(markers) if args.migration == Migration::OnDemand => {
            Ok((Some((markers, library)), "it was named".to_owned()))
        }
        Ok(markers) => Ok((Some((markers, library)), "the best that works here".to_owned())),
        Err(reason) => none(markers::why(reason)),
    }
}

fn start_program(words: &[OsString], marking: Option<&Marking>) -> Result<Child, Refusal> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    if let Some((markers, library)) = marking {
        command.env(SOCKET_VARIABLE, markers.name()).env("LD_PRELOAD", preload(&library.path));
    }
    // Pages are moved one by one: a huge page with one hot part would come whole.
    process::without_huge_pages(&mut command);
    command.spawn().map_err(|error| {
        let status = exit::cannot_execute(&error);
        (status, format!("tier: {}", exit::why_not_executed(Path::new(&words[0]), &error)))
    })
}

fn manage(args: &TierArgs) -> Result<ExitCode, Refusal> {
    let config = args.config(Path::new(CONFIGURATION))?;
    if args.program.is_empty()
        && config.group.iter().all(|group| group.pids.is_empty() && group.cgroups.is_empty())
    {
        return Err(refuse("no group has pids or cgroups; nothing would ever be managed"));
    }
    config.check().map_err(refuse)?;
    let (marking, why) = open_markers(args, &config)?;
    let (mut service, metrics) = open_service(args)?;
    let mut settings = settle_kernel(args, &config)?;
    Daemon::check(&config).map_err(refuse)?;
    let signal = ending_signal()?;
    let mut program = match args.program.as_slice() {
        [] => None,
        words => Some(start_program(words, marking.as_ref())?),
    };
    // Programs that it starts find the library as long as this daemon has it.
    let (markers, _library) = marking.unzip();
    let started = Daemon::start(config, program.as_ref().map(Child::id), &mut settings).map_err(refuse);
    let managed = started.and_then(|mut daemon| {
        daemon.migrate_by(markers, why);
        announce(&daemon);
        let mut events = args.log.is_json().then(TierEvents::default);
        let managed =
            serve(&mut daemon, &mut service, metrics.as_ref(), &signal, program.as_mut(), &mut events);
        events.iter_mut().for_each(|events| events.look(&daemon.status(), Instant::now(), true));
        write_stats(args, &daemon);
        managed
    });
    drop((service, metrics, settings));
    // A program that we started outlives what became of us.
    let code = program.map_or(ExitCode::SUCCESS, |program| end_with(program, signal.load(Ordering::Acquire)));
    managed.map(|()| code)
}

/// Listens for requests, and where metrics are asked for.
fn open_service(args: &TierArgs) -> Result<(Service, Option<Endpoint>), Refusal> {
    let unable = |error: &dyn std::fmt::Display| refuse(format!("--metrics {error}"));
    let metrics = args.metrics.as_ref().map(Endpoint::bind).transpose().map_err(|error| unable(&error))?;
    let listener = metrics.as_ref().map(Endpoint::listener).transpose().map_err(|error| unable(&error))?;
    let service = Service::open_beside(&args.state, listener.into_iter().collect()).map_err(refuse)?;
    if let Some(endpoint) = &metrics {
        let url = endpoint.url("/metrics");
        told::metrics_told(&format!("tier: metrics are told at {url}"), &url);
    }
    Ok((service, metrics))
}

/// Puts back what a daemon left changed that was killed, and changes what this one is to change.
fn settle_kernel(args: &TierArgs, config: &Config) -> Result<KernelSettings, Refusal> {
    let (mut settings, restored) = KernelSettings::open(&args.state.join(JOURNAL)).map_err(refuse)?;
    for path in restored {
        let path = path.display().to_string();
        told::setting_restored(
            &format!("tier: {path}: put back as it was before a daemon that was killed"),
            &path,
        );
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
    metrics: Option<&Endpoint>,
    signal: &AtomicUsize,
    mut program: Option<&mut Child>,
    events: &mut Option<TierEvents>,
) -> Result<(), Refusal> {
    while signal.load(Ordering::Acquire) == 0 {
        let Some(wait) = daemon.turn().map_err(refuse)? else { return Ok(()) };
        let now = Instant::now();
        if let Some(events) = events.as_mut().filter(|events| events.is_due(now)) {
            events.look(&daemon.status(), now, false);
        }
        let mut tell = |received: &[u8], is_full: bool| {
            let hosts = metrics.map_or(&[][..], Endpoint::host_names);
            http::answer(received, is_full, hosts, &["/metrics"], |_| Content {
                kind: OPEN_METRICS,
                body: tier_metrics::text(daemon.status()),
            })
        };
        service.serve(wait, daemon.also_waits_for(), &mut |request| daemon.answer(request), &mut tell);
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
            let reason = error.to_string();
            told::wait_failed(&format!("tier: cannot wait for the program: {reason}"), &reason);
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
        let (file, reason) = (path.display().to_string(), error.to_string());
        let text = format!("tier: --stats {file}: {reason}; name a file that can be written");
        told::stats_unwritten(&text, &file, &reason);
    }
}

fn print_status(args: &StatusArgs) -> Result<ExitCode, Refusal> {
    let failed = |error: service::ServiceError| (1, format!("tier: {error}"));
    let status = service::ask(&args.state, &Request::Status).map_err(failed)?;
    let text = if args.json { format!("{status:#}\n") } else { for_terminal(&describe(&status)) };
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        tier: TierArgs,
    }

    /// What is to be done by these words, where the usual file is this one.
    fn config(usual: &Path, words: &[&str]) -> Result<Config, Refusal> {
        let words = ["tier"].into_iter().chain(words.iter().copied());
        Line::try_parse_from(words).unwrap().tier.config(usual)
    }

    const FILE: &str = "source = 'idle-pages'\nfast = '0'\nslow = '1'\nmigration_per_s = '1M'\n\
                        telemetry_cpu_pct = 1.0\nscan_interval_ms = 50\nscan_pace = 'budget'\n\
                        link_cpu_pct = 0.5\ncounters = '/a'\npause_kernel = true\n\
                        [[group]]\nname = 'g'\npolicy = 'tpp'\nlocal = '20%'\npids = [1]\n";

    #[test]
    fn every_option_goes_before_its_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), FILE).unwrap();
        let path = file.path().to_str().unwrap();
        let options: [&[&str]; 10] = [
            &["--fast", "2"],
            &["--slow", "3"],
            &["--source", "damon"],
            &["--counters", "/b"],
            &["--rate", "2M"],
            &["--telemetry-cpu", "3"],
            &["--scan-interval", "70"],
            &["--scan-pace", "pressure"],
            &["--link-cpu", "0"],
            &["--beside-kernel"],
        ];
        let as_written = Config::read(file.path()).unwrap();
        assert_eq!(config(file.path(), &[]), Ok(as_written.clone()));
        let expected = Config {
            fast: Some("2".parse().unwrap()),
            slow: Some("3".parse().unwrap()),
            source: Choice::Damon,
            counters: Some("/b".into()),
            migration_per_s: (2 << 20).to_string(),
            telemetry_cpu_pct: 3.0,
            scan_interval_ms: 70,
            scan_pace: ScanPace::Pressure,
            link_cpu_pct: 0.0,
            beside_kernel: true,
            pause_kernel: false,
            group: as_written.group.clone(),
        };
        let all = options.concat();
        assert_eq!(config(file.path(), &all), Ok(expected.clone()), "beside the usual file");
        let none = Path::new("/none.toml");
        assert_eq!(
            config(none, &[&all[..], &["--config", path]].concat()),
            Ok(expected),
            "beside a named one"
        );
    }

    #[test]
    fn an_option_may_give_what_a_file_lacks() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "source = 'counter-samples'\n[[group]]\nname = 'g'\npolicy = 'hemem'\n")
            .unwrap();
        assert!(config(file.path(), &[]).unwrap().check().is_err());
        assert!(config(file.path(), &["--counters", "/b"]).unwrap().check().is_ok());
        assert!(config(file.path(), &["--source", "idle-pages"]).unwrap().check().is_err(), "needs samples");
    }

    #[test]
    fn an_option_of_a_group_is_refused_beside_a_file_and_names_the_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), FILE).unwrap();
        let path = file.path().to_str().unwrap();
        for (words, key) in [
            (["--policy", "hotbox"], "'policy'"),
            (["--set", "speed=1"], "'settings'"),
            (["--local", "4G"], "'local'"),
        ] {
            for words in [&words[..], &[words[0], words[1], "--config", path]] {
                let (status, text) = config(file.path(), words).unwrap_err();
                assert_eq!(status, exit::CANNOT_START);
                assert!(text.contains(words[0]) && text.contains(key) && text.contains(path), "{text}");
                assert!(!text.contains('\n'), "{text}");
            }
        }
    }

    #[test]
    fn what_the_command_line_names_has_its_options_and_no_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), FILE).unwrap();
        let plain = config(file.path(), &["--pid", "7"]).unwrap();
        let group =
            Group { name: "command-line".into(), policy: "hotbox".into(), pids: vec![7], ..Group::default() };
        assert_eq!(plain, Config { group: vec![group.clone()], ..Config::default() });
        let words = ["--policy", "tpp", "--local", "4G", "--rate", "2M", "--pid", "7"];
        let group = Group {
            policy: "tpp".into(),
            local: Some(LocalBudget::Bytes(Size::from_bytes(4 << 30))),
            ..group
        };
        let expected =
            Config { migration_per_s: (2 << 20).to_string(), group: vec![group], ..Config::default() };
        assert_eq!(config(file.path(), &words), Ok(expected));
        let (_, text) = config(Path::new("/none.toml"), &["--policy", "tpp"]).unwrap_err();
        assert!(text.contains("nothing to manage") && text.contains("/none.toml"), "{text}");
    }
}
