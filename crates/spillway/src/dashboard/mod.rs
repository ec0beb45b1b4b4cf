//! `spillway dashboard`: what runs on this machine, in a browser.
//!
//! The page, its script and its style are in this directory, and in the command; they ask for `/rows.json`
//! once a second: what `spillway top --once --json` prints, and for `/heat.json`, pictures of memory over
//! time and address ([`heat`]); and for `/pool.json`, of pools that were named ([`Pools`]). Nothing can be
//! changed from there.

mod heat;

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use spillway_snapshot::reader;
use spillway_snapshot::server::{Bounds, Server};

use crate::dashboard::heat::Maps;
use crate::exit::{Refusal, complain};
use crate::pool::{Pools, PoolsArgs};
use crate::stop;
use crate::tier::print;
use crate::top::rates::Looks;
use crate::watch::endpoint::{Endpoint, Place};
use crate::watch::http::{self, Content};

const EXAMPLE: &str = "\
Example:
  spillway dashboard
  spillway dashboard --listen 127.0.0.1:9000
  spillway dashboard --pool etcd://10.0.0.9:2379/lab

It shows what 'spillway top' shows, of what its user may see, and changes
nothing. It listens on this machine alone unless told otherwise: whoever reaches
it sees the names and sizes of programs. From another machine:
  ssh -L 8080:127.0.0.1:8080 MACHINE

Exit status: 0 at Ctrl-C; 1 if it cannot listen.";

/// All that can be asked for.
const PATHS: [&str; 6] = ["/", "/dashboard.js", "/dashboard.css", "/rows.json", "/heat.json", "/pool.json"];
/// Looks are at least this far apart, however many ask: rates of less say little.
const FRESH: Duration = Duration::from_millis(900);
/// A first look has no rates: the second comes after so long.
const SECOND_LOOK: Duration = Duration::from_millis(300);

/// Show what runs on this machine in a browser.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct DashboardArgs {
    /// Listen there: ADDR:PORT, or :PORT (of this machine alone)
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    listen: Place,
    #[command(flatten)]
    pools: PoolsArgs,
}

/// Serves, until a signal ends it.
pub fn run(args: &DashboardArgs) -> ExitCode {
    serve(args).unwrap_or_else(|(status, text)| {
        complain(format!("dashboard: {text}"));
        ExitCode::from(status)
    })
}

fn serve(args: &DashboardArgs) -> Result<ExitCode, Refusal> {
    let failed = |error: io::Error| (1, error.to_string());
    let endpoint = Endpoint::bind(&args.listen).map_err(|error| (1, format!("--listen {error}")))?;
    let stop = stop::on(&[SIGHUP, SIGINT, SIGTERM]).map_err(failed)?;
    print(&format!("{}\n", endpoint.url("/")))?;
    if is_seen_by_others(&args.listen) {
        complain("dashboard: other machines may ask too: they see the names and sizes of programs");
    }
    let mut server = Server::new(vec![endpoint.listener().map_err(failed)?], Bounds::default());
    let pools = Pools::watch(&args.pools, FRESH).map_err(failed)?;
    let mut seen = Seen::default();
    let mut answering = |_, received: &[u8], is_full| {
        http::answer(received, is_full, endpoint.host_names(), &PATHS, |path| {
            content(path, &mut seen, &pools)
        })
    };
    loop {
        match server.turn(Some(stop.as_fd()), None, &mut answering) {
            Ok(true) => return Ok(ExitCode::SUCCESS),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The kernel has no memory to wait with: readers can wait.
            Err(_) => std::thread::sleep(Duration::from_secs(1)),
        }
    }
}

fn is_seen_by_others(place: &Place) -> bool {
    match place {
        Place::Tcp { host, .. } => {
            let is_loopback = host.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| ip.is_loopback());
            host != "localhost" && !is_loopback.unwrap_or(false)
        }
        Place::Unix(_) => false,
    }
}

fn content(path: &str, seen: &mut Seen, pools: &Pools) -> Content {
    let (kind, body) = match path {
        "/" => ("text/html; charset=utf-8", include_str!("dashboard.html").to_owned()),
        "/dashboard.js" => ("text/javascript; charset=utf-8", include_str!("dashboard.js").to_owned()),
        "/dashboard.css" => ("text/css; charset=utf-8", include_str!("dashboard.css").to_owned()),
        "/heat.json" => ("application/json", seen.maps.json()),
        "/pool.json" => ("application/json", pools.json()),
        _ => ("application/json", seen.rows()),
    };
    Content { kind, body }
}

/// What was seen last, for all who ask within [`FRESH`].
#[derive(Default)]
struct Seen {
    looks: Looks,
    last: Option<Instant>,
    json: String,
    maps: Maps,
}

impl Seen {
    fn rows(&mut self) -> String {
        if self.last.is_none_or(|last| last.elapsed() >= FRESH) {
            if self.last.is_none() {
                self.looks.take(reader::look());
                std::thread::sleep(SECOND_LOOK);
            }
            self.looks.take(reader::look());
            self.last = Some(Instant::now());
            self.json = serde_json::to_string(self.looks.seen()).unwrap_or_default();
        }
        self.json.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_leads_to_something_of_its_kind() {
        let mut seen = Seen { last: Some(Instant::now()), json: "{}".to_owned(), ..Seen::default() };
        let pools = Pools::watch(&PoolsArgs::default(), FRESH).unwrap();
        let json = ["application/json"; 3];
        let kinds = ["text/html", "text/javascript", "text/css"].into_iter().chain(json);
        for (path, kind) in PATHS.into_iter().zip(kinds) {
            let content = content(path, &mut seen, &pools);
            assert!(content.kind.starts_with(kind) && !content.body.is_empty(), "{path}");
        }
    }

    #[test]
    fn only_addresses_of_this_machine_alone_are_its_own() {
        for (place, expected) in [
            (":8080", false),
            ("127.0.0.1:1", false),
            ("[::1]:1", false),
            ("localhost:1", false),
            ("0.0.0.0:1", true),
            ("10.1.2.3:1", true),
            ("unix:/x", false),
        ] {
            assert_eq!(is_seen_by_others(&place.parse().unwrap()), expected, "{place}");
        }
    }
}
