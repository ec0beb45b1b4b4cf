//! dcm's Fig. 16: more processors, under dcm and under swap on a RAM disk.

use spillway_report::claim::{Asks, Claim};

use super::dcm::FITTED;
use super::figure::Figure;
use super::lab::{Change, Lab};
use super::statistics::most;
use crate::run::{RunError, RunSpec};
use crate::simulator::platform::Platform;

/// Virtual processors of the paper's guest, a task each.
const TASKS: [u32; 3] = [8, 16, 24];

/// Local memory, of a working set of 63.6 GB (Table 1), by what the paper calls it.
const LOCAL: [(&str, f64); 4] =
    [("L32", 32.0 / 63.6), ("L24", 24.0 / 63.6), ("L16", 16.0 / 63.6), ("L8", 8.0 / 63.6)];

/// Linux swap on a RAM disk. What lies far lies in the same machine's memory: no network, and its latency is
/// in the copy. What software takes is the kernel's, not that of dcm's handler of EPT violations: 1.4 times
/// HotBox's swap without a block layer (HotBox 6.2).
fn on_ram_disk(spec: RunSpec) -> RunSpec {
    const BLOCK_LAYER: f64 = 1.4;
    let swap = Platform::hotbox();
    spec.at("far_ns", 80.0)
        .at("link_bytes_per_s", 12.9e9)
        .at("fetch_software_ns", swap.fetch_software_ns * BLOCK_LAYER)
        .at("migrate_page_ns", swap.migrate_page_ns * BLOCK_LAYER)
}

pub(super) fn d16(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "D16",
        "Sequence alignment on 8 to 24 processors",
        "dcm, Fig. 16",
        "run time over all local on 8 processors",
    );
    let spec = |policy, tasks: u32| lab.spec("snap", policy).on("dcm").with("tasks", tasks);
    let ideal = TASKS.map(|tasks| spec("all-local", tasks));
    let dcm = LOCAL.map(|(_, share)| TASKS.map(|tasks| spec("dcm", tasks).local(share)));
    let swap = LOCAL.map(|(_, share)| TASKS.map(|tasks| on_ram_disk(spec("swap", tasks)).local(share)));
    let base = lab.times(&ideal[..1])?[0];
    let mut curve = |name: &str, specs: &[RunSpec]| -> Result<Vec<f64>, RunError> {
        let times: Vec<f64> = lab.times(specs)?.iter().map(|time| time / base).collect();
        for (tasks, time) in TASKS.iter().zip(&times) {
            figure.value(name, format!("{tasks} processors"), *time);
        }
        Ok(times)
    };
    curve("all local", &ideal)?;
    let mut times = Vec::new();
    for (at, (name, _)) in LOCAL.iter().enumerate() {
        times.push((curve(&format!("dcm {name}"), &dcm[at])?, curve(&format!("swap {name}"), &swap[at])?));
    }
    let steps = times.iter().flat_map(|(dcm, _)| dcm.windows(2).map(|pair| pair[1] / pair[0]));
    figure.claim(Claim::new(
        "dcm: a step up in processors over the step before, most of all",
        "falls at every local size",
        Asks::Smaller,
        most(steps),
    ));
    let least_local = LOCAL.len() - 1;
    let (dcm, swap) = &times[least_local];
    figure.claim(Claim::new("Swap at L8: 24 processors over 8", "rises", Asks::Larger, swap[2] / swap[0]));
    figure.claim(Claim::new(
        "At L8 on 24 processors: swap over dcm",
        "dcm far ahead",
        Asks::MuchLarger,
        swap[2] / dcm[2],
    ));
    Ok(figure.fitted(&FITTED))
}
