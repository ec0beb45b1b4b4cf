//! Settings by the units in their names: what papers chose for tens of gigabytes in proportion, and what
//! makes sense at all.

use std::ops::RangeInclusive;

use serde_json::{Map, Number, Value};

/// Longest time of a setting, in microseconds: eleven days.
const MOST_US: f64 = 1e12;

/// What a setting of this name may be. Shares lie between 0 and 1, and a period is not 0, since what is done
/// without a pause never ends.
fn sensible(name: &str) -> Option<RangeInclusive<f64>> {
    match name.rsplit('_').next() {
        _ if name.ends_with("period_us") => Some(1.0..=MOST_US),
        Some("us") => Some(0.0..=MOST_US),
        Some("ms") => Some(0.0..=MOST_US / 1e3),
        Some("share" | "ratio") => Some(0.0..=1.0),
        _ => None,
    }
}

/// What is wrong with the first setting whose value makes no sense, if any does not.
#[must_use]
pub fn nonsense(settings: &Map<String, Value>) -> Option<String> {
    settings.iter().find_map(|(name, value)| {
        let (range, number) = (sensible(name)?, value.as_f64()?);
        let wrong = !range.contains(&number);
        wrong.then(|| format!("'{name}' is {value}, not within {} to {}", range.start(), range.end()))
    })
}

/// Scales a configuration to a working set that is `factor` of the one that its values were chosen for. What
/// is measured in memory or in time - names ending in `_bytes`, `_us`, `_ms` - shrinks with it, so that a
/// scan covers the same share of memory while the program does the same share of its work; rates of events
/// (`_hz`) grow. Bandwidths (`_bytes_per_s`), counts and shares stay. So do periods of sampling
/// (`_accesses`): of a smaller memory in a shorter time one access in as many gives as many samples a page
/// and interval.
pub fn scale_config(settings: &mut Map<String, Value>, factor: f64) {
    for (key, value) in settings.iter_mut() {
        let Some(number) = value.as_f64() else { continue };
        let scaled = match key.rsplit('_').next() {
            Some("bytes" | "us" | "ms") => number * factor,
            Some("hz") => number / factor,
            _ => continue,
        };
        *value = if value.is_u64() {
            Value::from((scaled.round() as u64).max(1))
        } else {
            Number::from_f64(scaled).map_or(Value::Null, Value::Number)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_told_by_name() {
        let told = |name: &str, value: f64| nonsense(&Map::from_iter([(name.to_owned(), value.into())]));
        for (name, value) in
            [("scan_period_us", 1.0), ("window_us", 0.0), ("low_share", 1.0), ("splits", 1e9)]
        {
            assert_eq!(told(name, value), None);
        }
        for (name, value) in [
            ("scan_period_us", 0.0),
            ("period_us", 1e15),
            ("window_us", -1.0),
            ("low_share", 1.1),
            ("stable_ratio", -0.1),
        ] {
            assert!(told(name, value).is_some_and(|reason| reason.contains(name)), "{name} {value}");
        }
    }

    #[test]
    fn memory_and_time_shrink_rates_grow_and_the_rest_stays() {
        let Value::Object(mut settings) = serde_json::json!({
            "window_bytes": 1000, "period_us": 1, "age_ms": 2.0, "rate_hz": 5.0, "cap_bytes_per_s": 7,
            "share": 0.5, "sample_period_accesses": 200,
            "kind": "a"
        }) else {
            panic!()
        };
        scale_config(&mut settings, 0.1);
        let expected = serde_json::json!({
            "window_bytes": 100, "period_us": 1, "age_ms": 0.2, "rate_hz": 50.0, "cap_bytes_per_s": 7,
            "share": 0.5, "sample_period_accesses": 200,
            "kind": "a"
        });
        assert_eq!(Value::Object(settings), expected);
    }
}
