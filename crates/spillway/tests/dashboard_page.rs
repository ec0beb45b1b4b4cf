//! The page of `spillway dashboard` in a browser, with what it is told made up: clicks, and names that mean
//! harm.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod browser_common;

use std::fs;
use std::path::Path;

use browser_common::browse;
use serde_json::{Value, json};

/// A name that would be run if it were taken for markup.
const HOSTILE: &str = "<img src=x onerror=harmed()>";

fn latency(octaves: &[(u64, u64)]) -> Value {
    let count: u64 = octaves.iter().map(|(_, faults)| faults).sum();
    json!({
        "count": count, "total_us": 5e6, "p50_us": 3.0, "p99_us": 900.0, "max_us": 2500.0, "octaves": octaves,
    })
}

/// A row of a run or, with a number, of one of its processes.
fn row(supervisor_pid: u64, process_pid: Option<u64>, name: &str, far_mib: u64, faults_per_s: f64) -> Value {
    let kind = if process_pid.is_some() { "process" } else { "run" };
    let mut row = json!({
        "uid": 7, "supervisor_pid": supervisor_pid, "process_pid": process_pid, "kind": kind, "name": name,
        "pid": process_pid.unwrap_or(supervisor_pid + 1), "fault_mode": "inline", "uptime_s": 9.0,
        "local_bytes": 8 << 20, "local_limit_bytes": 8 << 20, "far_bytes": far_mib << 20,
        "rates": {
            "faults_per_s": faults_per_s, "fault_p50_us": 3.0, "fault_p99_us": 900.0, "lost_share": 0.2,
            "fetched_bytes_per_s": 3e6, "written_bytes_per_s": 1e6,
        },
        "stores": [], "fetched_pages": 70, "prefetch": { "fetched_ahead_pages": 5, "accuracy": null },
        "faults": { "first_touch": 1, "fetch": 65, "inactive": 2, "writeback": 3, "other": 4, "refused": 0 },
        "fault_latency": latency(&[(4096, 60), (8192, 0), (16_384, 5)]),
    });
    if kind == "run" {
        row["evictions"] = json!({
            "written_pages": 1, "clean_dropped_pages": 2, "zero_dropped_pages": 3, "kept_in_use_pages": 4,
            "refused_pages": 5,
        });
        row["stores"] = json!([
            { "uri": HOSTILE, "health": "ok", "used_bytes": 1, "stored_bytes": null,
              "compression_ratio": null, "fetched_bytes_per_s": 1.0, "written_bytes_per_s": 2.0 },
            { "uri": "ram:", "health": "full", "used_bytes": 9, "stored_bytes": 3, "compression_ratio": 3.0,
              "fetched_bytes_per_s": 1.0, "written_bytes_per_s": 2.0 },
        ]);
    }
    row
}

/// What the daemon `spillway tier` is told to be: it has no faults.
fn daemon() -> Value {
    let mut row = row(30, None, "tier", 2, 0.0);
    row["kind"] = "tier".into();
    row["rates"] = Value::Null;
    row["fault_latency"] = latency(&[]);
    row["tier"] = json!({
        "fast": "0", "slow": "1", "managed_bytes": 1, "cpu_pct": 0.5, "source": { "name": HOSTILE },
        "link": { "latency_ns": 300.0, "local_latency_ns": 90.0 }, "groups": [],
    });
    row
}

/// What the page shows after each step of a script, which calls `note(NAME, VALUE)`.
fn noted(script: &str) -> Value {
    let place = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dashboard");
    for name in ["dashboard.js", "dashboard.css"] {
        fs::copy(sources.join(name), place.path().join(name)).unwrap();
    }
    let rows = [
        row(10, None, HOSTILE, 5, 10.0),
        row(10, Some(12), "worker", 1, 9.0),
        row(10, Some(13), HOSTILE, 4, 1.0),
        row(20, None, "aardvark", 9, 2.0),
        daemon(),
    ];
    let told = json!({
        "rows.json": { "version": 1, "rows": rows, "silent": [] }, "heat.json": [], "pool.json": [],
    });
    let before = format!(
        "const told_here = {told};\n\
         const json_of = (path) => async () => structuredClone(told_here[path]);\n\
         window.fetch = async (path) => ({{ ok: true, json: json_of(path) }});\n\
         window.harmed = () => {{ window.harm = true; }};\n"
    );
    // In a function: the page's own script has names of its own.
    let after = format!(
        "(async () => {{\n\
         const noted = {{}};\n\
         const note = (name, value) => {{ noted[name] = value; }};\n\
         const wait = (ms) => new Promise((done) => setTimeout(done, ms));\n\
         const click = (selector) => document.querySelector(selector).click();\n\
         const lines = () => [...document.querySelectorAll('#list tbody tr')];\n\
         const pids = () => lines().map((line) => line.children[1].textContent);\n\
         await wait(500);\n{script}\n\
         note('harm', window.harm ?? false);\n\
         note('images', document.querySelectorAll('img').length);\n\
         const shown = document.createElement('pre');\n\
         shown.id = 'noted';\n\
         shown.textContent = JSON.stringify(noted);\n\
         document.body.append(shown);\n\
         }})();\n"
    );
    fs::write(place.path().join("before.js"), before).unwrap();
    fs::write(place.path().join("after.js"), after).unwrap();
    let tag = "<script src=\"dashboard.js\" defer></script>";
    let html = fs::read_to_string(sources.join("dashboard.html")).unwrap();
    assert!(html.contains(tag));
    let around = ["before.js", "dashboard.js", "after.js"].map(|name| tag.replace("dashboard.js", name));
    let page = place.path().join("page.html");
    fs::write(&page, html.replace(tag, &around.concat())).unwrap();
    // Ten seconds of its own time, which pass at once.
    let (dom, log) = browse(&page, &place.path().join("profile"), &["--virtual-time-budget=10000"]);
    assert!(!log.contains(":CONSOLE"), "{log}");
    let text = dom.split("<pre id=\"noted\">").nth(1).unwrap_or_else(|| panic!("{dom}"));
    let noted: Value = serde_json::from_str(text.split("</pre>").next().unwrap()).unwrap();
    assert_eq!((&noted["harm"], &noted["images"]), (&false.into(), &0.into()), "{dom}");
    noted
}

