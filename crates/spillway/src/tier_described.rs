//! What the daemon `spillway tier` says of itself, in words.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;
use spillway_core::size::Size;

/// What a daemon says of itself, in words.
pub fn describe(status: &Value) -> String {
    let mut text = String::new();
    let uptime = Duration::from_secs_f64(status["uptime_s"].as_f64().unwrap_or(0.0).max(0.0));
    let _ = writeln!(
        text,
        "process {}, for {} s; fast nodes {}, slow nodes {}",
        status["pid"],
        uptime.as_secs(),
        status["fast"].as_str().unwrap_or_default(),
        status["slow"].as_str().unwrap_or_default()
    );
    let cpu_pct = status["cpu_pct"].as_f64().unwrap_or(0.0);
    let _ = writeln!(
        text,
        "telemetry from {} ({}); {} managed, CPU {cpu_pct:.1}% of a core",
        status["source"]["name"].as_str().unwrap_or_default(),
        status["source"]["why"].as_str().unwrap_or_default(),
        bytes(&status["managed_bytes"])
    );
    text += &of_link(&status["link"]);
    text += &of_migration(&status["migration"]);
    for group in status["groups"].as_array().into_iter().flatten() {
        of_group(&mut text, group);
    }
    text
}

/// A number of bytes out of a report.
pub fn bytes(value: &Value) -> Size {
    Size::from_bytes(value.as_u64().unwrap_or(0))
}

/// Why a page moved, in words.
pub fn reason(value: &Value) -> &str {
    match value.as_str() {
        Some("accessed") => "hot, and accessed",
        Some("placement") => "beyond the budget when first seen",
        _ => "by the policy, in the background",
    }
}

/// The way to slow memory, as it is at present.
fn of_link(link: &Value) -> String {
    let number = |key: &str| link[key].as_f64().unwrap_or(0.0);
    format!(
        "slow memory answers in {:.0} ns (idle {:.0}, fast memory {:.0}); {:.0}% of {}/s left, by {} ({})\n",
        number("latency_ns"),
        number("idle_latency_ns"),
        number("local_latency_ns"),
        number("available_share") * 100.0,
        Size::from_bytes(number("bytes_per_s") as u64),
        link["source"].as_str().unwrap_or_default(),
        link["why"].as_str().unwrap_or_default(),
    )
}

/// How marked pages come to fast memory.
fn of_migration(migration: &Value) -> String {
    let by = migration["by"].as_str().unwrap_or_default();
    let why = migration["why"].as_str().unwrap_or_default();
    let count = |key: &str| migration[key].as_u64().unwrap_or(0);
    if by != "on-demand" {
        return format!("marked pages migrate in {by} ({why})\n");
    }
    let mut text = format!(
        "marked pages migrate on demand ({why}): {} process(es) with a marker; {} pages marked, \
         {} accessed since, {} given back\n",
        count("markers"),
        count("marked"),
        count("accessed"),
        count("returned"),
    );
    for (name, pages) in migration["refused"].as_object().into_iter().flatten() {
        let _ = writeln!(text, "  not marked {pages} pages: {}", name.replace('_', " "));
    }
    text
}

fn of_group(text: &mut String, group: &Value) {
    let name = |key: &str| group[key].as_str().unwrap_or_default().to_owned();
    let count = |key: &str| group[key].as_u64().unwrap_or(0);
    let processes = group["processes"].as_array().map_or(0, Vec::len);
    let _ = writeln!(text, "\n{}: {}, {processes} process(es)", name("name"), name("policy"));
    let _ = writeln!(
        text,
        "  local      {} of at most {}; far {}",
        bytes(&group["local_bytes"]),
        bytes(&group["local_limit_bytes"]),
        bytes(&group["far_bytes"])
    );
    let _ = writeln!(
        text,
        "  scans      {} by {}, {} of them early; the last two {:.0} ms apart",
        count("scans"),
        name("scan_pace"),
        count("early_scans"),
        group["scan_interval_ms"].as_f64().unwrap_or(0.0)
    );
    let alone = &group["left_alone"];
    let _ = writeln!(
        text,
        "  left alone {} shared or files', {} locked, {} bound",
        bytes(&alone["shared_bytes"]),
        bytes(&alone["locked_bytes"]),
        bytes(&alone["bound_bytes"])
    );
    if let Some(ratio) = group["local_use_ratio"].as_f64() {
        let _ = writeln!(text, "  in use     {:.1}% of pages found in use were local", ratio * 100.0);
    }
    let _ = writeln!(
        text,
        "  moved      {} pages promoted ({} used since), {} demoted",
        count("promotions"),
        count("promotions_used"),
        count("demotions")
    );
    for sum in group["last_minute"].as_array().into_iter().flatten() {
        let to = sum["to"].as_str().unwrap_or_default();
        let pages = sum["pages"].as_u64().unwrap_or(0);
        let _ = writeln!(text, "  last minute {pages} pages {to}: {}", reason(&sum["reason"]));
    }
    for (name, pages) in group["refused"].as_object().into_iter().flatten() {
        let _ = writeln!(text, "  not moved  {pages} pages: {}", name.replace('_', " "));
    }
    if let Some(why) = group["paused"].as_str() {
        let _ = writeln!(text, "  paused     {why}");
    }
    if let Some(remark) = group["remark"].as_str() {
        let _ = writeln!(text, "  by         {remark}");
    }
    if let Some(why) = group["ended"].as_str() {
        let _ = writeln!(text, "  ended      {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_pages_migrate_is_told_in_one_line() {
        let batches = serde_json::json!({ "by": "batches", "why": "it was named", "markers": 0 });
        assert_eq!(of_migration(&batches), "marked pages migrate in batches (it was named)\n");
        let on_demand = serde_json::json!({
            "by": "on-demand", "why": "the best that works here", "markers": 2, "marked": 50, "accessed": 40,
            "returned": 3, "refused": { "not_there": 7 },
        });
        assert_eq!(
            of_migration(&on_demand),
            "marked pages migrate on demand (the best that works here): 2 process(es) with a marker; \
             50 pages marked, 40 accessed since, 3 given back\n  not marked 7 pages: not there\n"
        );
    }

    #[test]
    fn the_way_to_slow_memory_is_told_in_one_line() {
        let link = serde_json::json!({
            "source": "probes", "why": "several nodes are fast", "latency_ns": 612.4,
            "idle_latency_ns": 410.0, "local_latency_ns": 96.0, "bytes_per_s": 10_u64 << 30,
            "available_share": 0.335,
        });
        assert_eq!(
            of_link(&link),
            "slow memory answers in 612 ns (idle 410, fast memory 96); 34% of 10.0 GiB/s left, by probes \
             (several nodes are fast)\n"
        );
    }
}
