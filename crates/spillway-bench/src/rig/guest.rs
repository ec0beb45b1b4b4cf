//! The guest: its programs, its kernel's parameters, and the emulator's command line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use spillway_core::page::PAGE_SIZE;

use super::archive::Archive;
use super::plan::{Case, Plan};
use crate::BenchError;
use crate::measured::output_of;

/// Memory of node 0. Node 1 begins behind it.
const LOCAL_BYTES: u64 = 512 << 20;
/// Memory of node 1 that is used: the kernel gets it as a device, whose ends must be those of its memory
/// blocks.
const FAR_BYTES: u64 = 512 << 20;
/// What firmware keeps of node 1 lies in here.
const REST_BYTES: u64 = 128 << 20;
/// HotBox's Table 1 has a cache of 6 MiB for 1 GiB of local memory; we have so much for all of the
/// workload's.
const CACHE_OF_MEMORY: f64 = 6.0 / 1024.0;
const WAYS: u64 = 8;
const LINE_BYTES: u64 = 64;
/// One cache line of so many is modelled.
const SAMPLE: u64 = 4;
/// Nanoseconds of an instruction, as a power of two: 1000 million a second.
const SHIFT: u32 = 0;
/// What the link to far memory carries in a second, as firmware says and its counters: about INDIGO's
/// 12.5 GB/s.
const LINK_BYTES_PER_S: u64 = 10 << 30;
/// A guest that takes longer has gone wrong.
const LONGEST: Duration = Duration::from_secs(45 * 60);

/// A source that is compiled when the rig begins.
struct Source {
    name: &'static str,
    text: &'static str,
    flags: &'static [&'static str],
}

macro_rules! source {
    ($name:literal, $flags:expr) => {
        Source { name: $name, text: include_str!(concat!("../../rig/", $name)), flags: $flags }
    };
}

const HEADERS: [Source; 5] = [
    source!("counters.h", &[]),
    source!("cache.h", &[]),
    source!("link.h", &[]),
    source!("qemu_abi.h", &[]),
    source!("samples.h", &[]),
];
const INIT: Source = source!("init.c", &["-static"]);
/// At an address of its own, by which the plugin knows it.
const WORKLOAD: Source = source!("workload.c", &["-static", "-no-pie", "-Wl,-Ttext-segment=0x20000000"]);
const PLUGIN: Source = source!("memory_model.c", &["-shared", "-fPIC", "-fvisibility=hidden"]);

/// What every guest of a run needs.
pub struct Guest {
    directory: tempfile::TempDir,
    kernel: PathBuf,
    plugin: PathBuf,
}

fn setup(action: &str, reason: impl std::fmt::Display) -> BenchError {
    BenchError::setup(action, reason, "'make rig' installs and fetches all that the rig needs")
}

/// A program that must end well.
fn run(command: &mut Command) -> Result<Vec<u8>, BenchError> {
    let line = format!("run {command:?}");
    let output = command.output().map_err(|error| setup(&line, error))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(setup(&line, String::from_utf8_lossy(&output.stderr).trim()))
}

fn write(path: &Path, contents: &[u8]) -> Result<(), BenchError> {
    fs::write(path, contents).map_err(|error| setup(&format!("write {}", path.display()), error))
}

fn read(path: &Path) -> Result<Vec<u8>, BenchError> {
    fs::read(path).map_err(|error| setup(&format!("read {}", path.display()), error))
}

fn compile(source: &Source, directory: &Path) -> Result<PathBuf, BenchError> {
    let path = directory.join(source.name);
    write(&path, source.text.as_bytes())?;
    let program = path.with_extension("");
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&path).args(source.flags);
    run(&mut command)?;
    Ok(program)
}

/// Compiles the workload, to be run on this machine.
///
/// # Errors
/// There is no compiler.
pub(super) fn prepare_workload(directory: &Path) -> Result<PathBuf, BenchError> {
    for header in &HEADERS {
        write(&directory.join(header.name), header.text.as_bytes())?;
    }
    compile(&WORKLOAD, directory)
}

