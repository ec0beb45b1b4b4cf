//! What is simulated is what was computed.

use crate::measure::{Effort, measure};
use crate::progress::Progress;
use crate::report::OfScheme;
use crate::site::{SCHEMES, Scheme, Terms};

const GIB: u64 = 1 << 30;
const EFFORT: Effort = Effort { failures: 512, deaths: 300, large_deaths: 24 };

/// A site that is small and little used, so that a loss is neither certain nor never seen.
fn terms() -> Terms {
    Terms {
        donors: 1200,
        racks: 300,
        offered_bytes: 64 * GIB,
        full: 0.02,
        written: 1.0,
        least_run_bytes: 4 * GIB,
        most_run_bytes: 16 * GIB,
        at_once: 2,
        turns: 1,
        together: 4,
        seed: 5,
    }
}

fn found(scheme: Scheme) -> OfScheme {
    measure(terms(), scheme, EFFORT, &Progress::begin())
}

/// As close as so many events let expect, and a tenth.
fn expect_close(what: &str, seen: f64, computed: f64, events: f64) {
    let margin = computed * (0.1 + 5.0 / events.max(1.0).sqrt());
    assert!((seen - computed).abs() <= margin, "{what}: {seen} seen, {computed} computed, {margin} apart");
}

#[test]
fn losses_are_as_computed() {
    for scheme in SCHEMES {
        let found = found(scheme);
        assert_eq!((found.short_units, found.refused_runs), (0, 0));
        for loss in &found.losses {
            let what = format!("{} {} {}", scheme.name, loss.placement, loss.dead);
            let cases = loss.cases as f64;
            let events = loss.computed_probability * cases;
            expect_close(&what, loss.probability, loss.computed_probability, events);
            let run_events = loss.computed_run_probability * cases * found.runs as f64;
            expect_close(&what, loss.run_probability, loss.computed_run_probability, run_events.min(events));
            expect_close(&what, loss.mean_bytes, loss.computed_mean_bytes, events);
        }
        let [own, random, ..] = &found.losses[..] else { panic!("{:?}", found.losses) };
        assert!(own.run_probability < random.run_probability / 4.0, "{own:?} {random:?}");
    }
}

#[test]
fn load_and_repair_are_as_computed() {
    for scheme in SCHEMES {
        let found = found(scheme);
        for load in found.loads.iter().filter(|load| load.computed_deviation_bytes.is_some()) {
            let computed = load.computed_deviation_bytes.unwrap();
            expect_close(load.placement, load.deviation_bytes, computed, 1e4);
        }
        let deviation = |of: usize| found.loads[of].deviation_bytes;
        assert!(deviation(0) < deviation(1) * 0.8, "two choices are more even: {:?}", found.loads);
        for repair in &found.repairs {
            let what = format!("{} {} of {}", scheme.name, repair.placement, repair.dead_donors);
            // Bytes of one donor's death are of few runs.
            let events = (repair.cases * repair.dead_donors) as f64 * 4.0;
            let without_room = repair.no_room_bytes / repair.lost_bytes;
            let (read, written) = (repair.computed_read_bytes, repair.computed_written_bytes);
            let done = 1.0 - without_room;
            expect_close(&what, repair.read_bytes, read * done, events);
            expect_close(&what, repair.written_bytes, written * done, events);
            expect_close(&what, repair.runs, repair.computed_runs, events);
            if let Some(computed) = repair.computed_donors {
                expect_close(&what, repair.donors, computed, events);
            }
        }
    }
}

#[test]
fn no_rack_alone_loses_anything_and_the_same_seed_gives_the_same() {
    let few_racks = Terms { racks: 40, ..terms() };
    let effort = Effort { failures: 2, deaths: 1, large_deaths: 1 };
    let found = || measure(few_racks, SCHEMES[0], effort, &Progress::begin());
    let one = found();
    for loss in one.losses.iter().filter(|loss| loss.dead == "1 whole racks") {
        assert_eq!((loss.probability, loss.mean_bytes), (0.0, 0.0), "{loss:?}");
    }
    assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&found()).unwrap());
}
