//! The way to far memory, measured all the time that the daemon runs: what INDIGO's Equation 1 and its agent
//! are told, and whoever else asks how much longer far memory takes. What the measurements mean is
//! [`crate::link_load`]'s.
//!
//! Measured by counters of the link where the file of [`crate::counters`] has them; else by timed reads of a
//! few lines of far and of local memory, no more often than [`crate::group::Config::link_cpu_pct`] allows,
//! and by what the processors count of this machine's traffic ([`crate::far_traffic`]) where they do; else,
//! where the node cannot be probed or that is 0, what was known at the start holds.

use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use spillway_policy::machine::{LinkTelemetry, Tier};
use spillway_sys::node_speed::Probe;
use spillway_sys::shared_memory::SharedMemory;

use crate::counters::{self, CountersError};
use crate::far_traffic::FarTraffic;
use crate::link_load::{Known, LinkCount, LinkLoad};
use crate::nodes::{Nodes, Tiers};
use crate::speed;

/// The first word of the link's counters: "SPLWLINK" in ASCII.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SPLWLINK");
/// Where they begin in the file of counters.
pub const AT_BYTES: usize = 64;
/// Words of them that are read.
const WORDS: usize = 6;

/// What probes take of a node must leave so much free: nobody is to be killed for want of it.
const LEAST_FREE_BYTES: u64 = 16 << 20;
/// Measurements are made no more often.
const LEAST_INTERVAL_NS: u64 = 100_000_000;
/// Measurements of each tier at a time.
const PROBES_AT_A_TIME: usize = 4;

/// Reads memory of a tier, with a clock.
pub trait Prober: Send {
    /// How long one read of memory of this tier takes now, in nanoseconds.
    fn latency_ns(&mut self, tier: Tier) -> f64;
}

/// Probes of memory that lies on the first node of each tier.
struct NodeProber {
    local: Probe,
    far: Probe,
}

impl Prober for NodeProber {
    fn latency_ns(&mut self, tier: Tier) -> f64 {
        match tier {
            Tier::Local => self.local.latency_ns(),
            Tier::Far => self.far.latency_ns(),
        }
    }
}

/// Probes of the tiers' memory, or why there are none.
fn prober(nodes: &Nodes, tiers: &Tiers) -> Result<Box<dyn Prober>, String> {
    let of_tier = |tier| {
        let node = *tiers.nodes(tier).0.first().ok_or("there is no node")?;
        if nodes.get(node).is_none_or(|node| node.free_bytes < LEAST_FREE_BYTES) {
            return Err(format!("node {node} has no memory free"));
        }
        Probe::new(node).map_err(|error| match error {
            Errno::XDEV => format!("memory for probes does not come to lie on node {node}"),
            error => format!("memory of node {node} cannot be had: {error}"),
        })
    };
    Ok(Box::new(NodeProber { local: of_tier(Tier::Local)?, far: of_tier(Tier::Far)? }))
}

/// Counters of the link in the file of counters.
struct LinkCounters(SharedMemory);

impl LinkCounters {
    /// None where the file has no such part.
    fn open(path: &Path) -> Result<Option<Self>, CountersError> {
        let memory = counters::map(path)?;
        let there = memory.bytes() >= AT_BYTES + WORDS * 8
            && memory.atomics_u64(AT_BYTES, 1)[0].load(Ordering::Relaxed) == MAGIC;
        Ok(there.then_some(Self(memory)))
    }

    fn read(&self) -> LinkCount {
        let words = self.0.atomics_u64(AT_BYTES, WORDS);
        let word = |at: usize| words[at].load(Ordering::Relaxed);
        LinkCount {
            bytes_per_s: word(1) as f64,
            idle_ns: word(2) as f64,
            latency_ns: word(3) as f64,
            carried_bytes: word(4),
            own_bytes: word(5),
        }
    }
}

/// How the link is measured.
enum Means {
    Counters(LinkCounters),
    /// And what this machine's part of the traffic is, where it is counted.
    Probes(Box<dyn Prober>, Option<FarTraffic>),
    /// Not at all: what was known at the start holds.
    Once,
}

