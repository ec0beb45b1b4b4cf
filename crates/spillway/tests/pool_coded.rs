//! A pool whose pages are coded over six donors and more, of which some die, come back empty or are drained,
//! and programs that check every byte.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod support;

use fault_common::{Catch, Hold, Scene};
use pool_common::{Donors, await_donors, donor, pool_command, refused, says};
use rustix::process::Signal;
use support::child::{PATIENCE, Running, free_port, until};
use support::tools::c_program;

const CODE: &str = "?data=4&parity=2";

#[test]
fn any_two_of_six_donors_may_die_at_once() {
    let (mut donors, scene) = (Donors::start(6, "48M"), Scene::new());
    let mut hold = Hold::start(&scene, 48, &[donors.uri(CODE)]);
    hold.goes_on(2);
    donors.kill(1);
    donors.kill(4);
    hold.goes_on(4);
    says(&hold.running, "stay with fewer than 6 parts");
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS") && !complaint.contains("are lost"), "{complaint}");
}

/// Nobody says how pages are to outlive donors.
#[test]
fn of_six_donors_any_two_may_die_by_default() {
    let (mut donors, scene) = (Donors::start(6, "64M"), Scene::new());
    let mut hold = Hold::start(&scene, 48, &[donors.uri("")]);
    hold.goes_on(2);
    donors.kill(0);
    donors.kill(3);
    hold.goes_on(4);
    says(&hold.running, "stay with fewer than 6 parts");
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS") && !complaint.contains("are lost"), "{complaint}");
}

/// Six that have little, six of which one has little, and five that fail apart.
#[test]
fn pages_are_copied_where_a_code_costs_room_and_a_line_says_why() {
    let scene = Scene::new();
    let ends_with = |uri: &str| {
        let mut running = Running::start(scene.run("8M", &[uri], "/bin/echo").arg("started"));
        let finished = running.finish(PATIENCE);
        assert_eq!((finished.text().as_str(), finished.code()), ("started\n", 0), "{}", finished.complaint());
        finished.complaint()
    };
    let mut donors = Donors::start(6, "20M");
    let less = "that would have room for 42 MiB of pages in place of 60";
    let too_little =
        "have room for 42 MiB of pages in 4 parts of data and 2 of parity, and 44 MiB were asked for";
    for (query, reason) in [("", less), ("?size=44M", too_little)] {
        let complaint = ends_with(&donors.uri(query));
        assert!(complaint.contains("pool: pages are kept on 2 donors each, so one may die"), "{complaint}");
        assert!(complaint.contains(reason) && complaint.lines().count() == 1, "{complaint}");
    }
    // As it was asked for, or expected: nothing is said.
    for query in ["?copies=2", "?size=40M", "?domain=a,b,c,d,e,e"] {
        assert_eq!(ends_with(&donors.uri(query)), "", "{query}");
    }
    donors.0[5] = Some(donor(5, "8M", 0, &[]));
    let complaint = ends_with(&donors.uri(""));
    assert!(complaint.contains("pool: pages are kept on 2 donors each"), "{complaint}");
    // One that is not there is named, as ever.
    let address = donors.address(5);
    let uri = donors.uri("");
    donors.kill(5);
    refused(&uri, &[&address, "leave it out of the list"]);
}

#[test]
fn what_two_dead_donors_had_is_made_anew_and_two_more_may_die() {
    let (mut donors, scene) = (Donors::start(8, "48M"), Scene::new());
    let mut hold = Hold::start(&scene, 32, &[donors.uri("?data=4&parity=2&size=48M")]);
    hold.goes_on(1);
    donors.kill(0);
    donors.kill(5);
    hold.goes_on(1);
    says(&hold.running, "all pages have 6 parts again");
    donors.kill(2);
    donors.kill(7);
    hold.goes_on(3);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS") && !complaint.contains("are lost"), "{complaint}");
}

#[test]
fn a_donor_of_a_code_that_comes_back_empty_is_filled_again() {
    let (mut donors, scene) = (Donors::start(6, "48M"), Scene::new());
    let port = free_port();
    donors.0[3] = Some(donor(3, "48M", port, &[]));
    let mut hold = Hold::start(&scene, 32, &[donors.uri(CODE)]);
    hold.goes_on(1);
    donors.kill(3);
    donors.0[3] = Some(donor(3, "48M", port, &[]));
    hold.goes_on(1);
    says(&hold.running, "has lost what it held");
    says(&hold.running, "all pages have 6 parts again");
    donors.kill(0);
    donors.kill(1);
    hold.goes_on(2);
    hold.ends_whole();
}

#[test]
fn a_stopped_donor_of_a_code_is_decoded_around_and_used_again() {
    let (donors, scene) = (Donors::start(6, "48M"), Scene::new());
    let mut hold = Hold::start(&scene, 32, &[donors.uri("?data=4&parity=2&timeout=1")]);
    hold.goes_on(1);
    donors.signal(2, Signal::STOP);
    hold.goes_on(3);
    says(&hold.running, &format!("pool: donor {} is away", donors.address(2)));
    donors.signal(2, Signal::CONT);
    says(&hold.running, &format!("pool: donor {} answers again", donors.address(2)));
    says(&hold.running, "all pages have 6 parts again");
    donors.signal(0, Signal::KILL);
    hold.goes_on(2);
    hold.ends_whole();
}

