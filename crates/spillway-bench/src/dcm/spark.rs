//! Jobs on Spark in local mode: collaborative filtering and PageRank, as of the paper's movielens and
//! twitter. A program in Python drives a Java machine, which holds the data.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde_json::json;

use crate::BenchError;
use crate::whole::conditions::Start;
use crate::whole::workload::{Measure, Site, Workload, cache_directory, installed};

/// Made once and kept in the user's cache directory.
const PACKAGES: [&str; 2] = ["pyspark==3.5.9", "numpy==2.4.6"];
const ENVIRONMENT: &str = "spillway/pyspark-3.5.9";
const PYTHON_REMEDY: &str = "install it: apt-get install python3-venv";
const JAVA_REMEDY: &str = "install it: apt-get install openjdk-17-jre-headless";
const CACHE_REMEDY: &str = "make room there, or set XDG_CACHE_HOME";
/// Sums of floating-point numbers depend on their order.
const TOLERANCE: f64 = 1e-3;

/// Which job Spark runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// Alternating least squares on ratings.
    CollaborativeFiltering,
    /// Ranks of linked pages.
    PageRank,
}

/// Spark with a job.
pub struct Spark {
    job: Job,
    python: PathBuf,
    java_home: PathBuf,
    script: PathBuf,
    expected: Vec<f64>,
}

/// What the job prints.
#[derive(Deserialize)]
struct Outcome {
    seconds: f64,
    figures: Vec<f64>,
}

impl Spark {
    /// A workload that runs this job.
    #[must_use]
    pub fn new(job: Job) -> Self {
        let nowhere = PathBuf::new;
        Self { job, python: nowhere(), java_home: nowhere(), script: nowhere(), expected: Vec::new() }
    }

    fn size(&self, site: &Site<'_>) -> serde_json::Value {
        match self.job {
            Job::CollaborativeFiltering => site.scaled(
                json!({"ratings": 600_000, "users": 20_000, "items": 4_000, "iterations": 2}),
                json!({"ratings": 3_000_000, "users": 80_000, "items": 10_000, "iterations": 8}),
                json!({"ratings": 6_000_000, "users": 160_000, "items": 20_000, "iterations": 8}),
            ),
            Job::PageRank => site.scaled(
                json!({"links": 800_000, "pages": 100_000, "iterations": 3}),
                json!({"links": 4_000_000, "pages": 400_000, "iterations": 8}),
                json!({"links": 8_000_000, "pages": 800_000, "iterations": 8}),
            ),
        }
    }

    /// Java's heap in MiB, and the part of it for what is new. Fixed, so that what the job keeps in memory
    /// does not depend on what the machine has.
    fn heap_mib(site: &Site<'_>) -> (u32, u32) {
        site.scaled((512, 96), (1024, 192), (2560, 480))
    }

    fn submit(&self, site: &Site<'_>, mut command: Command) -> Result<Outcome, BenchError> {
        let job = if self.job == Job::PageRank { "pagerank" } else { "als" };
        let (heap_mib, young_mib) = Self::heap_mib(site);
        // One compiler: a short job would be measured while it is compiled anew.
        let java = format!("-Xms{heap_mib}m -Xmn{young_mib}m -XX:+UseSerialGC -XX:TieredStopAtLevel=1");
        let settings = [
            ("spark.ui.enabled", "false"),
            ("spark.ui.showConsoleProgress", "false"),
            ("spark.driver.host", "127.0.0.1"),
            ("spark.sql.shuffle.partitions", "2"),
            ("spark.default.parallelism", "2"),
            ("spark.driver.extraJavaOptions", &java),
        ];
        let mut arguments = format!("--master local[2] --driver-memory {heap_mib}m");
        for (name, value) in settings {
            arguments.push_str(&format!(" --conf \"{name}={value}\""));
        }
        command.env("PYSPARK_SUBMIT_ARGS", arguments + " pyspark-shell").env("JAVA_HOME", &self.java_home);
        command.env("PYSPARK_PYTHON", &self.python).env("SPARK_LOCAL_DIRS", site.scratch());
        command.env("SPARK_LOCAL_IP", "127.0.0.1").current_dir(site.scratch());
        command.arg(&self.script).arg(job).arg(self.size(site).to_string());
        let text = site.output_of(&mut command)?;
        let outcome = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        outcome.ok_or_else(|| self.failed(format!("it printed '{text}'")))
    }

