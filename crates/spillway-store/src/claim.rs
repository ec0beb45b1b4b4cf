//! The claim of a run on an export that others can open too: a page behind the last slot that says whose the
//! export is, in text. Two runs that keep their pages in one place would overwrite each other's.
//!
//! Who claims looks first, writes, waits for longer than another may take from its look to its write, and
//! looks again: of two who come at the same time one finds the other's page and leaves. The claim of a run
//! that ended without giving it back is taken over where it is of this machine and its process is gone; of
//! another machine nobody can know, and the user says so by `?claim=take`.

use std::fmt::Write;
use std::time::{Duration, Instant};

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::plain_text::plain;

use crate::spec::Claim;
use crate::{Lane, ReadRequest, StoreError, WriteRequest};

const TITLE: &str = "SPILLWAY CLAIM 1";
/// Letters of a machine's name that are told on: Linux lets it have 64.
const MOST_HOST: usize = 64;
/// From a look to the end of the write it may take half of this, or the look is out of date.
const SETTLED: Duration = Duration::from_millis(200);
/// Who has a claim looks at it each second, and writes it again where it is gone.
const RESTORED: Duration = Duration::from_secs(3);
/// Times that a claim is tried that takes too long to write.
const TRIES: usize = 3;

/// Who claims: one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Unlike that of any other run.
    pub run: String,
    /// The machine's name, for people.
    pub host: String,
    /// The machine since its start, and the name space of its process numbers.
    pub machine: String,
    /// The process that answers for the run.
    pub pid: u32,
    /// When it began, in ticks since the machine's start: numbers come again.
    pub began: u64,
}

impl Claimant {
    /// This process, for the run of that name.
    #[must_use]
    pub fn this_process(run: &str) -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let pid = std::process::id();
        Self {
            run: run.to_owned(),
            host: text("/proc/sys/kernel/hostname"),
            machine: format!("{} {}", text("/proc/sys/kernel/random/boot_id"), space.display()),
            pid,
            began: began(pid).unwrap_or(0),
        }
    }

    /// The page that says it.
    #[must_use]
    pub fn to_page(&self) -> Page {
        let Self { run, host, machine, pid, began } = self;
        let mut text = String::new();
        let _ =
            write!(text, "{TITLE}\nrun={run}\nhost={host}\nmachine={machine}\npid={pid}\nbegan={began}\n");
        let mut page = [0; PAGE_SIZE];
        let bytes = &text.as_bytes()[..text.len().min(PAGE_SIZE)];
        page[..bytes.len()].copy_from_slice(bytes);
        page
    }

    /// Whose claim a page is; `None` where it is none. Anybody who may open the export can write there: the
    /// name of the machine, which is printed, is left without what a terminal takes for a command.
    #[must_use]
    pub fn of_page(page: &Page) -> Option<Self> {
        let end = page.iter().position(|byte| *byte == 0)?;
        let mut lines = std::str::from_utf8(&page[..end]).ok()?.split('\n');
        lines.next().filter(|title| *title == TITLE)?;
        let mut value = |name: &str| Some(lines.next()?.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        Some(Self {
            run: value("run")?,
            host: plain(&value("host")?).take(MOST_HOST).collect(),
            machine: value("machine")?,
            pid: value("pid")?.parse().ok()?,
            began: value("began")?.parse().ok()?,
        })
    }

    /// It is of this machine, and its process is no more.
    fn is_dead(&self, own: &Self) -> bool {
        self.machine == own.machine && began(self.pid) != Some(self.began)
    }
}

/// When a process began, in ticks since the machine's start.
fn began(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    // The 22nd field; the state is the third.
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// Whose a store is by its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// No run has claimed it.
    Nobody,
    /// It is this run's already.
    Own,
    /// This other run has claimed it.
    Another(Claimant),
}

/// What came of claiming.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It was nobody's, or the run's own.
    Free,
    /// It was taken from this one.
    TakenFrom(Claimant),
}

/// Looks whose a store is, by its slot for that.
///
/// # Errors
/// The store's.
pub fn owner(lane: &mut dyn Lane, slot: u32, own: &Claimant) -> Result<Owner, StoreError> {
    let mut page = [0; PAGE_SIZE];
    let mut batch = [ReadRequest { slot, page: &mut page, outcome: Ok(()) }];
    lane.read(&mut batch);
    let [ReadRequest { outcome, .. }] = batch;
    outcome?;
    Ok(match Claimant::of_page(&page) {
        None => Owner::Nobody,
        Some(claimant) if claimant.run == own.run => Owner::Own,
        Some(claimant) => Owner::Another(claimant),
    })
}

