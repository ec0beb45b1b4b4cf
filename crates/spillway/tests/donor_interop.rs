//! `spillway donor` and tools that were not written here, from Debian's packages: nbdinfo and nbdcopy
//! (libnbd-bin), qemu-img and qemu-io (qemu-utils), fio.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use donor_common::{Donor, command, eventually, tool};

const MIB: u64 = 1 << 20;

/// A file of random bytes with holes.
fn sparse_image(path: &Path, megabytes: u64) {
    let mut random = File::open("/dev/urandom").unwrap();
    let mut file = File::create(path).unwrap();
    file.set_len(megabytes * MIB).unwrap();
    for at in (0..megabytes).step_by(3) {
        let mut data = vec![0; MIB as usize - 1234];
        random.read_exact(&mut data).unwrap();
        file.seek(SeekFrom::Start(at * MIB + 77)).unwrap();
        file.write_all(&data).unwrap();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn nbdinfo_describes_exports() {
    let donor = Donor::start("64M", &[]);
    let json = tool("libnbd-bin", "nbdinfo", &["--json", &donor.tcp_uri("some%20export")]);
    let info: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(info["protocol"], "newstyle-fixed");
    assert_eq!(info["structured"], true);
    let export = &info["exports"][0];
    assert_eq!((&export["export-name"], &export["export-size"]), (&"some export".into(), &(64 * MIB).into()));
    for can in ["can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn", "can_df", "can_cache"] {
        assert_eq!(export[can], true, "{can}");
    }
    assert_eq!(export["is_read_only"], false);
    assert_eq!(export["contexts"], serde_json::json!(["base:allocation"]));
    assert_eq!((&export["block_size_minimum"], &export["block_size_preferred"]), (&1.into(), &4096.into()));

    // Opened once, an export is listed; asking for the list opens none.
    tool("libnbd-bin", "nbdinfo", &[&donor.unix_uri("other")]);
    let list = tool("libnbd-bin", "nbdinfo", &["--list", &donor.tcp_uri("")]);
    let names: Vec<_> = list.lines().filter(|line| line.starts_with("export=")).collect();
    assert_eq!(names, ["export=\"other\":", "export=\"some export\":"]);
}

#[test]
fn nbdcopy_takes_images_in_and_out() {
    let directory = tempfile::tempdir().unwrap();
    let (image, back) = (directory.path().join("image"), directory.path().join("back"));
    sparse_image(&image, 64);
    let donor = Donor::start("64M", &[]);
    tool("libnbd-bin", "nbdcopy", &[text(&image), &donor.tcp_uri("disk")]);
    tool("libnbd-bin", "nbdcopy", &[&donor.unix_uri("disk"), text(&back)]);
    tool("diffutils", "cmp", &[text(&image), text(&back)]);
    // From export to export, and with requests in order only.
    tool("libnbd-bin", "nbdcopy", &["--synchronous", &donor.tcp_uri("disk"), text(&back)]);
    tool("diffutils", "cmp", &[text(&image), text(&back)]);
    // The holes are known as such.
    let map = tool("libnbd-bin", "nbdinfo", &["--map", "--json", &donor.tcp_uri("disk")]);
    let map: Vec<serde_json::Value> = serde_json::from_str(&map).unwrap();
    let holes: u64 = map
        .iter()
        .filter(|extent| extent["type"] == 3)
        .map(|extent| extent["length"].as_u64().unwrap())
        .sum();
    assert!((40 * MIB..44 * MIB).contains(&holes), "{holes}");
    assert!(donor.resident_bytes() < 40 * MIB, "{}", donor.resident_bytes());
}

#[test]
fn qemu_img_converts_compares_and_checks() {
    let directory = tempfile::tempdir().unwrap();
    let (image, qcow) = (directory.path().join("image"), directory.path().join("back.qcow2"));
    sparse_image(&image, 32);
    let donor = Donor::start("32M", &[]);
    let uri = donor.unix_uri("disk");
    tool("qemu-utils", "qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", text(&image), &uri]);
    let compared = tool("qemu-utils", "qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&image), &uri]);
    assert!(compared.contains("identical"), "{compared}");
    tool(
        "qemu-utils",
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2", &donor.tcp_uri("disk"), text(&qcow)],
    );
    tool("qemu-utils", "qemu-img", &["compare", "-f", "raw", "-F", "qcow2", text(&image), text(&qcow)]);
    // A qcow2 image within an export: small, unaligned requests, flushes, discards.
    let format = ["create", "-f", "qcow2", &donor.tcp_uri("qcow"), "24M"];
    tool("qemu-utils", "qemu-img", &format);
    let steps = [
        "-c",
        "write -P 7 1M 3M",
        "-c",
        "write -P 9 5000 100",
        "-c",
        "discard 2M 1M",
        "-c",
        "flush",
        "-c",
        "write -z 3M 64k",
        "-c",
        "read -P 7 1M 1M",
        "-c",
        "read -P 0 2M 1M",
        "-c",
        "read -P 0 3M 64k",
        "-c",
        "read -P 9 5000 100",
    ];
    let uri = donor.tcp_uri("qcow");
    let output =
        tool("qemu-utils", "qemu-io", &[&["-f", "qcow2", "-d", "unmap"], &steps[..], &[&uri]].concat());
    assert!(!output.contains("verification failed"), "{output}");
    tool("qemu-utils", "qemu-img", &["check", "-f", "qcow2", &donor.tcp_uri("qcow")]);
}

#[test]
fn fio_verifies_what_it_wrote() {
    let donor = Donor::start("64M", &[]);
    let engines = tool("fio", "fio", &["--enghelp"]);
    assert!(
        engines.lines().any(|line| line.trim() == "nbd"),
        "this fio has no nbd engine: apt-get install fio"
    );
    for (name, uri) in [("tcp", donor.tcp_uri("tcp")), ("unix", donor.unix_uri("unix"))] {
        let uri = format!("--uri={uri}");
        let job = [
            "--name=job",
            "--ioengine=nbd",
            &uri,
            "--size=24M",
            "--iodepth=32",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--randrepeat=0",
            "--verify_state_save=0",
            "--output-format=json",
        ];
        for shape in [["--rw=randwrite", "--bs=4k"], ["--rw=randrw", "--bsrange=512-64k"]] {
            let report = tool("fio", "fio", &[&job[..], &shape].concat());
            let report: serde_json::Value =
                serde_json::from_str(&report[report.find('{').unwrap()..]).unwrap();
            let job = &report["jobs"][0];
            assert_eq!(job["error"], 0, "{name}");
            assert!(job["read"]["total_ios"].as_u64().unwrap() > 0, "{name} verified nothing");
        }
        // Trims too.
        tool("fio", "fio", &[&job[..], &["--rw=randtrimwrite", "--bs=4k"]].concat());
    }
}

#[test]
fn exports_persist_until_they_are_dropped_and_give_their_memory_back() {
    let directory = tempfile::tempdir().unwrap();
    let (image, back) = (directory.path().join("image"), directory.path().join("back"));
    sparse_image(&image, 64);
    // No grace time: named exports need none.
    let donor = Donor::start("64M", &["--grace", "0"]);
    let at_rest = donor.resident_bytes();
    tool("libnbd-bin", "nbdcopy", &[text(&image), &donor.tcp_uri("disk")]);
    std::thread::sleep(std::time::Duration::from_millis(1200));
    tool("libnbd-bin", "nbdcopy", &[&donor.tcp_uri("disk"), text(&back)]);
    tool("diffutils", "cmp", &[text(&image), text(&back)]);
    assert!(donor.resident_bytes() > at_rest + 18 * MIB);
    assert!(command(&["drop", &donor.unix_uri("disk")]).status().unwrap().success());
    eventually("the memory is given back", || donor.resident_bytes() < at_rest + 8 * MIB);
    let list = tool("libnbd-bin", "nbdinfo", &["--list", &donor.tcp_uri("")]);
    assert!(!list.contains("export=\"disk\""), "{list}");
}
