//! Files and devices keep pages as every store does, by every way that there is to write them.

use super::*;
use crate::testing::{check_store, expect_pages, fill, open_again, open_store, page_of, pages, write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};

fn spec_in(place: &Path, size: &str) -> String {
    format!("file:{}?size={size}", place.display())
}

/// Prepares the store and opens it without io_uring, O_DIRECT or either.
fn lane_with(spec: &StoreSpec, parts: &SharedParts, ring: bool, direct: bool) -> FileLane {
    let fd = parts.fd.as_ref().unwrap().try_clone().unwrap();
    let flags = fcntl_getfl(&fd).unwrap();
    assert!(flags.contains(OFlags::DIRECT), "the test's file system has no O_DIRECT");
    fcntl_setfl(&fd, if direct { flags } else { flags - OFlags::DIRECT }).unwrap();
    let file = ScratchFile {
        uri: spec.to_string(),
        slots: parts.capacity_slots,
        fd,
        direct,
        was_full: AtomicBool::new(false),
    };
    let ring = ring.then(|| Ring::open(IN_FLIGHT, &file.fd).unwrap());
    FileLane { file: Arc::new(file), ring, bounce: Vec::new(), posted: Vec::new() }
}

#[test]
fn conforms() {
    let place = tempfile::tempdir().unwrap();
    check_store(&spec_in(&place.path().join("far"), "4M"));
    check_store(&spec_in(place.path(), "4M"));
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn every_way_of_access_gives_the_same() {
    for (ring, direct) in [(true, true), (true, false), (false, true), (false, false)] {
        let place = tempfile::tempdir().unwrap();
        let spec: StoreSpec = spec_in(place.path(), "2M").parse().unwrap();
        let parts = spec.prepare("test").unwrap();
        let mut lane = lane_with(&spec, &parts, ring, direct);
        // Neighbours, strangers, and more runs than fit in flight; in no order, and at odd addresses.
        let slots: Vec<_> = (0..300u32).map(|number| number * 211 % 512).collect();
        let memory: Vec<u8> = slots.iter().flat_map(|slot| page_of(u64::from(*slot))).collect();
        for shift in [0, 1] {
            let mut shifted = vec![0; memory.len() + 2 * PAGE_SIZE];
            let start = shifted.as_ptr().align_offset(PAGE_SIZE) + shift;
            shifted[start..start + memory.len()].copy_from_slice(&memory);
            let (data, _) = shifted[start..start + memory.len()].as_chunks();
            assert_eq!(fill(&mut lane, &slots, data), 300);
            let outcomes = write(&mut lane, &slots, data);
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            expect_pages(&mut lane, &slots, data);
        }
        assert_eq!(lane.bounce.is_empty(), !direct);
        assert_eq!(lane.ring.is_some(), ring);
    }
}

#[test]
fn space_is_taken_by_writes_and_given_back() {
    let place = tempfile::tempdir().unwrap();
    let (parts, store) = open_store(&spec_in(place.path(), "64M"));
    assert_eq!(store.capacity_slots(), 16384);
    let empty = store.stored_bytes();
    assert!(empty <= 64 << 10, "{empty} bytes for nothing");
    let mut lane = store.open_lane().unwrap();
    let slots: Vec<_> = (1000..2000).collect();
    assert_eq!(fill(&mut *lane, &slots, &pages(1000, 1)), 1000);
    assert!(store.stored_bytes() >= 1000 * 4096);
    lane.discard(&[1000, 1500, 1999]);
    assert!(store.stored_bytes() >= 1000 * 4096, "a hole for a single page is not worth it");
    lane.discard(&slots);
    assert!(store.stored_bytes() <= empty + (64 << 10));
    let status = fstat(parts.fd.unwrap()).unwrap();
    assert_eq!((status.st_nlink, status.st_mode & 0o777), (0, 0o600));
}

#[test]
fn what_exists_is_not_overwritten() {
    let place = tempfile::tempdir().unwrap();
    let (path, link) = (place.path().join("precious"), place.path().join("link"));
    std::fs::write(&path, "data").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    std::os::unix::fs::symlink(place.path().join("nowhere"), &link).unwrap();
    for path in [&path, &link, Path::new("/dev/null")] {
        let spec: StoreSpec = spec_in(path, "1M").parse().unwrap();
        let error = spec.prepare("test").unwrap_err().to_string();
        assert!(error.contains("exists already") && error.contains("name a file"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
}

#[test]
fn a_place_that_does_not_serve_is_named() {
    for (path, size, reason, remedy) in [
        ("/no/such/place", "1M", "cannot make the file", "check the path"),
        ("/proc/far", "1M", "cannot make the file", "check the path"),
        ("/proc", "1M", "cannot make a file in this directory", "name a file"),
    ] {
        let spec: StoreSpec = spec_in(Path::new(path), size).parse().unwrap();
        let error = spec.prepare("test").unwrap_err().to_string();
        for part in [path, reason, remedy] {
            assert!(error.contains(part), "'{part}' is not in: {error}");
        }
    }
}

#[test]
fn a_file_that_was_cut_off_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let (parts, store) = open_store(&spec_in(place.path(), "1M"));
    let mut lane = store.open_lane().unwrap();
    assert_eq!(fill(&mut *lane, &[1, 2, 3, 9], &pages(4, 1)), 4);
    ftruncate(parts.fd.unwrap(), 3 * 4096).unwrap();
    let outcomes = crate::testing::read(&mut *lane, &[9, 3, 2, 1]);
    assert!(outcomes.iter().map(Result::is_ok).eq([false, false, true, true]));
    for outcome in &outcomes[..2] {
        assert!(matches!(outcome, Err(StoreError::Io { reason, .. }) if reason.starts_with("reading slot")));
    }
    expect_pages(&mut *lane, &[1, 2], &pages(4, 1));
}

#[test]
fn a_broken_ring_is_replaced_by_plain_calls() {
    let place = tempfile::tempdir().unwrap();
    let (parts, store) = open_store(&spec_in(place.path(), "1M"));
    let spec: StoreSpec = store.uri().parse().unwrap();
    let mut lane = lane_with(&spec, &parts, true, true);
    // More buffers than the kernel takes at once break a batch, as a ring that fails would.
    let page = page_of(4);
    let mut many = vec![IoSlice::new(&page); spillway_sys::ring::MAX_BUFFERS + 1];
    let mut transfers = [Transfer { offset: 0, buffers: &mut many, outcome: Ok(0) }];
    lane.file.run(&mut lane.ring, &mut transfers);
    assert!(lane.ring.is_none());
    assert_eq!(fill(&mut lane, &[3, 4], &pages(2, 1)), 2);
    expect_pages(&mut *open_again(&spec, &parts).open_lane().unwrap(), &[3, 4], &pages(2, 1));
}
