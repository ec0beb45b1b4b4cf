//! What a page costs over each way to a donor: ns a page, written and read one at a time and in batches of
//! 64, scattered and side by side. The donor runs in a process of its own, as it does in life.
//!
//! `cargo run --release -p spillway-donor --example lanes`

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::size::Size;
use spillway_donor::limits::Limits;
use spillway_donor::{Config, Donor};
use spillway_store::{Lane, ReadRequest, StoreSpec, WriteRequest};

type Failure = Box<dyn std::error::Error>;

/// Pages of the working set: 256 MiB, well beyond the caches.
const PAGES: u32 = 1 << 16;

fn main() -> Result<(), Failure> {
    if std::env::args().nth(1).as_deref() == Some("donor") {
        return donor();
    }
    let mut donor = Command::new(std::env::current_exe()?)
        .arg("donor")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(donor.stdout.take().ok_or("no stdout")?).lines();
    println!("{:<10} {:>6} {:>25} {:>25}", "", "", "scattered", "side by side");
    println!(
        "{:<10} {:>6} {:>12} {:>12} {:>12} {:>12}",
        "", "batch", "write ns", "read ns", "write ns", "read ns"
    );
    while let Some(Ok(uri)) = lines.next() {
        if uri.is_empty() {
            break;
        }
        // One after the other, and the donor may not have noticed the end of the last.
        let mark = if uri.contains('?') { '&' } else { '?' };
        let spec: StoreSpec = format!("{uri}{mark}size=320M").parse()?;
        let parts = spec.prepare("bench")?;
        let store = spec.open(parts, "bench")?;
        let mut lane = store.open_lane()?;
        // So that every page has its memory.
        write(&mut *lane, 64, false, PAGES)?;
        for batch in [1, 64] {
            let count = if batch == 1 { 20_000 } else { PAGES };
            let mut figures = Vec::new();
            for scattered in [true, false] {
                figures.push(best_of(3, || write(&mut *lane, batch, scattered, count))?);
                figures.push(best_of(3, || read(&mut *lane, batch, scattered, count))?);
            }
            let name = uri.split(':').next().unwrap_or("");
            let [write, read, write_run, read_run] = figures[..] else { return Err("four figures".into()) };
            println!("{name:<10} {batch:>6} {write:>12.0} {read:>12.0} {write_run:>12.0} {read_run:>12.0}");
        }
    }
    drop(donor.stdin.take());
    donor.wait()?;
    Ok(())
}

fn best_of(times: u32, mut run: impl FnMut() -> Result<f64, Failure>) -> Result<f64, Failure> {
    (0..times).map(|_| run()).try_fold(f64::MAX, |best, ns| Ok(best.min(ns?)))
}

fn slots(batch: u32, scattered: bool, round: u32) -> Vec<u32> {
    // A multiplier that is odd visits every slot once.
    (0..batch)
        .map(|n| round * batch + n)
        .map(|n| if scattered { n.wrapping_mul(40_503) } else { n } % PAGES)
        .collect()
}

fn write(lane: &mut dyn Lane, batch: u32, scattered: bool, count: u32) -> Result<f64, Failure> {
    let pages: Vec<Page> = (0..batch).map(|n| [n as u8 + 1; PAGE_SIZE]).collect();
    let begin = Instant::now();
    for round in 0..count / batch {
        let slots = slots(batch, scattered, round);
        let mut requests: Vec<_> = slots
            .iter()
            .zip(&pages)
            .map(|(slot, page)| WriteRequest { slot: *slot, page, outcome: Ok(()) })
            .collect();
        lane.write(&mut requests);
        requests.into_iter().try_for_each(|request| request.outcome)?;
    }
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(count))
}

fn read(lane: &mut dyn Lane, batch: u32, scattered: bool, count: u32) -> Result<f64, Failure> {
    let mut pages: Vec<Page> = vec![[0; PAGE_SIZE]; batch as usize];
    let begin = Instant::now();
    for round in 0..count / batch {
        let slots = slots(batch, scattered, round);
        let mut requests: Vec<_> = slots
            .iter()
            .zip(&mut pages)
            .map(|(slot, page)| ReadRequest { slot: *slot, page, outcome: Ok(()) })
            .collect();
        lane.read(&mut requests);
        requests.into_iter().try_for_each(|request| request.outcome)?;
    }
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(count))
}

/// The donor's process: its places, a line each, until stdin ends.
fn donor() -> Result<(), Failure> {
    let directory = std::env::temp_dir().join(format!("spillway-lanes-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let donor = Donor::bind(&Config {
        memory: Size::from_bytes(1 << 30),
        per_run: None,
        per_client: None,
        tls: None,
        plain: false,
        listen: vec!["127.0.0.1:0".parse()?],
        unix: Some(directory.join("socket")),
        shm: Some(format!("lanes-{}", std::process::id())),
        grace: Duration::ZERO,
        drain: Duration::ZERO,
        limits: Limits::of(16),
        force: false,
        keep_free: None,
        protect: false,
    })?;
    let places: Vec<String> = donor.places().map(ToString::to_string).collect();
    println!("{}\n", places.join("\n"));
    std::io::stdout().flush()?;
    let ended = donor.serve(std::io::stdin().as_fd(), &AtomicBool::new(false));
    std::fs::remove_dir(&directory)?;
    ended?;
    Ok(())
}