fn write(lane: &mut dyn Lane, slot: u32, page: &Page) -> Result<(), StoreError> {
    let mut batch = [WriteRequest { slot, page, outcome: Ok(()) }];
    lane.write(&mut batch);
    let [WriteRequest { outcome, .. }] = batch;
    outcome
}

/// Writes a claim, whatever was there.
///
/// # Errors
/// The store's.
pub fn put(lane: &mut dyn Lane, slot: u32, own: &Claimant) -> Result<(), StoreError> {
    write(lane, slot, &own.to_page())
}

/// Claims a store for a run.
///
/// # Errors
/// The store's; [`StoreError::Unusable`] where another run has it.
pub fn claim(
    lane: &mut dyn Lane,
    store: &str,
    slot: u32,
    own: &Claimant,
    wish: Claim,
) -> Result<Claimed, StoreError> {
    let unusable = |reason: String, remedy: &str| StoreError::Unusable {
        store: store.to_owned(),
        reason,
        remedy: remedy.to_owned(),
    };
    for _ in 0..TRIES {
        let looked = Instant::now();
        let claimed = match owner(lane, slot, own)? {
            Owner::Nobody | Owner::Own => Claimed::Free,
            Owner::Another(other) if wish == Claim::Take || other.is_dead(own) => Claimed::TakenFrom(other),
            Owner::Another(Claimant { host, pid, .. }) => {
                return Err(unusable(
                    format!("another run keeps its pages there (process {pid} on {host})"),
                    "name another export, or write ?claim=take in the URI if that run is gone",
                ));
            }
        };
        put(lane, slot, own)?;
        if looked.elapsed() > SETTLED / 2 {
            // It may have come over one that was settled: whose that is finds it gone, and writes it again.
            write(lane, slot, &[0; PAGE_SIZE])?;
            std::thread::sleep(RESTORED);
            continue;
        }
        std::thread::sleep(SETTLED);
        return match owner(lane, slot, own)? {
            Owner::Own => Ok(claimed),
            Owner::Another(Claimant { host, pid, .. }) => Err(unusable(
                format!("another run has come at the same time (process {pid} on {host})"),
                "name another export for one of them",
            )),
            Owner::Nobody => Err(unusable(
                "what is written there does not stay".to_owned(),
                "name an export that keeps what it is given, or write ?claim=none in the URI",
            )),
        };
    }
    Err(unusable(
        "the server is too slow for a claim on the export to be safe".to_owned(),
        "write ?claim=none in the URI if no other run uses the export",
    ))
}

/// Looks whether a claim stands, and writes it again where somebody has wiped it. Returns who has the store
/// in the run's place, if anybody.
///
/// # Errors
/// The store's.
pub fn keep(lane: &mut dyn Lane, slot: u32, own: &Claimant) -> Result<Option<Claimant>, StoreError> {
    match owner(lane, slot, own)? {
        Owner::Own => Ok(None),
        Owner::Another(other) => Ok(Some(other)),
        Owner::Nobody => put(lane, slot, own).map(|()| None),
    }
}

