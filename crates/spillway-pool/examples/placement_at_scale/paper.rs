//! What can be computed without a simulation.

/// How likely at least `least` of `width` members, all different, are among `dead` of `all`, where any that
/// many are as likely to die as others.
pub fn at_least_dead(width: usize, least: usize, dead: usize, all: usize) -> f64 {
    (least..=width.min(dead)).map(|of_them| exactly_dead(width, of_them, dead, all)).sum()
}

/// How likely exactly so many of them are: the hypergeometric distribution.
pub fn exactly_dead(width: usize, of_them: usize, dead: usize, all: usize) -> f64 {
    let ways: f64 = (0..of_them).map(|i| (width - i) as f64 / (i + 1) as f64).product();
    let die: f64 = (0..of_them).map(|i| (dead - i) as f64 / (all - i) as f64).product();
    let alive = all - dead;
    let live: f64 =
        (0..width - of_them).map(|i| alive.saturating_sub(i) as f64 / (all - of_them - i) as f64).product();
    ways * die * live
}

/// How likely one of so many comes true, each with this probability and for itself.
pub fn any_of(probability: f64, count: f64) -> f64 {
    -(count * (-probability).ln_1p()).exp_m1()
}

/// Deviation of the bytes on a donor, where each of these amounts goes to so many of `all` donors by chance.
pub fn deviation_by_chance(amounts: impl Iterator<Item = (f64, usize)>, all: usize) -> f64 {
    let variance = amounts.map(|(bytes, donors)| {
        let share = donors as f64 / all as f64;
        bytes * bytes * share * (1.0 - share)
    });
    variance.sum::<f64>().sqrt()
}

/// How many of so many donors have a share in so many requests that go to any of them by chance.
pub fn sharers(requests: f64, all: usize) -> f64 {
    all as f64 * any_of(1.0 / all as f64, requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_counting() {
        // C(98, 98) of C(100, 100), and so on: 2 of 100 dead of 10,000.
        let pair = at_least_dead(2, 2, 100, 10_000);
        assert!((pair - 100.0 * 99.0 / (10_000.0 * 9_999.0)).abs() < 1e-12);
        // Of 4 with 2 dead any pair is both dead once in 6, and has one dead at least 5 times in 6.
        assert!((at_least_dead(2, 2, 2, 4) - 1.0 / 6.0).abs() < 1e-12);
        assert!((at_least_dead(2, 1, 2, 4) - 5.0 / 6.0).abs() < 1e-12);
        assert!((at_least_dead(6, 0, 100, 10_000) - 1.0).abs() < 1e-9);
        assert!((any_of(0.5, 2.0) - 0.75).abs() < 1e-12);
        assert!((any_of(1e-12, 1e6) - 1e-6).abs() < 1e-11);
        assert!((sharers(1.0, 10) - 1.0).abs() < 1e-9);
    }
}
