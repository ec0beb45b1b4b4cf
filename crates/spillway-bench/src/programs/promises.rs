//! What SPECIFICATION.md promises of speed, and whether a measurement of the whole suite keeps it. Below what
//! was measured by as much as such machines differ between two runs.

use super::Extent;
use super::report::{Configuration, ProgramsReport, Rival};

/// The share of the memory, in percent, at which it is promised.
const LOCAL_PCT: u64 = 50;
/// Spillway with no flag but '--local' over a rival: the geometric mean of the suite.
const MEANS: [(Rival, f64); 2] = [(Rival::Zram, 1.1), (Rival::Ramdisk, 1.4)];
/// The same over zram, of the worst program.
const WORST: f64 = 0.5;

/// Whether a measurement of this extent can tell if the promises are kept.
///
/// # Errors
/// The flag that leaves out what the promises are about.
pub fn can_be_checked(extent: &Extent) -> Result<(), String> {
    if !extent.shares.contains(&LOCAL_PCT) {
        return Err(format!("the promises are about --local {LOCAL_PCT}, which is left out"));
    }
    if !extent.configurations.contains(&Configuration::Default) {
        return Err("the promises are about --configuration default, which is left out".to_owned());
    }
    if let Some((rival, _)) = MEANS.iter().find(|(rival, _)| !extent.rivals.contains(rival)) {
        return Err(format!("the promises are about --beside {} too, which is left out", rival.name()));
    }
    Ok(())
}

/// The promises that a measurement does not keep, in words; all of them where it has not measured what they
/// are about.
#[must_use]
pub fn broken(report: &ProgramsReport) -> Vec<String> {
    let mut broken = Vec::new();
    for (rival, promised) in MEANS {
        let beside = format!("{} at {LOCAL_PCT}%", rival.title());
        let Some(summary) = report.summary(LOCAL_PCT, Configuration::Default, rival) else {
            broken.push(format!("{beside} was not measured"));
            continue;
        };
        // A mean of nothing is no number, and keeps nothing.
        if summary.mean.is_nan() || summary.mean < promised {
            broken.push(format!("{:.2} times as fast as {beside}, promised {promised}", summary.mean));
        }
        let (program, worst) = &summary.worst;
        if rival == Rival::Zram && *worst < WORST {
            broken.push(format!("{program}: {worst:.2} times as fast as {beside}, promised {WORST}"));
        }
        if rival == Rival::Zram && !summary.lost.is_empty() {
            broken.push(format!("lost at {LOCAL_PCT}%: {}", summary.lost.join(", ")));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::super::report::Outcome;
    use super::super::report::tests::{report_of, row, side};
    use super::*;
    use crate::programs::report::Row;
    use crate::whole::workload::Measure;

    fn row_of(program: &str, versus: Rival, ratio: f64) -> Row {
        let (ours, theirs) = (side("", &[(Outcome::Ok, 1.0)]), side("", &[(Outcome::Ok, ratio)]));
        Row { program: program.to_owned(), versus, ..row(&ours, &theirs, Measure::Seconds) }
    }

    fn both(program: &str, zram: f64, ramdisk: f64) -> [Row; 2] {
        [row_of(program, Rival::Zram, zram), row_of(program, Rival::Ramdisk, ramdisk)]
    }

    #[test]
    fn what_is_promised_is_held_against_the_figures() {
        let kept = [both("sort", 2.0, 2.0), both("redis_zipf", 0.7, 1.2)].concat();
        assert_eq!(broken(&report_of(kept.clone())), Vec::<String>::new());
        let slow = [kept.as_slice(), &both("node", 0.4, 0.5)].concat();
        assert_eq!(
            broken(&report_of(slow)),
            [
                "0.82 times as fast as zram at 50%, promised 1.1",
                "node: 0.40 times as fast as zram at 50%, promised 0.5",
                "1.06 times as fast as swap on a RAM disk at 50%, promised 1.4",
            ]
        );
    }

    #[test]
    fn what_leaves_out_what_is_promised_is_not_begun() {
        let extent = |share, configuration| Extent {
            quick: true,
            programs: Vec::new(),
            shares: vec![75, share],
            configurations: vec![Configuration::Ram, configuration],
            rivals: Rival::SWAP.to_vec(),
            repetitions: 1,
        };
        assert_eq!(can_be_checked(&extent(50, Configuration::Default)), Ok(()));
        assert!(can_be_checked(&extent(25, Configuration::Default)).unwrap_err().contains("--local 50"));
        let without_default = can_be_checked(&extent(50, Configuration::Thread));
        assert!(without_default.unwrap_err().contains("--configuration default"));
        let beside_one = Extent { rivals: vec![Rival::Zram], ..extent(50, Configuration::Default) };
        assert!(can_be_checked(&beside_one).unwrap_err().contains("--beside ramdisk"));
    }

    #[test]
    fn what_is_lost_or_was_not_measured_keeps_no_promise() {
        let [zram, _] = both("sort", 2.0, 2.0);
        let lost = Row { outcome: Outcome::Killed, ratio_median: None, ..row_of("xz", Rival::Zram, 1.0) };
        let only_lost = report_of(vec![lost.clone()]);
        assert_eq!(
            broken(&report_of(vec![zram, lost])),
            ["lost at 50%: xz", "swap on a RAM disk at 50% was not measured"]
        );
        assert!(broken(&only_lost)[0].starts_with("NaN times as fast as zram"), "{only_lost:?}");
        assert_eq!(broken(&report_of(Vec::new())).len(), 2);
    }
}
