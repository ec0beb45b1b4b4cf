use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use spillway_sys::access_events::Access;

use super::*;
use crate::fake_kernel::{FakeKernel, NODE_SHIFT};
use crate::link::tests::SetProber;
use crate::testing::Tree;

/// A process that does nothing, and ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// An address of it that may move.
    fn address(&self) -> u64 {
        loop {
            // Until it has executed its program, its memory is ours.
            let name = std::fs::read_to_string(format!("/proc/{}/comm", self.id())).unwrap();
            let layout = process::layout(std::path::Path::new("/"), self.id()).unwrap();
            match layout.managed.first() {
                Some(range) if name.trim() == "sleep" => return range.start,
                _ => std::thread::yield_now(),
            }
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.end();
    }
}

fn group(name: &str, pids: &[u32]) -> Group {
    Group { name: name.into(), policy: "hotbox".into(), pids: pids.to_vec(), ..Group::default() }
}

fn daemon(kernel: &FakeKernel, groups: Vec<Group>) -> Result<Daemon, DaemonError> {
    daemon_on(kernel, groups, Arc::new(Mutex::new(300.0)))
}

/// The same, of whose far memory a read takes as long as `far_ns` says.
fn daemon_on(
    kernel: &FakeKernel,
    groups: Vec<Group>,
    far_ns: Arc<Mutex<f64>>,
) -> Result<Daemon, DaemonError> {
    let tree = Tree::new();
    tree.node(0, "0", 1024, 512);
    tree.node(1, "", 4096, 4096);
    tree.write("sys/devices/system/memory/block_size_bytes", &format!("{:x}", 4096_u64 << NODE_SHIFT));
    for node in [0, 1] {
        tree.write(&format!("sys/devices/system/node/node{node}/memory{node}/state"), "online");
        let initiators = format!("sys/devices/system/node/node{node}/access1/initiators");
        tree.write(&format!("{initiators}/read_latency"), ["100", "300"][node]);
        tree.write(&format!("{initiators}/read_bandwidth"), "1000");
    }
    let nodes = Nodes::read(tree.root()).unwrap();
    let tiers = nodes.tiers(None, None).unwrap();
    let config = Config { group: groups, scan_interval_ms: 1, telemetry_cpu_pct: 100.0, ..Config::default() };
    let chosen = Chosen { source: Box::new(kernel.clone()), why: "a test".into() };
    let link = LinkMeter::probed_by(&nodes, &tiers, Box::new(SetProber(far_ns)), 100.0);
    let machine = (nodes, tiers, link);
    let daemon = Daemon::with(config, machine, chosen, &|| Box::new(kernel.clone()), None)?;
    // What is free is read again from the tree at each scan.
    std::mem::forget(tree);
    Ok(daemon)
}

/// Takes turns until `done`.
fn turn_until(daemon: &mut Daemon, done: impl Fn(&Daemon) -> bool) {
    while !done(daemon) {
        match daemon.turn().unwrap() {
            Some(wait) => std::thread::sleep(wait),
            None => return,
        }
    }
}

