//! INDIGO's Table 4: three programs at once, under one mechanism each.

use spillway_report::claim::{Asks, Claim};

use super::figure::Figure;
use super::indigo::{CORES, RIVALS, TRAINED, on_cores};
use super::lab::Lab;
use super::statistics::least;
use crate::run::{RunError, RunSpec, execute_together};

const TENANTS: [&str; 3] = ["graph500-sssp", "hash-join", "tpcc"];

/// Table 4: what a tenant takes with INDIGO over all local and alone, and what with the best of its rivals.
const PAPER: [(&str, f64, f64); 3] = [("SSSP", 6.2, 7.0), ("JOIN", 2.5, 2.8), ("voltDB", 1.0, 1.0)];

/// One of the programs on a machine, which has one scale; their threads do not oversubscribe its cores (6.3).
fn tenant(lab: &Lab, workload: &str, policy: &str, share: f64) -> RunSpec {
    on_cores(lab, workload, policy, share, CORES / TENANTS.len() as u64)
}

pub(super) fn it4(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "IT4",
        "Three tenants at 10% local each (INDIGO untrained and trained)",
        "INDIGO, Table 4",
        "run time over all local and alone",
    );
    let base = lab.times(&TENANTS.map(|workload| tenant(lab, workload, "all-local", 1.0)))?;
    let policies = ["indigo", TRAINED, RIVALS[0], RIVALS[1], RIVALS[2], RIVALS[3]];
    let mut degraded = Vec::new();
    for policy in policies {
        let reports = execute_together(&TENANTS.map(|workload| tenant(lab, workload, policy, 0.1)))?;
        let over = reports.iter().zip(&base).map(|(report, base)| report.run_s / base);
        degraded.push(over.collect::<Vec<f64>>());
    }
    for (policy, degraded) in policies.iter().zip(&degraded) {
        for (workload, over) in TENANTS.iter().zip(degraded) {
            figure.value(*policy, *workload, *over);
        }
    }
    // What a program cannot beat by itself it cannot beat beside others either.
    for (workload, base) in TENANTS.iter().zip(&base) {
        let bound_s = lab.bound(&tenant(lab, workload, "all-local", 0.1))?.run_s;
        figure.value("bound", *workload, bound_s / base);
    }
    for (version, name) in ["INDIGO", "trained INDIGO"].into_iter().enumerate() {
        for (at, (tenant, indigos, rivals)) in PAPER.into_iter().enumerate() {
            let own = degraded[version][at];
            let rival = least(degraded[2..].iter().map(|degraded| degraded[at]));
            // Where all mechanisms are alike in the paper the claim is that the tenant loses nothing.
            figure.claim(if rivals > indigos {
                let text = format!("{tenant}: best rival over {name}");
                let claim = Claim::new(&text, &format!("{rivals} over {indigos}"), Asks::Larger, rival / own);
                claim.sized(rivals / indigos)
            } else {
                let text = format!("{tenant}: {name} over all local and alone");
                Claim::new(&text, "1x, as all mechanisms", Asks::NoMore(1.0), own).sized(indigos)
            });
        }
    }
    Ok(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenant_has_a_claim_of_both_versions_and_a_bound() {
        let figure = it4(&mut Lab::new(2 << 20, 2)).map_err(|error| error.to_string()).unwrap();
        for (tenant, ..) in PAPER {
            let of = figure.claims.iter().filter(|claim| claim.text.starts_with(tenant));
            assert_eq!(of.clone().count(), 2, "{tenant}");
            assert!(of.clone().all(|claim| claim.size.is_some() && claim.value > 0.0));
            assert_eq!(of.filter(|claim| claim.text.contains("trained INDIGO")).count(), 1, "{tenant}");
        }
        let values = &figure.panels[0].values;
        for workload in TENANTS {
            let of = |series: &str| {
                let found = values.iter().find(|one| one.series == series && one.point == workload);
                found.map(|one| one.value).unwrap()
            };
            assert!(of("bound") <= of("indigo") && of("bound") <= of(TRAINED), "{workload}");
        }
    }
}
