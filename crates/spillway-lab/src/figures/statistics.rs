//! Extremes and means of what runs measured.

/// The largest of some numbers.
pub(super) fn most(numbers: impl IntoIterator<Item = f64>) -> f64 {
    numbers.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

/// The smallest of some numbers.
pub(super) fn least(numbers: impl IntoIterator<Item = f64>) -> f64 {
    numbers.into_iter().fold(f64::INFINITY, f64::min)
}

/// The geometric mean of some ratios.
pub(super) fn geometric_mean(ratios: impl IntoIterator<Item = f64>) -> f64 {
    let logarithms: Vec<f64> = ratios.into_iter().map(f64::ln).collect();
    mean(&logarithms).exp()
}

/// The mean of some numbers.
pub(super) fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}
