//! `file:` on a block device: a loop device over a sparse file, so it needs root.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use spillway_store::StoreSpec;
use spillway_store::testing::{check_store, open_store};

/// A loop device of 32 MiB, detached when dropped.
struct LoopDevice {
    path: String,
    _image: tempfile::NamedTempFile,
}

impl LoopDevice {
    fn attach() -> Self {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(32 << 20).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image.path()).output().unwrap();
        assert!(output.status.success(), "a loop device, which takes root: {output:?}");
        Self { path: String::from_utf8(output.stdout).unwrap().trim().to_owned(), _image: image }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

#[test]
fn a_block_device_is_a_store_for_one_run() {
    let device = LoopDevice::attach();
    let uri = format!("file:{}?size=32M", device.path);
    check_store(&uri);

    let (_parts, _store) = open_store(&uri);
    let refusal = uri.parse::<StoreSpec>().unwrap().prepare("other run").unwrap_err().to_string();
    assert!(refusal.contains("busy") && refusal.contains("end what uses it"), "{refusal}");
}

#[test]
fn a_device_that_is_too_small_is_refused() {
    let device = LoopDevice::attach();
    let spec: StoreSpec = format!("file:{}?size=33M", device.path).parse().unwrap();
    let refusal = spec.prepare("test").unwrap_err().to_string();
    assert!(refusal.contains("has only 32.0 MiB") && refusal.contains("larger device"), "{refusal}");
}