    fn failed(&self, reason: String) -> BenchError {
        BenchError::Measured { command: self.name().to_owned(), reason }
    }
}

/// Java 17, which this Spark is made for.
fn java_home() -> Result<PathBuf, BenchError> {
    let machines = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let is_17 = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains("-17-") && path.join("bin/java").is_file()
    };
    let found = machines.map(|machine| machine.path()).find(is_17);
    found.ok_or_else(|| BenchError::setup("find Java 17", "it is not installed", JAVA_REMEDY))
}

/// The interpreter of an environment that has PySpark, made where it is not there yet.
fn python(site: &Site<'_>) -> Result<PathBuf, BenchError> {
    let environment = cache_directory()?.join(ENVIRONMENT);
    let (python, complete) = (environment.join("bin/python"), environment.join("complete"));
    if !complete.is_file() {
        make_environment(site, &environment)?;
        fs::write(&complete, PACKAGES.join("\n"))
            .map_err(|error| BenchError::setup("keep PySpark", error, CACHE_REMEDY))?;
    }
    Ok(python)
}

fn make_environment(site: &Site<'_>, environment: &Path) -> Result<(), BenchError> {
    let mut make = Command::new(installed("python3", PYTHON_REMEDY)?);
    site.output_of(make.args(["-m", "venv", "--clear"]).arg(environment))?;
    let mut fetch = Command::new(environment.join("bin/pip"));
    site.output_of(fetch.args(["install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES))?;
    Ok(())
}

fn agree(ours: &[f64], expected: &[f64]) -> bool {
    let near = |(ours, expected): (&f64, &f64)| (ours - expected).abs() <= expected.abs() * TOLERANCE;
    ours.len() == expected.len() && ours.iter().zip(expected).all(near)
}

impl Workload for Spark {
    fn name(&self) -> &'static str {
        match self.job {
            Job::CollaborativeFiltering => "spark_als",
            Job::PageRank => "spark_pagerank",
        }
    }

    fn about(&self, site: &Site<'_>) -> String {
        let size = self.size(site);
        let data = match self.job {
            Job::CollaborativeFiltering => {
                format!("alternating least squares on {} ratings of {} users", size["ratings"], size["users"])
            }
            Job::PageRank => format!("PageRank on {} links of {} pages", size["links"], size["pages"]),
        };
        format!("PySpark, local mode, 2 threads: {data}; Java's heap is {} MiB", Self::heap_mib(site).0)
    }

    fn measure(&self) -> Measure {
        Measure::Seconds
    }

    fn prepare(&mut self, site: &Site<'_>) -> Result<(), BenchError> {
        self.java_home = java_home()?;
        self.python = python(site)?;
        self.script = site.scratch().join("spark.py");
        fs::write(&self.script, include_str!("spark.py"))
            .map_err(|error| BenchError::setup("write temporary files", error, "make room, or set TMPDIR"))?;
        // What comes out when nothing disturbs it; also brings Spark's files into the page cache.
        self.expected = self.submit(site, Command::new(&self.python))?.figures;
        Ok(())
    }

    fn run(&self, site: &Site<'_>, start: &Start<'_>) -> Result<f64, BenchError> {
        let outcome = self.submit(site, start.command(&self.python))?;
        if !agree(&outcome.figures, &self.expected) {
            let reason = format!("its result is {:?}, not {:?}", outcome.figures, self.expected);
            return Err(BenchError::Wrong { command: self.name().to_owned(), reason });
        }
        Ok(outcome.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_agree_but_for_the_order_of_sums() {
        assert!(agree(&[600_000.0, 0.700_01], &[600_000.0, 0.7]));
        assert!(!agree(&[600_000.0, 0.71], &[600_000.0, 0.7]));
        assert!(!agree(&[600_000.0], &[600_000.0, 0.7]) && !agree(&[f64::NAN], &[1.0]));
    }
}