impl Guest {
    /// Compiles the guest's programs and packs its first files. `spillway` is the daemon; `kernel_directory`
    /// holds `vmlinuz` and `modules/`, as `scripts/guest-kernel` leaves it.
    ///
    /// # Errors
    /// Something is missing or cannot be compiled.
    pub fn prepare(spillway: &Path, kernel_directory: &Path) -> Result<Self, BenchError> {
        let directory = tempfile::tempdir().map_err(|error| setup("make a directory", error))?;
        let at = directory.path();
        for header in &HEADERS {
            write(&at.join(header.name), header.text.as_bytes())?;
        }
        let mut archive = Archive::default();
        archive.add("init", &read(&compile(&INIT, at)?)?);
        archive.add("workload", &read(&compile(&WORKLOAD, at)?)?);
        let plugin = compile(&PLUGIN, at)?;
        // Without what only debuggers read.
        let stripped = at.join("spillway");
        run(Command::new("strip").arg("-o").arg(&stripped).arg(spillway))?;
        archive.add("spillway", &read(&stripped)?);
        let libraries = String::from_utf8_lossy(&run(Command::new("ldd").arg(spillway))?).into_owned();
        for library in libraries.split_whitespace().filter_map(|word| word.strip_prefix('/')) {
            archive.add(library, &read(&Path::new("/").join(library))?);
        }
        for module in ["dax_hmem.ko", "kmem.ko"] {
            archive.add(&format!("modules/{module}"), &read(&kernel_directory.join("modules").join(module))?);
        }
        write(&at.join("initial-files"), &archive.bytes())?;
        let kernel = kernel_directory.join("vmlinuz");
        read(&kernel)?;
        Ok(Self { directory, kernel, plugin })
    }

    /// Runs one case; what the guest printed, and the counters in the end.
    ///
    /// # Errors
    /// The emulator fails or takes too long, or the user interrupts.
    pub fn boot(
        &self,
        plan: &Plan,
        case: &Case,
        interrupted: &AtomicBool,
    ) -> Result<(String, Vec<u8>), BenchError> {
        let own =
            tempfile::tempdir_in(self.directory.path()).map_err(|error| setup("make a directory", error))?;
        let counters = own.path().join("counters");
        write(&counters, &vec![0; 1 << 20])?;
        let mut command = Command::new("qemu-system-x86_64");
        command.args([
            "-accel",
            "tcg",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-serial",
            "stdio",
        ]);
        // Time passes with the instructions, and at once where there is nothing to do.
        command.args([
            "-icount",
            &format!("shift={SHIFT},sleep=off"),
            "-rtc",
            "clock=vm,base=2026-01-01",
            "-smp",
            "1",
        ]);
        command.args(memory_arguments(case.latency_ns));
        let memory =
            format!("memory-backend-file,id=counters,mem-path={},size=1M,share=on", counters.display());
        command.args(["-object", &memory, "-device", "ivshmem-plain,memdev=counters"]);
        command.args(["-plugin", &self.plugin_argument(plan, case, &counters)]);
        command
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(self.directory.path().join("initial-files"));
        command.args(["-append", &kernel_parameters(plan, case)]);
        let console = output_of(&mut command, &own.path().join("console"), LONGEST, interrupted)?;
        Ok((console, read(&counters)?))
    }

    fn plugin_argument(&self, plan: &Plan, case: &Case, counters: &Path) -> String {
        format!(
            "{},counters={},llc_bytes={},ways={WAYS},far_from={LOCAL_BYTES},sample={SAMPLE},{}",
            self.plugin.display(),
            counters.display(),
            cache_bytes(plan.memory_mib),
            link_arguments(case)
        )
    }
}

/// What the link's counters begin with.
fn link_arguments(case: &Case) -> String {
    format!(
        "link_bytes_per_s={LINK_BYTES_PER_S},far_ns={},shared={},neighbour_pct={}",
        case.latency_ns,
        u32::from(case.contention_pct.is_some()),
        case.contention_pct.unwrap_or(0)
    )
}

/// The modelled cache for so much memory: as many sets as make it that large, in steps of the lines of a
/// page.
pub(super) fn cache_bytes(memory_mib: u32) -> u64 {
    let bytes = f64::from(memory_mib) * f64::from(1 << 20) * CACHE_OF_MEMORY;
    let step = WAYS * PAGE_SIZE as u64;
    debug_assert!(step / WAYS / LINE_BYTES == 64);
    ((bytes / step as f64).round() as u64).max(1) * step
}

