//! What a decision of INDIGO's agent costs: the distance to all contexts of the training, and the network.

use std::hint::black_box;
use std::time::Instant;

use spillway_policy::indigo_context::{Advisor, Context};
use spillway_policy::indigo_model::{Model, ModelError};

const DECISIONS: u32 = 10_000;

fn main() -> Result<(), ModelError> {
    let began = Instant::now();
    let mut model = Model::shipped()?;
    let read_us = began.elapsed().as_secs_f64() * 1e6;
    let context = Context {
        local_limit_bytes: 1 << 30,
        local_peak_bytes: 1 << 30,
        far_peak_bytes: 4 << 30,
        traffic_bytes_per_s: 4e9,
        available_bytes_per_s: 6e9,
    };
    let began = Instant::now();
    for _ in 0..DECISIONS {
        black_box(model.advise(black_box(&context)));
    }
    let decision_us = began.elapsed().as_secs_f64() * 1e6 / f64::from(DECISIONS);
    println!("reading the model takes {read_us:.0} us, a decision {decision_us:.1} us");
    Ok(())
}
