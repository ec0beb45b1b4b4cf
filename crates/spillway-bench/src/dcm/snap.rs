//! SNAP aligns reads to a genome: it loads an index from a file, page after page, and then looks seeds up all
//! over it.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::BenchError;
use crate::access::mix;
use crate::whole::conditions::Start;
use crate::whole::workload::{Measure, Site, Stage, Workload, installed};

const REMEDY: &str = "install it: apt-get install snap-aligner";
const READ_LENGTH: usize = 100;
/// One base of so many is read wrong.
const WRONG_EVERY: u64 = 100;
/// Threads that align where no other number is asked for.
pub const USUAL_THREADS: u32 = 2;
/// `bench dcm` aligns so many.
const PAPER_READS: usize = 11_000_000;
/// Its alignments when nothing disturbs it; written last of all inputs.
const EXPECTED: &str = "expected";
const NO_ROOM: &str = "make room, or set TMPDIR";

/// SNAP with its inputs.
pub struct Snap {
    threads: u32,
    program: PathBuf,
    index: PathBuf,
    reads: PathBuf,
    expected: String,
    /// Of the run before.
    stages: RefCell<Vec<Stage>>,
}

impl Default for Snap {
    fn default() -> Self {
        Self::with_threads(USUAL_THREADS)
    }
}

fn bases(site: &Site<'_>) -> usize {
    site.scaled(16_000_000, 200_000_000, 200_000_000)
}

fn read_count(site: &Site<'_>) -> usize {
    site.scaled(20_000, 1_000_000, PAPER_READS)
}

fn genome(bases: usize) -> Vec<u8> {
    // 32 bases from each drawn word.
    let words = (0..bases.div_ceil(32)).map(|at| mix(at as u64 + 1));
    let letters = words.flat_map(|word| (0..32).map(move |at| b"ACGT"[(word >> (2 * at) & 3) as usize]));
    letters.take(bases).collect()
}

/// A read: where a machine would have found these bases, some of them wrong.
fn read(genome: &[u8], number: usize) -> Vec<u8> {
    let draw = mix(number as u64 ^ 0x5eed_0000_0000);
    let at = (draw % (genome.len() - READ_LENGTH) as u64) as usize;
    let mut read = genome[at..at + READ_LENGTH].to_vec();
    for (place, base) in read.iter_mut().enumerate() {
        let draw = mix(draw ^ place as u64);
        if draw.is_multiple_of(WRONG_EVERY) {
            *base = b"ACGT"[(draw >> 60 & 3) as usize];
        }
    }
    read
}

fn write_inputs(site: &Site<'_>, fasta: &Path, reads: &Path) -> std::io::Result<()> {
    let genome = genome(bases(site));
    let mut file = BufWriter::new(File::create(fasta)?);
    writeln!(file, ">chromosome1")?;
    for line in genome.chunks(100) {
        file.write_all(line)?;
        file.write_all(b"\n")?;
    }
    file.flush()?;
    let mut file = BufWriter::new(File::create(reads)?);
    let quality = "I".repeat(READ_LENGTH);
    for number in 0..read_count(site) {
        let read = read(&genome, number);
        writeln!(file, "@read{number}\n{}\n+\n{quality}", String::from_utf8_lossy(&read))?;
    }
    file.flush()
}

/// How many reads were aligned how well, of what SNAP prints: the line below "Total Reads", without the time
/// it took.
fn alignments(text: &str) -> Option<String> {
    let line = text.lines().skip_while(|line| !line.starts_with("Total Reads")).nth(1)?;
    let end = line.rfind("%)")? + 2;
    Some(line[..end].split_whitespace().collect::<Vec<_>>().join(" "))
}

/// How long it took to align these, of what SNAP prints: the number of reads and how many it did a second.
fn aligning_seconds(text: &str) -> Option<f64> {
    let line = text.lines().skip_while(|line| !line.starts_with("Total Reads")).nth(1)?;
    let number = |word: &str| word.replace(',', "").parse::<f64>().ok();
    let reads = number(line.split_whitespace().next()?)?;
    // The last two columns are how many it did a second, and whole seconds.
    let per_second = number(line.split_whitespace().rev().nth(1)?)?;
    (per_second > 0.0).then(|| reads / per_second)
}

/// Has the kernel read files, so that no run waits for the disk.
fn bring_in(directory: &Path, file: &Path) -> std::io::Result<()> {
    let paths = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path()));
    for path in paths.chain([Ok(file.to_path_buf())]) {
        std::io::copy(&mut File::open(path?)?, &mut std::io::sink())?;
    }
    Ok(())
}

impl Snap {
    /// Aligns with so many threads.
    #[must_use]
    pub fn with_threads(threads: u32) -> Self {
        let nowhere = PathBuf::new;
        let (program, index, reads) = (nowhere(), nowhere(), nowhere());
        Self { threads, program, index, reads, expected: String::new(), stages: RefCell::default() }
    }

