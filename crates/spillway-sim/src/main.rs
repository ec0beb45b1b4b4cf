//! Scratch.
use spillway_sim::config::{Config, Overrides};
fn main() {
    spillway_sim::world::keep_panics();
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let traced = std::env::args().any(|a| a == "--trace");
    let (from, count) = (args[0], args.get(1).copied().unwrap_or(1));
    let mut failed = 0;
    let mut total: std::collections::BTreeMap<&'static str, u64> = Default::default();
    for seed in from..from + count {
        let t = std::time::Instant::now();
        let config = Config::of_seed(seed, &Overrides::default());
        if traced {
            println!("{config:#?}");
        }
        let outcome = spillway_sim::run::run_world(&config, traced);
        for line in &outcome.trace {
            println!("{line}");
        }
        for (k, v) in &outcome.counts {
            *total.entry(k).or_default() += v;
        }
        if let Some(f) = &outcome.failure {
            failed += 1;
            println!("seed {seed}: step {} {}: {}", f.step, f.task, f.what);
        }
        if t.elapsed().as_millis() > 2000 {
            println!("seed {seed}: {} steps {:?}", outcome.steps, t.elapsed());
        }
    }
    println!("{total:?}");
    println!("{count} seeds, {failed} failed");
}
