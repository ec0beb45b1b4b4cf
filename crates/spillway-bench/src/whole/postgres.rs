//! PostgreSQL for the time of a measurement: its server, with data of its own, and clients.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::BenchError;
use crate::measured::{Ended, wait};
use crate::whole::conditions::Start;
use crate::whole::workload::{LONGEST, Latency, Site, installed};

const REMEDY: &str = "install it: apt-get install postgresql";
/// What a stored procedure says that finds a wrong result.
pub(crate) const WRONG: &str = "the books do not agree";

/// PostgreSQL with its data.
#[derive(Default)]
pub(crate) struct Postgres {
    programs: PathBuf,
    home: PathBuf,
    as_postgres: Vec<String>,
    /// Further settings of the server.
    settings: Vec<String>,
}

/// What the clients of a server saw.
pub(crate) struct Driven {
    /// Transactions a second, of all sessions.
    pub(crate) per_second: f64,
    pub(crate) latency: Latency,
}

/// A server that answers.
pub(crate) struct Server<'a> {
    postgres: &'a Postgres,
    site: &'a Site<'a>,
    process: Ended,
}

pub(crate) fn failed(what: &str, reason: impl std::fmt::Display) -> BenchError {
    BenchError::Measured { command: what.to_owned(), reason: reason.to_string() }
}

/// A session that finds a wrong result ([`WRONG`]) is told from one that is merely lost.
pub(crate) fn told_from_wrong(error: BenchError) -> BenchError {
    match error {
        BenchError::Measured { reason, .. } if reason.contains(WRONG) => {
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
    /// Makes the data that every run begins with: `sql` is carried out, to define what clients call.
    pub(crate) fn prepare(
        site: &Site<'_>,
        name: &str,
        settings: &[String],
        sql: &str,
    ) -> Result<Self, BenchError> {
        let mut new = Self { programs: programs()?, home: site.scratch().join(name), ..Self::default() };
        new.settings = settings.to_vec();
        fs::create_dir_all(&new.home).map_err(|error| failed("postgres", error))?;
        if rustix::process::getuid().is_root() {
            let setpriv =
                installed("setpriv", "install it: apt-get install util-linux")?.display().to_string();
            let user = ["--reuid=postgres", "--regid=postgres", "--clear-groups"];
            new.as_postgres = [setpriv.as_str()].into_iter().chain(user).map(str::to_owned).collect();
            let (user, group) = postgres_ids()
                .ok_or_else(|| BenchError::setup("find the user 'postgres'", "there is none", REMEDY))?;
            chown(&new.home, Some(user), Some(group)).map_err(|error| failed("postgres", error))?;
        }
        let data = new.data("defined");
        let mut initdb = new.as_user(&new.programs.join("initdb"), None);
        initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "-D"]).arg(&data).current_dir("/");
        site.output_of(&mut initdb)?;
        let server = new.serve(site, &data, None)?;
        server.define(sql)?;
        server.stop()?;
        Ok(new)
    }

    /// A server with that data, which nothing disturbs.
    pub(crate) fn start_alone<'a>(&'a self, site: &'a Site<'a>) -> Result<Server<'a>, BenchError> {
        self.serve(site, &self.data("defined"), None)
    }

    /// A server with a copy of that data.
    pub(crate) fn start<'a>(
        &'a self,
        site: &'a Site<'a>,
        start: &Start<'_>,
    ) -> Result<Server<'a>, BenchError> {
        let data = self.data("data");
        let _ = fs::remove_dir_all(&data);
        site.output_of(Command::new("cp").arg("-a").arg(self.data("defined")).arg(&data))?;
        self.serve(site, &data, Some(start))
    }

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
        command.args(["-c", "huge_pages=off", "-c", "jit=off"]);
        self.settings.iter().for_each(|setting| _ = command.args(["-c", setting]));
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
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

/// How long each transaction took, of pgbench's logs in a directory, which is emptied.
fn waits_us(directory: &Path) -> std::io::Result<Vec<f64>> {
    let mut waits = Vec::new();
    for file in fs::read_dir(directory)? {
        let path = file?.path();
        waits.extend(fs::read_to_string(&path)?.lines().filter_map(wait_us));
        fs::remove_file(path)?;
    }
    Ok(waits)
}

/// A line has the client, the transaction's number, and its microseconds.
fn wait_us(line: &str) -> Option<f64> {
    line.split(' ').nth(2)?.parse().ok()
}

impl Server<'_> {
    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.postgres.programs.join(program));
        command.arg("-h").arg(&self.postgres.home).args(["-U", "postgres"]).current_dir("/");
        command
    }

    /// What the server answers to a query.
    pub(crate) fn ask(&self, sql: &str) -> Result<String, BenchError> {
        let mut command = self.client("psql");
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, "postgres"]);
        self.site.output_of(&mut command).map(|text| text.trim().to_owned())
    }

    /// Carries out statements in SQL.
    fn define(&self, text: &str) -> Result<(), BenchError> {
        let sql = self.site.scratch().join("define.sql");
        fs::write(&sql, text).map_err(|error| failed("psql", error))?;
        let mut command = self.client("psql");
        command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(&sql).arg("postgres");
        self.site.output_of(&mut command).map(|_| ())
    }

    /// Runs `transactions` in each of so many sessions, drawn from scripts by their names and weights. `more`
    /// are further arguments of pgbench(1).
    pub(crate) fn drive(
        &self,
        (clients, transactions): (u32, u32),
        scripts: &[(&str, u32, String)],
        more: &[String],
    ) -> Result<Driven, BenchError> {
        let log = self.site.scratch().join("transactions");
        std::fs::create_dir_all(&log).map_err(|error| failed("pgbench", error))?;
        let mut command = self.client("pgbench");
        command.arg("-l").arg(format!("--log-prefix={}", log.join("log").display()));
        command.args(["-n", "-M", "prepared", "-c", &clients.to_string()]);
        command.args(["-t", &transactions.to_string(), "--random-seed=1", "-D", "number=0"]);
        command.arg("-D").arg(format!("transactions={transactions}")).args(more);
        for (name, weight, script) in scripts {
            let path = self.site.scratch().join(format!("{name}.sql"));
            fs::write(&path, script).map_err(|error| failed("pgbench", error))?;
            command.arg("-f").arg(format!("{}@{weight}", path.display()));
        }
        let text = self.site.output_of(command.arg("postgres")).map_err(told_from_wrong)?;
        let tps = text.lines().find_map(|line| line.strip_prefix("tps = "));
        let tps = tps.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let all = clients * transactions;
        if !text.contains(&format!("number of transactions actually processed: {all}/{all}")) {
            return Err(failed("pgbench", "transactions have failed"));
        }
        let silent = || failed("pgbench", "it does not say how long the transactions took");
        let waits_us = waits_us(&log).map_err(|error| failed("pgbench", error))?;
        Ok(Driven { per_second: tps.ok_or_else(silent)?, latency: Latency::of(waits_us).ok_or_else(silent)? })
    }

    /// Ends the server by a fast shutdown.
    pub(crate) fn stop(mut self) -> Result<(), BenchError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pgbenchs_logs_say_how_long_transactions_took() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("log.1"), "0 1 250 0 17 9\n1 1 350 0 17 10\n").unwrap();
        assert_eq!(waits_us(directory.path()).unwrap(), [250.0, 350.0]);
        assert_eq!(waits_us(directory.path()).unwrap(), [0.0; 0], "a log is read once");
    }
}