/// What the daemon says of the link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkStatus {
    /// How it is measured: `counters`, `probes`, `probes-and-resctrl` or `once`.
    pub source: &'static str,
    /// Why so, in words.
    pub why: String,
    /// A read of far memory at present.
    pub latency_ns: f64,
    /// A read of far memory over the idle link, as far as one was seen.
    pub idle_latency_ns: f64,
    /// A read of local memory at present.
    pub local_latency_ns: f64,
    /// All that the link carries.
    pub bytes_per_s: f64,
    /// What of this nobody uses at present.
    pub available_bytes_per_s: f64,
    /// The same as a share.
    pub available_share: f64,
    /// What the link carried for this machine since the start; by probes alone for everybody, and at least
    /// the pages that were moved.
    pub traffic_bytes: u64,
    /// Reads that were timed so far, of both tiers.
    pub probes: u64,
    /// CPU time of measuring, of one core, since the start.
    pub cpu_pct: f64,
}

/// The link, and how it is measured.
pub struct LinkMeter {
    means: Means,
    why: String,
    load: LinkLoad,
    /// Most of one core that measuring takes.
    cpu_share: f64,
    next_ns: u64,
    cpu_ns: u64,
    probes: u64,
}

fn cpu_now_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl LinkMeter {
    /// Takes what there is: counters in the file that is named, else probes that take up to `cpu_pct` of a
    /// core.
    ///
    /// # Errors
    /// The file of counters cannot be read, or holds something else.
    pub fn open(
        nodes: &Nodes,
        tiers: &Tiers,
        counters: Option<&Path>,
        cpu_pct: f64,
    ) -> Result<Self, CountersError> {
        let known = speed::known(nodes, tiers);
        if let Some(counters) = counters.map(LinkCounters::open).transpose()?.flatten() {
            let why = "the file of counters has the link's";
            return Ok(Self::new(known, Means::Counters(counters), why.to_owned(), cpu_pct));
        }
        let (means, why) = match prober(nodes, tiers) {
            _ if cpu_pct <= 0.0 => (Means::Once, "the configuration leaves it no time".to_owned()),
            Ok(prober) => match FarTraffic::open(nodes.root(), nodes, tiers) {
                Ok(traffic) => {
                    (Means::Probes(prober, Some(traffic)), "resctrl counts the traffic".to_owned())
                }
                Err(why) => (Means::Probes(prober, None), why),
            },
            Err(why) => (Means::Once, why),
        };
        Ok(Self::new(known, means, why, cpu_pct))
    }

    /// One that is measured by this prober.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn probed_by(nodes: &Nodes, tiers: &Tiers, prober: Box<dyn Prober>, cpu_pct: f64) -> Self {
        Self::new(speed::known(nodes, tiers), Means::Probes(prober, None), "a test".to_owned(), cpu_pct)
    }

    fn new(known: Option<Known>, means: Means, why: String, cpu_pct: f64) -> Self {
        // Where nothing is known no promotion pays.
        let known = known.unwrap_or(Known { local_ns: 0.0, far_ns: 0.0, bytes_per_s: 0.0 });
        let load = LinkLoad::new(known);
        Self { means, why, load, cpu_share: cpu_pct / 100.0, next_ns: 0, cpu_ns: 0, probes: 0 }
    }

    /// When there is something to measure; never where nothing is measured.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        (!matches!(self.means, Means::Once)).then_some(self.next_ns)
    }

    /// Measures if it is time; `moved_bytes` of pages were moved since the start.
    pub fn turn(&mut self, now_ns: u64, moved_bytes: u64) {
        if now_ns < self.next_ns {
            return;
        }
        let began_ns = cpu_now_ns();
        match &mut self.means {
            Means::Counters(counters) => self.load.note_count(now_ns, counters.read()),
            Means::Probes(prober, traffic) => {
                for tier in [Tier::Far, Tier::Local] {
                    let latencies = [(); PROBES_AT_A_TIME].map(|()| prober.latency_ns(tier));
                    self.load.note_probes(now_ns, tier, &latencies);
                    self.probes += PROBES_AT_A_TIME as u64;
                }
                if let Some(own_bytes) = traffic.as_ref().and_then(FarTraffic::bytes) {
                    self.load.note_own(now_ns, own_bytes);
                }
            }
            Means::Once => {}
        }
        self.load.note_moved(now_ns, moved_bytes);
        let cost_ns = cpu_now_ns() - began_ns;
        self.note_cost(now_ns, cost_ns);
    }

    /// What it cost was had: the next comes so late that it keeps to its share of a core.
    fn note_cost(&mut self, now_ns: u64, cost_ns: u64) {
        self.cpu_ns += cost_ns;
        let by_share_ns = match self.means {
            Means::Probes(..) => (cost_ns as f64 / self.cpu_share) as u64,
            // A few words that are mapped.
            Means::Counters(_) | Means::Once => 0,
        };
        self.next_ns = now_ns + by_share_ns.max(LEAST_INTERVAL_NS);
    }

    /// What policies are told.
    #[must_use]
    pub fn telemetry(&self) -> LinkTelemetry {
        self.load.telemetry()
    }

    /// What the daemon tells of it, after so many seconds.
    #[must_use]
    pub fn status(&self, uptime_s: f64) -> LinkStatus {
        let telemetry = self.telemetry();
        LinkStatus {
            source: match self.means {
                Means::Counters(_) => "counters",
                Means::Probes(_, None) => "probes",
                Means::Probes(_, Some(_)) => "probes-and-resctrl",
                Means::Once => "once",
            },
            why: self.why.clone(),
            latency_ns: self.load.latency_ns(),
            idle_latency_ns: self.load.idle_latency_ns(),
            local_latency_ns: self.load.local_latency_ns(),
            bytes_per_s: self.load.bytes_per_s(),
            available_bytes_per_s: telemetry.available_bytes_per_s,
            available_share: self.load.share_left(),
            traffic_bytes: telemetry.traffic_bytes,
            probes: self.probes,
            cpu_pct: self.cpu_ns as f64 / 1e7 / uptime_s.max(1e-3),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::counters::tests::file;
    use crate::testing::Tree;

    const MS: u64 = 1_000_000;

    /// Far memory that takes as long as the test says.
    #[derive(Clone)]
    pub(crate) struct SetProber(pub Arc<Mutex<f64>>);

    impl Prober for SetProber {
        fn latency_ns(&mut self, tier: Tier) -> f64 {
            if tier == Tier::Local { 100.0 } else { *self.0.lock().unwrap() }
        }
    }

    fn nodes(far: u32) -> (Nodes, Tiers) {
        let tree = Tree::new();
        for (node, cpus, latency_ns) in [(0, "0", "100"), (far, "", "300")] {
            tree.node(node, cpus, 1024, 1024);
            let initiators = format!("sys/devices/system/node/node{node}/access1/initiators");
            tree.write(&format!("{initiators}/read_latency"), latency_ns);
            tree.write(&format!("{initiators}/read_bandwidth"), "1000");
        }
        let nodes = Nodes::read(tree.root()).unwrap();
        let tiers = nodes.tiers(None, None).unwrap();
        (nodes, tiers)
    }

    #[test]
    fn probes_go_on_and_a_neighbour_is_seen() {
        let (nodes, tiers) = nodes(1);
        let far_ns = Arc::new(Mutex::new(300.0));
        let mut meter = LinkMeter::probed_by(&nodes, &tiers, Box::new(SetProber(far_ns.clone())), 100.0);
        let mut now_ms = 0;
        let mut turns = |meter: &mut LinkMeter, turns: u64| {
            for _ in 0..turns {
                meter.turn(now_ms * MS, 0);
                now_ms += 200;
            }
        };
        turns(&mut meter, 20);
        let status = meter.status(4.0);
        assert_eq!((status.source, status.latency_ns, status.available_share), ("probes", 300.0, 1.0));
        assert_eq!(meter.telemetry().delta_latency_ns, 200.0);
        *far_ns.lock().unwrap() = 600.0;
        turns(&mut meter, 20);
        let status = meter.status(8.0);
        assert_eq!(
            (status.latency_ns, status.idle_latency_ns, status.local_latency_ns),
            (600.0, 300.0, 100.0)
        );
        assert!((status.available_share - 0.2).abs() < 1e-9, "{status:?}");
        assert_eq!(status.probes, 40 * 2 * PROBES_AT_A_TIME as u64);
        assert!(status.traffic_bytes > 0);
    }

    #[test]
    fn measuring_keeps_to_its_share_of_a_core() {
        let (nodes, tiers) = nodes(1);
        let prober = Box::new(SetProber(Arc::new(Mutex::new(300.0))));
        let mut meter = LinkMeter::probed_by(&nodes, &tiers, prober, 0.1);
        meter.note_cost(0, 20_000);
        assert_eq!(meter.next_ns(), Some(LEAST_INTERVAL_NS), "no more often than it must");
        meter.note_cost(1000 * MS, 500_000);
        assert_eq!(meter.next_ns(), Some(1500 * MS), "half a millisecond each 500 is a thousandth");
        let probes = meter.status(1.0).probes;
        meter.turn(1499 * MS, 0);
        assert_eq!(meter.status(1.0).probes, probes, "it is not time");
    }

    #[test]
    fn where_nothing_can_be_probed_what_firmware_says_holds_and_the_reason_is_told() {
        let (nodes, tiers) = nodes(900);
        let mut meter = LinkMeter::open(&nodes, &tiers, None, 0.1).unwrap();
        meter.turn(1000 * MS, 123);
        let status = meter.status(1.0);
        assert_eq!((status.source, status.latency_ns, status.local_latency_ns), ("once", 300.0, 100.0));
        assert!(status.why.contains("node 900"), "{}", status.why);
        assert_eq!((status.traffic_bytes, status.bytes_per_s), (123, 1000.0 * 1048576.0));
        assert_eq!(meter.next_ns(), None);
        let (nodes, tiers) = self::nodes(1);
        let status = LinkMeter::open(&nodes, &tiers, None, 0.0).unwrap().status(1.0);
        assert_eq!((status.source, status.why.as_str()), ("once", "the configuration leaves it no time"));
    }

    #[test]
    fn memory_of_a_node_that_is_there_is_probed() {
        let tree = Tree::new();
        tree.node(0, "0", 1024, 1024);
        tree.node(1, "", 1024, 1);
        let nodes = Nodes::read(tree.root()).unwrap();
        let tiers = nodes.tiers(None, None).unwrap();
        let full = prober(&nodes, &tiers).err().unwrap();
        assert!(full.contains("node 1 has no memory free"), "{full}");
        let local = crate::nodes::NodeSet([0].into());
        let mut prober = prober(&nodes, &Tiers { fast: local.clone(), slow: local }).unwrap();
        assert!([Tier::Local, Tier::Far].into_iter().all(|tier| prober.latency_ns(tier) > 0.0));
    }

    #[test]
    fn counters_of_the_link_are_taken_where_the_file_has_them() {
        let (nodes, tiers) = nodes(1);
        let (file, memory) = file();
        let open = || LinkMeter::open(&nodes, &tiers, Some(file.path()), 0.0).unwrap();
        assert_eq!(open().status(1.0).source, "once", "there are none in it");
        let words = memory.atomics_u64(AT_BYTES, WORDS);
        for (word, value) in words.iter().zip([MAGIC, 10_000_000_000, 750, 900, 1 << 40, 77]) {
            word.store(value, Ordering::Relaxed);
        }
        let mut meter = open();
        meter.turn(0, 0);
        words[4].store((1 << 40) + 6_000_000_000, Ordering::Relaxed);
        words[5].store(1077, Ordering::Relaxed);
        meter.turn(1000 * MS, 0);
        let status = meter.status(1.0);
        assert_eq!((status.source, status.latency_ns, status.idle_latency_ns), ("counters", 900.0, 750.0));
        assert!((status.available_share - 0.4).abs() < 1e-9, "{status:?}");
        assert_eq!((status.traffic_bytes, status.probes), (1000, 0));
        assert!((status.available_bytes_per_s - 4e9).abs() < 1.0, "{status:?}");
    }
}