/// Gives a claim back, if it is the run's own still.
///
/// # Errors
/// The store's.
pub fn give_back(lane: &mut dyn Lane, slot: u32, own: &Claimant) -> Result<(), StoreError> {
    if owner(lane, slot, own)? == Owner::Own { write(lane, slot, &[0; PAGE_SIZE]) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::open_store;

    const SLOT: u32 = 3;

    fn another(run: &str) -> Claimant {
        Claimant { run: run.to_owned(), ..Claimant::this_process(run) }
    }

    fn with_lane(work: impl FnOnce(&mut dyn Lane)) {
        let (_parts, store) = open_store("ram:?size=64K");
        work(&mut *store.open_lane().unwrap());
    }

    fn claim_as(lane: &mut dyn Lane, own: &Claimant, wish: Claim) -> Result<Claimed, StoreError> {
        claim(lane, "nbd://a/", SLOT, own, wish)
    }

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        let own = another("a run");
        assert_eq!(Claimant::of_page(&own.to_page()), Some(own));
        let mut title_only = [0; PAGE_SIZE];
        title_only[..TITLE.len()].copy_from_slice(TITLE.as_bytes());
        for page in [[0; PAGE_SIZE], [b'x'; PAGE_SIZE], title_only] {
            assert_eq!(Claimant::of_page(&page), None);
        }
    }

    #[test]
    fn a_claim_of_somebody_else_says_nothing_to_a_terminal() {
        let odd = Claimant { host: format!("\u{1b}[2J\r{}", "n".repeat(100)), ..another("odd") };
        let read = Claimant::of_page(&odd.to_page());
        assert_eq!(read, Some(Claimant { host: format!("[2J{}", "n".repeat(61)), ..odd }));
    }

    #[test]
    fn one_of_two_runs_has_the_store() {
        with_lane(|lane| {
            let (one, two) = (another("one"), another("two"));
            assert_eq!(claim_as(lane, &one, Claim::Free), Ok(Claimed::Free));
            assert_eq!(claim_as(lane, &one, Claim::Free), Ok(Claimed::Free), "again");
            let refused = claim_as(lane, &two, Claim::Free).unwrap_err().to_string();
            assert!(
                refused.contains("another run keeps its pages there") && refused.contains("?claim=take"),
                "{refused}"
            );
            give_back(lane, SLOT, &two).unwrap();
            assert_eq!(owner(lane, SLOT, &one), Ok(Owner::Own), "nobody gives back what is not his");
            assert_eq!(claim_as(lane, &two, Claim::Take), Ok(Claimed::TakenFrom(one.clone())));
            assert_eq!(owner(lane, SLOT, &one), Ok(Owner::Another(two.clone())));
            give_back(lane, SLOT, &two).unwrap();
            assert_eq!(owner(lane, SLOT, &one), Ok(Owner::Nobody));
        });
    }

    #[test]
    fn a_dead_runs_claim_is_taken_over_and_another_machines_is_not() {
        with_lane(|lane| {
            let own = another("own");
            let dead = Claimant { began: own.began + 1, ..another("dead") };
            put(lane, SLOT, &dead).unwrap();
            assert_eq!(claim_as(lane, &own, Claim::Free), Ok(Claimed::TakenFrom(dead.clone())));
            let far = Claimant { machine: "elsewhere".to_owned(), ..dead };
            put(lane, SLOT, &far).unwrap();
            assert!(claim_as(lane, &own, Claim::Free).is_err());
        });
    }

    /// A lane on which something happens after each write.
    struct Meddled<'a, F>(&'a mut dyn Lane, F);

    impl<F: FnMut(&mut dyn Lane) + Send> Lane for Meddled<'_, F> {
        fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
            self.0.write(batch);
            (self.1)(self.0);
        }

        fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
            self.0.read(batch);
        }

        fn discard(&mut self, slots: &[u32]) {
            self.0.discard(slots);
        }
    }

    #[test]
    fn of_runs_that_come_at_the_same_time_the_later_has_the_store() {
        with_lane(|lane| {
            let (own, other) = (another("own"), another("other"));
            let mut meddled = Meddled(lane, |lane: &mut dyn Lane| put(lane, SLOT, &other).unwrap());
            let refused = claim(&mut meddled, "nbd://a/", SLOT, &own, Claim::Free).unwrap_err().to_string();
            assert!(refused.contains("has come at the same time"), "{refused}");
        });
    }

    #[test]
    fn a_claim_that_comes_late_makes_way_for_the_one_that_it_wiped() {
        with_lane(|lane| {
            let (own, other) = (another("own"), another("other"));
            let mut writes = 0;
            let mut meddled = Meddled(lane, |lane: &mut dyn Lane| {
                writes += 1;
                match writes {
                    1 => std::thread::sleep(SETTLED),
                    _ => assert_eq!(keep(lane, SLOT, &other), Ok(None), "the other run's look each second"),
                }
            });
            let refused = claim(&mut meddled, "nbd://a/", SLOT, &own, Claim::Free).unwrap_err().to_string();
            assert!(refused.contains("another run keeps its pages there"), "{refused}");
            assert_eq!(keep(lane, SLOT, &own), Ok(Some(other)));
        });
    }

    #[test]
    fn an_export_that_forgets_is_refused() {
        with_lane(|lane| {
            let mut meddled =
                Meddled(lane, |lane: &mut dyn Lane| write(lane, SLOT, &[0; PAGE_SIZE]).unwrap());
            let refused =
                claim(&mut meddled, "nbd://a/", SLOT, &another("own"), Claim::Free).unwrap_err().to_string();
            assert!(refused.contains("does not stay"), "{refused}");
        });
    }
}