fn memory_arguments(far_ns: u32) -> Vec<String> {
    let mib = |bytes: u64| bytes >> 20;
    let far = FAR_BYTES + REST_BYTES;
    let mut arguments = vec![
        "-machine".to_owned(),
        "pc,hmat=on".to_owned(),
        "-m".to_owned(),
        format!("{}M", mib(LOCAL_BYTES + far)),
    ];
    let mut add = |kind: &str, value: String| arguments.extend([format!("-{kind}"), value]);
    for (node, bytes, cpus) in [(0, LOCAL_BYTES, ",cpus=0"), (1, far, "")] {
        add("object", format!("memory-backend-ram,id=m{node},size={}M", mib(bytes)));
        add("numa", format!("node,nodeid={node},memdev=m{node},initiator=0{cpus}"));
    }
    // What firmware tells the kernel of their speed.
    let (local, far) = ("20G".to_owned(), LINK_BYTES_PER_S.to_string());
    for (node, latency_ns, bandwidth) in [(0, 70, local), (1, far_ns, far)] {
        let to = format!("hmat-lb,initiator=0,target={node},hierarchy=memory");
        add("numa", format!("{to},data-type=access-latency,latency={latency_ns}"));
        add("numa", format!("{to},data-type=access-bandwidth,bandwidth={bandwidth}"));
    }
    arguments
}

fn kernel_parameters(plan: &Plan, case: &Case) -> String {
    let Case { workload, policy, local_pct, latency_ns, contention_pct: _, start } = case;
    // What would make runs differ, and what takes long and has no bearing here.
    let quick = "console=ttyS0 panic=-1 quiet no_timer_check tsc=reliable nokaslr norandmaps \
                 cryptomgr.notests transparent_hugepage=never rootfstype=ramfs \
                 initcall_blacklist=load_system_certificate_list";
    // Node 1 is for a device, and node 0's first memory, a zone of its own, for nobody.
    let memory = format!(
        "memmap=15M$0x100000 memmap={FAR_BYTES}%{LOCAL_BYTES:#x}-1+0xefffffff memmap={REST_BYTES}${:#x}",
        LOCAL_BYTES + FAR_BYTES
    );
    let mut settings = scaled_settings(policy, plan.memory_mib);
    settings.extend(plan.settings.iter().cloned());
    let settings = settings.join(",");
    let source = plan.source.as_deref().unwrap_or_else(|| source_of(policy));
    format!(
        "{quick} {memory} rig_workload={workload} rig_policy={policy} rig_local_pct={local_pct} \
         rig_far_ns={latency_ns} rig_mib={} rig_warm_s={} rig_measured_s={} rig_scan_ms={} \
         rig_telemetry_cpu={} rig_scan_pace={} rig_source={source} rig_settings={settings} rig_start={start}",
        plan.memory_mib, plan.warm_s, plan.measured_s, plan.scan_ms, plan.telemetry_cpu_pct, plan.scan_pace
    )
}

/// The telemetry source of a policy, where none is named: INDIGO's is faults at marked pages (its section
/// 4.1); HeMem's and MEMTIS's are samples, which the emulator takes.
fn source_of(policy: &str) -> &'static str {
    match policy {
        "indigo" => "hint-faults",
        "hemem" | "memtis" => "counter-samples",
        _ => "auto",
    }
}

