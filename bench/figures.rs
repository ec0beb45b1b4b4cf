//! How long the papers' figures take on all cores: `cargo bench -p spillway-lab --bench figures [-- full]`
//!
//! `spillway lab figure all --quick` is to take less than 5 minutes on 2 cores, `lab figure all` less than
//! 60.

use std::thread;
use std::time::Instant;

use spillway_lab::figures::lab::Lab;
use spillway_lab::figures::{FULL_BYTES, QUICK_BYTES, Score, ids, make};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let full = std::env::args().any(|argument| argument == "full");
    let (bytes, wanted_s) = if full { (FULL_BYTES, 3600.0) } else { (QUICK_BYTES, 300.0) };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut lab = Lab::new(bytes, threads);
    println!("working sets of {} MiB, {threads} threads", bytes >> 20);
    let start = Instant::now();
    let mut claims = Vec::new();
    for id in ids() {
        let begun = Instant::now();
        let figure = make(id, &mut lab)?;
        claims.extend(figure.claims);
        println!("{id:6} {:8.1} s", begun.elapsed().as_secs_f64());
    }
    let all_s = start.elapsed().as_secs_f64();
    println!(
        "all    {all_s:8.1} s for {} runs, wanted below {wanted_s:.0}; {}",
        lab.runs(),
        Score::of(&claims)
    );
    Ok(())
}
