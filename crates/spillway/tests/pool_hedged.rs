//! A pool of which one donor becomes slow: reads are asked of another donor too, or of others from which the
//! page can be decoded, the first answer counts, and no late answer is taken for another page's.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod support;

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use fault_common::{Hold, Scene};
use pool_common::slow::SlowWay;
use pool_common::{Donors, says, stores_of};
use serde_json::Value;

const LATE: Duration = Duration::from_millis(200);

/// Donors, each reached by a way that can be made slow.
struct Pool {
    _donors: Donors,
    ways: Vec<SlowWay>,
    uri: String,
}

impl Pool {
    /// The way to the donor of which a run has read most: by chance another may hold nothing that is read.
    fn most_read(&self, scene: &Scene, run: &impl Display) -> &SlowWay {
        let stores = stores_of(scene, run);
        let read = |way: &&SlowWay| of_donor(&stores, way, "fetched_pages");
        let way = self.ways.iter().max_by_key(read).unwrap();
        assert!(read(&way) > 0, "{stores:?}");
        way
    }
}

fn pool() -> Pool {
    pool_of(3, "")
}

fn coded_pool() -> Pool {
    pool_of(6, "?data=4&parity=2")
}

fn pool_of(count: usize, query: &str) -> Pool {
    let donors = Donors::start(count, "64M");
    let way = |number| SlowWay::to(&donors.address(number), &format!("127.0.0.{}", 20 + number));
    let ways: Vec<SlowWay> = (0..count).map(way).collect();
    let all: Vec<String> = ways.iter().map(|way| way.address.to_string()).collect();
    Pool { _donors: donors, ways, uri: format!("pool:{}{query}", all.join(",")) }
}

/// A program that reads its memory when it is told to, and says how long its faults took.
struct Reader {
    child: Child,
    orders: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Reader {
    fn start(scene: &Scene, uri: &str) -> Self {
        let mut command = scene.run("6M", &[uri], scene.spillway());
        command.args(["bench", "pool-reads", "--memory", "24M"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (orders, said) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut reader = Self { child, orders, said };
        assert_eq!(reader.line(), "ready");
        reader
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Reads for so long; the number of faults, and how long 99 of a hundred took at most.
    fn read(&mut self, milliseconds: u64) -> (u64, f64) {
        writeln!(self.orders, "{milliseconds}").unwrap();
        let times: Value = serde_json::from_str(&self.line()).unwrap();
        (times["faults"].as_u64().unwrap(), times["p99_us"].as_f64().unwrap())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A number of the donor at the end of a way.
fn of_donor(stores: &[Value], way: &SlowWay, key: &str) -> u64 {
    let uri = format!("donor:{}", way.address);
    let donor = stores.iter().find(|store| store["uri"] == uri);
    donor.unwrap_or_else(|| panic!("no {uri} in {stores:?}"))[key].as_u64().unwrap()
}

#[test]
fn faults_stay_quick_when_one_donor_answers_in_200_ms() {
    let (pool, scene) = (pool(), Scene::new());
    let mut reader = Reader::start(&scene, &pool.uri);
    let (faults, healthy_us) = reader.read(300);
    assert!(faults > 100, "{faults}");
    let way = pool.most_read(&scene, &reader.child.id());
    way.be_late(LATE);
    // A third of the pages is read there first as long as it is quick.
    let (faults, slow_us) = reader.read(1_000);
    eprintln!("p99 {healthy_us} us, and {slow_us} us of {faults} with one donor at 200 ms");
    assert!(slow_us < 50_000.0, "p99 {healthy_us} us, and {slow_us} us with one donor at 200 ms");
    assert!(faults > 200, "{faults}");
    // Its reads that were asked of another too.
    assert!(of_donor(&stores_of(&scene, &reader.child.id()), way, "hedged_reads") > 0);
    // It is quick again, and read again.
    way.be_late(Duration::ZERO);
    reader.read(500);
}

#[test]
fn coded_pages_are_decoded_past_a_donor_that_answers_in_200_ms() {
    let (pool, scene) = (coded_pool(), Scene::new());
    let mut reader = Reader::start(&scene, &pool.uri);
    let (faults, _) = reader.read(300);
    assert!(faults > 100, "{faults}");
    let way = pool.most_read(&scene, &reader.child.id());
    way.be_late(LATE);
    // A sixth of the pages is there: if each were waited for, there would be 30 faults a second.
    let (faults, slow_us) = reader.read(1_500);
    eprintln!("p99 {slow_us} us of {faults} with one donor of six at 200 ms");
    assert!(faults > 150, "{faults}");
    // Its reads that were asked of another too.
    assert!(of_donor(&stores_of(&scene, &reader.child.id()), way, "hedged_reads") > 0);
    // It is quick again, and read again.
    way.be_late(Duration::ZERO);
    reader.read(500);
}

#[test]
fn no_late_answer_is_taken_for_another_pages() {
    stays_right(&pool());
}

#[test]
fn no_late_answer_is_taken_for_another_coded_page() {
    stays_right(&coded_pool());
}

/// Every byte of a program stays right while a donor is late at times.
fn stays_right(pool: &Pool) {
    let scene = Scene::new();
    let mut hold = Hold::start(&scene, 24, &[&pool.uri]);
    hold.goes_on(1);
    let way = pool.most_read(&scene, &hold.running.pid().as_raw_pid());
    for late in [LATE, Duration::ZERO, Duration::from_millis(15), Duration::ZERO, LATE] {
        way.be_late(late);
        hold.goes_on(1);
    }
    way.be_late(Duration::ZERO);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn a_donor_that_falls_silent_for_good_is_left_by_hedges_and_then_for_dead() {
    let (pool, scene) = (pool(), Scene::new());
    let mut hold = Hold::start(&scene, 24, &[format!("{}?timeout=0.5", pool.uri)]);
    hold.goes_on(1);
    let way = pool.most_read(&scene, &hold.running.pid().as_raw_pid());
    way.be_late(Duration::from_secs(600));
    hold.goes_on(2);
    says(&hold.running, &format!("pool: donor {} is away", way.address));
    hold.ends_whole();
}