    /// Makes genome, reads and index, and what it aligns when nothing disturbs it.
    fn make_inputs(&self, site: &Site<'_>, directory: &Path) -> Result<String, BenchError> {
        let no_room = |error| BenchError::setup("write a genome", error, NO_ROOM);
        let fasta = directory.join("genome.fa");
        write_inputs(site, &fasta, &self.reads).map_err(no_room)?;
        let mut index = Command::new(&self.program);
        site.output_of(index.arg("index").arg(&fasta).arg(&self.index).arg("-t2"))?;
        let _ = fs::remove_file(&fasta);
        let mut alone = self.aligning(Command::new(&self.program));
        let expected = alignments(&site.output_of(&mut alone)?).unwrap_or_default();
        fs::write(directory.join(EXPECTED), &expected).map_err(no_room)?;
        Ok(expected)
    }

    fn aligning(&self, mut command: Command) -> Command {
        command.arg("single").arg(&self.index).arg(&self.reads).arg("-t").arg(self.threads.to_string());
        command.args(["-o", "-sam", "/dev/null"]);
        // Read into its own memory, as the paper has it; mapped, the index would be pages of a file, which
        // nobody needs to keep elsewhere.
        command.arg("-map-");
        command
    }

    fn align(&self, site: &Site<'_>, start: &Start<'_>) -> Result<(f64, String), BenchError> {
        let mut command = self.aligning(start.command(&self.program));
        let started = Instant::now();
        let text = site.output_of(&mut command)?;
        let seconds = started.elapsed().as_secs_f64();
        let found = alignments(&text).ok_or_else(|| BenchError::Measured {
            command: format!("{command:?}"),
            reason: "it does not say how many reads it aligned".to_owned(),
        })?;
        // What is not aligning is loading, but for what it takes to start.
        *self.stages.borrow_mut() = aligning_seconds(&text).map_or_else(Vec::new, |aligning| {
            let stages = [("loading", (seconds - aligning).max(0.0)), ("alignment", aligning)];
            stages.map(|(name, seconds)| Stage { name: name.to_owned(), seconds }).into()
        });
        Ok((seconds, found))
    }
}

impl Workload for Snap {
    fn name(&self) -> &'static str {
        "snap"
    }

    fn about(&self, site: &Site<'_>) -> String {
        format!(
            "SNAP loads the index of a generated genome of {} million bases and aligns {} reads of \
             {READ_LENGTH} bases, {} thread(s)",
            bases(site) / 1_000_000,
            read_count(site),
            self.threads
        )
    }

    fn measure(&self) -> Measure {
        Measure::Seconds
    }

    fn prepare(&mut self, site: &Site<'_>) -> Result<(), BenchError> {
        self.program = installed("snap-aligner", REMEDY)?;
        // Of these bases and reads, by whatever number of threads.
        let directory = site.inputs(&format!("snap-{}-{}", bases(site), read_count(site)))?;
        self.index = directory.join("index");
        self.reads = directory.join("reads.fq");
        self.expected = match fs::read_to_string(directory.join(EXPECTED)) {
            Ok(expected) => {
                let failed = |error| BenchError::setup("read the inputs that were kept", error, NO_ROOM);
                bring_in(&self.index, &self.reads).map_err(failed)?;
                expected
            }
            Err(_) => self.make_inputs(site, &directory)?,
        };
        Ok(())
    }

    fn stages(&self) -> Vec<Stage> {
        self.stages.borrow().clone()
    }

    fn run(&self, site: &Site<'_>, start: &Start<'_>) -> Result<f64, BenchError> {
        let (seconds, found) = self.align(site, start)?;
        if found != self.expected {
            return Err(BenchError::Wrong {
                command: "snap-aligner".to_owned(),
                reason: format!("it aligned otherwise: {found}, not {}", self.expected),
            });
        }
        Ok(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignments_are_counted_without_the_time() {
        let text = "Aligning.\nTotal Reads    Aligned, MAPQ >= 10   Unaligned\n\
                    50,000         49,990 (99.98%)       10 (0.02%)              35,893    1   \n";
        assert_eq!(alignments(text).as_deref(), Some("50,000 49,990 (99.98%) 10 (0.02%)"));
        assert_eq!(alignments("Aligning.\n"), None);
        let seconds = aligning_seconds(text).unwrap();
        assert!((seconds - 50_000.0 / 35_893.0).abs() < 1e-9, "{seconds}");
        assert_eq!(aligning_seconds("Aligning.\n"), None);
    }

    #[test]
    fn reads_are_of_the_genome_but_for_a_few_bases() {
        let genome = genome(10_000);
        assert!(genome.len() == 10_000 && genome.iter().all(|base| b"ACGT".contains(base)));
        let mut wrong = 0;
        for number in 0..100 {
            let read = read(&genome, number);
            let differing = |place: &[u8]| place.iter().zip(&read).filter(|(a, b)| a != b).count();
            wrong += genome.windows(READ_LENGTH).map(differing).min().unwrap();
        }
        // Three quarters of one in a hundred.
        assert!((20..200).contains(&wrong), "{wrong} bases of 10000");
    }
}
