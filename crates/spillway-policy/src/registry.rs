//! Policies by name. A new policy is one file and one line here.

use crate::entry::{PolicyEntry, PolicyError, Preset, entry};
use crate::knowledge::Foreknowledge;
use crate::spillway::Spillway;
use crate::{
    auto_numa, auto_tiering, belady, colloid, dcm_blocks, fixed, hemem, hotbox, indigo, linux_tiering,
    memtis, multi_clock, nimble, nomad, oracle, swap, tpp,
};

static ENTRIES: &[PolicyEntry] = &[
    entry::<fixed::Fixed>("all-local", "Every page local: the upper bound")
        .with(&[("tier", Preset::Choice("local"))])
        .without_limit(),
    entry::<fixed::Fixed>("all-remote", "Every page far, no migration")
        .with(&[("tier", Preset::Choice("far"))]),
    entry::<fixed::Fixed>("first-touch", "Pages stay where they came to lie, local first")
        .with(&[("tier", Preset::Choice("local"))]),
    entry::<fixed::Fixed>("all-local-huge", "Every page local, in huge pages")
        .with(&[("tier", Preset::Choice("local")), ("mapping", Preset::Choice("huge"))])
        .without_limit()
        .mapping_huge(),
    entry::<fixed::Fixed>("all-remote-huge", "Every page far, in huge pages")
        .with(&[("tier", Preset::Choice("far")), ("mapping", Preset::Choice("huge"))])
        .mapping_huge(),
    entry::<oracle::Oracle>("oracle", "The hottest pages of an earlier run stay local")
        .knowing(Foreknowledge::Profile),
    entry::<oracle::Oracle>("oracle-huge", "The hottest huge pages of an earlier run stay local")
        .knowing(Foreknowledge::Profile)
        .with(&[("mapping", Preset::Choice("huge"))])
        .mapping_huge(),
    entry::<hotbox::HotBox>("hotbox", "HotBox: base pages, on demand, throttled by their use"),
    entry::<hotbox::HotBox>("hotbox-unthrottled", "HotBox without throttling")
        .with(&[("throttle", Preset::Flag(false))]),
    entry::<indigo::Indigo>("indigo", "INDIGO without training: promotes what pays (Equation 1)"),
    entry::<indigo::Indigo>("indigo-trained", "INDIGO with the trained agent that is brought along")
        .with(&[("model", Preset::Choice(indigo::SHIPPED))]),
    entry::<indigo::Indigo>("indigo-thresholds", "INDIGO with fixed thresholds of burst and access rate")
        .with(&[("rule", Preset::Choice("thresholds"))]),
    entry::<dcm_blocks::Dcm>("dcm", "dcm: page fetch with elastic blocks").fetching(),
    entry::<dcm_blocks::Dcm>("dcm-4k", "dcm with blocks of 4 KiB")
        .with(&[("blocks", Preset::Choice("4k"))])
        .fetching(),
    entry::<dcm_blocks::Dcm>("dcm-8k", "dcm with blocks of 8 KiB")
        .with(&[("blocks", Preset::Choice("8k"))])
        .fetching(),
    entry::<dcm_blocks::Dcm>("dcm-16k", "dcm with blocks of 16 KiB")
        .with(&[("blocks", Preset::Choice("16k"))])
        .fetching(),
    entry::<dcm_blocks::Dcm>("dcm-32k", "dcm with blocks of 32 KiB")
        .with(&[("blocks", Preset::Choice("32k"))])
        .fetching(),
    entry::<dcm_blocks::Dcm>("dcm-64k", "dcm with blocks of 64 KiB")
        .with(&[("blocks", Preset::Choice("64k"))])
        .fetching(),
    entry::<swap::Swap>("swap", "Page fetch as kernels do it: two-list LRU and read-ahead").fetching(),
    entry::<belady::Belady>("belady", "Page fetch that knows the future")
        .knowing(Foreknowledge::Future)
        .fetching(),
    entry::<auto_numa::AutoNuma>("autonuma", "AutoNUMA: a second hint fault migrates; no demotion"),
    entry::<auto_tiering::AutoTiering>(
        "autotiering",
        "AutoTiering: history of hint faults, demotes to make room",
    ),
    entry::<tpp::Tpp>("tpp", "TPP: keeps headroom, hint faults promote active pages"),
    entry::<nimble::Nimble>("nimble-base", "Nimble: exchanges batches of base pages"),
    entry::<nimble::Nimble>("nimble-huge", "Nimble with huge pages")
        .with(&[("mapping", Preset::Choice("huge"))])
        .mapping_huge(),
    entry::<nimble::Nimble>("nimble-base-smaller", "Nimble that exchanges hot pages for cold ones only")
        .with(&[("batch", Preset::Choice("smaller"))]),
    entry::<nimble::Nimble>("nimble-huge-smaller", "The same with huge pages")
        .with(&[("batch", Preset::Choice("smaller")), ("mapping", Preset::Choice("huge"))])
        .mapping_huge(),
    entry::<multi_clock::MultiClock>("multi-clock", "Multi-Clock: a promote list beside the CLOCK lists"),
    entry::<hemem::HeMem>("hemem", "HeMem: sampled accesses, fixed thresholds, cooling").sampling(),
    entry::<memtis::Memtis>("memtis", "MEMTIS: sampled histogram, splits skewed huge pages")
        .mapping_huge()
        .sampling(),
    entry::<linux_tiering::LinuxTiering>(
        "linux-tiering",
        "Linux's NUMA balancing for tiers, multi-generational LRU",
    ),
    entry::<colloid::Colloid>("colloid", "Colloid on linux-tiering: balances loaded latencies"),
    entry::<nomad::Nomad>("nomad", "Nomad: far copies kept, promotion beside the program").keeping_copies(),
    entry::<Spillway>("spillway", "Our own: what a move saves against what it costs, measured"),
];

