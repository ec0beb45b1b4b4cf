//! Donors, each in a space of its own, with an etcd, and a run on them.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::net::{HUB, Network, host};
use super::work::{Kind, Work};
use crate::donor_common::Donor;
use crate::fault_common::Scene;
use crate::fault_common::disks::SmallDisk;
use crate::pool_common::slow::SlowWay;
use crate::pool_common::{Etcd, await_donors_by, certificates, pool_command, tls};
use crate::support::child::PATIENCE;

/// Donors that there are.
pub const DONORS: usize = 8;
/// The one that is reached by a way that can be made slow.
pub const SLOW: usize = DONORS - 1;
const PORT: u16 = 10809;
const MEMORY: &str = "96M";
const KEEP_FREE: &str = "64M";
/// The disk of a last resort, which has room for all pages, dead ones included.
const DISK_MIB: u64 = 136;
/// Longer than what is noticed late: who has said that all is well for so long knows of no harm.
const SETTLED: Duration = Duration::from_millis(1_500);

/// How pages are kept, and by what ways.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Of the pool's URI: `copies=3`, or `data=4&parity=2`.
    pub query: &'static str,
    /// Donors that may die at once.
    pub parity: usize,
    /// By TLS with certificates, or plainly.
    pub is_by_tls: bool,
    /// Whether there is a last resort.
    pub spills: bool,
    pub work: Kind,
}

impl Plan {
    /// With fewer donors a part, or a copy, of each page has none.
    pub fn fewest_without_spill(&self) -> usize {
        if self.query.contains("data=4&parity=2") { 6 } else { self.parity + 1 }
    }
}

/// What all is about.
pub struct World<'a> {
    pub network: &'a Network,
    pub etcd: Etcd,
    pub plan: Plan,
    scene: Scene,
    donors: Vec<Option<Donor>>,
    /// Where each listens, by port.
    ports: Vec<u16>,
    slow: Option<SlowWay>,
    certificates: TempDir,
    strangers: TempDir,
    /// Where the last resort is, if there is one.
    disk: Option<SmallDisk>,
    /// Donors that the run has had.
    met: usize,
    work: Option<Work>,
}

fn certificates_for_all() -> TempDir {
    certificates((0..DONORS).map(host))
}

impl<'a> World<'a> {
    /// All donors, and the program at work. To be called within the network's hub.
    pub fn start(network: &'a Network, plan: Plan) -> Self {
        let mut world = Self {
            network,
            etcd: Etcd::start_at(HUB),
            plan,
            scene: Scene::new(),
            donors: (0..DONORS).map(|_| None).collect(),
            ports: vec![PORT; DONORS],
            slow: None,
            certificates: certificates_for_all(),
            strangers: certificates_for_all(),
            disk: plan.spills.then(|| SmallDisk::tmpfs(DISK_MIB)),
            met: DONORS,
            work: None,
        };
        let behind = format!("{}:{PORT}", host(SLOW));
        world.slow = Some(network.space(SLOW).within(|| SlowWay::to(&behind, &host(SLOW))));
        (0..DONORS).for_each(|number| world.start_donor(number));
        world.await_all_up();
        let ways = match plan.is_by_tls {
            true => format!("tls-certificates={}", tls(&world.certificates)),
            false => "plain".to_owned(),
        };
        // What is waited for is waited for long: the machine may be busy.
        let spill = world.disk.as_ref().map(|disk| {
            format!("&spill=file:{}&spill-size={}M", disk.path().join("far").display(), DISK_MIB - 8)
        });
        let store = format!(
            "pool:{}?{}&size={}M&timeout=1&reconnect=60&{ways}{}",
            world.etcd.pool(),
            plan.query,
            plan.work.far_mib(),
            spill.unwrap_or_default()
        );
        world.work = Some(Work::start(plan.work, &world.scene, &store));
        world
    }

    /// Where a donor listens.
    pub fn listens_at(&self, number: usize) -> String {
        format!("{}:{}", host(number), self.ports[number])
    }

    /// How a donor is known to runs.
    pub fn address(&self, number: usize) -> String {
        match &self.slow {
            Some(way) if number == SLOW => way.address.to_string(),
            _ => self.listens_at(number),
        }
    }

    /// Starts the donor of this number, with nothing in it.
    pub fn start_donor(&mut self, number: usize) {
        let (listen, advertise) = (self.listens_at(number), self.address(number));
        let (pool, domain, directory) =
            (self.etcd.pool(), format!("space-{number}"), tls(&self.certificates));
        let mut options = vec!["--listen", &listen, "--advertise", &advertise, "--domain", &domain];
        options.extend(["--pool", &pool, "--keep-free", KEEP_FREE]);
        match self.plan.is_by_tls {
            true => options.extend(["--tls-certificates", &directory]),
            false => options.push("--plain"),
        }
        let donor = self.network.space(number).within(|| Donor::start(MEMORY, &options));
        self.donors[number] = Some(donor);
    }

    /// Starts another donor in a space whose donor is dead; false where the run can have no more.
    pub fn start_another(&mut self, number: usize) -> bool {
        // The slow way leads to one port; and a run has 32 donors in all.
        if number == SLOW || self.met >= 30 {
            return false;
        }
        self.met += 1;
        self.ports[number] += 1;
        self.start_donor(number);
        true
    }