#[test]
fn groups_have_their_own_processes_and_limits_and_end_with_them() {
    let kernel = FakeKernel::default();
    let (mut one, other) = (Sleeper::start(), Sleeper::start());
    let address = one.address();
    kernel.access(one.id(), address, 0);
    kernel.access(other.id(), other.address(), 1);
    let small = Group { local: Some("1M".parse().unwrap()), ..group("small", &[one.id()]) };
    let mut daemon = daemon(&kernel, vec![small, group("large", &[other.id()])]).unwrap();
    turn_until(&mut daemon, |daemon| daemon.status().groups.iter().all(|group| group.scans > 1));
    kernel.access(one.id(), address, 0);
    turn_until(&mut daemon, |daemon| daemon.status().groups[0].counts.local_uses > 0);
    let status = daemon.status();
    assert_eq!((status.groups[0].local_bytes, status.groups[0].far_bytes), (PAGE_BYTES, 0));
    assert_eq!((status.groups[1].local_bytes, status.groups[1].far_bytes), (0, PAGE_BYTES));
    assert_eq!(status.groups[0].local_limit_bytes, 1 << 20);
    assert_eq!(status.groups[1].local_limit_bytes, PAGE_BYTES, "all of it");
    assert!(status.groups[0].left_alone.shared_bytes > 0);
    assert_eq!(status.groups[0].local_use_ratio, Some(1.0));

    let explained = daemon.explain(one.id(), Some(address + 5)).unwrap();
    let page = explained.page.unwrap();
    assert_eq!((page.address, page.tier, explained.local_bytes), (address, Some(Tier::Local), PAGE_BYTES));
    assert!(daemon.explain(one.id(), Some(0)).unwrap().page.unwrap().tier.is_none());
    assert!(matches!(
        daemon.answer(Request::Explain { process: 1, address: None }),
        Answer::Error(reason) if reason.contains("process 1")
    ));

    one.end();
    turn_until(&mut daemon, |daemon| daemon.status().groups[0].ended.is_some());
    let status = daemon.status();
    assert!(status.groups[0].ended.as_ref().unwrap().contains("ended"));
    assert!(status.groups[1].ended.is_none());
    assert_eq!(status.groups[0].local_bytes, 0);
    drop(other);
    turn_until(&mut daemon, |_| false);
}

#[test]
fn a_control_group_that_vanishes_ends_its_group() {
    let kernel = FakeKernel::default();
    let sleeper = Sleeper::start();
    let tree = Tree::new();
    tree.write("group/cgroup.procs", &sleeper.id().to_string());
    let of_cgroup = Group { cgroups: vec![tree.root().join("group")], ..group("g", &[]) };
    let mut daemon = daemon(&kernel, vec![of_cgroup]).unwrap();
    turn_until(&mut daemon, |daemon| daemon.status().groups[0].scans > 1);
    assert_eq!(daemon.status().groups[0].processes, [sleeper.id()]);
    tree.write("group/cgroup.procs", "");
    drop(sleeper);
    turn_until(&mut daemon, |daemon| daemon.status().groups[0].processes.is_empty());
    assert!(daemon.turn().unwrap().is_some(), "others may come");
    std::fs::remove_dir_all(tree.root().join("group")).unwrap();
    turn_until(&mut daemon, |_| false);
    assert!(daemon.status().groups[0].ended.as_ref().unwrap().contains("control group"));
}

#[test]
fn what_is_not_there_is_refused_at_the_start() {
    let kernel = FakeKernel::default();
    let error = daemon(&kernel, vec![group("g", &[i32::MAX as u32])]).err().unwrap();
    assert!(matches!(error, DaemonError::Process(ProcessError::NoProcess(_))), "{error}");
    let cgroup = Group { cgroups: vec!["/none".into()], ..group("g", &[]) };
    let error = daemon(&kernel, vec![cgroup]).err().unwrap();
    assert!(error.to_string().contains("/none"), "{error}");
}

