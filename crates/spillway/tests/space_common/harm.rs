//! What befalls donors, and what must be so after it.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::net::Direction;
use super::world::{DONORS, SLOW, World};
use crate::pool_common::small_machine::SmallMachine;
use crate::support::mix;

/// Numbers that are the same for the same seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = mix(self.0);
        (self.0 >> 16) as usize % bound
    }

    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last + 1));
        }
    }

    /// So many different donors.
    fn donors(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..DONORS).collect();
        self.shuffle(&mut all);
        all.truncate(count);
        all
    }
}

/// What befalls donors, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// As many as may die at once are killed, and come back with nothing.
    Death,
    /// One is killed, and another one is started.
    Replacement,
    /// One is stopped, and continued.
    Stop,
    /// One answers in 200 ms.
    Lateness,
    /// One loses its memory, and is there again at once.
    Amnesia,
    /// The link of one loses packets.
    Loss,
    /// The link of one is cut, one way.
    Cut,
    /// The machine of one runs short of memory, and then out of it.
    Shortage,
    /// Every ten seconds one is killed, and another one is started.
    Succession,
    /// All die, as many at once as may, and come back with nothing once the last resort has all pages.
    Extinction,
    /// The disk of the last resort is full while donors die whose pages should go there.
    FullDisk,
}

/// What may befall any world, but for [`Harm::Death`].
pub const OTHERS: [Harm; 7] =
    [Harm::Replacement, Harm::Stop, Harm::Lateness, Harm::Amnesia, Harm::Loss, Harm::Cut, Harm::Shortage];

/// What happens beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aside {
    EtcdRestarts,
    EtcdLosesItsData,
    AStrangerKnocks,
    AClientSendsGarbage,
}

pub const ASIDES: [Aside; 4] =
    [Aside::EtcdRestarts, Aside::EtcdLosesItsData, Aside::AStrangerKnocks, Aside::AClientSendsGarbage];

/// Packets of a hundred that a bad link loses.
const LOST_PERCENT: u32 = 2;
const LATE: Duration = Duration::from_millis(200);
const A_WHILE: Duration = Duration::from_millis(1_500);
/// What the machine has on which one runs short.
const SMALL_MIB: u64 = 256;
/// So much is left of it: less than a donor of the world keeps free, and more than it may take before it is
/// short, or the kernel ends the one that has most.
const LEFT_MIB: u64 = 48;
const SUCCESSIONS: usize = 3;
const SUCCESSION: Duration = Duration::from_secs(10);

