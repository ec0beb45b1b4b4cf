//! What every page must stand that lies where runs claim an export: it is a claim that can be written again
//! just so, and printed, or none. Shared by the property test (`peers.rs`) and the fuzz target
//! (`fuzz/fuzz_targets/claim.rs`).

use spillway_core::page::PAGE_SIZE;
use spillway_store::claim::Claimant;

/// Takes `data` for a page, and for parts of a claim.
pub fn exercise(data: &[u8]) {
    let mut text = [&b"SPILLWAY CLAIM 1\n"[..], data].concat();
    read(data);
    read(&text);
    // What only a run's name, or only what comes behind it, is not as it should be.
    text = [&b"SPILLWAY CLAIM 1\nrun="[..], data, b"\nhost=h\nmachine=m\npid=1\nbegan=2\n"].concat();
    read(&text);
    text = [&b"SPILLWAY CLAIM 1\nrun=r\nhost="[..], data, b"\nmachine=m\npid=1\nbegan=2\n"].concat();
    read(&text);
    text = [&b"SPILLWAY CLAIM 1\nrun=r\nhost=h\nmachine=m\npid="[..], data].concat();
    read(&text);
}

fn read(text: &[u8]) {
    let mut page = [0; PAGE_SIZE];
    let bytes = text.len().min(PAGE_SIZE);
    page[..bytes].copy_from_slice(&text[..bytes]);
    let Some(claimant) = Claimant::of_page(&page) else { return };
    assert!(!claimant.host.chars().any(char::is_control), "{claimant:?}");
    assert_eq!(Claimant::of_page(&claimant.to_page()), Some(claimant));
}
