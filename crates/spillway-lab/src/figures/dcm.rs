//! The figures of dcm's paper, but those over threads.

use spillway_report::claim::{Asks, Claim};

use super::figure::Figure;
use super::lab::{Change, Lab};
use super::statistics::{least, mean, most};
use crate::run::RunError;

const STATIC: [&str; 5] = ["dcm-4k", "dcm-8k", "dcm-16k", "dcm-32k", "dcm-64k"];

/// What rows hang on and no source says: what software takes of a fetch was chosen so that programs lose
/// about what the paper has.
pub(super) const FITTED: [&str; 1] = ["fetch_software_ns"];

/// Work of the scan on a page.
const D9_WORK_NS_PER_PAGE: u64 = 13_000;

/// dcm's benchmarks (Table 1), by what they are here.
const BENCHMARKS: [&str; 4] = ["als", "pagerank", "tpcc", "snap"];

pub(super) fn d9(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "D9",
        "Block size, sequential scan at 25% local",
        "dcm, Fig. 9",
        "performance against all local",
    );
    // The paper does not say what its program does with a page. So much work makes 4 KiB blocks lose what
    // they lose in the paper; what larger blocks lose is then measured.
    let spec = |policy| {
        lab.spec("scan", policy).on("dcm").local(0.25).with("compute_ns_per_page", D9_WORK_NS_PER_PAGE)
    };
    let (all_local, specs) = (spec("all-local"), STATIC.map(spec));
    let base = lab.times(&[all_local])?[0];
    let performance: Vec<f64> = lab.times(&specs)?.iter().map(|time| base / time).collect();
    for (policy, value) in STATIC.iter().zip(&performance) {
        figure.value("dcm", *policy, *value);
    }
    figure.claim(Claim::new("What 64 KiB blocks lose", "3%", Asks::AtMost(0.03), 1.0 - performance[4]));
    let loss = Claim::new("What 4 KiB blocks lose", "27.8%", Asks::Gain, 1.0 - performance[0]);
    figure.claim(loss.fitted_to(0.278));
    let steps = performance.windows(2).map(|pair| pair[1] - pair[0]);
    figure.claim(Claim::new(
        "Gain with each doubling of the block, least of all",
        "always faster",
        Asks::Gain,
        least(steps),
    ));
    Ok(figure.fitted(&["compute_ns_per_page", FITTED[0]]))
}

pub(super) fn d13(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "D13",
        "Elastic blocks against the best and the worst static size",
        "dcm, Fig. 13",
        "performance against all local",
    );
    let mut gaps = Vec::new();
    let mut losses = Vec::new();
    let mut spreads = Vec::new();
    for workload in BENCHMARKS {
        let base = lab.times(&[lab.spec(workload, "all-local").on("dcm")])?[0];
        for share in [0.75, 0.5, 0.25] {
            let spec = |policy| lab.spec(workload, policy).on("dcm").local(share);
            let mut specs: Vec<_> = STATIC.into_iter().map(spec).collect();
            specs.push(spec("dcm"));
            let performance: Vec<f64> = lab.times(&specs)?.iter().map(|time| base / time).collect();
            let (best, worst) = (most(performance[..5].to_vec()), least(performance[..5].to_vec()));
            let point = format!("{workload} D{:.0}", share * 100.0);
            figure.value("static best", &point, best);
            figure.value("static worst", &point, worst);
            figure.value("elastic", &point, performance[5]);
            gaps.push(best - performance[5]);
            if share == 0.5 {
                losses.push(1.0 - performance[5]);
            }
            if share == 0.25 {
                spreads.push(best - worst);
            }
        }
    }
    figure.claim(Claim::new(
        "Elastic behind the best static size, most of all",
        "within 5 points",
        Asks::Within(0.05),
        most(gaps),
    ));
    figure.claim(Claim::new("Mean loss at 50% local", "6%", Asks::AtMost(0.06), mean(&losses)));
    figure.claim(
        Claim::new(
            "Best less worst static size at 25% local, most of all",
            "up to 0.5",
            Asks::Gain,
            most(spreads),
        )
        .sized(0.5),
    );
    Ok(figure.fitted(&FITTED))
}

pub(super) fn d14(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "D14",
        "Accuracy of prefetching at 75% and 50% local",
        "dcm, Fig. 14",
        "prefetched pages that were used, as a share",
    );
    let mut accuracy = Vec::new();
    for policy in ["dcm-8k", "dcm-16k", "dcm-32k", "dcm-64k", "dcm"] {
        let specs: Vec<_> = BENCHMARKS
            .iter()
            .flat_map(|workload| [0.75, 0.5].map(|share| lab.spec(workload, policy).on("dcm").local(share)))
            .collect();
        let all: Vec<f64> = lab.all(&specs)?.iter().map(|report| report.prefetch_accuracy).collect();
        figure.value("accuracy", policy, mean(&all));
        accuracy.push(mean(&all));
    }
    let steps = accuracy[..4].windows(2).map(|pair| pair[0] - pair[1]);
    figure.claim(Claim::new(
        "Accuracy lost with each doubling of the block, least",
        "0.94, 0.86, 0.80, 0.75",
        Asks::Gain,
        least(steps),
    ));
    figure.claim(
        Claim::new("Elastic less 64 KiB", "0.93 less 0.75", Asks::Gain, accuracy[4] - accuracy[3])
            .sized(0.18),
    );
    figure.claim(Claim::new("Elastic", "0.93", Asks::AtLeast(0.93), accuracy[4]));
    Ok(figure.fitted(&FITTED))
}