/// All policies that there are.
#[must_use]
pub fn entries() -> &'static [PolicyEntry] {
    ENTRIES
}

/// The policy of this name.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<&'static PolicyEntry, PolicyError> {
    ENTRIES.iter().find(|entry| entry.name == name).ok_or_else(|| PolicyError::Unknown {
        name: name.to_owned(),
        known: ENTRIES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::entry::{Needs, PolicySettings};
    use crate::knowledge::{GIVEN_BACK, Knowledge};
    use crate::machine::{Tier, TieredMachine};
    use crate::policy::{AccessModel, Mapping};
    use crate::testing::{PAGES_PER_HUGE, TestMachine};

    /// Runs a policy on a machine that records what it is asked for, and tells what that shows it to use.
    fn used(entry: &PolicyEntry) -> Needs {
        const PAGES: u32 = 8 * PAGES_PER_HUGE;
        const ROUNDS: u32 = 20;
        let future: Vec<_> = (0..ROUNDS).flat_map(|_| 0..PAGES).collect();
        let knowledge = Knowledge { profile: Arc::new((0..PAGES).collect()), future: Arc::new(future) };
        let mut policy = entry.build(1e-3, &PolicySettings::new(), 1, &knowledge).unwrap();
        let keeps_knowledge = Arc::strong_count(&knowledge.profile) > 1;
        let mut machine = TestMachine::new(PAGES, PAGES / 2);
        policy.start(&mut machine);
        let step = if policy.mapping() == Mapping::Huge { PAGES_PER_HUGE } else { 1 };
        machine.touch(policy.as_mut(), (0..PAGES).step_by(step as usize));
        for _ in 0..ROUNDS {
            for page in (0..PAGES).filter(|page| page % 3 > 0) {
                let head = page - page % machine.span(page);
                machine.run(policy.as_mut(), head);
                machine.pass_ns(policy.as_mut(), 10_000_000);
            }
        }
        assert!(!machine.splits.iter().any(|_| step == 1), "{} splits what is not mapped huge", entry.name);
        Needs {
            foreknowledge: if keeps_knowledge { entry.needs.foreknowledge } else { Foreknowledge::Nothing },
            samples: machine.samples_asked_for,
            huge_mappings: policy.mapping() == Mapping::Huge,
            page_fetches: policy.access_model() == AccessModel::PageFetch,
            far_copies: !machine.copies.is_empty(),
        }
    }

    #[test]
    fn every_policy_uses_what_it_declares_and_nothing_else() {
        for entry in entries() {
            assert_eq!(used(entry), entry.needs, "{}", entry.name);
        }
        let all = |uses: fn(&Needs) -> bool| entries().iter().filter(|entry| uses(&entry.needs)).count();
        assert!(all(|needs| needs.samples) > 1 && all(|needs| needs.huge_mappings) > 1);
    }

    /// A program gives half of its memory back and goes on with the rest; later it takes it again.
    #[test]
    fn every_policy_forgets_what_a_program_gives_back() {
        const PAGES: u32 = 8 * PAGES_PER_HUGE;
        let half = (0..PAGES / 2).map(|page| page | GIVEN_BACK);
        let once: Vec<u32> = (0..PAGES).chain(half).chain(PAGES / 2..PAGES).collect();
        let future: Vec<u32> = once.iter().copied().chain(0..PAGES / 2).chain(0..PAGES).collect();
        for entry in entries() {
            let knowledge =
                Knowledge { profile: Arc::new(vec![1; PAGES as usize]), future: Arc::new(future.clone()) };
            let given = PolicySettings::new();
            let mut policy = entry.build(1e-3, &given, 1, &knowledge).unwrap();
            let mut machine = TestMachine::new(PAGES, PAGES / 2);
            policy.start(&mut machine);
            let step = if policy.mapping() == Mapping::Huge { PAGES_PER_HUGE } else { 1 };
            let heads = |pages: std::ops::Range<u32>| pages.step_by(step as usize);
            let local = |machine: &TestMachine| machine.pages_in(Tier::Local).len() as u32;
            machine.touch(policy.as_mut(), heads(0..PAGES));
            machine.release(policy.as_mut(), heads(0..PAGES / 2));
            machine.moves.clear();
            for page in heads(PAGES / 2..PAGES) {
                let head = page - page % machine.span(page);
                machine.run(policy.as_mut(), head);
                machine.pass_ns(policy.as_mut(), 10_000_000);
            }
            let came_back = machine.moves.iter().find(|(page, _)| *page < PAGES / 2);
            assert_eq!(came_back, None, "{}", entry.name);
            assert!((0..PAGES / 2).all(|page| machine.tier_of(page).is_none()), "{}", entry.name);
            machine.touch(policy.as_mut(), heads(0..PAGES / 2));
            for page in heads(0..PAGES) {
                let head = page - page % machine.span(page);
                machine.run(policy.as_mut(), head);
                let there = machine.tier_of(head);
                let is_fetched = policy.access_model() == AccessModel::Hybrid || there == Some(Tier::Local);
                assert!(is_fetched, "{}: page {head} is {there:?}", entry.name);
                machine.pass_ns(policy.as_mut(), 10_000_000);
            }
            assert!(local(&machine) <= PAGES / 2, "{}", entry.name);
        }
    }

    #[test]
    fn every_policy_is_built_from_its_defaults_and_names_are_unique() {
        for (at, entry) in entries().iter().enumerate() {
            for factor in [1.0, 0.01] {
                entry
                    .build(factor, &PolicySettings::new(), 1, &Knowledge::default())
                    .map_err(|error| error.to_string())
                    .unwrap();
            }
            assert!(entries()[..at].iter().all(|other| other.name != entry.name), "{}", entry.name);
        }
    }

    #[test]
    fn wrong_names_and_settings_are_answered_with_the_right_ones() {
        let error = find("hotbx").err().unwrap().to_string();
        assert!(error.contains("'hotbx'") && error.contains("hotbox"), "{error}");
        let wrong = [
            ("speed", Value::from(1)),
            ("scan_period_us", Value::from("soon")),
            ("scan_period_us", Value::from(0)),
            ("low_share", Value::from(5)),
        ];
        for (key, value) in wrong {
            let given = PolicySettings::from_iter([(key.to_owned(), value)]);
            let error = find("hotbox")
                .unwrap()
                .build(1.0, &given, 1, &Knowledge::default())
                .err()
                .unwrap()
                .to_string();
            assert!(error.contains("scan_period_us ="), "{error}");
        }
    }
}
