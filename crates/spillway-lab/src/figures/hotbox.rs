//! The figures of HotBox's paper, by its sections.

use spillway_report::claim::{Asks, Claim};

use super::figure::Figure;
use super::lab::{Change, Lab};
use super::nimble;
use super::statistics::{least, mean, most};
use crate::run::{Report, RunError, RunSpec};

/// What rows of figures hang on in which pages move, and no paper and no measurement says: how many lines a
/// core has under way while it copies a page. It is as many as a program's, and was chosen when it was seen
/// what becomes of these figures with it.
const FITTED: [&str; 1] = ["copy_overlap"];

/// The benchmarks that HotBox is evaluated by (6.2).
const BENCHMARKS: [&str; 5] = ["graph500-bfs", "ligra-bfs", "ligra-pagerank", "tpcc", "memcached-etc"];

/// The paper's own simulator knows latencies only (3.1): of what software costs, only the 4 us of a page
/// (3.3) are left, for one that comes in as for one that goes out, and its copy by a core, since the
/// parameters are "to match [...] a real system that we use for evaluation". Its last-level cache is Table
/// 1's, which stands beside 1 GB of local memory: 20% of the working set.
fn latencies_only(spec: RunSpec) -> RunSpec {
    let costs = [
        "first_touch_ns",
        "lru_entry_ns",
        "scan_entry_ns",
        "clear_entry_ns",
        "scan_upper_ns",
        "mark_page_ns",
        "shootdown_ns",
        "interrupt_ns",
        "swap_locked_share",
    ];
    let spec = RunSpec { lockstep: true, ..spec }
        .at("stream_overlap", 1.0)
        .at("llc_bytes", 6 << 20)
        .at("working_set_bytes", 5_u64 << 30);
    costs.into_iter().fold(spec, |spec, cost| spec.at(cost, 0.0))
}

pub(super) fn h4(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "H4",
        "AMAT of access models at 20% local, against all local",
        "HotBox, Fig. 4 and Table 1",
        "slowdown",
    );
    const LATENCIES_NS: [f64; 5] = [250.0, 500.0, 750.0, 1000.0, 1500.0];
    // Local memory is 20% for each model (the figure's caption). What lies there under direct access the
    // paper does not say: its hottest pages here, as in Fig. 5b, since the swap that it is compared with is
    // optimal too.
    const MODELS: [(&str, &str); 4] = [
        ("oracle", "cache line"),
        ("belady", "optimal swap"),
        ("swap", "online swap"),
        ("all-remote", "cache line, nothing local"),
    ];
    for workload in ["ligra-bfs", "ligra-pagerank"] {
        figure.panel(workload, "slowdown over all local");
        let base = lab.times(&[latencies_only(lab.spec(workload, "all-local"))])?[0];
        let mut curves = Vec::new();
        for (policy, name) in MODELS {
            let specs = LATENCIES_NS.map(|ns| latencies_only(lab.spec(workload, policy)).far_ns(ns));
            let curve: Vec<f64> = lab.times(&specs)?.iter().map(|time| time / base).collect();
            for (ns, value) in LATENCIES_NS.iter().zip(&curve) {
                figure.value(name, format!("{ns} ns"), *value);
            }
            curves.push(curve);
        }
        let against = |swap: usize, at: usize| curves[swap][at] / curves[0][at];
        if workload == "ligra-bfs" {
            let worst = least((0..LATENCIES_NS.len()).map(|at| against(1, at)));
            figure.claim(Claim::new(
                "BFS: optimal swap takes longer than direct access at every latency (least ratio)",
                "direct access first at all latencies",
                Asks::Larger,
                worst,
            ));
        } else {
            figure.claim(Claim::new(
                "PageRank: online swap against direct access at 1500 ns",
                "direct access slower than online swap at high latency",
                Asks::Smaller,
                against(2, 4),
            ));
            figure.claim(Claim::new(
                "PageRank: the ratio of online swap to direct access falls as latency grows \
                 (1500 ns over 250 ns)",
                "direct access loses its benefit",
                Asks::Smaller,
                against(2, 4) / against(2, 0),
            ));
        }
    }
    Ok(figure.fitted(&FITTED))
}