#[test]
fn processes_of_a_run_share_what_is_coded() {
    let (mut donors, scene) = (Donors::start(6, "128M"), Scene::new());
    let mut command = scene.run("16M", &[donors.uri(CODE)], c_program("fault_hold"));
    let mut hold = Hold::start_by(command.args(["16", "4"]));
    hold.goes_on(3);
    donors.kill(2);
    donors.kill(3);
    hold.goes_on(5);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn donors_get_back_what_is_dead_while_the_program_rests() {
    const MIB: u64 = 64;
    let (donors, scene) = (Donors::start(6, "96M"), Scene::new());
    let mut hold = Hold::start(&scene, MIB, &[donors.uri(CODE)]);
    // Two of three pages are written anew: donors would hold 160 MiB for 64.
    hold.goes_on(45);
    let held = || (0..6).map(|number| held_bytes(&scene, &donors.address(number))).sum::<u64>();
    // What lives and a tenth of it, and the slabs that are being filled.
    let most = (MIB * 165 / 100 + 2 * 12) << 20;
    hold.while_stopped(|| {
        until(PATIENCE, "donors to get back what is dead", || (held() <= most).then_some(()));
    });
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS") && !complaint.contains("away"), "{complaint}");
}

/// What a donor holds, in bytes.
fn held_bytes(scene: &Scene, address: &str) -> u64 {
    let seen: serde_json::Value =
        serde_json::from_str(&pool_command(scene, &["status", address, "--json"]).text()).unwrap();
    seen["donors"][0]["held_bytes"].as_u64().unwrap_or_else(|| panic!("{seen}"))
}

#[test]
fn exactly_the_pages_of_which_too_few_parts_are_left_are_lost() {
    // Two of the seven fail together: each slab has a part on one of the two, and one on each of the others.
    let (mut donors, scene) = (Donors::start(7, "48M"), Scene::new());
    let uri = donors.uri("?data=4&parity=2&reconnect=0.5&domain=a,a,b,c,d,e,f");
    let catch = Catch::start(&scene, 32, &uri);
    let held = [0, 1].map(|number| held_bytes(&scene, &donors.address(number)));
    // Slabs with parts on this one lose three, the others two.
    let of_two = usize::from(held[1] > held[0]);
    let dead = [of_two, 2, 3];
    dead.iter().for_each(|number| donors.signal(*number, Signal::STOP));
    dead.iter().for_each(|number| donors.kill(*number));
    let caught = catch.looks();
    assert_eq!(caught.right + caught.lost, 32 << 8, "{caught:?}");
    // Three dead parts of a row are at least one page and at most three of its four.
    assert!(caught.lost > 0 && caught.right >= 32 << 6, "{held:?}: {caught:?}");
}

#[test]
fn where_three_of_six_donors_die_what_they_had_is_lost_and_nothing_else() {
    let (mut donors, scene) = (Donors::start(6, "48M"), Scene::new());
    // What leaves once the pool takes nothing any more has another place.
    let further = ["--store", "ram:"];
    let catch = Catch::start_with(&scene, &further, 32, &donors.uri("?data=4&parity=2&reconnect=0.5"));
    [0, 2, 3].into_iter().for_each(|number| donors.kill(number));
    let caught = catch.looks();
    assert_eq!(caught.right + caught.lost, 32 << 8, "{caught:?}");
    // What lies whole on a donor that lives is had from it; the rest is lost.
    assert!(caught.lost > 1024 && caught.right > 1024, "{caught:?}");
}

#[test]
fn a_donor_of_a_code_is_drained() {
    let (mut donors, scene) = (Donors::start(7, "48M"), Scene::new());
    let mut hold = Hold::start(&scene, 24, &[donors.uri("?data=4&parity=2&size=32M")]);
    hold.goes_on(1);
    let leaver = donors.address(0);
    pool_command(&scene, &["drain", &leaver]).success();
    says(&hold.running, &format!("donor {leaver} is drained: nothing of this run is on it"));
    await_donors(&scene, &leaver, 1, "draining");
    donors.kill(0);
    donors.kill(1);
    donors.kill(2);
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn a_code_that_cannot_be_is_refused_in_one_line() {
    let some = |count: usize| (1..=count).map(|at| format!("10.0.0.{at}:1")).collect::<Vec<_>>().join(",");
    let (five, six) = (some(5), some(6));
    for (uri, reasons) in [
        (format!("pool:{five}{CODE}"), ["4 parts of data and 2", "6 donors", "name more donors"]),
        (format!("pool:{six}{CODE}&domain=a,a,b,c,d,e"), ["fail apart", "5 failure domains", "domain=each"]),
        (format!("pool:{six}?data=9"), ["data", "'9'", "from 1 to 8"]),
        (format!("pool:{six}?data=4&parity=0"), ["parity", "'0'", "from 1 to 3"]),
        (format!("pool:{six}{CODE}&copies=2"), ["data", "copies", "one of the two"]),
        (format!("pool:{six}?parity=2&least=2"), ["parity", "least", "one of the two"]),
    ] {
        refused(&uri, &reasons);
    }
}

#[test]
fn a_code_on_donors_that_have_too_little_is_refused_in_one_line() {
    let donors = Donors::start(6, "8M");
    refused(&donors.uri(CODE), &["4 extents", "6 failure domains", "5 to begin with", "more memory"]);
    let donors = Donors::start(6, "16M");
    refused(&donors.uri("?data=4&parity=2&size=60M"), &["were asked for", "16.0 MiB are left"]);
}
