//! SNAP aligns reads to a genome: it loads an index from a file, page after page, and then looks seeds up all
//! over it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::BenchError;
use crate::access::mix;
use crate::whole::conditions::Start;
use crate::whole::workload::{Measure, Site, Workload, installed};

const REMEDY: &str = "install it: apt-get install snap-aligner";
const READ_LENGTH: usize = 100;
/// One base of so many is read wrong.
const WRONG_EVERY: u64 = 100;

/// SNAP with its inputs.
#[derive(Default)]
pub struct Snap {
    program: PathBuf,
    index: PathBuf,
    reads: PathBuf,
    expected: String,
}

fn bases(site: &Site<'_>) -> usize {
    site.pick(16_000_000, 200_000_000)
}

fn read_count(site: &Site<'_>) -> usize {
    site.pick(20_000, 1_000_000)
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

impl Snap {
    fn aligning(&self, mut command: Command) -> Command {
        command.arg("single").arg(&self.index).arg(&self.reads).args(["-t", "2", "-o", "-sam", "/dev/null"]);
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
             {READ_LENGTH} bases, 2 threads",
            bases(site) / 1_000_000,
            read_count(site)
        )
    }

    fn measure(&self) -> Measure {
        Measure::Seconds
    }

    fn prepare(&mut self, site: &Site<'_>) -> Result<(), BenchError> {
        self.program = installed("snap-aligner", REMEDY)?;
        self.index = site.scratch().join("index");
        self.reads = site.scratch().join("reads.fq");
        let fasta = site.scratch().join("genome.fa");
        write_inputs(site, &fasta, &self.reads)
            .map_err(|error| BenchError::setup("write a genome", error, "make room, or set TMPDIR"))?;
        let mut index = Command::new(&self.program);
        site.output_of(index.arg("index").arg(&fasta).arg(&self.index).arg("-t2"))?;
        // As many as it aligns when nothing disturbs it; also brings the files into the page cache.
        let mut alone = self.aligning(Command::new(&self.program));
        self.expected = alignments(&site.output_of(&mut alone)?).unwrap_or_default();
        Ok(())
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