pub(super) fn h5a(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "H5a",
        "Huge pages, everything in far memory",
        "HotBox, Fig. 5a",
        "speedup of huge over base pages",
    );
    const LATENCIES_NS: [f64; 4] = [70.0, 250.0, 750.0, 1500.0];
    let workloads = ["graph500-bfs", "memcached-etc", "uniform-kv", "tpcc", "ligra-pagerank"];
    let mut by_latency = vec![Vec::new(); LATENCIES_NS.len()];
    for workload in workloads {
        for (at, ns) in LATENCIES_NS.into_iter().enumerate() {
            let spec = |policy| lab.spec(workload, policy).far_ns(ns);
            let specs = [spec("all-remote"), spec("all-remote-huge")];
            let times = lab.times(&specs)?;
            figure.value(workload, format!("{ns} ns"), times[0] / times[1]);
            by_latency[at].push(times[0] / times[1]);
        }
    }
    figure.claim(
        Claim::new("Best gain at DRAM latency", "up to 30%", Asks::Gain, most(by_latency[0].clone()) - 1.0)
            .sized(0.3),
    );
    figure.claim(Claim::new(
        "Best gain at 750 ns",
        "a best-case speedup of 3%",
        Asks::AtMost(0.03),
        most(by_latency[2].clone()) - 1.0,
    ));
    let falls = by_latency[0].iter().zip(&by_latency[3]).map(|(near, far)| near - far);
    figure.claim(Claim::new(
        "Speedup lost from 70 ns to 1500 ns, least of all",
        "diminishes with latency",
        Asks::Gain,
        least(falls),
    ));
    Ok(figure)
}

pub(super) fn h5b(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "H5b",
        "Huge pages under static placement, memcached-ETC",
        "HotBox, Fig. 5b",
        "speedup of huge over base pages",
    );
    const SHARES: [f64; 4] = [0.2, 0.4, 0.6, 0.8];
    let mut worst = Vec::new();
    let mut near = Vec::new();
    for ns in [250.0, 750.0, 1500.0] {
        for share in SHARES {
            let spec = |policy| lab.spec("memcached-etc", policy).local(share).far_ns(ns);
            let specs = [spec("oracle"), spec("oracle-huge")];
            let times = lab.times(&specs)?;
            let speedup = times[0] / times[1];
            figure.value(format!("{ns} ns"), format!("{:.0}%", share * 100.0), speedup);
            if share <= 0.4 {
                if ns >= 750.0 { worst.push(speedup) } else { near.push(speedup) }
            }
        }
    }
    figure.claim(Claim::new(
        "Speedup at 20% and 40% local, 750 ns and more, best of all",
        "huge pages slower",
        Asks::Smaller,
        most(worst.clone()),
    ));
    figure.claim(Claim::new(
        "Speedup at 250 ns over that at 750 ns and more",
        "worse with latency",
        Asks::Larger,
        least(near) / least(worst),
    ));
    Ok(figure)
}

pub(super) fn h5c(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "H5c",
        "Hotness fragmentation, bimodal micro-benchmark whose hot pages fit local memory as base pages",
        "HotBox, Fig. 5c",
        "speedup of huge over base pages",
    );
    let mut found = Vec::new();
    for fragmentation in [0.0, 0.1, 0.2, 0.3, 0.5] {
        for ns in [250.0, 750.0, 1000.0] {
            let spec = |policy| {
                // 64 huge pages, 12 of them hot; a TLB that holds all of them and hardly any base page; the
                // least cache, since "all memory accesses result in an LLC miss" (3.2.2): those of page walks
                // too, for huge pages would not be twice as fast if they saved no more than the cache's
                // latency.
                RunSpec { bytes: 128 << 20, ..lab.spec("bimodal", policy) }
                    .with("fragmentation", fragmentation)
                    .with("hot_share", 0.1875)
                    .with("reads", 2_000_000)
                    .at("tlb_entries", 16_384)
                    .at("tlb_huge_entries", 0)
                    .at("llc_bytes", 0)
                    .local(0.1875)
                    .far_ns(ns)
            };
            let specs = [spec("oracle"), spec("oracle-huge")];
            let times = lab.times(&specs)?;
            figure.value(format!("{ns} ns"), format!("HF {fragmentation}"), times[0] / times[1]);
            found.push((fragmentation, ns, times[0] / times[1]));
        }
    }
    let at = |fragmentation: f64, ns: f64| {
        found.iter().find(|found| (found.0, found.1) == (fragmentation, ns)).map_or(0.0, |found| found.2)
    };
    figure.claim(
        Claim::new("HF 0.2 at 750 ns", "the 2x speedup disappears", Asks::NoMore(1.0), at(0.2, 750.0))
            .sized(1.0),
    );
    figure.claim(
        Claim::new(
            "HF 0.2 at 1000 ns: what huge pages lose",
            "20% slower",
            Asks::Gain,
            1.0 - at(0.2, 1000.0),
        )
        .sized(0.2),
    );
    figure.claim(Claim::new("HF 0 at 750 ns", "2x", Asks::Larger, at(0.0, 750.0)).sized(2.0));
    Ok(figure)
}