#[test]
fn a_click_on_a_heading_sorts_by_its_column_and_processes_stay_with_their_run() {
    let noted = noted(
        "note('as_told', pids());
         click('#sort-list--5');
         note('most_far', pids());
         note('marked', document.querySelectorAll('#list th')[5].getAttribute('aria-sort'));
         click('#sort-list--5');
         note('least_far', pids());
         await wait(1500);
         note('later', pids());
         click('#sort-list--5');
         note('as_told_again', pids());
         click('#sort-list--0');
         note('by_name', pids());
         click('#sort-list--7');
         note('slowest', pids());
         const cells = () => [...document.querySelectorAll('.card td:nth-child(3)')];
         const uses = () => cells().slice(0, 2).map((cell) => cell.textContent);
         note('stores', uses());
         click('#sort-stores-7\\\\/10\\\\/-2');
         note('stores_by_use', uses());
         document.querySelector('#sort-stores-7\\\\/20\\\\/-2').focus();
         await wait(1500);
         note('focused', document.activeElement.id);",
    );
    assert_eq!(noted["as_told"], json!(["11", "12", "13", "21", "31"]));
    assert_eq!(noted["most_far"], json!(["21", "11", "13", "12", "31"]));
    assert_eq!(noted["marked"], "descending");
    assert_eq!(noted["least_far"], json!(["31", "11", "12", "13", "21"]));
    assert_eq!(noted["later"], noted["least_far"], "it stays so when it is told anew");
    assert_eq!(noted["as_told_again"], noted["as_told"]);
    assert_eq!(noted["by_name"], json!(["11", "13", "12", "21", "31"]));
    assert_eq!(noted["slowest"].as_array().unwrap().last(), Some(&"31".into()), "what has no number is last");
    assert_eq!((&noted["stores"], &noted["stores_by_use"]), (&json!(["1", "9"]), &json!(["9", "1"])));
    assert_eq!(noted["focused"], "sort-stores-7/20/-2", "what is drawn anew keeps the keyboard");
}

#[test]
fn a_process_is_shown_in_detail_and_one_that_has_ended_says_so() {
    let noted = noted(
        "const headings = () => [...document.querySelectorAll('.card h2')];
         const cards = () => headings().map((heading) => heading.textContent.slice(-17));
         note('all', cards());
         click('#show-7\\\\/10\\\\/12');
         await wait(1500);
         note('one', cards());
         note('told', document.querySelector('.card').textContent);
         note('bars', document.querySelectorAll('.card .latency rect').length);
         note('charts', document.querySelectorAll('.card .chart').length);
         note('current', document.querySelector('#list a[aria-current]').textContent);
         click('#show-all');
         await wait(100);
         note('back', cards());
         location.hash = '#show=' + encodeURIComponent('<img src=x onerror=harmed()>');
         await wait(100);
         note('gone', document.querySelector('#details').textContent);",
    );
    assert_eq!(noted["all"].as_array().unwrap().len(), 3, "{noted}");
    assert_eq!((&noted["one"], &noted["current"]), (&json!(["(12), inline mode"]), &"worker".into()));
    assert_eq!((&noted["bars"], &noted["charts"]), (&3.into(), &5.into()), "{noted}");
    let told = noted["told"].as_str().unwrap();
    for text in [
        "how long 65 faults took since the start",
        "p99 900 us, longest 2.5 ms",
        "below 4.1 us",
        "below 16 us",
        "traffic a second, at most 2.9M",
        "fetched: 70 pages, 5 of them ahead",
        "faults: 65 fetched, 1 first touch, 9 others, 0 refused; threads waited 5.0 s together",
    ] {
        assert!(told.contains(text), "no {text:?} in {told}");
    }
    assert!(!told.contains("evicted"), "that is the run's: {told}");
    assert_eq!(noted["back"], noted["all"]);
    assert_eq!(noted["gone"], "show allIt has ended.");
}
