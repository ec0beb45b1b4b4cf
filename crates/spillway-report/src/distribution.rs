//! How often what took how long.

use serde::{Deserialize, Serialize};

/// Steps of the density to a power of ten: fine enough to draw.
const STEPS_PER_DECADE: f64 = 16.0;

/// Many values of one kind: where they lie, not their mean alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many values there are.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// What 1% of them do not exceed.
    pub p1: f64,
    /// What 25% do not exceed.
    pub p25: f64,
    /// The median.
    pub p50: f64,
    /// What 75% do not exceed.
    pub p75: f64,
    /// What 90% do not exceed.
    pub p90: f64,
    /// What 99% do not exceed.
    pub p99: f64,
    /// What 99.9% do not exceed.
    pub p99_9: f64,
    /// The largest.
    pub max: f64,
    /// How many values lie around which value: steps of equal ratio, for drawing.
    pub density: Vec<(f64, u64)>,
}

impl Distribution {
    /// Of these values, none of which is negative.
    #[must_use]
    pub fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let Some(&max) = values.last() else { return Self::default() };
        let count = values.len();
        // The least value that so large a share does not exceed.
        let at = |share: f64| values[((count as f64 * share).ceil() as usize).clamp(1, count) - 1] as f64;
        Self {
            count: count as u64,
            mean: values.iter().map(|&value| value as f64).sum::<f64>() / count as f64,
            min: values[0] as f64,
            p1: at(0.01),
            p25: at(0.25),
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: max as f64,
            density: density(&values),
        }
    }
}

/// Of sorted values.
fn density(values: &[u64]) -> Vec<(f64, u64)> {
    let step = |value: u64| ((value.max(1) as f64).log10() * STEPS_PER_DECADE).floor() as i32;
    let middle = |step: i32| 10_f64.powf((f64::from(step) + 0.5) / STEPS_PER_DECADE);
    let same = values.chunk_by(|&one, &other| step(one) == step(other));
    same.map(|chunk| (middle(step(chunk[0])), chunk.len() as u64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn percentiles_are_values_in_order(values in proptest::collection::vec(0_u64..1 << 40, 1..300)) {
            let all = Distribution::of(values.clone());
            let ordered =
                [all.min, all.p1, all.p25, all.p50, all.p75, all.p90, all.p99, all.p99_9, all.max];
            prop_assert!(ordered.is_sorted());
            prop_assert!(ordered.iter().all(|&value| values.contains(&(value as u64))));
            let below = values.iter().filter(|&&value| value as f64 <= all.p90).count();
            prop_assert!(below as f64 >= 0.9 * values.len() as f64);
            prop_assert_eq!(all.density.iter().map(|&(_, count)| count).sum::<u64>(), all.count);
            prop_assert!(all.mean >= all.min && all.mean <= all.max);
        }
    }

    #[test]
    fn of_nothing_there_is_nothing() {
        assert_eq!(Distribution::of(Vec::new()), Distribution::default());
        let hundred = Distribution::of((1..=1000).collect());
        assert_eq!((hundred.p1, hundred.p50, hundred.p99_9, hundred.max), (10.0, 500.0, 999.0, 1000.0));
    }
}
