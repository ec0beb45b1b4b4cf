//! PostgreSQL under a load like TPC-C: processes made by fork, each of which serves a session.
//!
//! It keeps lasting tables in shared memory, which Spillway leaves local. So each session has a warehouse of
//! its own in temporary tables, which lie in the memory of its process, as the partitions of the paper's
//! VoltDB do.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::BenchError;
use crate::measured::{Ended, wait};
use crate::whole::conditions::Start;
use crate::whole::workload::{LONGEST, Measure, Site, Workload, installed};

const REMEDY: &str = "install it: apt-get install postgresql";
const CLIENTS: u32 = 4;
/// TPC-C's mix: how many of a hundred transactions are of each kind.
const MIX: [(&str, u32, &str); 5] = [
    ("new_order", 45, "select new_order(:d, :c, :lines, :items)"),
    ("payment", 43, "select payment(:d, :c, 100 + :c)"),
    ("order_status", 4, "select order_status(:d, :c)"),
    ("delivery", 4, "select delivery()"),
    ("stock_level", 4, "select stock_level(:d)"),
];
/// A session makes its warehouse before its first transaction, and checks its books after the last. What a
/// transaction draws is as in TPC-C's clause 2.1.6.
const FIRST: &str = "\\set number :number + 1
\\if :number = 1
select load(:customers, :items);
\\endif
\\set d random(1, 10)
\\set c ((random(0, 1023) | random(1, :customers)) % :customers) + 1
\\set lines random(5, 15)
";
const LAST: &str = "\\if :number = :transactions
select close_books(:customers, :items);
\\endif
";

/// PostgreSQL with its data.
#[derive(Default)]
pub struct Postgres {
    programs: PathBuf,
    home: PathBuf,
    as_postgres: Vec<String>,
}

/// A server that answers.
struct Server<'a> {
    postgres: &'a Postgres,
    site: &'a Site<'a>,
    process: Ended,
}

struct Scale {
    customers: u32,
    items: u32,
    /// How many each session does.
    transactions: u32,
    temp_buffers_mib: u32,
}

fn scale(site: &Site<'_>) -> Scale {
    site.pick(
        Scale { customers: 1_000, items: 50_000, transactions: 1_500, temp_buffers_mib: 64 },
        Scale { customers: 3_000, items: 100_000, transactions: 15_000, temp_buffers_mib: 256 },
    )
}

fn failed(what: &str, reason: impl std::fmt::Display) -> BenchError {
    BenchError::Measured { command: what.to_owned(), reason: reason.to_string() }
}

/// A session whose books do not agree (`tpcc.sql`) has a wrong result; else it is merely lost.
fn told_from_wrong(error: BenchError) -> BenchError {
    match error {
        BenchError::Measured { reason, .. } if reason.contains("the books do not agree") => {
            BenchError::Wrong { command: "postgres".to_owned(), reason }
        }
        other => other,
    }
}

/// Where PostgreSQL's programs lie.
fn programs() -> Result<PathBuf, BenchError> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found =
        versions.map(|version| version.path().join("bin")).filter(|bin| bin.join("pgbench").is_file());
    found.max().ok_or_else(|| BenchError::setup("find PostgreSQL", "it is not installed", REMEDY))
}

/// The ids of PostgreSQL's user.
fn postgres_ids() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut ids = line.split(':').skip(2).map(str::parse);
    Some((ids.next()?.ok()?, ids.next()?.ok()?))
}

impl Postgres {
    fn data(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// A command that runs as PostgreSQL's user: it does not run as root.
    fn as_user(&self, program: &Path, start: Option<&Start<'_>>) -> Command {
        let begin =
            |program: &Path| start.map_or_else(|| Command::new(program), |start| start.command(program));
        match self.as_postgres.split_first() {
            Some((setpriv, rest)) => {
                let mut command = begin(Path::new(setpriv));
                command.args(rest).arg(program);
                command
            }
            None => begin(program),
        }
    }

    /// Starts a server on this directory of data.
    fn serve<'a>(
        &'a self,
        site: &'a Site<'a>,
        data: &Path,
        start: Option<&Start<'_>>,
    ) -> Result<Server<'a>, BenchError> {
        let mut command = self.as_user(&self.programs.join("postgres"), start);
        command.arg("-D").arg(data).arg("-k").arg(&self.home).args(["-h", ""]);
        command.args(["-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=40"]);
        command.args(["-c", "huge_pages=off", "-c", "jit=off", "-c"]);
        command.arg(format!("temp_buffers={}MB", scale(site).temp_buffers_mib));
        let log = self.home.join("log");
        let file = fs::File::create(&log).map_err(|error| failed("postgres", error))?;
        let output = file.try_clone().map_err(|error| failed("postgres", error))?;
        command.stdin(Stdio::null()).stdout(output).stderr(file).current_dir("/");
        let child = command.spawn().map_err(|error| failed("postgres", error))?;
        let mut server = Server { postgres: self, site, process: Ended(child) };
        let started = Instant::now();
        while server.ask("select 1").is_err() {
            let ended = matches!(server.process.0.try_wait(), Ok(Some(_)) | Err(_));
            if ended || started.elapsed() > Duration::from_secs(120) {
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(failed("postgres", said.lines().last().unwrap_or("it does not answer")));
            }
            if site.interrupted.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }
}

