//! What a program will do, from a run with everything local.

use spillway_core::size::Size;
use spillway_policy::entry::{PolicyError, PolicySettings};
use spillway_policy::knowledge::Knowledge;
use spillway_policy::machine::PageIndex;
use spillway_policy::registry;

use super::problem::{Life, Problem, Use};
use crate::run::{self, NO_PROGRAM, Report, RunError, RunSpec};
use crate::simulator::heat::Happening;
use crate::simulator::link::{Link, PS_PER_NS};
use crate::simulator::node::Costs;
use crate::simulator::platform::{DaemonCore, Platform};
use crate::simulator::{Simulation, Tenant};

/// The name that asks for a bound in place of a policy's.
pub const CLAIRVOYANT: &str = "clairvoyant";

/// Epochs that a run is divided into.
pub const EPOCHS: u32 = 256;

/// The policy under which it is looked at.
const ALL_LOCAL: &str = "all-local";

/// Most pages times epochs of which uses are kept: 8 GiB.
const MOST_USES: u64 = 1 << 30;

/// A program's uses of its pages, and what it would cost to move them.
pub struct Foresight {
    all_local: Report,
    tasks: u32,
    platform: Platform,
    used_pages: u32,
    in_ns: f64,
    out_ns: f64,
    epochs: u32,
    lives: Vec<Life>,
    uses: Vec<Use>,
}

/// Epochs that a run is asked to be divided into.
///
/// # Errors
/// There is another setting, or this one makes no sense.
pub(super) fn epochs(spec: &RunSpec) -> Result<u32, RunError> {
    let known = || format!("epochs = {EPOCHS}");
    let wrong = |reason| PolicyError::Setting { name: CLAIRVOYANT, reason, known: known() };
    let mut epochs = EPOCHS;
    for (key, value) in &spec.policy_settings {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match (key.as_str(), number.filter(|number| (1..=1 << 16).contains(number))) {
            ("epochs", Some(number)) => epochs = number,
            ("epochs", None) => return Err(wrong(format!("'epochs' is {value}, not 1 to 65536")).into()),
            _ => return Err(wrong(format!("it has no setting '{key}'")).into()),
        }
    }
    Ok(epochs)
}

/// Looks at a run of which the policy and the local memory do not matter.
///
/// # Errors
/// Something in it does not exist or makes no sense, or it is too large.
pub fn foresee(spec: &RunSpec, epochs: u32) -> Result<Foresight, RunError> {
    let all_local =
        RunSpec { policy: ALL_LOCAL.into(), policy_settings: PolicySettings::new(), ..spec.clone() };
    let report = run::execute(&all_local)?;
    if u64::from(report.pages) * u64::from(epochs) > MOST_USES {
        let page_bytes = report_page_bytes(&report);
        let [asked, most] = [u64::from(report.pages), MOST_USES / u64::from(epochs)];
        let [asked, most] = [asked, most].map(|pages| Size::from_bytes(pages * page_bytes));
        return Err(RunError::TooLarge { asked, most });
    }
    let workload = run::workload(&all_local)?;
    let tasks = workload.tasks().max(1) as u32;
    let (platform, factor) = run::platform(&all_local, workload.working_set_bytes())?;
    let used_pages = run::used_pages(&platform, workload.as_ref());
    let entry = registry::find(ALL_LOCAL)?;
    let policy = entry.build(factor, &PolicySettings::new(), spec.seed, &Knowledge::default())?;
    let tenants = vec![Tenant { workload, policy, local_pages: report.pages }];
    let mut setup = run::setup(platform.clone(), factor, spec.contention, spec.lockstep, tenants);
    setup.epoch_ps = Some((report.run_s * 1e12 / f64::from(epochs)).ceil() as u64);
    let outcome = Simulation::new(setup)?.run()?.pop().ok_or(NO_PROGRAM)?;
    let heat = outcome.heat.ok_or(NO_PROGRAM)?;
    let (happenings, epochs) = heat.into_happenings();
    let (lives, uses) = lives(&happenings, epochs);
    let (in_ns, out_ns) = move_ns(&platform, spec.contention, tasks);
    Ok(Foresight { all_local: report, tasks, platform, used_pages, in_ns, out_ns, epochs, lives, uses })
}

fn report_page_bytes(report: &Report) -> u64 {
    Platform::named(&report.spec.platform).map_or(spillway_core::page::PAGE_BYTES, |named| named.page_bytes)
}

/// What moving a base page takes of the program's cores at the least, in and out, in nanoseconds. Where
/// daemons have a core of their own that is no more than the interrupts by which its cores forget the page.
fn move_ns(platform: &Platform, contention: f64, tasks: u32) -> (f64, f64) {
    let costs = Costs::of(platform);
    let others = u64::from(tasks - 1);
    if platform.daemon_core == DaemonCore::Spare {
        let interrupts_ns = (costs.interrupt * u64::from(tasks)) as f64 / PS_PER_NS as f64;
        return (interrupts_ns, interrupts_ns);
    }
    let link = Link::new(platform.link_bytes_per_s, platform.far_ns, contention);
    let (bytes, latency_ps) = (platform.page_bytes, link.latency_ps());
    let sent_ps = link.page_ps(bytes);
    let software_ps = costs.migrate_page + costs.interrupt * (others + others.saturating_sub(1));
    let in_ps = software_ps + latency_ps + sent_ps.max(costs.copy_ps(bytes, latency_ps));
    let out_ps = software_ps + sent_ps.max(costs.copy_out_ps(bytes));
    (in_ps as f64 / PS_PER_NS as f64, out_ps as f64 / PS_PER_NS as f64)
}

/// The lives of all pages that are used at all.
fn lives(happenings: &[(PageIndex, Happening)], epochs: u32) -> (Vec<Life>, Vec<Use>) {
    let (mut lives, mut uses): (Vec<Life>, Vec<Use>) = (Vec::new(), Vec::new());
    let mut begun: Option<(PageIndex, u32, usize)> = None;
    let mut end = |begun: &mut Option<(PageIndex, u32, usize)>, end: u32, uses: usize| {
        if let Some((_, first, from)) = begun.take().filter(|(_, _, from)| *from < uses) {
            lives.push(Life { first, end, uses: from..uses });
        }
    };
    for &(page, happening) in happenings {
        if begun.is_some_and(|(other, ..)| other != page) {
            end(&mut begun, epochs, uses.len());
        }
        match happening {
            Happening::Born(first) => begun = Some((page, first, uses.len())),
            Happening::Used(epoch, far_ns) => {
                begun.get_or_insert((page, epoch, uses.len()));
                uses.push(Use { epoch, far_ns });
            }
            Happening::Gone(epoch) => end(&mut begun, epoch + 1, uses.len()),
        }
    }
    end(&mut begun, epochs, uses.len());
    (lives, uses)
}

impl Foresight {
    /// The run that was looked at.
    #[must_use]
    pub fn all_local(&self) -> &Report {
        &self.all_local
    }

    /// Tasks of the program, each on a core.
    #[must_use]
    pub fn tasks(&self) -> u32 {
        self.tasks
    }

    /// Local memory under `spec`, in pages.
    #[must_use]
    pub fn local_pages(&self, spec: &RunSpec) -> u32 {
        run::local_pages(spec, &self.platform, self.used_pages)
    }

    /// What is to be decided with so many pages local.
    #[must_use]
    pub fn problem(&self, local_pages: u32) -> Problem {
        Problem {
            epochs: self.epochs,
            capacity: local_pages,
            in_ns: self.in_ns,
            out_ns: self.out_ns,
            lives: self.lives.clone(),
            uses: self.uses.clone(),
        }
    }
}