pub(super) fn h6(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "H6",
        "Hotness fragmentation at 20% local: 1 - N(huge) / N(base)",
        "HotBox, Fig. 6",
        "hotness fragmentation",
    );
    let mut memcached = Vec::new();
    for workload in ["memcached-etc", "graph500-bfs", "ligra-bfs", "ligra-pagerank"] {
        for (placement, base, huge) in
            [("static", ["oracle"; 2], ["oracle-huge"; 2]), ("dynamic", nimble::BASE, nimble::HUGE)]
        {
            // Of fewer huge pages one or two would be local.
            let spec = |policy| {
                let spec = lab.spec(workload, policy);
                RunSpec { bytes: spec.bytes.max(64 << 20), ..spec }
            };
            let reports = lab.all(&[base[0], base[1], huge[0], huge[1]].map(spec))?;
            let base = nimble::better(&reports[0], &reports[1]);
            let huge = nimble::better(&reports[2], &reports[3]);
            let fragmentation = 1.0 - huge.local_pages_in_use / base.local_pages_in_use.max(1.0);
            figure.value(placement, workload, fragmentation);
            if workload == "memcached-etc" {
                memcached.push(fragmentation);
            }
        }
    }
    figure.claim(Claim::new("memcached-ETC, static", "0.2", Asks::AtLeast(0.2), memcached[0]));
    figure.claim(Claim::new("memcached-ETC, dynamic", "0.5", Asks::AtLeast(0.5), memcached[1]));
    figure.claim(
        Claim::new(
            "memcached-ETC, dynamic less static",
            "0.5 less 0.2",
            Asks::Gain,
            memcached[1] - memcached[0],
        )
        .sized(0.3),
    );
    Ok(figure.fitted(&FITTED))
}

/// The four benchmarks of Fig. 8: those that ended under swap, which Graph500 did not (Fig. 10). "The average
/// migration rate of Nimble is considerably higher than on-demand page migration" (3.3) is one claim, over
/// all of them.
pub(super) fn h8(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "H8",
        "Batch and on-demand migration at 20% local",
        "HotBox, Fig. 8",
        "good-put; pages migrated a second",
    );
    let mut runs = Vec::new();
    for workload in ["tpcc", "ligra-bfs", "ligra-pagerank", "memcached-etc"] {
        let spec = |policy| lab.spec(workload, policy);
        let specs = [nimble::BASE[0], nimble::BASE[1], "swap"].map(spec);
        let reports = lab.all(&specs)?;
        let better = nimble::better(&reports[0], &reports[1]).clone();
        runs.push((workload, reports, better));
    }
    for ((workload, _, nimble), (paper, limit)) in runs.iter().zip([("0.27", 0.27), ("0.46", 0.46)]) {
        figure.claim(Claim::new(
            &format!("{workload}: good-put of batches"),
            paper,
            Asks::AtMost(limit),
            nimble.good_put,
        ));
    }
    let rates: Vec<f64> = runs.iter().map(|(_, _, nimble)| nimble.promotions_per_s).collect();
    let on_demand: Vec<f64> = runs.iter().map(|(_, reports, _)| reports[2].promotions_per_s).collect();
    figure.claim(Claim::new(
        "Pages a second, average of four benchmarks, batches over on-demand",
        "considerably higher",
        Asks::ClearlyLarger,
        mean(&rates) / mean(&on_demand).max(1.0),
    ));
    figure.panel("good-put of batches", "pages used of pages migrated");
    for (workload, reports, _) in &runs {
        figure.value("Nimble, larger count", *workload, reports[0].good_put);
        figure.value("Nimble, smaller count", *workload, reports[1].good_put);
    }
    figure.panel("pages migrated a second", "pages a second");
    for (workload, reports, _) in &runs {
        figure.value("Nimble, larger count", *workload, reports[0].promotions_per_s);
        figure.value("Nimble, smaller count", *workload, reports[1].promotions_per_s);
        figure.value("on demand", *workload, reports[2].promotions_per_s);
    }
    Ok(figure.fitted(&FITTED))
}