#[test]
fn a_source_that_disappears_ends_the_daemon_with_a_reason() {
    let kernel = FakeKernel::default();
    let sleeper = Sleeper::start();
    sleeper.address();
    let mut daemon = daemon(&kernel, vec![group("g", &[sleeper.id()])]).unwrap();
    turn_until(&mut daemon, |daemon| daemon.status().groups[0].scans > 0);
    kernel.state().source_lost = true;
    let error = loop {
        match daemon.turn() {
            Ok(Some(wait)) => std::thread::sleep(wait),
            Ok(None) => panic!("the process lives"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("worked before"), "{error}");
}

#[test]
fn the_source_says_what_it_is_why_it_was_chosen_and_what_it_was_told() {
    let kernel = FakeKernel::default();
    let sleeper = Sleeper::start();
    let (id, address) = (sleeper.id(), sleeper.address());
    kernel.access(id, address, 1);
    let mut daemon = daemon(&kernel, vec![group("g", &[id])]).unwrap();
    turn_until(&mut daemon, |daemon| daemon.status().groups[0].scans > 1);
    kernel.state().told.push(Access {
        process: id,
        address,
        time_ns: clock_ns(ClockId::Monotonic),
        write: false,
    });
    kernel.state().told.push(Access { process: 1, address, time_ns: 5, write: false });
    turn_until(&mut daemon, |daemon| daemon.status().source.counts.accesses == 2);
    let status = serde_json::to_value(daemon.status()).unwrap();
    assert_eq!(status["managed_bytes"], PAGE_BYTES);
    let (cpu_pct, of_10_gib) = (&status["cpu_pct"], &status["cpu_pct_per_10_gib"]);
    assert!(cpu_pct.as_f64() <= of_10_gib.as_f64(), "{status}");
    let source = &status["source"];
    assert_eq!(
        (&source["why"], &source["accesses"], &source["lost"]),
        (&"a test".into(), &2.into(), &0.into())
    );
    assert!(daemon.explain(id, Some(address)).unwrap().page.unwrap().accessed);
    kernel.state().gone.insert(id);
    drop(sleeper);
    turn_until(&mut daemon, |_| false);
    assert_eq!(kernel.state().forgotten, [id]);
}

/// HeMem asks for one access in 5,000, and eight samples of a page are enough to bring it in.
#[test]
fn samples_reach_the_policy_that_asked_for_them_and_what_they_cost_is_counted() {
    let kernel = FakeKernel::default();
    let sleeper = Sleeper::start();
    let (id, address) = (sleeper.id(), sleeper.address());
    kernel.access(id, address, 1);
    let hemem = Group { policy: "hemem".into(), ..group("g", &[id]) };
    let mut daemon = daemon(&kernel, vec![hemem, group("other", &[])]).unwrap();
    turn_until(&mut daemon, |daemon| daemon.groups[0].scans > 1);
    assert_eq!(kernel.state().periods, [5000], "asked once");
    let sampled = Access { process: id, address, time_ns: clock_ns(ClockId::Monotonic), write: false };
    kernel.state().told.extend([sampled; 7]);
    let scans = daemon.groups[0].scans;
    turn_until(&mut daemon, |daemon| daemon.groups[0].scans > scans + 20);
    assert_eq!(kernel.node_of(id, address), Some(1), "seven do not");
    kernel.state().told.push(sampled);
    turn_until(&mut daemon, |_| kernel.node_of(id, address) == Some(0));
    let machine = &daemon.groups[0].driver.machine;
    assert!(machine.sampling_ns() >= 8000, "{}", machine.sampling_ns());
    assert_eq!(daemon.groups[1].driver.machine.sampling_ns(), 0);
}

#[test]
fn policies_and_status_know_how_busy_the_way_to_far_memory_is_at_present() {
    let kernel = FakeKernel::default();
    let sleeper = Sleeper::start();
    let far_ns = Arc::new(Mutex::new(300.0));
    let mut daemon = daemon_on(&kernel, vec![group("g", &[sleeper.id()])], far_ns.clone()).unwrap();
    turn_until(&mut daemon, |daemon| daemon.link.status(1.0).probes >= 40);
    assert_eq!(daemon.groups[0].driver.machine.link().delta_latency_ns, 200.0);
    *far_ns.lock().unwrap() = 600.0;
    turn_until(&mut daemon, |daemon| daemon.link.status(1.0).latency_ns > 500.0);
    let link = daemon.groups[0].driver.machine.link();
    assert_eq!(link.delta_latency_ns, 500.0);
    assert!(link.available_bytes_per_s < 0.21 * 1000.0 * 1048576.0, "{link:?}");
    let status = serde_json::to_value(daemon.status()).unwrap();
    let told = &status["link"];
    assert_eq!((&told["source"], &told["latency_ns"]), (&"probes".into(), &600.0.into()), "{status}");
    assert_eq!(told["idle_latency_ns"], 300.0);
    assert!(told["available_share"].as_f64().is_some_and(|share| (0.19..0.21).contains(&share)), "{told}");
}

#[test]
fn scans_keep_to_their_share_of_a_core() {
    let kernel = FakeKernel::default();
    let sleeper = Sleeper::start();
    let mut daemon = daemon(&kernel, vec![group("g", &[sleeper.id()])]).unwrap();
    let config = Config { telemetry_cpu_pct: 2.0, scan_interval_ms: 100, ..Config::default() };
    let running = &mut daemon.groups[0];
    let mut note_scan = |began_ns, ended_ns, busy_ns, least| {
        running.busy_ns = busy_ns;
        running.note_scan(began_ns, ended_ns, &config, least);
        running.next_scan_ns
    };
    let zero = Duration::ZERO;
    assert_eq!(note_scan(1_000, 2_000, 1_000_000, zero), 100_002_000, "not more often than asked for");
    assert_eq!(note_scan(5_000, 10_000, 10_000_000, zero), 500_010_000, "10 ms every 500 ms are 2%");
    assert_eq!(note_scan(6_000, 10_000, 1_000_000_000, zero), 10_000_010_000, "but every 10 s");
    let least = Duration::from_secs(2);
    assert_eq!(note_scan(7_000, 10_000, 0, least), 2_000_010_000, "not before the source knows more");
    assert_eq!(running.scan_interval_ns, 1_000);
    assert_eq!(running.busy_ns, 0, "it counts once");
}

#[test]
fn under_pressure_scans_come_early_and_status_says_by_what_they_come() {
    let kernel = FakeKernel::default();
    let sleeper = Sleeper::start();
    sleeper.address();
    let layout = process::layout(std::path::Path::new("/"), sleeper.id()).unwrap();
    // Of its stack, which stays.
    let stack = layout.managed.last().unwrap();
    [1, 2].into_iter().for_each(|page| kernel.access(sleeper.id(), stack.end - page * PAGE_BYTES, 0));
    // One page may be local, and one is.
    let full = Group {
        local: Some("1%".parse().unwrap()),
        policy: "first-touch".into(),
        ..group("g", &[sleeper.id()])
    };
    let mut daemon = daemon(&kernel, vec![full]).unwrap();
    daemon.config.scan_pace = ScanPace::Pressure;
    daemon.config.scan_interval_ms = 20;
    let told = |daemon: &Daemon| serde_json::to_value(&daemon.status().groups[0]).unwrap();
    turn_until(&mut daemon, |daemon| daemon.status().groups[0].scans > 1);
    let running = &mut daemon.groups[0];
    let config = Config { telemetry_cpu_pct: 2.0, scan_interval_ms: 20, ..daemon.config.clone() };
    (running.is_early, running.pace, running.busy_ns) = (false, Pace::default(), 8_000_000);
    running.note_scan(running.last_scan_ns, 1_000_000_000, &config, Duration::ZERO);
    assert_eq!((running.next_scan_ns, running.is_early), (1_200_000_000, true), "half of 400 ms");
    let status = told(&daemon);
    assert_eq!((&status["scan_pace"], &status["scan_pressure"]), (&"pressure".into(), &1.into()), "{status}");
    let running = &mut daemon.groups[0];
    let budget = Config { scan_pace: ScanPace::Budget, ..config };
    (running.is_early, running.pace, running.busy_ns) = (false, Pace::default(), 8_000_000);
    running.note_scan(running.last_scan_ns, 1_000_000_000, &budget, Duration::ZERO);
    assert_eq!((running.next_scan_ns, running.is_early), (1_400_000_000, false));
}

mod killed;