impl World<'_> {
    /// It happens, and the program goes on meanwhile and after; then all pages are whole again.
    pub fn suffers(&mut self, harm: Harm, aside: Aside, dice: &mut Dice) {
        let mark = self.mark();
        let away =
            |world: &Self, number: usize| vec![format!("pool: donor {} is away", world.address(number))];
        match harm {
            Harm::Death => {
                let victims = dice.donors(self.plan.parity);
                let is_repaired_first = dice.below(2) == 0;
                eprintln!("  donors {victims:?}, repaired first: {is_repaired_first}");
                self.kill(&victims);
                for victim in &victims {
                    self.says_since(mark, &away(self, *victim));
                }
                self.goes_on_beside(harm, aside, dice);
                if is_repaired_first {
                    self.await_whole();
                }
                let mark = self.mark();
                for victim in &victims {
                    self.start_donor(*victim);
                }
                for victim in &victims {
                    self.comes_back(mark, *victim);
                }
            }
            Harm::Replacement => {
                let victim = dice.below(SLOW);
                self.kill(&[victim]);
                self.says_since(mark, &away(self, victim));
                self.goes_on_beside(harm, aside, dice);
                if self.start_another(victim) {
                    let come = format!("pool: donor {} has come", self.address(victim));
                    self.says_since(mark, &[come]);
                } else {
                    self.start_donor(victim);
                    self.comes_back(mark, victim);
                }
            }
            Harm::Stop => {
                let victim = dice.below(DONORS);
                self.signal(victim, Signal::STOP);
                self.says_since(mark, &away(self, victim));
                self.goes_on_beside(harm, aside, dice);
                let mark = self.mark();
                self.signal(victim, Signal::CONT);
                self.comes_back(mark, victim);
            }
            Harm::Amnesia => {
                let victim = dice.below(DONORS);
                self.kill(&[victim]);
                self.start_donor(victim);
                self.comes_back(mark, victim);
                self.goes_on_beside(harm, aside, dice);
            }
            Harm::Lateness => {
                self.be_late(LATE);
                self.goes_on_beside(harm, aside, dice);
                self.be_late(Duration::ZERO);
            }
            Harm::Loss => {
                let victim = dice.below(DONORS);
                self.network.lose(victim, LOST_PERCENT);
                self.goes_on_beside(harm, aside, dice);
                self.network.heal(victim);
            }
            Harm::Cut => {
                let victim = dice.below(DONORS);
                let direction = [Direction::In, Direction::Out][dice.below(2)];
                eprintln!("  donor {victim}, {direction:?}");
                self.network.cut(victim, direction);
                self.says_since(mark, &away(self, victim));
                self.goes_on_beside(harm, aside, dice);
                let mark = self.mark();
                self.network.heal(victim);
                self.comes_back(mark, victim);
            }
            Harm::Shortage => {
                let victim = dice.below(DONORS);
                let news = |news: &str| {
                    vec![format!("pool: donor {} is short of memory{news}", self.address(victim))]
                };
                let (short, enough) = (news(": its pages"), news(" no more"));
                let machine = SmallMachine::new("space", SMALL_MIB);
                machine.take(self.pid(victim));
                let hog = machine.hog(SMALL_MIB - LEFT_MIB);
                self.says_since(mark, &short);
                self.goes_on_beside(harm, aside, dice);
                drop(hog);
                machine.run_out(2 * SMALL_MIB);
                self.says_since(mark, &enough);
            }
            Harm::Succession => {
                for _ in 0..SUCCESSIONS {
                    let begun = Instant::now();
                    let (victim, mark) = (dice.below(SLOW), self.mark());
                    self.kill(&[victim]);
                    if !self.start_another(victim) {
                        self.start_donor(victim);
                    }
                    self.says_since(mark, &[format!("donor {} has", self.address(victim))]);
                    self.goes_on_beside(harm, aside, dice);
                    std::thread::sleep(SUCCESSION.saturating_sub(begun.elapsed()));
                    // Where that was too short, nobody promises that the next takes nothing with it.
                    self.await_whole();
                }
            }
            Harm::Extinction => {
                let victims = dice.donors(DONORS);
                for some in victims.chunks(self.plan.parity) {
                    self.die_and_are_made_up_for(some);
                }
                self.goes_on_beside(harm, aside, dice);
                self.return_to_the_pool(&victims);
            }
            Harm::FullDisk => {
                // So many are left in the end that some parts, or copies, must go to the disk.
                let victims = dice.donors(DONORS - self.plan.fewest_without_spill() + 1);
                let (last, before) = victims.split_last().unwrap();
                for some in before.chunks(self.plan.parity) {
                    self.die_and_are_made_up_for(some);
                }
                self.fill_disk();
                let mark = self.mark();
                self.kill(&[*last]);
                self.says_since(mark, &["takes no page more (its file system is full)".to_owned()]);
                self.goes_on_beside(harm, aside, dice);
                let mark = self.mark();
                self.clear_disk();
                self.says_since(mark, &["takes pages again".to_owned()]);
                self.await_whole();
                self.return_to_the_pool(&victims);
            }
        }
        self.await_whole();
        self.work().goes_on();
    }

    /// Donors are killed, and what they had is made anew, on others or in the last resort.
    fn die_and_are_made_up_for(&mut self, victims: &[usize]) {
        let mark = self.mark();
        self.kill(victims);
        for victim in victims {
            let away = format!("pool: donor {} is away", self.address(*victim));
            self.says_since(mark, &[away]);
        }
        self.await_whole();
    }

    /// Donors are there again, with nothing, and get back what went to the last resort.
    fn return_to_the_pool(&mut self, victims: &[usize]) {
        let mark = self.mark();
        victims.iter().for_each(|victim| self.start_donor(*victim));
        victims.iter().for_each(|victim| self.comes_back(mark, *victim));
        self.says_since(mark, &["is empty again: donors have room for all pages".to_owned()]);
    }

    /// The run finds the donor, with what it had or without.
    fn comes_back(&mut self, mark: usize, number: usize) {
        let name = self.address(number);
        let lines = ["has lost what it held", "answers again"].map(|news| format!("donor {name} {news}"));
        self.says_since(mark, &lines);
    }

    /// The program gets further, or has some time where that would take it long: coded pages wait for a donor
    /// that is slow and not silent.
    fn time_passes(&mut self, harm: Harm) {
        match harm {
            Harm::Lateness | Harm::Loss => std::thread::sleep(A_WHILE),
            _ => self.work().goes_on(),
        }
    }

    fn goes_on_beside(&mut self, harm: Harm, aside: Aside, dice: &mut Dice) {
        match aside {
            Aside::EtcdRestarts | Aside::EtcdLosesItsData => {
                self.etcd.stop();
                self.time_passes(harm);
                match aside {
                    Aside::EtcdRestarts => self.etcd.restart(),
                    _ => self.etcd.restart_empty(),
                }
            }
            Aside::AStrangerKnocks => self.a_stranger_knocks(dice.below(DONORS)),
            Aside::AClientSendsGarbage => {
                (0..DONORS).for_each(|number| self.sends_garbage(number, dice.below(1 << 16)));
            }
        }
        self.time_passes(harm);
    }

    /// Somebody sends what means nothing to a donor, or to nobody.
    fn sends_garbage(&self, number: usize, bytes: usize) {
        let address = self.listens_at(number).parse().unwrap();
        let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) else { return };
        let garbage: Vec<u8> = (0..bytes as u64).map(|at| mix(at ^ bytes as u64) as u8).collect();
        stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        // It may be cut off amid it.
        let _ = stream.write_all(&garbage);
    }
}