pub(super) fn h42(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure =
        Figure::new("H42", "Uniform key-value requests with and without migration", "HotBox, 4.2", "speedup");
    let spec = |policy| lab.spec("uniform-kv", policy);
    let times = lab.times(&[nimble::BASE[0], nimble::BASE[1], "first-touch"].map(spec))?;
    figure.value("migrations off over on", "larger count", times[0] / times[2]);
    figure.value("migrations off over on", "smaller count", times[1] / times[2]);
    let speedup = times[0].min(times[1]) / times[2];
    figure.claim(Claim::new("Speedup by switching migrations off", "2.1", Asks::Larger, speedup).sized(2.1));
    Ok(figure.fitted(&FITTED))
}

pub(super) fn h10(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure =
        Figure::new("H10", "Speedup over all remote, 750 ns", "HotBox, Fig. 10", "speedup over all remote");
    const POLICIES: [&str; 9] = [
        "all-remote",
        "hotbox",
        "hotbox-unthrottled",
        "swap",
        nimble::BASE[0],
        nimble::BASE[1],
        nimble::HUGE[0],
        nimble::HUGE[1],
        "all-local",
    ];
    let (mut over_best, mut over_swap, mut over_unthrottled) = (Vec::new(), Vec::new(), Vec::new());
    for workload in BENCHMARKS {
        for share in [0.2, 0.4] {
            let spec = |policy: &str| lab.spec(workload, policy).local(share);
            let times = lab.times(&POLICIES.map(spec))?;
            for (policy, time) in POLICIES.iter().zip(&times).skip(1) {
                figure.value(*policy, format!("{workload} {:.0}%", share * 100.0), times[0] / time);
            }
            let bound_s = lab.bound(&lab.spec(workload, "all-local").local(share))?.run_s;
            figure.value("bound", format!("{workload} {:.0}%", share * 100.0), times[0] / bound_s);
            let (swap, base, huge) = (times[3], times[4].min(times[5]), times[6].min(times[7]));
            over_best.push(least([swap, base, huge]) / times[1]);
            over_swap.push(swap / times[1]);
            over_unthrottled.push(times[2] / times[1]);
            if workload == "graph500-bfs" {
                figure.claim(
                    Claim::new(
                        &format!("Graph500 at {:.0}%: Nimble-base over Nimble-huge", share * 100.0),
                        "1.2 to 1.6",
                        Asks::Larger,
                        huge / base,
                    )
                    .between(1.2..=1.6),
                );
            }
            if workload == "tpcc" && share == 0.4 {
                figure.claim(
                    Claim::new("TPC-C at 40%: swap over Nimble-base", "2.3", Asks::Larger, base / swap)
                        .sized(2.3),
                );
            }
        }
    }
    figure.claim(Claim::new(
        "HotBox over the best rival, least of all",
        "first everywhere",
        Asks::Larger,
        least(over_best.clone()),
    ));
    figure.claim(
        Claim::new("HotBox over the best rival, most of all", "up to 2.25", Asks::Larger, most(over_best))
            .sized(2.25),
    );
    figure.claim(
        Claim::new("HotBox over swap, most of all", "up to 4.5", Asks::Larger, most(over_swap)).sized(4.5),
    );
    figure.claim(Claim::new(
        "HotBox over itself without throttling, most of all",
        "noticeably better",
        Asks::ClearlyLarger,
        most(over_unthrottled),
    ));
    Ok(figure.fitted(&FITTED))
}