/// Settings that are sizes or times, in proportion to the workload's memory.
pub(super) fn scaled_settings(policy: &str, memory_mib: u32) -> Vec<String> {
    match policy {
        // A pass over all that the daemon has numbers for, 4 GiB, in each period.
        "hotbox" => vec![format!("scan_block_bytes={}", 4_u64 << 30)],
        // 10 MiB of 10 GiB. Marks as often as the kernel goes over all of the memory; the threshold is found
        // by trial.
        "indigo" => vec![
            format!("slack_bytes={}", u64::from(memory_mib) << 10),
            "marking_period_us=125000".to_owned(),
            "benefit_pages=50".to_owned(),
            "marks_in_a_row=4".to_owned(),
        ],
        // All that the daemon has numbers for in a second, as often as Linux goes over a process of up to
        // 2,560 MiB.
        "tpp" => vec![format!("scan_bytes={}", 4_u64 << 30), "scan_period_us=1000000".to_owned()],
        // A round as often as HotBox's passes. Periods of sampling stay: of a smaller memory one miss in as
        // many is a sample.
        "memtis" => vec![
            "mapping=base".to_owned(),
            "period_us=25000".to_owned(),
            "sampling_window_us=750000".to_owned(),
        ],
        "spillway" => vec!["period_us=25000".to_owned(), "longest_period_us=400000".to_owned()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modelled_cache_keeps_hotboxs_proportion_and_whole_pages_of_sets() {
        assert_eq!(cache_bytes(1024), 6 << 20);
        assert_eq!(cache_bytes(64), 384 << 10);
        for memory_mib in [1, 33, 100] {
            assert!(cache_bytes(memory_mib).is_multiple_of(WAYS * 4096) && cache_bytes(memory_mib) > 0);
        }
    }

    /// The plugin's cache, compiled for this machine.
    #[test]
    fn the_cache_model_evicts_the_least_recently_used_of_a_set() {
        const CHECK: Source = Source {
            name: "check.c",
            text: "
            #include \"cache.h\"
            #include <assert.h>
            int main(void) {
                struct cache cache;
                assert(!cache_init(&cache, 1000, 2) && !cache_init(&cache, 4096, 0) && !cache_init(&cache, \
                0, 1));
                assert(cache_init(&cache, 3 * 2 * 64, 2) && cache.sets == 3);
                assert(!cache_access(&cache, 0) && cache_access(&cache, 0));
                assert(!cache_access(&cache, 3) && cache_access(&cache, 0));
                assert(!cache_access(&cache, 6));
                assert(cache_access(&cache, 0) && !cache_access(&cache, 3) && !cache_access(&cache, 6));
                assert(!cache_access(&cache, 1) && cache_access(&cache, 6));
                return 0;
            }",
            flags: &[],
        };
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join("cache.h"), HEADERS[1].text.as_bytes()).unwrap();
        run(&mut Command::new(compile(&CHECK, directory.path()).unwrap())).unwrap();
    }

    /// The workload's link, compiled for this machine.
    #[test]
    fn the_modelled_link_is_slower_the_more_of_it_is_in_use_and_the_neighbour_comes_and_goes() {
        const CHECK: Source = Source {
            name: "check.c",
            text: "
            #include \"link.h\"
            #include <assert.h>
            int main(void) {
                struct link link;
                link_begin(&link, 10e9, 750, 0.36);
                assert(link.latency_ns == 750);
                for (int step = 0; step < 100; step++) link_pass(&link, 0.5, 0.01, 0);
                assert(link.latency_ns == 750 && link.share == 0);
                link_pass(&link, 1.5, 0.01, 0);
                assert(link.share == 0.36 && link.latency_ns > 850 && link.latency_ns < 860);
                /* 4 MB in 10 ms are all of the program's share of the link. */
                for (int step = 0; step < 100; step++) link_pass(&link, 2.5, 0.01, 2e6);
                assert(link.share > 0.499 && link.share < 0.501);
                assert(link.latency_ns > 937 && link.latency_ns < 938);
                link_pass(&link, 3.5, 0.01, 2e6);
                assert(link.share > 0.859 && link.share < 0.861);
                for (int step = 0; step < 100; step++) link_pass(&link, 3.5, 0.01, 1e9);
                assert(link.share == MOST_SHARE && link.latency_ns < 6 * 750);
                return 0;
            }",
            flags: &[],
        };
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join("link.h"), HEADERS[2].text.as_bytes()).unwrap();
        run(&mut Command::new(compile(&CHECK, directory.path()).unwrap())).unwrap();
    }

    #[test]
    fn a_link_that_is_never_busy_has_counters_too() {
        let case = |contention_pct| Case {
            workload: "bfs".into(),
            policy: "indigo".into(),
            local_pct: 20,
            latency_ns: 750,
            contention_pct,
            start: 0,
        };
        let arguments = |pct| link_arguments(&case(pct));
        assert_eq!(arguments(None), "link_bytes_per_s=10737418240,far_ns=750,shared=0,neighbour_pct=0");
        assert!(arguments(Some(36)).ends_with("shared=1,neighbour_pct=36"));
        assert!(arguments(Some(0)).ends_with("shared=1,neighbour_pct=0"), "the program's own traffic counts");
    }

    #[test]
    fn every_workload_finds_what_it_computed_and_the_plugin_compiles() {
        let directory = tempfile::tempdir().unwrap();
        HEADERS
            .iter()
            .for_each(|header| write(&directory.path().join(header.name), header.text.as_bytes()).unwrap());
        for source in [&INIT, &PLUGIN] {
            compile(source, directory.path()).unwrap();
        }
        let workload = compile(&WORKLOAD, directory.path()).unwrap();
        for name in super::super::plan::WORKLOADS {
            let printed = run(Command::new(&workload).args([name, "8", "0", "0.1"])).unwrap();
            let printed: serde_json::Value = serde_json::from_slice(&printed).unwrap();
            assert!(
                printed["steps"].as_u64() > Some(0) && printed["pages"].as_u64() > Some(1500),
                "{name}: {printed}"
            );
        }
        assert!(run(Command::new(&workload).args(["none", "8", "0", "0"])).is_err());
    }
}