impl Server<'_> {
    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.postgres.programs.join(program));
        command.arg("-h").arg(&self.postgres.home).args(["-U", "postgres"]).current_dir("/");
        command
    }

    fn ask(&self, sql: &str) -> Result<String, BenchError> {
        let mut command = self.client("psql");
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, "postgres"]);
        self.site.output_of(&mut command).map(|text| text.trim().to_owned())
    }

    /// Defines the transactions as stored procedures.
    fn define(&self) -> Result<(), BenchError> {
        let sql = self.site.scratch().join("tpcc.sql");
        fs::write(&sql, include_str!("tpcc.sql")).map_err(|error| failed("psql", error))?;
        let mut command = self.client("psql");
        command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(&sql).arg("postgres");
        self.site.output_of(&mut command).map(|_| ())
    }

    /// Runs the sessions; the transactions a second.
    fn drive(&self, scale: &Scale) -> Result<f64, BenchError> {
        let mut command = self.client("pgbench");
        command.args(["-n", "-M", "prepared", "-c", &CLIENTS.to_string()]);
        command.args(["-t", &scale.transactions.to_string(), "--random-seed=1", "-D", "number=0"]);
        let Scale { customers, items, transactions, .. } = scale;
        for (name, value) in [("customers", customers), ("items", items), ("transactions", transactions)] {
            command.arg("-D").arg(format!("{name}={value}"));
        }
        for (name, weight, sql) in MIX {
            let path = self.site.scratch().join(format!("{name}.sql"));
            fs::write(&path, format!("{FIRST}{sql};\n{LAST}")).map_err(|error| failed("pgbench", error))?;
            command.arg("-f").arg(format!("{}@{weight}", path.display()));
        }
        let text = self.site.output_of(command.arg("postgres")).map_err(told_from_wrong)?;
        let tps = text.lines().find_map(|line| line.strip_prefix("tps = "));
        let tps = tps.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let all = CLIENTS * transactions;
        if !text.contains(&format!("number of transactions actually processed: {all}/{all}")) {
            return Err(failed("pgbench", "transactions have failed"));
        }
        tps.ok_or_else(|| failed("pgbench", "it does not say how many transactions there were"))
    }

    /// Ends the server by a fast shutdown.
    fn stop(mut self) -> Result<(), BenchError> {
        let _ = kill_process(Pid::from_child(&self.process.0), Signal::INT);
        wait(&mut self.process, "postgres", LONGEST, self.site.interrupted).map(|_| ())
    }
}

impl Drop for Server<'_> {
    /// Only its first process is our child, and the others end with it when it ends in its own way.
    fn drop(&mut self) {
        if matches!(self.process.0.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.process.0), Signal::QUIT);
            let started = Instant::now();
            while matches!(self.process.0.try_wait(), Ok(None)) && started.elapsed() < Duration::from_secs(20)
            {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

impl Workload for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn about(&self, site: &Site<'_>) -> String {
        let scale = scale(site);
        format!(
            "PostgreSQL, {CLIENTS} sessions that each load a warehouse of {} items into temporary tables and \
             do {} transactions like TPC-C's; the memory of its processes is far, its shared memory is not",
            scale.items, scale.transactions
        )
    }

    fn measure(&self) -> Measure {
        Measure::PerSecond
    }

    fn prepare(&mut self, site: &Site<'_>) -> Result<(), BenchError> {
        self.programs = programs()?;
        self.home = site.scratch().join("postgres");
        fs::create_dir_all(&self.home).map_err(|error| failed("postgres", error))?;
        if rustix::process::getuid().is_root() {
            let setpriv =
                installed("setpriv", "install it: apt-get install util-linux")?.display().to_string();
            let user = ["--reuid=postgres", "--regid=postgres", "--clear-groups"];
            self.as_postgres = [setpriv.as_str()].into_iter().chain(user).map(str::to_owned).collect();
            let (user, group) = postgres_ids()
                .ok_or_else(|| BenchError::setup("find the user 'postgres'", "there is none", REMEDY))?;
            chown(&self.home, Some(user), Some(group)).map_err(|error| failed("postgres", error))?;
        }
        let data = self.data("defined");
        let mut initdb = self.as_user(&self.programs.join("initdb"), None);
        initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "-D"]).arg(&data).current_dir("/");
        site.output_of(&mut initdb)?;
        let server = self.serve(site, &data, None)?;
        server.define()?;
        server.stop()
    }

    fn run(&self, site: &Site<'_>, start: &Start<'_>) -> Result<f64, BenchError> {
        // Every run begins with the same files.
        let data = self.data("data");
        let _ = fs::remove_dir_all(&data);
        site.output_of(Command::new("cp").arg("-a").arg(self.data("defined")).arg(&data))?;
        let server = self.serve(site, &data, Some(start))?;
        let tps = server.drive(&scale(site))?;
        server.stop()?;
        Ok(tps)
    }
}