pub(super) fn h11(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure =
        Figure::new("H11", "Where the time goes, TPC-C", "HotBox, Fig. 11", "seconds of the program's cores");
    figure.stacked = true;
    let mut runs = Vec::new();
    let mut app_ratios = Vec::new();
    let mut migration_ratios = Vec::new();
    let mut scans = Vec::new();
    for share in [0.2, 0.4] {
        for ns in [250.0, 750.0, 1500.0] {
            let spec = |policy| lab.spec("tpcc", policy).local(share).far_ns(ns);
            let reports = lab.all(&["hotbox", nimble::BASE[0], nimble::BASE[1]].map(spec))?;
            let [hotbox, nimble] = [reports[0].time, nimble::better(&reports[1], &reports[2]).time];
            runs.push((format!("{:.0}%, {ns} ns", share * 100.0), [hotbox, nimble]));
            app_ratios.push(nimble.app_s / hotbox.app_s);
            migration_ratios.push(nimble.migration_s / (hotbox.migration_s + hotbox.fault_s).max(1e-9));
            scans.push(hotbox.scan_local_s);
        }
    }
    for (at, policy) in ["HotBox", "Nimble"].into_iter().enumerate() {
        figure.panel(policy, "seconds of the program's cores");
        for (point, times) in &runs {
            let time = &times[at];
            figure.value("app", point, time.app_s);
            figure.value("scan local", point, time.scan_local_s);
            figure.value("scan remote", point, time.scan_far_s);
            figure.value("migration", point, time.migration_s + time.fault_s);
        }
    }
    figure.claim(Claim::new(
        "App time, Nimble over HotBox, least of all",
        "HotBox lower",
        Asks::Larger,
        least(app_ratios),
    ));
    figure.claim(Claim::new(
        "Migration time, Nimble over HotBox, least of all",
        "much higher",
        Asks::MuchLarger,
        least(migration_ratios),
    ));
    figure.claim(Claim::new(
        "HotBox's local scans, 20% over 40% local (750 ns)",
        "higher for 20%",
        Asks::Larger,
        scans[1] / scans[4].max(1e-12),
    ));
    Ok(figure.fitted(&FITTED))
}

pub(super) fn h12(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "H12",
        "Run time and migration by local memory, PageRank",
        "HotBox, Fig. 12",
        "bytes migrated a second; run time over all local",
    );
    const SHARES: [f64; 5] = [0.1, 0.2, 0.4, 0.6, 0.8];
    let base = lab.times(&[lab.spec("ligra-pagerank", "all-local")])?[0];
    let mut runs = Vec::new();
    let mut bandwidths = Vec::new();
    let mut slowdowns = Vec::new();
    for policy in ["hotbox", nimble::BASE[0], nimble::BASE[1], "swap"] {
        let specs = SHARES.map(|share| lab.spec("ligra-pagerank", policy).local(share));
        let reports = lab.all(&specs)?;
        bandwidths.push((reports[0].migration_bytes_per_s, reports[4].migration_bytes_per_s));
        slowdowns.push(reports[4].run_s / base);
        runs.push((policy, reports));
    }
    let mut bounds = Vec::new();
    for share in SHARES {
        bounds.push(lab.bound(&lab.spec("ligra-pagerank", "all-local").local(share))?.run_s / base);
    }
    let panel = |figure: &mut Figure, title: &str, unit: &str, of: &dyn Fn(&Report) -> f64| {
        figure.panel(title, unit);
        for (policy, reports) in &runs {
            for (share, report) in SHARES.iter().zip(reports) {
                figure.value(*policy, format!("{:.0}%", share * 100.0), of(report));
            }
        }
    };
    panel(&mut figure, "run time", "run time over all local", &|report| report.run_s / base);
    for (share, bound) in SHARES.iter().zip(bounds) {
        figure.value("bound", format!("{:.0}%", share * 100.0), bound);
    }
    panel(&mut figure, "migration", "bytes a second", &|report| report.migration_bytes_per_s);
    let ratio = |at: usize| bandwidths[at].1 / bandwidths[at].0.max(1.0);
    let rate = |at: usize| nimble::better(&runs[1].1[at], &runs[2].1[at]).migration_bytes_per_s;
    let nimbles = rate(4) / rate(0).max(1.0);
    figure.claim(Claim::new(
        "HotBox's bandwidth at 80% over that at 10%",
        "close to zero",
        Asks::NoMore(0.0),
        ratio(0),
    ));
    figure.claim(
        Claim::new("Nimble's bandwidth at 80% over that at 10%", "almost 5", Asks::Larger, nimbles)
            .sized(5.0),
    );
    figure.claim(Claim::new(
        "Swap's bandwidth at 80% over that at 10%",
        "decreases",
        Asks::Smaller,
        ratio(3),
    ));
    figure.claim(Claim::new("HotBox at 80% over all local", "on par", Asks::NoMore(1.0), slowdowns[0]));
    Ok(figure.fitted(&FITTED))
}
