//! Policies for smaller machines: what their papers chose for tens of gigabytes, in proportion.

use serde_json::{Map, Number, Value};

/// Scales a configuration to a working set that is `factor` of the one that its values were chosen for. What is
/// measured in memory or in time - names ending in `_bytes`, `_us`, `_ms`, `_accesses` - shrinks with it, so that a scan covers the same
/// share of memory while the program does the same share of its work; rates of events (`_hz`) grow. Bandwidths
/// (`_bytes_per_s`), counts and shares stay.
pub fn scale_config(settings: &mut Map<String, Value>, factor: f64) {
    for (key, value) in settings.iter_mut() {
        let Some(number) = value.as_f64() else { continue };
        let scaled = match key.rsplit('_').next() {
            Some("bytes" | "us" | "ms" | "accesses") => number * factor,
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
    fn memory_and_time_shrink_rates_grow_and_the_rest_stays() {
        let Value::Object(mut settings) = serde_json::json!({
            "window_bytes": 1000, "period_us": 1, "age_ms": 2.0, "rate_hz": 5.0, "cap_bytes_per_s": 7, "share": 0.5,
            "kind": "a"
        }) else {
            panic!()
        };
        scale_config(&mut settings, 0.1);
        let expected = serde_json::json!({
            "window_bytes": 100, "period_us": 1, "age_ms": 0.2, "rate_hz": 50.0, "cap_bytes_per_s": 7, "share": 0.5,
            "kind": "a"
        });
        assert_eq!(Value::Object(settings), expected);
    }
}
