//! Pages in a browser that may not reach anything.
#![allow(dead_code, reason = "each test target uses its own part")]

use std::path::Path;
use std::process::{Command, Stdio};

/// What a browser with these options makes of a page, and what it says of errors on its way.
pub fn browse(page: &Path, profile: &Path, options: &[&str]) -> (String, String) {
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"])
        // Names lead nowhere, so that a page that asks for anything outside fails to get it.
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .args(options)
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .expect("chromium is not there: run scripts/install-test-tools");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// What a browser makes of a page, which refers to nothing outside and has no error.
pub fn shown_without_network(page: &Path) -> String {
    let profile = tempfile::tempdir().unwrap();
    let (dom, log) = browse(page, profile.path(), &[]);
    let outside = dom.replace("http://www.w3.org/2000/svg", "");
    for reference in ["http:", "https:", "src=", "<script"] {
        assert!(!outside.contains(reference), "the page refers to '{reference}'");
    }
    for complaint in [":CONSOLE", "Failed to load", "ERR_"] {
        assert!(!log.contains(complaint), "{log}");
    }
    dom
}