    /// Kills donors, all at the same moment and without a word.
    pub fn kill(&mut self, numbers: &[usize]) {
        // Stopped first, so that none outlives another.
        for signal in [Signal::STOP, Signal::KILL] {
            numbers.iter().for_each(|number| self.signal(*number, signal));
        }
        numbers.iter().for_each(|number| drop(self.donors[*number].take()));
    }

    pub fn signal(&self, number: usize, signal: Signal) {
        self.donors[number].as_ref().unwrap().signal(signal);
    }

    pub fn pid(&self, number: usize) -> u32 {
        self.donors[number].as_ref().unwrap().pid()
    }

    fn ballast(&self) -> PathBuf {
        self.disk.as_ref().unwrap().path().join("ballast")
    }

    /// Leaves no room on the disk of the last resort.
    pub fn fill_disk(&self) {
        let mut filling = File::create(self.ballast()).unwrap();
        while filling.write_all(&[1; 4096]).is_ok() {}
    }

    /// Takes away what fills it.
    pub fn clear_disk(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    /// All that the slow donor says is passed on so much later.
    pub fn be_late(&self, late: Duration) {
        self.slow.as_ref().unwrap().be_late(late);
    }

    pub fn work(&mut self) -> &mut Work {
        self.work.as_mut().unwrap()
    }

    fn await_all_up(&self) {
        let (pool, directory) = (self.etcd.pool(), tls(&self.certificates));
        match self.plan.is_by_tls {
            true => await_donors_by(&self.scene, &[&pool, "--tls-certificates", &directory], DONORS, "up"),
            false => await_donors_by(&self.scene, &[&pool], DONORS, "up"),
        };
    }

    /// Somebody asks with certificates of another CA, or by TLS where there is none: no donor answers.
    pub fn a_stranger_knocks(&self, number: usize) {
        let (address, directory) = (self.listens_at(number), tls(&self.strangers));
        let asked = ["status", &address, "--json", "--tls-certificates", &directory];
        let seen = pool_command(&self.scene, &asked).text();
        let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
        let state = seen["donors"][0]["state"].as_str().unwrap().to_owned();
        assert_ne!(state, "up", "a stranger was let in: {seen}");
    }

    /// What the run has said so far, in bytes: for [`Self::said_since`].
    pub fn mark(&mut self) -> usize {
        self.work().complaint().len()
    }

    /// Whether the run has said this, or what else is as good, since.
    pub fn has_said_since(&mut self, mark: usize, texts: &[String]) -> bool {
        let complaint = self.work().complaint();
        texts.iter().any(|text| complaint[mark..].contains(text.as_str()))
    }

    /// Waits until the run has said one of these since.
    pub fn says_since(&mut self, mark: usize, texts: &[String]) {
        let end = Instant::now() + PATIENCE;
        while !self.has_said_since(mark, texts) {
            let complaint = self.work().complaint();
            assert!(
                Instant::now() < end,
                "none of {texts:?} since byte {mark} of: {complaint}\n{}",
                self.logs()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What each donor has said.
    fn logs(&self) -> String {
        let of = |(number, donor): (usize, &Option<Donor>)| {
            let log = donor.as_ref().map_or("is dead".to_owned(), Donor::log);
            format!("donor {}: {log}\n", self.address(number))
        };
        self.donors.iter().enumerate().map(of).collect()
    }

    /// Waits until the run has found all pages whole, and nothing else since.
    pub fn await_whole(&mut self) {
        let mut since = None;
        let end = Instant::now() + PATIENCE;
        loop {
            let complaint = self.work().complaint();
            if !is_well(&complaint) {
                since = None;
            } else if since.get_or_insert_with(Instant::now).elapsed() >= SETTLED {
                return;
            }
            assert!(Instant::now() < end, "all pages are not whole in time: {complaint}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The program ends, and everything was right.
    pub fn ends_whole(mut self) {
        let complaint = self.work.take().unwrap().ends_whole().complaint();
        for wrong in ["SIGBUS", "are lost", "panicked", "wrong"] {
            assert!(!complaint.contains(wrong), "'{wrong}' in: {complaint}");
        }
        for donor in self.donors.iter().flatten() {
            assert!(!donor.log().contains("panicked"), "{}", donor.log());
        }
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        // Its acceptor is woken from where it is: the link may be cut.
        let slow = self.slow.take();
        self.network.space(SLOW).within(|| drop(slow));
    }
}

/// Whether what a run has said last of its pages is that they are whole.
fn is_well(complaint: &str) -> bool {
    let of_line = |line: &str| {
        let is_whole = line.contains("all pages are on ") || line.contains("all pages have ");
        let is_news = [" is away (", "has lost what it held", "fewer than", "are lost with"];
        let answers = line.contains("pool: donor ") && line.contains(" answers again");
        match is_whole {
            true => Some(true),
            false if answers || is_news.iter().any(|news| line.contains(news)) => Some(false),
            false => None,
        }
    };
    complaint.lines().rev().find_map(of_line).unwrap_or(true)
}
